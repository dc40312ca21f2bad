"""Scan a table as PyIceberg does, but read each manifest once in a process.

PyIceberg reads the list of a snapshot's manifests and every manifest of it anew for each scan: most of what it takes to
look one row up. Neither file ever changes, so what they say of the newest scans is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table import Table as IcebergTable

_ALL: Final = AlwaysTrue()
_MOST_ENTRIES: Final = 5_000  # data files and manifests, 8 to 10 KB each
_KEPT: Final = dict[str, list[Any]]()  # what a file of metadata says, by its path; what was used last stands last
_LOCK: Final = threading.Lock()


def scan_of(
    table: IcebergTable,
    condition: BooleanExpression = _ALL,
    columns: Collection[str] = ("*",),
    snapshot_id: int | None = None,
) -> DataScan:
    """A scan of some columns of the rows that meet a condition; of the newest snapshot, if none is named."""
    return _Scan(
        table_metadata=table.metadata,
        io=table.io,
        row_filter=condition,
        selected_fields=tuple(columns),
        snapshot_id=snapshot_id,
        catalog=table.catalog,
        table_identifier=table.name(),
    )


class _Scan(DataScan):
    def _plan_files_local(self) -> Iterable[FileScanTask]:
        """As PyIceberg has it: partitions, then bounds of columns, then files of deleted rows."""
        snapshot = self.snapshot()
        if snapshot is None:
            return []

        def read() -> list[_Manifest]:
            return [_Manifest(*(one[at] for at in range(len(one)))) for one in snapshot.manifests(self.io)]

        return self._manifest_planner.plan_files(_kept(snapshot.manifest_list, read))


class _Manifest(ManifestFile):
    """A manifest that is read once."""

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Its entries; no scan asks for the deleted ones."""
        return _kept(self.manifest_path, lambda: super(_Manifest, self).fetch_manifest_entry(io))


def _kept(path: str, read: Callable[[], list[Any]]) -> list[Any]:
    """What a file says; it is read where that is not kept."""
    with _LOCK:
        found = _KEPT.pop(path, None)
    if found is None:
        found = read()
    with _LOCK:
        _KEPT[path] = found
        while len(_KEPT) + sum(map(len, _KEPT.values())) > _MOST_ENTRIES and len(_KEPT) > 1:
            del _KEPT[next(iter(_KEPT))]
    return found
