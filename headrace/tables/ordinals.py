"""The ordinals of each file of a packed table, by Iceberg's metadata alone.

A packed table is an array with an explicit dense index. Each data file holds one contiguous ascending run of ordinals,
found by its smallest and largest `ordinal` in Iceberg's metadata, so an index of all rows costs one line a file::

    file A  ordinals 0..4095       row of ordinal o in a file = o - smallest
    file B  ordinals 4096..9999
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType
from pyiceberg.utils.concurrent import ExecutorFactory

from headrace.tables.exceptions import PackedTableError


class OrdinalRun(NamedTuple):
    """One data file: where it is, and the ordinals [start, end) it holds."""

    path: str
    start: int
    end: int


class KnownRuns(Protocol):
    """Runs of manifests read so far, by path; a manifest never changes."""

    def get(self, path: str) -> tuple[OrdinalRun, ...] | None:
        """Those of a manifest, None where it was not read."""

    def put(self, path: str, runs: tuple[OrdinalRun, ...]) -> None:
        """Keep those of a manifest."""


def index_snapshot(
    table: Table, identifier: str, snapshot: Snapshot, kept: KnownRuns | None = None
) -> tuple[OrdinalRun, ...]:
    """List the files of a snapshot by their ordinals; manifests among `kept` are not read.

    Raises:
        PackedTableError: the ordinals are not dense from 0, or a file does not state its ordinals.
    """

    def runs_of(manifest: ManifestFile) -> tuple[OrdinalRun, ...]:
        runs = kept.get(manifest.manifest_path) if kept is not None else None
        if runs is None:
            files = (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))
            runs = tuple(file_runs(table, identifier, files))
            if kept is not None:
                kept.put(manifest.manifest_path, runs)
        return runs

    manifests = snapshot.manifests(table.io)
    runs = sorted(
        (run for runs in ExecutorFactory.get_or_create().map(runs_of, manifests) for run in runs),
        key=lambda run: run.start,
    )
    require_dense(identifier, runs)
    return tuple(runs)


def file_runs(table: Table, identifier: str, files: Iterable[DataFile]) -> list[OrdinalRun]:
    """The runs of some files, by their bounds in the manifest, ascending; a file without rows holds none.

    Raises:
        PackedTableError: the table has no ordinals, or a file does not state its ordinals.
    """
    if "ordinal" not in table.schema().column_names:
        raise PackedTableError(f"table {identifier}: has no column ordinal; name a packed_<dataset>_<length> table")
    ordinal_id = table.schema().find_field("ordinal").field_id
    runs = (_run_of(file, ordinal_id, identifier) for file in files)
    return sorted((run for run in runs if run.end > run.start), key=lambda run: run.start)


def require_dense(identifier: str, runs: Sequence[OrdinalRun]) -> None:
    """Refuse runs, ascending, that leave an ordinal out or have one twice.

    Raises:
        PackedTableError: names the ordinal and the file.
    """
    expected = 0
    for run in runs:
        if run.start != expected:
            raise PackedTableError(
                f"table {identifier}: ordinal {expected} should come next, but {run.path} starts at {run.start}; "
                "ordinals must be dense from 0, each in one file: pack the table again"
            )
        expected = run.end


def _run_of(file: DataFile, ordinal_id: int, identifier: str) -> OrdinalRun:
    if file.content != DataFileContent.DATA:
        raise PackedTableError(
            f"table {identifier}: {file.file_path} deletes rows of its data files; rewrite them without those"
        )
    if not file.record_count:
        return OrdinalRun(file.file_path, 0, 0)
    lower = (file.lower_bounds or {}).get(ordinal_id)
    upper = (file.upper_bounds or {}).get(ordinal_id)
    if lower is None or upper is None or file.file_format != FileFormat.PARQUET:
        raise PackedTableError(
            f"table {identifier}: file {file.file_path} is not Parquet with bounds for ordinal; write the table with "
            "write.metadata.metrics.column.ordinal=full"
        )
    start, last = int(from_bytes(LongType(), lower)), int(from_bytes(LongType(), upper))
    if last - start + 1 != file.record_count:
        raise PackedTableError(
            f"table {identifier}: file {file.file_path} holds {file.record_count} rows for ordinals {start}..{last}; "
            "each file must hold one contiguous run: rewrite it sorted by ordinal"
        )
    return OrdinalRun(file.file_path, start, last + 1)
