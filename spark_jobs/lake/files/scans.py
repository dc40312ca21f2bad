"""Scan a table as PyIceberg does, but read each manifest once in a process, and little where few rows are wanted.

PyIceberg reads the list of a snapshot's manifests and every manifest of it anew for each scan: most of what it takes to
look one row up. Neither file ever changes, so what they say of the newest scans is kept. And it decodes all columns of
a row group where one row may meet the condition; here the columns of the condition are decoded first, and the others
only where a row does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import acero
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner
from pyiceberg.table import Table as IcebergTable
from pyiceberg.utils.concurrent import ExecutorFactory

_ALL: Final = AlwaysTrue()
_MOST_ENTRIES: Final = 5_000  # data files and manifests, 8 to 10 KB each
_KEPT: Final = dict[str, list[Any]]()  # what a file of metadata says, by its path; what was used last stands last
_LOCK: Final = threading.Lock()
_PARQUET: Final = ds.ParquetFileFormat()
_FIELD_ID: Final = b"PARQUET:field_id"


def scan_of(
    table: IcebergTable,
    condition: BooleanExpression = _ALL,
    columns: Collection[str] = ("*",),
    snapshot_id: int | None = None,
) -> DataScan:
    """A scan of some columns of the rows under a condition; of the newest snapshot, if none is named."""
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
    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """As PyIceberg has it; PyIceberg reads what is not plain: deleted rows, other schemas, parts of structs."""
        tasks, schema, shown = list(self.plan_files()), self.table_metadata.schema(), self.projection()
        bound = bind(schema, self.row_filter, self.case_sensitive)
        named = [str(schema.find_column_name(number)) for number in sorted(extract_field_ids(bound))]
        fields = {field.name: field for field in (*(schema.find_field(name) for name in named), *shown.fields)}
        if not named or set(named) - fields.keys() or any(task.delete_files for task in tasks):
            return super().to_arrow(dictionary_columns)
        holds = expression_to_pyarrow(bound)
        # PyIceberg's types of the columns, of which a file has the small ones
        kinds = {
            (name, field.field_id, _small(schema_to_pyarrow(field.field_type, include_field_ids=False)))
            for name, field in fields.items()
        }

        def read(task: FileScanTask) -> list[pa.Table] | None:
            """The rows of a file; None where its columns are not those of the table."""
            with self.io.new_input(task.file.file_path).open() as stream:
                fragment = _PARQUET.make_fragment(stream)
                there = fragment.physical_schema
                if not kinds <= {
                    (field.name, int((field.metadata or {}).get(_FIELD_ID, -1)), _small(field.type)) for field in there
                }:
                    return None
                file = pq.ParquetFile(stream, metadata=fragment.metadata, page_checksum_verification=True)
                groups = [group.id for group in fragment.subset(holds).row_groups]
                meeting = (
                    group for group in groups if rows_that_meet(file.read_row_group(group, named), holds).num_rows
                )
                whole = (file.read_row_group(group, list(fields)) for group in meeting)
                return [rows_that_meet(rows, holds).select([field.name for field in shown.fields]) for rows in whole]

        parts = [*ExecutorFactory.get_or_create().map(read, tasks)]
        if any(part is None for part in parts):
            return super().to_arrow(dictionary_columns)
        empty = schema_to_pyarrow(shown, include_field_ids=False).empty_table()
        tables = [table for part in parts for table in part or ()]
        return pa.concat_tables(tables, promote_options="permissive") if tables else empty

    def plan_files(self) -> Iterable[FileScanTask]:
        """As PyIceberg has it: partitions, then bounds of columns, then files of deleted rows."""
        snapshot = self.snapshot()
        if snapshot is None or (self.catalog is not None and self.catalog.supports_server_side_planning()):
            return super().plan_files()

        def read() -> list[_Manifest]:
            return [
                _Manifest(*(manifest[at] for at in range(len(manifest)))) for manifest in snapshot.manifests(self.io)
            ]

        planner = ManifestGroupPlanner(self.table_metadata, self.io, self.row_filter, self.case_sensitive, self.options)
        return planner.plan_files(_kept(snapshot.manifest_list, read))


class _Manifest(ManifestFile):
    """A manifest, read once."""

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Its entries; no scan asks for the deleted ones."""
        return _kept(self.manifest_path, lambda: super(_Manifest, self).fetch_manifest_entry(io))


def rows_that_meet(rows: pa.Table, holds: pc.Expression) -> pa.Table:
    """Filter rows by this thread, for Arrow's may be busy with a scan of somebody else."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    return acero.Declaration("filter", acero.FilterNodeOptions(holds), [source]).to_table(use_threads=False)


def _small(kind: pa.DataType) -> str:
    return str(kind).replace("large_", "")


def _kept(path: str, read: Callable[[], list[Any]]) -> list[Any]:
    """What a file says; it is read where that is not kept."""
    with _LOCK:
        entries = _KEPT.pop(path, None)
    if entries is None:
        entries = read()
    with _LOCK:
        _KEPT[path] = entries
        while len(_KEPT) + sum(map(len, _KEPT.values())) > _MOST_ENTRIES and len(_KEPT) > 1:
            del _KEPT[next(iter(_KEPT))]
    return entries
