"""Keep the files and snapshots of tables few while they are written, whoever calls `headrace maintain` and when.

    tidy              a table of the system, to which every run appends a few rows: 32 small files become one, and files
                      of 10,000 rows are left alone; snapshots go early, since nobody reads old ones
    expire_surplus    any table: snapshots that are neither among the newest nor young, with the files only they used
    remove_snapshots  any table: snapshots that the caller names, with the files only they used

Heads of branches and tagged snapshots stay, whatever their age, so what blends and releases pin is served on. So what
a write costs does not depend on how many there were.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, RemovePartitionStatisticsUpdate, RemoveSnapshotsUpdate
from pyiceberg.utils.concurrent import ExecutorFactory

from headrace.tables.catalogue import commit
from headrace.tables.identity import warehouse_of
from headrace.tables.locations import is_inside
from spark_jobs.lake.session.pyiceberg_core import files_of_rows, overwrite

_SMALL_ROWS = 10_000
_MOST_SMALL_FILES = 32
_SYSTEM_SNAPSHOTS, _SYSTEM_SECONDS = 16, 600.0  # whoever began to read a table of the system has read it by then
KEPT_SNAPSHOTS, KEPT_SECONDS = 100, 86_400.0
"""Snapshots of other tables that stay: the newest, and those of the last day, which a long step may be reading."""


def tidy(catalogue: Catalog, table: IcebergTable) -> None:
    """Keep the files and snapshots of a system table few; where another writer commits first, this gives up."""
    with contextlib.suppress(CommitFailedException, ValidationException):
        _merge_small_files(table)
        if expire_surplus(catalogue, table, _SYSTEM_SNAPSHOTS, _SYSTEM_SECONDS):
            table.refresh()


def _merge_small_files(table: IcebergTable) -> None:
    """Make one data file of the small ones, where they are many."""
    snapshot = table.current_snapshot()
    facts = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    large = int(facts.get("total-records", 0)) // _SMALL_ROWS
    if int(facts.get("total-data-files", 0)) - large < _MOST_SMALL_FILES:
        return
    small = [task for task in table.scan().plan_files() if task.file.record_count < _SMALL_ROWS]
    rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(small)
    with table.transaction() as change, overwrite(table, change) as merged:
        for task in small:
            merged.delete_data_file(task.file)
        for file in files_of_rows(change, rows, table.io):
            merged.append_data_file(file)


def expire_surplus(catalogue: Catalog, table: IcebergTable, keep: int, seconds: float) -> int:
    """Remove snapshots that are neither named, nor among the newest, nor young, and the files that only they used.

    It waits until a quarter as many as stay can go, so that a write seldom does this.

    Args:
        catalogue: the lake's.
        table: as it was just written.
        keep: how many of the newest stay.
        seconds: age below which a snapshot stays.

    Returns:
        How many were removed.
    """
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    young = (time.time() - seconds) * 1000
    newest = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    surplus = [each for each in newest[:-keep] if each.timestamp_ms < young and each.snapshot_id not in named]
    if not surplus or len(surplus) < keep / 4:
        return 0
    with contextlib.suppress(OSError):  # the store does not answer; `maintain` removes the files
        return remove_snapshots(catalogue, table, {snapshot.snapshot_id for snapshot in surplus})
    return len(surplus)


def remove_snapshots(catalogue: Catalog, table: IcebergTable, gone: set[int]) -> int:
    """Remove snapshots in one commit, but for those that a branch or tag names by then, and the files only they used.

    A kill after the commit leaves files that no snapshot names, which `headrace maintain` removes as orphans.

    Args:
        catalogue: the lake's.
        table: as it was before.
        gone: ids of the snapshots.

    Returns:
        How many were removed.

    Raises:
        OSError: some files could not be deleted; all others are, and the snapshots are gone.
    """
    gone = set(gone)

    def updates(now: IcebergTable) -> tuple[RemoveSnapshotsUpdate | RemovePartitionStatisticsUpdate, ...]:
        named = {ref.snapshot_id for ref in now.metadata.refs.values()}
        gone.intersection_update({snapshot.snapshot_id for snapshot in now.metadata.snapshots} - named)
        counted = (file.snapshot_id for file in now.metadata.partition_statistics if file.snapshot_id in gone)
        statistics = (RemovePartitionStatisticsUpdate(snapshot_id=snapshot_id) for snapshot_id in counted)
        return (*statistics, RemoveSnapshotsUpdate(snapshot_ids=sorted(gone))) if gone else ()

    identifier = ".".join(table.name())
    commit(catalogue, identifier, lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),), updates)
    if gone:
        remove_files(table, _only_of(catalogue, table, gone, catalogue.load_table(identifier)))
    return len(gone)


def _only_of(catalogue: Catalog, table: IcebergTable, gone: set[int], now: IcebergTable) -> list[str]:
    """Files in the lake's warehouse that only the removed snapshots used. No present snapshot refers to them."""
    before = table.metadata
    dead_snapshots = [snapshot for snapshot in before.snapshots if snapshot.snapshot_id in gone]
    kept = manifests_of(table, now.metadata.snapshots)
    dead = {path: manifest for path, manifest in manifests_of(table, dead_snapshots).items() if path not in kept}
    files = files_of(table, dead.values(), live=False)
    files -= files_of(table, kept.values(), live=True) if files else set()
    statistics = (file for file in (*before.statistics, *before.partition_statistics) if file.snapshot_id in gone)
    lists = (snapshot.manifest_list for snapshot in dead_snapshots if snapshot.manifest_list)
    every = [*sorted(files), *sorted(dead), *lists, *(file.statistics_path for file in statistics)]
    warehouse = warehouse_of(catalogue)  # what lies outside is another lake's, from which this one was copied
    return every if warehouse is None else [path for path in every if is_inside(path, warehouse)]


def remove_files(table: IcebergTable, paths: Iterable[str]) -> None:
    """Delete files of a table, several at a time, since a store takes long for each.

    The checksum file that Hadoop writes beside each file on a local disk is deleted too.

    Raises:
        OSError: some could not be deleted, other than because they are gone already; says how many, and why the first.
    """

    def remove(path: str) -> str:
        folder, _, name = path.rpartition("/")
        try:
            table.io.delete(path)
            if folder.startswith(("/", "file:")):
                table.io.delete(f"{folder}/.{name}.crc")
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{path}: {error}"
        return ""

    failed = [why for why in ExecutorFactory.get_or_create().map(remove, paths) if why]
    if failed:
        name = ".".join(table.name())
        raise OSError(f"{name}: {len(failed)} files could not be deleted, which no snapshot names; first {failed[0]}")


def manifests_of(table: IcebergTable, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    """The manifests of some snapshots, by path."""
    lists = ExecutorFactory.get_or_create().map(lambda snapshot: snapshot.manifests(table.io), snapshots)
    return {manifest.manifest_path: manifest for manifests in lists for manifest in manifests}


def files_of(table: IcebergTable, manifests: Iterable[ManifestFile], live: bool) -> set[str]:
    """Paths of the data files in some manifests, without those that were deleted where only live ones are asked for."""

    def paths(manifest: ManifestFile) -> set[str]:
        return {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, live)}

    return set().union(*ExecutorFactory.get_or_create().map(paths, manifests))
