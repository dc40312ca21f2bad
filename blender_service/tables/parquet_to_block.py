"""Decode row groups of Parquet files into blocks, and check all rules of a packed table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import PackedTableError
from blender_service.tables.block import RowBlock, Segments
from blender_service.tables.data_file import FAULTS, StoreError, opened_parquet, told
from blender_service.tables.file_columns import FileColumns
from blender_service.tables.left_off import leave_off
from blender_service.tables.packed_table import PackedTable
from blender_service.tables.token_columns import TokenColumn, without_masks
from headrace.tables.ordinals import OrdinalRun

READ_ATTEMPTS: Final = 3
RETRY_SECONDS: Final = 0.05
ROWS_AT_ONCE: Final = 2048  # that are decoded together: a large block, or many small ones
BYTES_AT_ONCE: Final = 16 << 20  # of their ids


def decode_blocks(table: PackedTable, run: OrdinalRun, ranges: Sequence[tuple[int, int]]) -> Iterator[RowBlock]:
    """Give ranges of one data file as blocks, in one pass over the row groups they lie in.

    An unreadable file is tried three times, since storage over a network often fails for a moment only. Where
    it has mirrors, each is tried before any is again.

    Args:
        table: whose file it is.
        run: the file.
        ranges: [start, end) ordinals of each block, ascending, disjoint, inside the run; at least one.

    Raises:
        PackedTableError: the file is not there, is damaged, or breaks a rule of packed tables; the message names it.
        ServerUnavailableError: the store does not answer, or this server has no file or memory left to read it with.
    """
    if table.left_off is not None:
        whole = table._replace(columns=(*table.columns, table.left_off.column), left_off=None)
        for block in decode_blocks(whole, run, ranges):
            yield leave_off(block, table.left_off.rules, table.window)
        return
    remaining = list(ranges)
    places = table.mirrors.of(run.path)
    attempts = READ_ATTEMPTS + len(places) - 1
    for attempt in range(1, attempts + 1):
        root, path = places[(attempt - 1) % len(places)]
        where = f"table {table.identifier}: file {path}"
        try:
            with opened_parquet(table.io, path) as (file, stream):
                for block in _decode_once(table, file, run._replace(path=path), remaining):
                    remaining.pop(0)
                    yield block
            table.mirrors.took(root, stream.seconds, stream.byte_count)
            return
        except PackedTableError as error:
            table.mirrors.failed(root, path, error)
            if attempt >= len(places):
                raise
        except (StoreError, *FAULTS) as error:
            if not isinstance(error, MemoryError):
                table.mirrors.failed(root, path, error)
            if attempt == attempts:
                raise told(where, error) from error
        if attempt >= len(places):
            time.sleep(RETRY_SECONDS * (attempt - len(places) + 1))


def _decode_once(
    table: PackedTable, file: pq.ParquetFile, run: OrdinalRun, ranges: Sequence[tuple[int, int]]
) -> Iterator[RowBlock]:
    """Decode the still wanted ranges of a file; `ranges` may shrink from its front meanwhile."""
    rows_in_file = [(start - run.start, end - run.start) for start, end in ranges]
    starts = [start for start, _ in ranges]
    where = f"table {table.identifier}: file {run.path}"
    if file.metadata.num_rows != run.end - run.start:
        raise PackedTableError(
            f"{where} has {file.metadata.num_rows} rows, its manifest says {run.end - run.start}; restore the file"
        )
    columns = FileColumns(file, where, table.fields, table.mapping)
    at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // (4 * table.window.window_tokens)))
    read = _read_ranges(file, rows_in_file, columns, at_once)
    waiting: list[pa.RecordBatch] = []
    first = 0
    for last, (_, parts) in enumerate(zip(starts, read, strict=True), 1):
        waiting += parts
        if last == len(starts) or sum(part.num_rows for part in waiting) >= at_once:
            rows, waiting = pa.Table.from_batches(waiting), []
            ordinals = [np.arange(start, start + end - begin) for start, (begin, end) in
                        zip(starts[first:last], rows_in_file[first:last], strict=True)]  # fmt: skip
            block = decode_block(rows, np.concatenate(ordinals), table, run.path)
            yield from split_block(block, [part.size for part in ordinals], starts[first:last])
            first = last


def _read_ranges(
    file: pq.ParquetFile, ranges: Sequence[tuple[int, int]], columns: FileColumns, batch_rows: int
) -> Iterator[list[pa.RecordBatch]]:
    """Read ranges of rows of a Parquet file in one pass over the row groups they touch; gives the parts of each.

    Args:
        file: open.
        ranges: [first, last) of each, ascending, disjoint, all inside the file.
        columns: to read; those missing from the file are left out.
        batch_rows: decoded together.
    """
    metadata = file.metadata
    sizes = np.array([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)], dtype=np.int64)
    ends = np.cumsum(sizes)
    firsts, lasts = np.array(ranges, dtype=np.int64).T
    begins = np.searchsorted(ends, firsts, side="right")
    touched = np.zeros(sizes.size + 1, dtype=np.int64)
    np.add.at(touched, begins, 1)
    np.add.at(touched, np.searchsorted(ends, lasts, side="left") + 1, -1)
    groups = np.flatnonzero(np.cumsum(touched[:-1]))
    # The row groups are read as if they were one: where a range begins in it.
    before = np.cumsum(sizes[groups]) - sizes[groups]
    places = firsts - (ends - sizes)[begins] + before[np.searchsorted(groups, begins)]
    remaining = list(zip(places.tolist(), (places + lasts - firsts).tolist(), strict=True))
    parts: list[pa.RecordBatch] = []
    position = 0
    batches = file.iter_batches(batch_rows, row_groups=groups.tolist(), columns=columns.names, use_threads=False)
    for batch in map(columns.there, batches):
        while remaining and remaining[0][0] < position + batch.num_rows:
            first, last = remaining[0]
            low, high = max(first - position, 0), min(last - position, batch.num_rows)
            parts.append(batch.slice(low, high - low))
            if last > position + batch.num_rows:
                break
            yield parts
            parts = []
            remaining.pop(0)
        position += batch.num_rows
        if not remaining:
            return


def split_block(block: RowBlock, sizes: Sequence[int], starts: Sequence[int]) -> Iterator[RowBlock]:
    """Give the rows of a block as blocks of so many rows each, which hold none of its memory; one is given itself."""
    if len(sizes) == 1:
        yield block
        return
    of, end = block.segments, 0
    for size, start in zip(sizes, starts, strict=True):
        rows, end = slice(end, end + size), end + size
        first, last = of.starts[[rows.start, rows.stop]].tolist()
        byte, last_byte = of.doc_id_starts[[first, last]].tolist()
        segments = Segments(
            row_tokens=of.row_tokens[rows].copy(),
            starts=of.starts[rows.start : rows.stop + 1] - first,
            doc_ids=of.doc_ids[byte:last_byte].copy(),
            doc_id_starts=of.doc_id_starts[first : last + 1] - byte,
            document_starts=of.document_starts[first:last].copy(),
            token_counts=of.token_counts[first:last].copy(),
            window_starts=of.window_starts[first:last].copy(),
        )
        yield RowBlock(start, block.input_ids[rows].copy(), segments, tuple(c[rows].copy() for c in block.columns))


def decode_block(rows: pa.Table, wanted: Int64Array, table: PackedTable, path: str) -> RowBlock:
    """Turn Arrow rows into a block, and check all rules of a packed table.

    Args:
        rows: columns ordinal, token_count, input_ids, segments, and those of the table's `columns` that the file has.
        wanted: (R,) required ordinals, at least one.
        table: whose rows they are.
        path: the file, for messages.

    Raises:
        PackedTableError: an ordinal, a window length or a token id breaks them.
    """
    where = f"table {table.identifier}: file {path}"
    ordinals, start = rows["ordinal"].to_numpy(), int(wanted[0])
    if not np.array_equal(ordinals, wanted):
        at = int(np.flatnonzero(ordinals != wanted)[0]) if ordinals.size == wanted.size else 0
        raise PackedTableError(
            f"{where}: ordinal {wanted[at]} is not at row {at} after ordinal {start}; rewrite the file by ordinal"
        )
    window_tokens, vocabulary_size = table.window.window_tokens, table.window.vocabulary_size
    row_tokens = rows["token_count"].to_numpy().astype(np.int32)
    values = _row_values(rows["input_ids"], window_tokens)
    if values is None:
        raise PackedTableError(
            f"{where}: a row near ordinal {start} does not have {window_tokens} tokens, the table's "
            "headrace.window-tokens; pack the table again"
        )
    if values.size and (values.min() < 0 or values.max() >= vocabulary_size):
        bad = values.max() if values.max() >= vocabulary_size else values.min()
        raise PackedTableError(
            f"{where}: has token id {bad} near ordinal {start}, the vocabulary ends at {vocabulary_size}; pack the "
            "table again with its own tokenizer"
        )
    segments = _combined(rows["segments"])
    counts = np.asarray(pc.list_value_length(segments), dtype=np.int64)
    flat = segments.flatten()
    doc_ids, doc_id_starts = _texts(pc.cast(flat.field("doc_id"), pa.large_string()))
    return RowBlock(
        start=start,
        input_ids=values.astype(f"<u{table.window.token_bytes}"),
        segments=Segments(
            row_tokens=row_tokens,
            starts=np.concatenate([[0], np.cumsum(counts)]),
            doc_ids=doc_ids,
            doc_id_starts=doc_id_starts,
            document_starts=flat.field("document_start").to_numpy(zero_copy_only=False).astype(np.int64),
            token_counts=flat.field("token_count").to_numpy(zero_copy_only=False).astype(np.int32),
            window_starts=flat.field("window_start").to_numpy(zero_copy_only=False).astype(np.int32),
        ),
        columns=tuple(_column_values(rows, column, row_tokens, window_tokens, where) for column in table.columns),
    )


def _column_values(
    rows: pa.Table, column: TokenColumn, row_tokens: Int32Array, window_tokens: int, where: str
) -> NDArray[Any]:
    """(R, L) values of a column.

    Raises:
        PackedTableError: a row does not have a value for each position.
    """
    is_there = column.name in rows.column_names  # a file may be older than the column
    values = _row_values(rows[column.name], window_tokens) if is_there else None
    if not is_there:
        values = without_masks(column.name, row_tokens, window_tokens)
    if values is None:
        raise PackedTableError(
            f"{where}: a row does not have {window_tokens} values of {column.name}, one for each position; write the "
            "table again, or read without the column"
        )
    return values.astype(column.dtype)


def _row_values(column: pa.ChunkedArray, window_tokens: int) -> NDArray[Any] | None:
    """(R, L) values of a column of lists; None where one is missing, or a row has fewer or more."""
    lists = _combined(column)
    values = lists.flatten()
    is_whole = not lists.null_count and pc.all(pc.equal(pc.list_value_length(lists), window_tokens)).as_py()
    if values.null_count or not is_whole or len(values) != len(lists) * window_tokens:
        return None
    matrix: NDArray[Any] = values.to_numpy(zero_copy_only=False).reshape(len(lists), window_tokens)
    return matrix


def _combined(column: pa.ChunkedArray) -> pa.ListArray:
    """Give a list column as one array."""
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _texts(texts: pa.LargeStringArray) -> tuple[NDArray[np.uint8], Int64Array]:
    """Give the bytes of all texts, one after the other, and the (S + 1,) first byte of each."""
    if len(texts) == 0:
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    _, offsets, characters = texts.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if starts[0] == starts[-1]:
        return np.empty(0, dtype=np.uint8), np.zeros(len(texts) + 1, dtype=np.int64)
    # Copied, so that a block does not keep the memory of the whole batch it was read with.
    return np.frombuffer(characters, dtype=np.uint8)[starts[0] : starts[-1]].copy(), starts - starts[0]
