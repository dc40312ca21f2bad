"""Keep the files and snapshots of tables few while they are written, whoever calls `headrace maintain` and when.

    tidy             a table of the system, to which every run appends a few rows: 32 small files become one, and files
                     of 10,000 rows are left alone; snapshots go early, since nobody reads old ones
    expire_surplus   any table: snapshots that are neither among the newest nor young, with the files only they used

Heads of branches and tagged snapshots stay, whatever their age, so what blends and releases pin is served on. So what
a write costs does not depend on how many there were.
"""

from __future__ import annotations

import contextlib
import time

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate

from spark_jobs.lake.session.catalogue import commit
from spark_jobs.lake.session.identity import is_inside, warehouse_of

_SMALL_ROWS = 10_000
_MOST_SMALL_FILES = 32
_SYSTEM_SNAPSHOTS, _SYSTEM_SECONDS = 16, 600.0  # whoever began to read a table of the system has read it by then
KEPT_SNAPSHOTS, KEPT_SECONDS = 100, 86_400.0
"""Snapshots of other tables that stay: the newest, and those of the last day, which a long step may be reading."""


def tidy(catalogue: Catalog, table: IcebergTable) -> None:
    """Keep the files and snapshots of a table of the system few; a writer that comes between is given way to."""
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
    with table.transaction() as change, change.update_snapshot().overwrite() as merged:
        for task in small:
            merged.delete_data_file(task.file)
        for file in _dataframe_to_data_files(change.table_metadata, rows, table.io):
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
    newest = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)
    surplus = [one for one in newest[:-keep] if one.timestamp_ms < young and one.snapshot_id not in named]
    if not surplus or len(surplus) < keep / 4:
        return 0
    gone = {one.snapshot_id for one in surplus}

    def updates(now: IcebergTable) -> tuple[RemoveSnapshotsUpdate, ...]:
        named_now = {ref.snapshot_id for ref in now.metadata.refs.values()}
        there = {one.snapshot_id for one in now.metadata.snapshots}
        gone.intersection_update(there - named_now)
        return (RemoveSnapshotsUpdate(snapshot_ids=sorted(gone)),) if gone else ()

    identifier = ".".join(table.name())
    commit(catalogue, identifier, lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),), updates)
    kept = [one for one in catalogue.load_table(identifier).metadata.snapshots if one.snapshot_id not in gone]
    with contextlib.suppress(FileNotFoundError):  # another process expires what was kept: `maintain` finds them
        _remove_files(catalogue, table, [one for one in surplus if one.snapshot_id in gone], kept)
    return len(gone)


def _remove_files(catalogue: Catalog, table: IcebergTable, gone: list[Snapshot], kept: list[Snapshot]) -> None:
    """Remove the files of the lake that snapshots used which are gone, and no snapshot uses that is there."""
    manifests = _manifests(table, kept)
    dead = {path: one for path, one in _manifests(table, gone).items() if path not in manifests}
    files = _data_files(table, dead, live=False)
    files -= _data_files(table, manifests, live=True) if files else set()
    warehouse = warehouse_of(catalogue)
    for path in [*sorted(files), *sorted(dead), *(one.manifest_list for one in gone if one.manifest_list)]:
        if warehouse is not None and not is_inside(path, warehouse):  # another lake's, from which this one was copied
            continue
        with contextlib.suppress(OSError):  # gone already, or the store is away: `maintain` finds it as an orphan
            table.io.delete(path)


def _manifests(table: IcebergTable, snapshots: list[Snapshot]) -> dict[str, ManifestFile]:
    return {one.manifest_path: one for snapshot in snapshots for one in snapshot.manifests(table.io)}


def _data_files(table: IcebergTable, manifests: dict[str, ManifestFile], live: bool) -> set[str]:
    """Paths of the data files in some manifests, without those that were deleted where only live ones are asked for."""
    entries = (entry for one in manifests.values() for entry in one.fetch_manifest_entry(table.io, live))
    return {entry.data_file.file_path for entry in entries}
