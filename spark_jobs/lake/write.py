"""Write, audit, publish: how rows become visible, whole or not at all.

    branch audit_<run> at main  ->  Spark writes one snapshot to it, the digest observed in the same pass
    audit of what was written   ->  nulls in required columns, row checks, rows out of place, keys that come twice
    publish                     ->  one commit: main moves to the snapshot if it is where the writer found it, the
                                    branch goes, the facts of the materialization come into the table's properties

A failed audit, an exception or a `kill -9` leaves main as it was. Branches of dead writers are removed by the next one.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import BaseModel
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from spark_jobs.exceptions import AuditError, LeaseError, TableMismatchError
from spark_jobs.lake.catalogue import commit, spark_identifier
from spark_jobs.lake.digest import DataVersion, digest, digest_columns, row_hash, version_of
from spark_jobs.lake.ledger import LAST_PROPERTY
from spark_jobs.lake.materialization import Materialization
from spark_jobs.lake.spark_types import spark_schema
from spark_jobs.lake.tables import Table, partition_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)
_BRANCH_PREFIX = "audit_"
_BRANCH_SUMMARY = "headrace.branch"
_IN_PLACE = "rows_in_place"
_ARROW_AUDIT_ROWS = 1_000_000


@dataclass(frozen=True)
class Place:
    """What part of a table is replaced.

    Attributes:
        key: name in the ledger: an increment, a partition, or empty for the whole table.
        predicate: SQL condition that every written row meets and that selects the rows replaced.
        replaces: SQL condition for the rows replaced, where they are more than those written.
    """

    key: str
    predicate: str
    replaces: str

    @classmethod
    def increment(cls, number: int, and_later: bool = False) -> Place:
        """Increment `number`; with `and_later` all later ones go away with it."""
        comparison = ">=" if and_later else "="
        return cls(str(number), f"increment = {number}", f"increment {comparison} {number}")

    @classmethod
    def whole(cls) -> Place:
        """The table."""
        return cls("", "true", "true")


@dataclass(frozen=True)
class Target:
    """Where rows go: what part of which table, and whether the frame's partitions are its data files already."""

    identifier: str
    declared: Table
    place: Place
    laid_out: bool = False


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one blocking check."""

    name: str
    passed: bool
    bad_row_count: int
    description: str


@dataclass(frozen=True)
class Written:
    """One snapshot on its branch, not published yet."""

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
) -> Written:
    """Write rows as one snapshot on a branch of their own and audit them there.

    Args:
        spark: session of the lake.
        catalogue: of the same lake.
        table: the table as it is now; whoever moves its main meanwhile makes the later `publish` fail.
        target: what of it is replaced.
        frame: the rows.
        summary: properties of the snapshot.

    Raises:
        TableMismatchError: the rows are not of the table's columns.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    identifier, declared, place = target.identifier, target.declared, target.place
    schema = spark_schema(declared)
    rows = conform(frame, schema, identifier)
    branch = f"{_BRANCH_PREFIX}{uuid.uuid4().hex[:12]}"
    base = table.current_snapshot()
    _start_branch(spark, catalogue, table, identifier, branch)

    layout = [*(partition_column(p) for p in declared.partition if p != "increment"), *declared.sort]
    if layout and not target.laid_out:
        rows = rows.sortWithinPartitions(*layout)
    checks = _check_columns(declared, place)
    digests = digest_columns(row_hash(schema))
    observation = Observation()
    aggregates = {**digests, **{f"check_{number}": column for number, column in enumerate(checks.values())}}
    observed = rows.observe(observation, *(column.alias(alias) for alias, column in aggregates.items()))
    writer = observed.writeTo(spark_identifier(identifier, branch)).option(
        "use-table-distribution-and-ordering", "false"
    )
    for key, value in {**summary, _BRANCH_SUMMARY: branch}.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.overwrite(F.expr(place.replaces))

    table = catalogue.load_table(identifier)
    snapshot = table.snapshot_by_name(branch)
    if snapshot is None or snapshot.summary is None:
        raise LeaseError(f"{identifier}: branch {branch} vanished while it was written; run again")
    facts = snapshot.summary.additional_properties
    if facts.get(_BRANCH_SUMMARY) != branch:  # nothing to replace and nothing to add makes no snapshot
        facts = {}
    added = int(facts.get("added-records", 0))
    values = observation.get
    version = version_of({key: values.get(key) for key in digests})
    counts = {name: int(values.get(f"check_{number}") or 0) for number, name in enumerate(checks)}
    if version.count != added:
        landed = spark.table(spark_identifier(identifier, branch)).where(place.predicate)
        version, counts = _read_again(landed, checks, added)
    outcome = [_result(name, counts[name], declared) for name in checks]
    outcome += _key_check(spark, table, snapshot.snapshot_id, branch, target, version.count)
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
        checks=tuple(outcome),
    )


@dataclass(frozen=True)
class Evidence:
    """What a proof sees besides the rows that were written: the step's inputs, the increment, the config."""

    frames: Mapping[str, DataFrame]
    increment: int | None
    config: BaseModel


def prove(spark: SparkSession, written: Written, target: Target, evidence: Evidence) -> Written:
    """Add to what was written the results of its table's proofs, over the rows as they lie on the branch."""
    if not target.declared.proofs:
        return written
    landed = spark.table(spark_identifier(written.identifier, written.branch)).where(target.place.predicate)
    return replace(written, checks=(*written.checks, *proof_results(target.declared, landed, evidence)))


def proof_results(declared: Table, landed: DataFrame, evidence: Evidence) -> tuple[CheckResult, ...]:
    """Count what breaks each proof of a table."""
    given = (evidence.frames, evidence.increment, evidence.config)
    return tuple(_result(proof.name, proof.violations(landed, *given).count(), declared) for proof in declared.proofs)


def _start_branch(spark: SparkSession, catalogue: Catalog, table: IcebergTable, identifier: str, branch: str) -> None:
    """Make a branch at main, and remove those of dead writers: under the lease nobody else's can be alive."""
    stale = [name for name in table.refs() if name.startswith(_BRANCH_PREFIX)]
    for name in stale:
        _log.info("%s: removing branch %s of a run that did not end", identifier, name)
    head = table.current_snapshot()
    if head is None:  # a branch of an empty table needs an empty snapshot, which only Spark can make
        spark.sql(f"ALTER TABLE {spark_identifier(identifier)} CREATE BRANCH {branch}")
    own = () if head is None else (_ref(branch, head.snapshot_id),)
    if stale or own:
        commit(
            catalogue,
            identifier,
            lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),),
            lambda now: (*(RemoveSnapshotRefUpdate(ref_name=name) for name in stale if name in now.refs()), *own),
        )


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
    """Version and bad rows of what landed in its place, by Spark jobs of their own.

    Spark may count a partition twice when its shuffle files were lost and made again: then what landed decides.
    """
    version = digest(landed)
    counts = _count_bad(landed, checks)
    if _IN_PLACE in counts:
        counts[_IN_PLACE] = added - version.count
    return version, counts


def publish(catalogue: Catalog, written: Written, stored: Materialization, properties: Mapping[str, str]) -> None:
    """Make a written snapshot the head of main, with its facts, in one commit.

    Raises:
        LeaseError: main is no longer where the writer found it.
    """
    values = {LAST_PROPERTY: stored.to_json(), **properties}

    def requirements(table: IcebergTable) -> tuple[AssertTableUUID | AssertRefSnapshotId, ...]:
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
    """Drop the branch of rows that are not to be published; their files go with the next expiry of snapshots."""
    _remove_branch(catalogue, written.identifier, written.branch)


def require_passed(written: Written) -> None:
    """Refuse to publish rows that failed a check.

    Raises:
        AuditError: names the checks that failed, with how many rows.
    """
    failed = [check for check in written.checks if not check.passed]
    if failed:
        reasons = "; ".join(f"{check.name}: {check.bad_row_count} rows ({check.description})" for check in failed)
        raise AuditError(
            f"{written.identifier}: audit failed, the table is as it was: {reasons}", written.identifier, written.checks
        )


def _check_columns(declared: Table, place: Place) -> dict[str, Column]:
    """Count of bad rows by check, as aggregates over the rows written."""
    from pyspark.sql import functions as F

    def bad(predicate: str) -> Column:
        return F.count_if(~F.coalesce(F.expr(predicate), F.lit(False)))

    checks: dict[str, Column] = {}
    required = [column.name for column in declared.all_columns if column.required]
    if required:
        checks["required_columns"] = bad(" AND ".join(f"`{name}` IS NOT NULL" for name in required))
    if place.predicate != "true":
        checks[_IN_PLACE] = bad(place.predicate)
    checks |= {check.name: bad(check.predicate) for check in declared.checks}
    return checks


def check_names(declared: Table, placed: bool) -> dict[str, str]:
    """Name and description of every blocking check of a table, in the order audited.

    Args:
        declared: the table.
        placed: whether rows belong to an increment or a partition.
    """
    required = [column.name for column in declared.all_columns if column.required]
    names = {}
    if required:
        names["required_columns"] = f"no null in {', '.join(required)}"
    if placed:
        names[_IN_PLACE] = "every row belongs to the increment or partition that was computed"
    names |= {check.name: f"{check.description}: {check.predicate}" for check in declared.checks}
    if declared.key:
        names["unique_key"] = f"no two rows of an increment or partition share {', '.join(declared.key)}"
    names |= {proof.name: proof.description for proof in declared.proofs}
    return names


def _result(name: str, bad_rows: int, declared: Table) -> CheckResult:
    return CheckResult(name, bad_rows == 0, bad_rows, check_names(declared, placed=True)[name])


def audit_frame(rows: DataFrame, declared: Table, place: Place) -> tuple[CheckResult, ...]:
    """All blocking checks over rows that were written outside of the lake, in Spark jobs of their own."""
    counts = _count_bad(rows, _check_columns(declared, place))
    outcome = [_result(name, count, declared) for name, count in counts.items()]
    return (*outcome, *([_repeated_keys(rows, declared)] if declared.key else []))


def _count_bad(rows: DataFrame, checks: Mapping[str, Column]) -> dict[str, int]:
    """Bad rows by check, in a Spark job of its own."""
    if not checks:
        return {}
    found = rows.agg(*(column.alias(f"c{number}") for number, column in enumerate(checks.values()))).first()
    values = found.asDict() if found is not None else {}
    return {name: int(values.get(f"c{number}") or 0) for number, name in enumerate(checks)}


def _repeated_keys(rows: DataFrame, declared: Table) -> CheckResult:
    """Rows that share their key with another, by Spark."""
    repeated = rows.groupBy(*declared.key).count().where("count > 1").selectExpr("sum(count - 1) AS n").first()
    return _result("unique_key", int((repeated["n"] if repeated else 0) or 0), declared)


def _key_check(
    spark: SparkSession, table: IcebergTable, snapshot_id: int, branch: str, target: Target, row_count: int
) -> list[CheckResult]:
    """Rows that share their key with another: small tables by Arrow (a Spark job costs more than the rows)."""
    declared, place = target.declared, target.place
    if not declared.key:
        return []
    keys = list(declared.key)
    if row_count <= _ARROW_AUDIT_ROWS and (declared.has_increments or place.predicate == "true"):
        chosen: BooleanExpression = EqualTo("increment", int(place.key)) if declared.has_increments else AlwaysTrue()
        rows: pa.Table = table.scan(chosen, tuple(keys), snapshot_id=snapshot_id).to_arrow()
        distinct = rows.group_by(keys).aggregate([]).num_rows
        return [_result("unique_key", rows.num_rows - distinct, declared)]
    landed = spark.table(spark_identifier(target.identifier, branch)).where(place.predicate)
    return [_repeated_keys(landed, declared)]


def _remove_branch(catalogue: Catalog, identifier: str, branch: str) -> None:
    commit(
        catalogue,
        identifier,
        lambda table: (AssertTableUUID(uuid=table.metadata.table_uuid),),
        lambda table: (RemoveSnapshotRefUpdate(ref_name=branch),) if branch in table.refs() else (),
    )
