"""Branches of a table: made for one writer, published as the new head of main, or discarded."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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

from headrace.tables.catalogue import commit, remove_ref
from spark_jobs.exceptions import AuditError, CheckResult, LeaseError
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.lease import Leases, is_abandoned
from spark_jobs.lake.ledger.ledger import LAST_PROPERTY
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.session.catalogue import spark_identifier
from spark_jobs.lake.session.pyiceberg_core import empty_snapshot
from spark_jobs.spark_sql import SparkSession

_log = logging.getLogger(__name__)


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
    balance: int | None = None  # of the batches that workers wrote (`tables.Proof`)


@contextlib.contextmanager
def branch_of_a_writer(catalogue: Catalog, identifier: str, branch: str) -> Iterator[None]:
    """Remove a branch if writing to it fails: its writer alone knows for sure that nobody writes there any more."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # if the catalogue is away, a later writer removes the branch
            remove_ref(catalogue, identifier, branch)
        raise


def branch_at_head(catalogue: Catalog, identifier: str, branch: str) -> tuple[IcebergTable, int]:
    """Make a branch at the head of a table with rows; returns the table with it, and the id of the head."""
    table = catalogue.load_table(identifier)
    base = table.current_snapshot()
    assert base is not None  # the caller knows of rows in it
    start_branch(None, catalogue, table, identifier, branch, base)
    return catalogue.load_table(identifier), base.snapshot_id


def start_branch(
    spark: SparkSession | None,
    catalogue: Catalog,
    table: IcebergTable,
    identifier: str,
    branch: str,
    base: Snapshot | None,
) -> None:
    """Make a branch at a snapshot, and remove the branches of writers without a process."""
    stale = [name for name in table.refs() if is_abandoned(name)]
    for name in stale:
        _log.info("%s: removing branch %s of a run that did not end", identifier, name)
    if base is None and spark is not None and is_embedded(spark):
        _empty_branch(catalogue, table, branch)
    elif base is None and spark is not None:  # a branch of an empty table needs an empty snapshot
        spark.sql(f"ALTER TABLE {spark_identifier(identifier)} CREATE BRANCH {branch}")
    at_base = () if base is None else (_ref(branch, base.snapshot_id),)
    if stale or at_base:
        commit(
            catalogue,
            identifier,
            lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),),
            lambda now: (*(RemoveSnapshotRefUpdate(ref_name=name) for name in stale if name in now.refs()), *at_base),
        )


def _empty_branch(catalogue: Catalog, table: IcebergTable, branch: str) -> None:
    """Make a branch with an empty snapshot, of a table without snapshots."""
    with table.transaction() as transaction:
        updates = empty_snapshot(transaction, branch)
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


def note_properties(catalogue: Catalog, identifier: str, properties: Mapping[str, str]) -> None:
    """Set the differing properties of a table, for rows left unwritten since they are there already."""

    def updates(table: IcebergTable) -> tuple[SetPropertiesUpdate, ...]:
        changed = {name: value for name, value in properties.items() if table.properties.get(name) != value}
        return (SetPropertiesUpdate(updates=changed),) if changed else ()

    commit(catalogue, identifier, lambda table: (AssertTableUUID(uuid=table.metadata.table_uuid),), updates)


def discard(catalogue: Catalog, written: Written) -> None:
    """Drop the branch of unpublished rows; their files are deleted by the next expiry of snapshots."""
    remove_ref(catalogue, written.identifier, written.branch)


def require_passed(written: Written) -> None:
    """Refuse to publish rows after a failed check.

    Raises:
        AuditError: names the checks that failed, with the number of bad rows and the keys of some.
    """
    failed = [check for check in written.checks if not check.passed]
    if failed:
        reasons = "; ".join(map(str, failed))
        raise AuditError(
            f"{written.identifier}: audit failed, the table is as it was: {reasons}", written.identifier, written.checks
        )
