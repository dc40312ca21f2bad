"""Sort the rows for a Python function, in little memory: in parts on disk, merged from there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.lake.engine.scratch import scratch_folder

_BATCH_ROWS, _BATCH_BYTES = 2_048, 16 << 20
_RUN_BYTES = 32 << 20  # of rows that one call sorts in memory
_STRETCH_BYTES = 256 << 10  # of rows that are read at once: one stretch of each part is held while they are merged


def in_order(
    batches: Iterable[pa.RecordBatch], order: tuple[str, ...], columns: tuple[str, ...] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a call sorted by some columns, nulls first; gives the wanted columns.

    Of more rows than `_RUN_BYTES` the columns of the order are held alone. The rest is sorted in parts, which go to
    disk; the next rows in order are then some of each part, which is read in stretches, each once. They are not mapped:
    where there are more rows than memory, pages that many parts share a cache for were read four times.
    """
    if not order:
        wanted = (batch for batch in batches if batch.num_rows)
        yield from wanted if columns is None else (batch.select(columns) for batch in wanted)
        return
    with tempfile.TemporaryFile(dir=scratch_folder()) as file:
        parts, last = list[_SortedPart](), None
        for rows in in_parts(batches, _RUN_BYTES):
            if last is not None:
                parts.append(_SortedPart(last, order, file))
            last = rows.take(_sorted_places(rows, order))
        if last is not None and (parts or last.nbytes >= _RUN_BYTES):
            parts.append(_SortedPart(last, order, file))
            last = None
        if parts:
            yield from _merged(parts, order, columns)
        elif last is not None:
            count = _rows_of_bytes(last.nbytes, last.num_rows, _BATCH_BYTES)
            yield from _chosen(last, columns).to_batches(max_chunksize=count)


def in_parts(batches: Iterable[pa.RecordBatch], byte_count: int) -> Iterator[pa.Table]:
    """The rows as tables of about so many bytes: some batches together, and none split."""
    waiting, size = list[pa.RecordBatch](), 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= byte_count:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _rows_of_bytes(byte_count: int, row_count: int, wanted: int) -> int:
    """How many rows have about `wanted` bytes, of rows with so many together."""
    return max(1, min(_BATCH_ROWS, wanted * row_count // max(1, byte_count)))


def _sorted_places(rows: pa.Table, order: tuple[str, ...]) -> pa.Array:
    return pc.sort_indices(rows, [(name, "ascending", "at_start") for name in order])


def _chosen(rows: pa.Table, columns: tuple[str, ...] | None) -> pa.Table:
    return rows if columns is None else rows.select(columns)


class _SortedPart:
    """Sorted rows in a file, to be taken in turn.

    Attributes:
        keys: the columns of the order.
        byte_count: of all.
    """

    def __init__(self, rows: pa.Table, order: tuple[str, ...], file: BinaryIO) -> None:
        """Write rows to the end of a file."""
        self.keys, self.byte_count = rows.select(order), rows.nbytes
        self._file, self._spans = file, list[tuple[int, int]]()
        for batch in rows.to_batches(max_chunksize=_rows_of_bytes(rows.nbytes, rows.num_rows, _STRETCH_BYTES)):
            offset = file.tell()
            with pa.ipc.new_stream(file, rows.schema) as writer:
                writer.write_batch(batch)
            self._spans.append((offset, file.tell() - offset))
        file.flush()
        self._spans.reverse()
        self._rows: pa.RecordBatch | None = None

    def next_rows(self, count: int) -> Iterator[pa.RecordBatch]:
        """The next rows, so many."""
        while count:
            if self._rows is None or not self._rows.num_rows:
                offset, size = self._spans.pop()
                self._rows = pa.ipc.open_stream(_read(self._file, offset, size)).read_next_batch()
            rows = self._rows.slice(0, count)
            self._rows = self._rows.slice(rows.num_rows)
            count -= rows.num_rows
            yield rows


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    data = os.pread(file.fileno(), size, offset)
    if len(data) != size:
        raise OSError(f"{len(data)} of {size} bytes came from a file of sorted rows; see whether its disk is well")
    return data


def _merged(
    parts: Sequence[_SortedPart], order: tuple[str, ...], columns: tuple[str, ...] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of sorted parts in the order of all."""
    places = _sorted_places(pa.concat_tables([part.keys for part in parts]), order).to_numpy()
    ends = np.cumsum([part.keys.num_rows for part in parts])
    for part in parts:
        part.keys = None
    owners = np.searchsorted(ends, places, side="right").astype(np.int32)
    del places
    count = _rows_of_bytes(sum(part.byte_count for part in parts), len(owners), _BATCH_BYTES)
    for first in range(0, len(owners), count):
        owner = owners[first : first + count]
        shares = np.bincount(owner, minlength=len(parts))
        stretches = [rows for part, share in enumerate(shares.tolist()) for rows in parts[part].next_rows(share)]
        # Rows of a part stand in their order already, so their places among the stretches are those of a stable sort.
        back = np.empty(len(owner), np.int64)
        back[np.argsort(owner, kind="stable")] = np.arange(len(owner))
        rows = _chosen(pa.Table.from_batches(stretches), columns)
        yield from rows.take(pa.array(back)).combine_chunks().to_batches()
