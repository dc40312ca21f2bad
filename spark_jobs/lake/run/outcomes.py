"""What a materialization did to the tables of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.exceptions import CheckResult
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.reasons import other_settings


@dataclass(frozen=True)
class TableOutcome:
    """What a materialization did to one table.

    Attributes:
        identifier: the table.
        computed: places (increments or partitions) that were computed, in order.
        unchanged: places that were not.
        version: data version of the whole table, or of the one partition that was asked for.
        latest: newest valid ledger row of the table; None if it holds nothing.
        checks: results of the audit, the worst over all places computed; empty if nothing was computed.
        seconds: wall-clock time of the computation.
        note: how a frozen table differs from its declaration; empty if it does not.
    """

    identifier: str
    computed: tuple[str, ...]
    unchanged: tuple[str, ...]
    version: DataVersion
    latest: Materialization | None
    checks: tuple[CheckResult, ...]
    seconds: float
    note: str = ""


def worst(before: tuple[CheckResult, ...], now: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """The results of several places of one table: of each check one that failed, if any did."""
    failed = {check.name for check in before if not check.passed}
    return tuple(check for check in before if check.name in failed) + tuple(c for c in now if c.name not in failed)


def outcomes(
    ledger: Ledger, binding: Binding, computed: list[str], checks: Mapping[str, tuple[CheckResult, ...]], seconds: float
) -> tuple[TableOutcome, ...]:
    """The outcome of each table, with what it holds now."""
    listed = []
    note = other_settings(ledger, binding)
    for identifier in binding.tables:
        places = ledger.places(identifier)
        if binding.partition is not None:
            places = {key: row for key, row in places.items() if key == binding.partition.key}
        version = sum((row.data_version for row in places.values()), DataVersion())
        latest = max(places.values(), key=lambda row: row.sequence_number, default=None)
        unchanged = tuple(place for place in places if place not in computed)
        listed.append(
            TableOutcome(
                identifier,
                tuple(computed),
                unchanged,
                version,
                latest,
                checks.get(identifier, ()),
                round(seconds, 3),
                note,
            )
        )
    return tuple(listed)
