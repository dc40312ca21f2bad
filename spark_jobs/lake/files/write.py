"""Write, audit, publish: rows become visible all together or not at all.

    branch audit_<writer>       ->  one snapshot is written to a branch that starts at main, by Spark or by Python
                                    workers (`data_files`); the same pass computes the data version
    audit of what was written   ->  nulls in required columns, row checks, rows out of place, keys that come twice
    publish                     ->  one commit: main moves to the snapshot if it is where the writer found it, the
                                    branch is dropped, the ledger row is put into the table's properties

A failed audit, an exception or a `kill -9` leaves main as it was. A writer that fails removes its branch, the next one
those of processes that are gone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import DecimalType, IcebergType

from spark_jobs.exceptions import AuditError, CheckResult, LeaseError, TableMismatchError
from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.lake.declare.tables import Table, partition_column, spark_schema
from spark_jobs.lake.engine.embedded import is_embedded, spark_alone
from spark_jobs.lake.files.audit import (
    IN_PLACE,
    Evidence,
    check_columns,
    check_result,
    count_bad,
    key_check,
    predicates,
    proof_results,
    with_bad_keys,
)
from spark_jobs.lake.files.data_files import file_rules, write_data_files, write_hashed_files
from spark_jobs.lake.files.file_writer import BAD, HASH
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.data_version import DataVersion, digest, digest_columns, row_hash, version_of
from spark_jobs.lake.ledger.lease import Leases, is_abandoned, writer_branch
from spark_jobs.lake.ledger.ledger import LAST_PROPERTY
from spark_jobs.lake.ledger.materialization import Materialization, Place
from spark_jobs.lake.session.catalogue import commit, remove_ref, spark_identifier
from spark_jobs.spark_sql import Column, DataFrame, F, SparkSession

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)
_BRANCH_SUMMARY = "headrace.branch"
_LONG_DIGITS = 18  # of a decimal that fits 64 bits


@dataclass(frozen=True)
class Target:
    """Where rows go.

    Attributes:
        identifier: the table.
        declared: its declaration.
        place: the part of it that is written.
        laid_out: whether each partition of the frame is one data file already, its rows in order.
    """

    identifier: str
    declared: Table
    place: Place
    laid_out: bool = False


@dataclass(frozen=True)
class Written:
    """One snapshot on a branch, not published yet."""

    identifier: str
    branch: str
    base_snapshot_id: int | None
    snapshot_id: int
    sequence_number: int
    table_uuid: str
    version: DataVersion
    row_count: int
    byte_count: int
    checks: tuple[CheckResult, ...]


def conform(frame: DataFrame, schema: StructType, identifier: str) -> DataFrame:
    """The frame's columns in the table's order.

    Raises:
        TableMismatchError: a column is missing, unknown or of another type; the message names it.
    """
    found = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for field in schema.fields:
        have = found.pop(field.name, None)
        want = field.dataType.simpleString()
        if have is None:
            raise TableMismatchError(
                f"{identifier}: column {field.name} ({want}) is missing from the rows; add it to the step"
            )
        if have != want:
            raise TableMismatchError(
                f"{identifier}: column {field.name} is {have}, the table says {want}; cast it in the step"
            )
    if found:
        raise TableMismatchError(
            f"{identifier}: column {next(iter(found))} is not declared; declare it or drop it in the step"
        )
    return frame.select(*(f"`{field.name}`" for field in schema.fields))


def write_to_branch(
    spark: SparkSession,
    catalogue: Catalog,
    table: IcebergTable,
    target: Target,
    frame: DataFrame,
    summary: Mapping[str, str],
    made: ArrowRows | None = None,
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
        made: the same rows as a Python function makes them, where one does; then its workers write the files if they
            can.
        base: the snapshot that the branch starts at; the head of main by default.

    Raises:
        TableMismatchError: the rows are not of the table's columns.
    """
    identifier = target.identifier
    rows = conform(frame, spark_schema(target.declared), identifier)
    branch = writer_branch()
    base = base or table.current_snapshot()
    with branch_of_a_writer(catalogue, identifier, branch):
        _start_branch(spark, catalogue, table, identifier, branch, base)
        return _fill_branch(spark, catalogue, target, rows, branch, summary, made, base)


@contextlib.contextmanager
def branch_of_a_writer(catalogue: Catalog, identifier: str, branch: str) -> Iterator[None]:
    """Remove a branch where what writes to it fails; only the writer knows that nobody writes there any more."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # should the catalogue be away, the branch goes once the process is gone
            remove_ref(catalogue, identifier, branch)
        raise


def _fill_branch(
    spark: SparkSession,
    catalogue: Catalog,
    target: Target,
    rows: DataFrame,
    branch: str,
    summary: Mapping[str, str],
    made: ArrowRows | None,
    base: Snapshot | None,
) -> Written:
    identifier, declared, place = target.identifier, target.declared, target.place
    properties = {**summary, _BRANCH_SUMMARY: branch}
    tallied = None if made is None else _write_by_workers(catalogue, made, target, branch, properties)
    write_rows = functools.partial(_write_embedded, catalogue) if is_embedded(spark) else _write_by_spark
    version, counts = tallied or write_rows(rows, target, branch, properties)

    table = catalogue.load_table(identifier)
    snapshot = table.snapshot_by_name(branch)
    if snapshot is None or snapshot.summary is None:
        raise LeaseError(f"{identifier}: branch {branch} vanished while it was written; run again")
    facts = snapshot.summary.additional_properties
    if facts.get(_BRANCH_SUMMARY) != branch:  # no rows to replace and none to add: no snapshot was made
        facts = {}
    added = int(facts.get("added-records", 0))

    def landed() -> DataFrame:
        return table_rows(spark, identifier, snapshot.snapshot_id, place.replaced).where(place.predicate)

    if version.count != added:
        version, counts = _read_again(landed(), check_columns(declared, place), added)
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
    )


def _added(spark: SparkSession, identifier: str, branch: str, base: Snapshot | None) -> DataFrame:
    """Rows of a branch that lie in files which the snapshot before it does not have."""
    if is_embedded(spark):  # what lies out of its place is shown by its values alone
        return table_rows(spark, identifier, branch=branch)
    rows = spark.table(spark_identifier(identifier, branch)).select("*", "_file")
    if base is None:
        return rows
    before = spark.read.option("versionAsOf", str(base.snapshot_id)).table(spark_identifier(identifier))
    return rows.join(before.select("_file").distinct(), "_file", "left_anti")


def _write_by_workers(
    catalogue: Catalog, made: ArrowRows, target: Target, branch: str, properties: Mapping[str, str]
) -> tuple[DataVersion, dict[str, int]] | None:
    """Have Python workers write their rows; gives version and bad rows by check, None where Spark must write them."""
    table = catalogue.load_table(target.identifier)
    rules = file_rules(table, target.declared, target.laid_out)
    if rules is None or target.place.replaced is None:
        return None
    version, bad_rows = write_data_files(table, rules, made, branch, target.place.replaced, properties)
    # Every row carries the increment as a constant (`with_constant`), so none can be out of place.
    return version, {name: bad_rows.get(name, 0) for name in check_columns(target.declared, target.place)}


def _write_by_spark(
    rows: DataFrame, target: Target, branch: str, properties: Mapping[str, str]
) -> tuple[DataVersion, dict[str, int]]:
    """Write rows by Spark; gives their data version and bad rows by check, observed in the same pass."""
    from pyspark.sql import Observation

    declared = target.declared
    layout = _layout(declared)
    if layout and not target.laid_out:
        rows = rows.sortWithinPartitions(*layout)
    checks = check_columns(declared, target.place)
    digests = digest_columns(row_hash(spark_schema(declared)))
    observation = Observation()
    aggregates = {**digests, **{f"check_{number}": column for number, column in enumerate(checks.values())}}
    observed = rows.observe(observation, *(column.alias(alias) for alias, column in aggregates.items()))
    writer = observed.writeTo(spark_identifier(target.identifier, branch)).option(
        "use-table-distribution-and-ordering", "false"
    )
    for key, value in properties.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.overwrite(F.expr(target.place.replaces))
    values = observation.get
    counts = {name: int(values.get(f"check_{number}") or 0) for number, name in enumerate(checks)}
    return version_of({key: values.get(key) for key in digests}), counts


def _write_embedded(
    catalogue: Catalog, rows: DataFrame, target: Target, branch: str, properties: Mapping[str, str]
) -> tuple[DataVersion, dict[str, int]]:
    """As `_write_by_spark`, by the embedded engine, which computes hashes and checks as columns."""
    declared, table = target.declared, catalogue.load_table(target.identifier)
    if target.place.replaced is None:
        raise spark_alone(f"{target.identifier}: writing a part that {target.place.replaces} chooses")
    if wide := next((one.name for one in table.schema().fields if _is_wide(one.field_type)), None):
        raise spark_alone(f"{target.identifier}: hashing decimals of more than {_LONG_DIGITS} digits ({wide})")
    checks = predicates(declared, target.place)
    found = write_hashed_files(
        table,
        rows.select(
            "*",
            F.expr(row_hash(spark_schema(declared))).alias(HASH),
            *(F.expr(f"NOT coalesce({check}, false)").alias(f"{BAD}{n}") for n, check in enumerate(checks.values())),
        ),
        () if target.laid_out else _layout(declared),
        len(checks),
        branch,
        target.place.replaced,
        properties,
    )
    return found[0], dict(zip(checks, found[1], strict=True))


def _is_wide(kind: IcebergType) -> bool:
    """Whether values are decimals that need more than 64 bits, whose `xxhash64` the engines compute differently."""
    return isinstance(kind, DecimalType) and kind.precision > _LONG_DIGITS


def _layout(declared: Table) -> tuple[str, ...]:
    """Columns by which the rows of a task are sorted before they are written."""
    return (*(partition_column(part) for part in declared.partition if part != "increment"), *declared.sort)


def prove(spark: SparkSession, written: Written, target: Target, evidence: Evidence) -> Written:
    """Add the results of the table's proofs, over the rows as they are on the branch."""
    if not target.declared.proofs:
        return written
    landed = table_rows(spark, written.identifier, written.snapshot_id, target.place.replaced)
    landed = landed.where(target.place.predicate)
    return replace(written, checks=(*written.checks, *proof_results(target.declared, landed, evidence)))


def branch_at_head(catalogue: Catalog, identifier: str, branch: str) -> tuple[IcebergTable, int]:
    """Make a branch at the head of a table that holds rows; gives the table with it, and the head's snapshot."""
    table = catalogue.load_table(identifier)
    base = table.current_snapshot()
    assert base is not None  # the caller knows of rows in it
    _start_branch(None, catalogue, table, identifier, branch, base)
    return catalogue.load_table(identifier), base.snapshot_id


def _start_branch(
    spark: SparkSession | None,
    catalogue: Catalog,
    table: IcebergTable,
    identifier: str,
    branch: str,
    base: Snapshot | None,
) -> None:
    """Make a branch at a snapshot, and remove the branches of writers that are gone."""
    stale = [name for name in table.refs() if is_abandoned(name)]
    for name in stale:
        _log.info("%s: removing branch %s of a run that did not end", identifier, name)
    if base is None and spark is not None and is_embedded(spark):
        _empty_branch(catalogue, table, branch)
    elif base is None and spark is not None:  # a branch of an empty table needs an empty snapshot
        spark.sql(f"ALTER TABLE {spark_identifier(identifier)} CREATE BRANCH {branch}")
    own = () if base is None else (_ref(branch, base.snapshot_id),)
    if stale or own:
        commit(
            catalogue,
            identifier,
            lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),),
            lambda now: (*(RemoveSnapshotRefUpdate(ref_name=name) for name in stale if name in now.refs()), *own),
        )


def _empty_branch(catalogue: Catalog, table: IcebergTable, branch: str) -> None:
    """A branch with an empty snapshot, of a table that has none; by itself PyIceberg makes `main` alone of nothing."""
    with table.transaction() as transaction:
        updates, _ = transaction.update_snapshot(branch=branch).fast_append()._commit()
        catalogue.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), updates)


def _ref(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def _read_again(landed: DataFrame, checks: Mapping[str, Column], added: int) -> tuple[DataVersion, dict[str, int]]:
    """Data version and bad rows of the rows on the branch, by Spark jobs of their own.

    Needed when what was observed does not add up to the rows written: Spark counts a partition twice in `observe` when
    its shuffle files were lost and made again.
    """
    version = digest(landed)
    counts = count_bad(landed, checks)
    if IN_PLACE in counts:
        counts[IN_PLACE] = added - version.count
    return version, counts


def publish(
    catalogue: Catalog,
    written: Written,
    stored: Materialization,
    properties: Mapping[str, str],
    leases: Leases | None,
) -> None:
    """Make a written snapshot the head of main and store its ledger row in the table's properties, in one commit.

    Raises:
        LeaseError: the lease was taken over, or main is no longer where the writer found it.
    """
    values = {LAST_PROPERTY: stored.to_json(), **properties}

    def requirements(table: IcebergTable) -> tuple[AssertTableUUID | AssertRefSnapshotId, ...]:
        if leases is not None:
            leases.require(written.identifier)
        return (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId(ref="main", snapshot_id=written.base_snapshot_id),
            AssertRefSnapshotId(ref=written.branch, snapshot_id=written.snapshot_id),
        )

    def updates(_: IcebergTable) -> tuple[SetSnapshotRefUpdate | RemoveSnapshotRefUpdate | SetPropertiesUpdate, ...]:
        return (
            _ref("main", written.snapshot_id),
            RemoveSnapshotRefUpdate(ref_name=written.branch),
            SetPropertiesUpdate(updates=values),
        )

    try:
        commit(catalogue, written.identifier, requirements, updates)
    except CommitFailedException as error:
        raise LeaseError(
            f"{written.identifier}: somebody else wrote it meanwhile, nothing was published ({error}); run again"
        ) from error


def discard(catalogue: Catalog, written: Written) -> None:
    """Drop the branch of rows that are not published; their files are deleted by the next expiry of snapshots."""
    remove_ref(catalogue, written.identifier, written.branch)


def require_passed(written: Written) -> None:
    """Refuse to publish rows that failed a check.

    Raises:
        AuditError: names the checks that failed, with the number of bad rows and the keys of some.
    """
    failed = [check for check in written.checks if not check.passed]
    if failed:
        reasons = "; ".join(map(str, failed))
        raise AuditError(
            f"{written.identifier}: audit failed, the table is as it was: {reasons}", written.identifier, written.checks
        )
