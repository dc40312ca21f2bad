"""The documents in the windows of a blend's packed tables, and how often some rows of the blend read each window.

The column `segments` is read, at the snapshot that is served for the blend: documents that were excised since are gone,
windows keep their ordinals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blender_service.exceptions import OffsetOutOfRangeError
from blender_service.order.offsets import reads_before
from blender_service.tables.data_file import FAULTS, StoreError, opened_parquet, told
from blender_service.tables.file_columns import FileColumns
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_keys import Keys, keys_of
from spark_jobs.arrays import Int64Array

if TYPE_CHECKING:
    from blender_service.order.resolve import BlendOrder
    from blender_service.server.blender import Blender
    from blender_service.tables.packed_table import PackedTable
    from blender_service.tables.source_rows import SourceRows

SEGMENTS: Final = "segments"
_BATCH_ROWS: Final = 1 << 14
Segments = tuple[Int64Array, Keys, Int64Array]
"""Of S segments: (S,) the window, (S, 2) the document, (S,) the tokens of each."""


class TableParts(NamedTuple):
    """The documents in the windows of a packed table.

    Attributes:
        reads: (W,) how often each window was read.
        window: (S,) window of each segment.
        keys: (S, 2) its document.
        tokens: (S,) its tokens.
        table: UUID and generation of the table.
    """

    reads: Int64Array
    window: Int64Array
    keys: Keys
    tokens: Int64Array
    table: tuple[str, str] = ("", "")


def blend_parts(blender: Blender, blend_id: str, end: int | None, first: int = 0) -> list[TableParts]:
    """The windows of a blend's tables, with the reads of rows [first, end).

    Args:
        blender: of the blend.
        blend_id: full id.
        end: None for the blend's.
        first: the first row that counts.

    Raises:
        CommandError: the blend has no end, or is made of tables of text.
        OffsetOutOfRangeError: `end` is beyond the blend's.
        SourceChangedError: a table is not as the blend pinned it.
    """
    config, head = blender.config(blend_id), blender.head(blend_id)
    if config.texts is not None:
        raise CommandError(f"blend {blend_id[:12]}: its rows are made of texts as they are read; pack them to count")
    end = head.end if end is None else end
    if end is None:
        raise CommandError(f"blend {blend_id[:12]} has no end; say up to which row with --at OFFSET")
    if head.end is not None and end > head.end:
        raise OffsetOutOfRangeError(f"blend {blend_id[:12]}: {end} is beyond its end {head.end}; give 0 to that")
    by_table: dict[tuple[str, str], list[SourceRows]] = {}
    rows, order = blender.source_rows(blend_id), blender.order(blend_id)
    for name, pin in head.pins().items():
        by_table.setdefault((pin.table_uuid, pin.generation), []).append(rows[name])
    counted = {table: _table_parts(order, (first, end), sources) for table, sources in by_table.items()}
    return [parts._replace(table=table) for table, parts in counted.items() if parts is not None]


def _table_parts(order: BlendOrder, rows: tuple[int, int], sources: Sequence[SourceRows]) -> TableParts | None:
    """The windows of some sources of one table, with the reads of all of them; None while it has no row."""
    tables = [source.reader.table for source in sources if source.reader is not None]
    if not tables:
        return None
    table = max(tables, key=lambda each: each.rows)
    reads, is_of_blend = np.zeros(table.rows, np.int64), np.zeros(table.rows, np.bool_)
    for source in sources:
        ordinals, at = np.arange(source.row_count), 0
        counts = reads_before(order, source.name, rows[1], ordinals)
        if rows[0]:
            counts -= reads_before(order, source.name, rows[0], ordinals)
        for start, end in ((0, source.row_count),) if source.runs is None else source.runs.ranges:
            reads[start:end] += counts[at : at + end - start]
            is_of_blend[start:end] = True
            at += end - start
    window, keys, tokens = _segments(table)
    chosen = is_of_blend[window]
    return TableParts(reads, window[chosen], keys[chosen], tokens[chosen])


def _segments(table: PackedTable) -> Segments:
    """The window, the document and the tokens of each segment of a packed table."""
    parts = []
    for run in table.runs:
        where, first = f"table {table.identifier}: file {run.path}", run.start
        try:
            with opened_parquet(table.io, run.path) as (file, _):
                columns = FileColumns(file, where, {SEGMENTS: table.fields[SEGMENTS]}, table.mapping)
                for batch in file.iter_batches(_BATCH_ROWS, columns=columns.names):
                    lists = columns.select(batch)[SEGMENTS]
                    parts.append(segments_of(lists, first))
                    first += len(lists)
        except (StoreError, *FAULTS) as error:
            raise told(where, error) from error
    window, keys, tokens = joined_segments(parts)
    chosen = window < table.rows
    return window[chosen], keys[chosen], tokens[chosen]


def segments_of(windows: pa.ListArray, first: int) -> Segments:
    """The segments of some windows, which are numbered from `first` on."""
    numbers = np.arange(first, first + len(windows), dtype=np.int64)
    segments = windows.flatten()
    return (
        np.repeat(numbers, pc.list_value_length(windows).to_numpy()),
        keys_of(pc.struct_field(segments, "doc_id")),
        pc.struct_field(segments, "token_count").to_numpy().astype(np.int64),
    )


def joined_segments(parts: Sequence[Segments]) -> Segments:
    """The segments of all parts; of no part none."""
    none = (np.zeros(0, np.int64), np.zeros((0, 2), np.uint64), np.zeros(0, np.int64))
    window, keys, tokens = (np.concatenate(columns) for columns in zip(none, *parts, strict=True))
    return window, keys, tokens
