"""The checks of an asset: those of the audit (blocking), and the notice of its table (a warning)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from pyiceberg.catalog import Catalog

from dagster_project.metadata import Samples, notice_counts, notice_metadata, previous_counts, refused_rows
from headrace.tables.catalogue import load_table
from spark_jobs.exceptions import AuditError
from spark_jobs.lake.declare.tables import Notice, Table
from spark_jobs.lake.files.audit import check_names
from spark_jobs.lake.run.outcomes import TableOutcome


def check_specs(table: Table, identifier: str, is_placed: bool) -> Iterator[dg.AssetCheckSpec]:
    """The checks of a table, as declared.

    Args:
        table: its declaration.
        identifier: the table.
        is_placed: whether its rows have an increment or a partition.
    """
    key = identifier.split(".")
    for name, text in check_names(table, is_placed).items():
        yield dg.AssetCheckSpec(name, asset=key, description=text, blocking=True)
    if table.notice is not None:
        yield dg.AssetCheckSpec(table.notice.name, asset=key, description=table.notice.description)


def failed_audit(error: AuditError, samples: Samples) -> Iterator[dg.AssetCheckResult]:
    """The results of a failed audit, with the keys of some bad rows as far as samples may be shown."""
    for check in error.checks:
        yield dg.AssetCheckResult(
            passed=check.passed,
            asset_key=dg.AssetKey(error.table.split(".")),
            check_name=check.name,
            metadata={"bad_rows": check.bad_row_count, **refused_rows(check, samples)},
        )


def check_results(table: Table, outcome: TableOutcome, is_placed: bool) -> list[dg.AssetCheckResult]:
    """The results of a passed audit; where nothing was computed every check passes, without a count."""
    audited = {check.name: check for check in outcome.checks}
    return [
        dg.AssetCheckResult(
            passed=audited[name].passed if name in audited else True,
            asset_key=dg.AssetKey(outcome.identifier.split(".")),
            check_name=name,
            metadata={"bad_rows": audited[name].bad_row_count} if name in audited else {},
        )
        for name in check_names(table, is_placed)
    ]


def notice_result(
    table: Table,
    notice: Notice,
    outcome: TableOutcome,
    main_row_count: int,
    previous: Mapping[str, Any],
    catalogue: Catalog,
) -> tuple[dict[str, Any], dg.AssetCheckResult]:
    """The metadata of a table's notice, and its check, a warning if a count has grown since the last run.

    Args:
        table: its declaration.
        notice: of the table.
        outcome: what the run did to it.
        main_row_count: rows of the main table of the step.
        previous: metadata of the last materialization.
        catalogue: the lake's.
    """
    counts = previous_counts(notice, previous, outcome.latest)
    if counts is None:
        counts = notice_counts(table, load_table(catalogue, outcome.identifier), outcome.latest)
    before = dict(previous[notice.called].value) if notice.called in previous else {}
    warning = dg.AssetCheckResult(
        passed=all(count <= before.get(reason, 0) for reason, count in counts.items() if reason not in notice.expected),
        asset_key=dg.AssetKey(outcome.identifier.split(".")),
        check_name=notice.name,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=dict(counts),
    )
    return notice_metadata(notice, outcome.identifier, counts, main_row_count), warning
