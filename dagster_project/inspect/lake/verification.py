"""Read the rows of a table once more, and say how their data versions compare with the ledger's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from spark_jobs.exceptions import LeaseError, StepRunError, TableMismatchError
from spark_jobs.lake.files.verification import recount, restate
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.validity import is_of_a_step
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AS_RECORDED = "as recorded"
_BY_COMMANDS = "as it can be read; people or other programs add to it, so nothing is recorded"


class TableVerdict(NamedTuple):
    """What reading gave of a table: its rows on record, a line for people, and whether nothing is wrong."""

    rows: int
    text: str
    is_sound: bool


def verified(spark: SparkSession, ledger: Ledger, identifier: str) -> TableVerdict:
    """Read every file of a table. Only tables of steps can have other rows than were recorded."""
    table = ledger.table(identifier)
    snapshot = table.current_snapshot() if table is not None else None
    if table is None or snapshot is None:
        return TableVerdict(0, _AS_RECORDED, True)
    is_recorded = identifier in ledger.recorded_tables()
    by_commands = not is_of_a_step(table) or not (is_recorded or SCOPE_PROPERTY in table.properties)
    try:
        places = {} if by_commands else ledger.places(identifier)
        counts = recount(spark, identifier, table, places)
    except (StepRunError, TableMismatchError) as error:
        return TableVerdict(0, " ".join(str(error).split()), False)
    if by_commands:
        return TableVerdict(sum(version.count for version in counts.changed.values()), _BY_COMMANDS, True)
    if counts.restated:
        with contextlib.suppress(LeaseError):  # somebody writes the table: the next time, then
            restate(ledger, identifier, counts.restated)
    wrong = [
        f"increment {place or 'all'}: {version.count:,} rows of another version"
        for place, version in counts.changed.items()
    ]
    unjudged = [
        f"increment {place or 'all'}: not judged, written by {engines.capitalize()} before v2; its v2 is on record now"
        for place, engines in counts.unjudged.items()
    ]
    rows = sum(row.row_count for row in places.values())
    return TableVerdict(rows, "; ".join([*wrong, *unjudged]) or _AS_RECORDED, not wrong)
