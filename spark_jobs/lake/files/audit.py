"""The audit: counts of rows against each blocking check of a table, before they are published.

    row checks, required columns   columns of the rows, counted while they are written, at no extra pass
    keys that come twice           by Arrow over the key columns, above a million rows by a Spark job
    proofs                         a Spark job each, over the rows written and the step's inputs

A check that fails names the keys of up to ten bad rows, and holds their simple columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo
from pyiceberg.table import Table as IcebergTable

from spark_jobs.exceptions import CheckResult
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.ledger.materialization import TableSlice
from spark_jobs.spark_sql import Column, DataFrame, F

IN_PLACE = "rows_in_place"
REQUIRED = "required_columns"
UNIQUE = "unique_key"
_ARROW_AUDIT_ROWS = 200_000  # up to here a group-by in memory is faster than a Spark job; the driver holds their keys
_ARROW_AUDIT_LONGS = 4_000_000  # the same where a key is one long, such as an ordinal
_SHOWN_ROWS = 10  # bad rows whose keys are put into a message
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class Evidence:
    """What a proof sees besides the written rows: the step's inputs, increment, config and balance."""

    frames: Mapping[str, DataFrame]
    increment: int | None
    config: BaseModel
    balance: int | None = None


def check_columns(declared: Table, place: TableSlice) -> dict[str, Column]:
    """By check, the aggregate for the count of written rows against it."""
    return {
        name: F.expr(f"count_if(NOT coalesce({predicate}, false))")
        for name, predicate in predicates(declared, place).items()
    }


def predicates(declared: Table, place: TableSlice) -> dict[str, str]:
    """By check, the SQL predicate to be true of every row."""
    required = [f"`{column.name}` IS NOT NULL" for column in declared.all_columns if column.required]
    first = {REQUIRED: " AND ".join(required), IN_PLACE: place.predicate}
    wanted = {name: predicate for name, predicate in first.items() if predicate not in ("", "true")}
    return wanted | {check.name: check.predicate for check in declared.checks}


def check_names(declared: Table, placed: bool) -> dict[str, str]:
    """Name and description of every blocking check of a table, in the order audited.

    Args:
        declared: the table.
        placed: whether a materialization writes an increment or a partition, not the whole table.
    """
    required = [column.name for column in declared.all_columns if column.required]
    names = {}
    if required:
        names[REQUIRED] = f"no null in {', '.join(required)}"
    if placed:
        names[IN_PLACE] = "every row belongs to the increment or partition that was computed"
    names |= {check.name: f"{check.description}: {check.predicate}" for check in declared.checks}
    if declared.key:
        names[UNIQUE] = f"no two rows of an increment or partition share {', '.join(declared.key)}"
    names |= {proof.name: proof.description for proof in declared.proofs}
    return names


def check_result(name: str, bad_rows: int, declared: Table) -> CheckResult:
    """The outcome of one check."""
    return CheckResult(name, bad_rows == 0, bad_rows, check_names(declared, placed=True)[name])


def audit_frame(rows: DataFrame, declared: Table, place: TableSlice) -> tuple[CheckResult, ...]:
    """All blocking checks over rows in Parquet files outside the lake, in Spark jobs of their own."""
    counts = count_bad(rows, check_columns(declared, place))
    outcome = [check_result(name, count, declared) for name, count in counts.items()]
    outcome += [_repeated_keys(rows, declared)] if declared.key else []
    return with_bad_keys(outcome, declared, place, rows, rows)


def with_bad_keys(
    checks: Iterable[CheckResult], declared: Table, place: TableSlice, landed: DataFrame, written: DataFrame
) -> tuple[CheckResult, ...]:
    """Add the keys of some bad rows to the failed results, by a Spark job for each."""
    conditions = predicates(declared, place)

    def bad(name: str) -> DataFrame:
        if name == UNIQUE:
            return landed.groupBy(*declared.key).count().where("count > 1")
        return (written if name == IN_PLACE else landed).where(f"NOT coalesce({conditions[name]}, false)")

    return tuple(check if check.passed else _with_rows(check, bad(check.name), declared) for check in checks)


def _with_rows(check: CheckResult, rows: DataFrame, declared: Table) -> CheckResult:
    """A failed check with some of its rows; their key is key, else sort columns, else first columns."""
    simple = [column.name for column in declared.all_columns if "<" not in column.type]
    shown = [name for name in dict.fromkeys([*declared.key, *declared.sort, *simple]) if name in rows.columns]
    shown = [name for name in shown if name not in declared.sampled]
    named = [name for name in declared.key or declared.sort or simple[:3] if name in shown]
    if not named:
        return check
    bad = rows.select(*shown).orderBy(*named).limit(_SHOWN_ROWS).collect()
    texts = tuple({name: str(row[name])[:_SHOWN_CHARACTERS] for name in shown} for row in bad)
    keys = tuple(", ".join(f"{name} {row[name]}" for name in named) for row in texts)
    return replace(check, bad_keys=keys, bad_rows=texts)


def count_bad(rows: DataFrame, checks: Mapping[str, Column]) -> dict[str, int]:
    """Bad rows by check, in a Spark job of its own."""
    if not checks:
        return {}
    counted = rows.agg(*(column.alias(f"c{number}") for number, column in enumerate(checks.values()))).first()
    values = counted.asDict() if counted is not None else {}
    return {name: int(values.get(f"c{number}") or 0) for number, name in enumerate(checks)}


def _repeated_keys(rows: DataFrame, declared: Table) -> CheckResult:
    """Rows with a repeated key, by Spark."""
    repeated = rows.groupBy(*declared.key).count().where("count > 1").selectExpr("sum(count - 1) AS n").first()
    return check_result(UNIQUE, int((repeated["n"] if repeated else 0) or 0), declared)


def _whole_files(
    table: IcebergTable, chosen: BooleanExpression, columns: list[str], snapshot_id: int
) -> Iterator[pa.Table]:
    """Columns of the files of some partitions, of whole files: a scan tries each of many small row groups."""
    for task in table.scan(chosen, snapshot_id=snapshot_id).plan_files():
        with table.io.new_input(task.file.file_path).open() as stream:
            yield pq.ParquetFile(stream, page_checksum_verification=True).read(columns)


def key_check(
    table: IcebergTable,
    snapshot_id: int,
    declared: Table,
    place: TableSlice,
    row_count: int,
    landed: Callable[[], DataFrame],
) -> list[CheckResult]:
    """Count rows with a repeated key.

    Args:
        table: the table of the snapshot.
        snapshot_id: what was written.
        declared: names the key.
        place: the written part of the table.
        row_count: its rows.
        landed: makes the DataFrame of those rows.
    """
    if not declared.key:
        return []
    if not row_count:
        return [check_result(UNIQUE, 0, declared)]
    keys = list(declared.key)
    is_narrow = [column.type for column in declared.all_columns if column.name in keys] == ["long"]
    most = _ARROW_AUDIT_LONGS if is_narrow else _ARROW_AUDIT_ROWS
    if row_count <= most and (declared.has_increments or place.predicate == "true"):
        chosen: BooleanExpression = EqualTo("increment", int(place.key)) if declared.has_increments else AlwaysTrue()
        rows = pa.concat_tables(_whole_files(table, chosen, keys, snapshot_id), promote_options="permissive")
        distinct = rows.group_by(keys).aggregate([]).num_rows
        return [check_result(UNIQUE, rows.num_rows - distinct, declared)]
    return [_repeated_keys(landed(), declared)]


def proof_results(declared: Table, landed: DataFrame, evidence: Evidence) -> tuple[CheckResult, ...]:
    """Count the rows against each proof of a table."""
    results = []
    for proof in declared.proofs:
        if proof.balance is not None and proof.balance(evidence.frames, evidence.config) == evidence.balance:
            results.append(check_result(proof.name, 0, declared))
            continue
        bad = proof.violations(landed, evidence.frames, evidence.increment, evidence.config)
        result = check_result(proof.name, bad.count(), declared)
        results.append(result if result.passed else _with_rows(result, bad, declared))
    return tuple(results)
