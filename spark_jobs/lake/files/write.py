"""Write, audit, publish: rows become visible all together or not at all.

    branch audit_<writer>       ->  one snapshot is written to a branch that starts at main, by Python workers
                                    (`data_files`); the same pass computes the data version
    audit of what was written   ->  nulls in required columns, row checks, rows out of place, keys that come twice
    publish                     ->  one commit: main moves to the snapshot if it is where the writer found it, the
                                    branch is dropped, the ledger row is put into the table's properties

A failed audit, an exception or a `kill -9` leaves main as it was. A failing writer removes its branch, the next one
those of ended processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from spark_jobs.exceptions import LeaseError, TableMismatchError
from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.lake.declare.tables import Table, partition_column, spark_schema
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.files.audit import (
    Evidence,
    check_result,
    key_check,
    predicates,
    proof_results,
    with_bad_keys,
)
from spark_jobs.lake.files.branches import Written, branch_of_a_writer, start_branch
from spark_jobs.lake.files.data_files import file_rules, write_data_files, write_frame
from spark_jobs.lake.files.file_writer import BAD
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.lease import writer_branch
from spark_jobs.lake.ledger.materialization import TableSlice
from spark_jobs.lake.session.catalogue import spark_identifier
from spark_jobs.spark_sql import DataFrame, F, SparkSession

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BRANCH_SUMMARY = "headrace.branch"


@dataclass(frozen=True)
class WriteTarget:
    """Where rows go.

    Attributes:
        identifier: the table.
        declared: its declaration.
        place: the part of it that is written.
        laid_out: whether each partition of the frame becomes one data file as it is, with its rows in order.
    """

    identifier: str
    declared: Table
    place: TableSlice
    laid_out: bool = False


def conform(frame: DataFrame, schema: StructType, identifier: str) -> DataFrame:
    """Select the columns of a frame in the table's order.

    Raises:
        TableMismatchError: a column is missing, unknown or of another type; the message names it.
    """
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for field in schema.fields:
        have = kinds.pop(field.name, None)
        want = field.dataType.simpleString()
        if have is None:
            raise TableMismatchError(
                f"{identifier}: column {field.name} ({want}) is missing from the rows; add it to the step"
            )
        if have != want:
            raise TableMismatchError(
                f"{identifier}: column {field.name} is {have}, the table says {want}; cast it in the step"
            )
    if kinds:
        raise TableMismatchError(
            f"{identifier}: column {next(iter(kinds))} is not declared; declare it or drop it in the step"
        )
    return frame.select(*(f"`{field.name}`" for field in schema.fields))


def write_to_branch(
    spark: SparkSession,
    catalogue: Catalog,
    table: IcebergTable,
    target: WriteTarget,
    frame: DataFrame,
    summary: Mapping[str, str],
    source: ArrowRows | None = None,
    base: Snapshot | None = None,
) -> Written:
    """Write rows as one snapshot on a branch of their own and audit them there.

    Args:
        spark: session of the lake.
        catalogue: of the same lake.
        table: the table as it is now; if its main moves before `publish`, that fails.
        target: the part of it that is replaced.
        frame: the rows.
        summary: properties of the snapshot.
        source: the Python function of the rows, if there is one; its workers then write the files if they can.
        base: the branch's start; the head of main by default.

    Raises:
        TableMismatchError: the rows are not of the table's columns.
    """
    identifier = target.identifier
    rows = conform(frame, spark_schema(target.declared), identifier)
    branch = writer_branch()
    base = base or table.current_snapshot()
    with branch_of_a_writer(catalogue, identifier, branch):
        start_branch(spark, catalogue, table, identifier, branch, base)
        return _fill_branch(spark, catalogue, target, rows, branch, summary, source, base)


def _fill_branch(
    spark: SparkSession,
    catalogue: Catalog,
    target: WriteTarget,
    rows: DataFrame,
    branch: str,
    summary: Mapping[str, str],
    source: ArrowRows | None,
    base: Snapshot | None,
) -> Written:
    identifier, declared, place = target.identifier, target.declared, target.place
    properties = {**summary, _BRANCH_SUMMARY: branch}
    table = catalogue.load_table(identifier)
    tallied = None if source is None else _write_made(table, source, target, branch, properties)
    version, counts, balance = tallied or (*_write_frame(table, rows, target, branch, properties), None)

    table = catalogue.load_table(identifier)
    snapshot = table.snapshot_by_name(branch)
    if snapshot is None or snapshot.summary is None:
        raise LeaseError(f"{identifier}: branch {branch} vanished while it was written; run again")
    facts = snapshot.summary.additional_properties
    if facts.get(_BRANCH_SUMMARY) != branch:  # no rows to replace and none to add: no snapshot was made
        facts = {}

    def landed() -> DataFrame:
        return table_rows(spark, identifier, snapshot.snapshot_id, place.replaced).where(place.predicate)

    outcome = [check_result(name, bad, declared) for name, bad in counts.items()]
    outcome += key_check(table, snapshot.snapshot_id, declared, place, version.count, landed)
    checks = tuple(outcome)
    if not all(check.passed for check in outcome):
        checks = with_bad_keys(outcome, declared, place, landed(), _added(spark, identifier, branch, base))
    return Written(
        identifier=identifier,
        branch=branch,
        base_snapshot_id=base.snapshot_id if base else None,
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        table_uuid=str(table.metadata.table_uuid),
        version=version,
        row_count=version.count,
        byte_count=int(facts.get("added-files-size", 0)),
        checks=checks,
        balance=balance,
    )


def _added(spark: SparkSession, identifier: str, branch: str, base: Snapshot | None) -> DataFrame:
    """The rows added by a branch: those in files outside of the snapshot before it."""
    if is_embedded(spark):  # it has no column `_file`; keys of misplaced rows are found by their values alone
        return table_rows(spark, identifier, branch=branch)
    rows = spark.table(spark_identifier(identifier, branch)).select("*", "_file")
    if base is None:
        return rows
    before = spark.read.option("versionAsOf", str(base.snapshot_id)).table(spark_identifier(identifier))
    return rows.join(before.select("_file").distinct(), "_file", "left_anti")


def _write_made(
    table: IcebergTable, source: ArrowRows, target: WriteTarget, branch: str, properties: Mapping[str, str]
) -> tuple[DataVersion, dict[str, int], int] | None:
    """Let workers write the rows of their function; gives what `write_data_files` does, None if they cannot."""
    rules = file_rules(table, target.declared, target.laid_out)
    if rules is None:
        return None
    version, bad_rows, balance = write_data_files(table, rules, source, branch, target.place.replaced, properties)
    # Every row carries the increment as a constant (`with_constant`), so none can be out of place.
    return version, {name: bad_rows.get(name, 0) for name in predicates(target.declared, target.place)}, balance


def _write_frame(
    table: IcebergTable, rows: DataFrame, target: WriteTarget, branch: str, properties: Mapping[str, str]
) -> tuple[DataVersion, dict[str, int]]:
    """Write the rows of a frame; gives their data version and bad rows by check."""
    order = () if target.laid_out else _layout(target.declared)
    if order and not is_embedded(rows):  # Sail may drop the sort in front of a Python function, Spark does it on disk
        rows, order = rows.sortWithinPartitions(*order), ()
    checks = predicates(target.declared, target.place)
    bad = (F.expr(f"NOT coalesce({check}, false)").alias(f"{BAD}{n}") for n, check in enumerate(checks.values()))
    version, counts = write_frame(
        table, rows.select("*", *bad), order, len(checks), branch, target.place.replaced, properties
    )
    return version, dict(zip(checks, counts, strict=True))


def _layout(declared: Table) -> tuple[str, ...]:
    """Sort columns of a task's rows before they are written."""
    return (*(partition_column(part) for part in declared.partition if part != "increment"), *declared.sort)


def prove(spark: SparkSession, written: Written, target: WriteTarget, evidence: Evidence) -> Written:
    """Add the results of the table's proofs, over the rows as they are on the branch."""
    if not target.declared.proofs:
        return written
    landed = table_rows(spark, written.identifier, written.snapshot_id, target.place.replaced)
    landed = landed.where(target.place.predicate)
    results = proof_results(target.declared, landed, replace(evidence, balance=written.balance))
    return replace(written, checks=(*written.checks, *results))
