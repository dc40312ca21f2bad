"""Find windows of a packed table by ordinal or by document, with PyIceberg alone, so that Spark need not start.

The file of an ordinal follows from Iceberg's metadata (`headrace.tables.ordinals`). The windows of a document are found
by reading the column `segments` of the increments that may hold it, and no other wide column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, In
from pyiceberg.table import Table as IcebergTable

from headrace.tables.ordinals import OrdinalRun, file_runs, require_dense
from headrace.tables.window_facts import PROPERTY_OF_FACT
from spark_jobs.exceptions import ConfigError, TableMismatchError
from spark_jobs.lake.files.scans import scan_of

_BATCH_ROWS = 64  # windows decoded per batch on the way to the wanted one
_SCAN_ROWS = 8192


class PackedName(NamedTuple):
    """The facts in a packed table's name: corpus, dataset, and the length of a window."""

    corpus: str
    dataset: str
    window_tokens: int


def packed_facts(identifier: str, table: IcebergTable) -> PackedName:
    """Read a packed table's corpus, dataset and window length from its name and properties.

    Raises:
        ConfigError: it is no packed table.
    """
    corpus, _, name = identifier.partition(".")
    size = table.properties.get(PROPERTY_OF_FACT["window_tokens"], "")
    if not size or not (name.startswith("packed_") and name.endswith(f"_{size}")):
        raise ConfigError(f"table {identifier}: is not packed; name a <corpus>.packed_<dataset>_<length> table")
    return PackedName(corpus, name.removeprefix("packed_").removesuffix(f"_{size}"), int(size))


def ordinal_runs(
    identifier: str, table: IcebergTable, snapshot_id: int | None = None, narrow: BooleanExpression | None = None
) -> list[OrdinalRun]:
    """List the files of a packed table by their ordinals.

    Args:
        identifier: its name, for messages.
        table: the table.
        snapshot_id: the snapshot to list; by default the head.
        narrow: filter on partitions; by default none, and then the ordinals must be dense from 0.

    Raises:
        PackedTableError: a file holds anything but one run of ordinals, or runs leave a gap.
    """
    tasks = scan_of(table, narrow or AlwaysTrue(), snapshot_id=snapshot_id).plan_files()
    runs = file_runs(table, identifier, (file for task in tasks for file in (task.file, *task.delete_files)))
    if narrow is None:
        require_dense(identifier, runs)
    return runs


def read_window(table: IcebergTable, run: OrdinalRun, ordinal: int, columns: list[str]) -> dict[str, Any]:
    """Read some columns of one window; its row group is decoded only up to its row."""
    index = ordinal - run.start
    with table.io.new_input(run.path).open() as stream:
        file = pq.ParquetFile(stream, buffer_size=1 << 16, pre_buffer=False, page_checksum_verification=True)
        group = 0
        while index >= file.metadata.row_group(group).num_rows:
            index -= file.metadata.row_group(group).num_rows
            group += 1
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns):
            if index < batch.num_rows:
                row: dict[str, Any] = batch.slice(index, 1).to_pylist()[0]
                return row
            index -= batch.num_rows
    raise TableMismatchError(f"ordinal {ordinal} is not in {run.path}, against its metadata; pack the table again")


def find_windows(
    identifier: str,
    table: IcebergTable,
    doc_ids: Collection[str],
    increments: Collection[int] | None = None,
    snapshot_id: int | None = None,
) -> Iterator[tuple[OrdinalRun, int, list[dict[str, Any]]]]:
    """Find the windows of some documents.

    Args:
        identifier: name of the packed table.
        table: the table.
        doc_ids: documents.
        increments: those to search; by default all.
        snapshot_id: the snapshot to search; by default the head.

    Yields:
        (file, ordinal, all segments) of each such window, ascending by ordinal.
    """
    narrow = None if increments is None else In("increment", sorted(increments))
    wanted = pa.array(sorted(doc_ids), pa.string())
    for run in ordinal_runs(identifier, table, snapshot_id, narrow):
        with table.io.new_input(run.path).open() as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            for batch in file.iter_batches(_SCAN_ROWS, columns=["ordinal", "segments"]):
                segments = batch.column("segments")
                hits = pc.is_in(pc.struct_field(segments.flatten(), "doc_id"), value_set=wanted)
                rows = pc.unique(pc.filter(pc.list_parent_indices(segments), hits))
                hit_rows = batch.take(rows)
                for ordinal, parts in zip(
                    hit_rows.column("ordinal").to_pylist(), hit_rows.column("segments").to_pylist(), strict=True
                ):
                    yield run, ordinal, parts
