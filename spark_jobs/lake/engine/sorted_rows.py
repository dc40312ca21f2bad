"""Sort the rows that a Python function gets, in little memory: in parts that go to disk, and are merged from there."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.lake.engine.scratch import scratch_folder

_BATCH_ROWS, _BATCH_BYTES = 2_048, 16 << 20
_RUN_BYTES = 32 << 20  # of rows that one call sorts in memory
_ALIGNMENT = 64  # of Arrow's buffers
_MAPPED_BYTES = 256 << 20  # of pages of its files that count to the process


def in_order(
    batches: Iterable[pa.RecordBatch], order: tuple[str, ...], columns: tuple[str, ...] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a call sorted by some columns, nulls first; gives the columns that are wanted.

    Of more rows than `_RUN_BYTES` the columns of the order are held alone. The rest is sorted in parts, which go to
    disk; the next rows in order are then a stretch of each part, one after the stretch before.
    """
    if not order:
        wanted = (batch for batch in batches if batch.num_rows)
        yield from wanted if columns is None else (batch.select(columns) for batch in wanted)
        return
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        path, spans, last = f"{folder}/parts", list[tuple[int, int]](), None
        with pa.OSFile(path, "wb") as sink:
            for rows in in_parts(batches, _RUN_BYTES):
                if last is not None:
                    spans.append(_append(last, sink))
                last = rows.take(_sorted_places(rows, order))
            if last is not None and (spans or last.nbytes >= _RUN_BYTES):
                spans.append(_append(last, sink))
        if spans:
            yield from _merged(path, spans, order, columns)
        elif last is not None:
            yield from _chosen(last, columns).to_batches(max_chunksize=_rows_of_a_batch([last]))


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


def _rows_of_a_batch(parts: Sequence[pa.Table]) -> int:
    """Rows of about `_BATCH_BYTES`."""
    row_bytes: int = sum(part.nbytes for part in parts) // sum(part.num_rows for part in parts)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, row_bytes)))


def _sorted_places(rows: pa.Table, order: tuple[str, ...]) -> pa.Array:
    return pc.sort_indices(rows, [(name, "ascending", "at_start") for name in order])


def _chosen(rows: pa.Table, columns: tuple[str, ...] | None) -> pa.Table:
    return rows if columns is None else rows.select(columns)


def _append(rows: pa.Table, sink: pa.OSFile) -> tuple[int, int]:
    """Write rows behind others, as a stream of Arrow in a file; gives where it begins and ends."""
    sink.write(bytes(-sink.tell() % _ALIGNMENT))
    begin: int = sink.tell()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=_BATCH_ROWS)
    return begin, sink.tell()


def _merged(
    path: str, spans: Sequence[tuple[int, int]], order: tuple[str, ...], columns: tuple[str, ...] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of sorted parts in the order of all.

    Their file is mapped. The machine may drop its pages and read them again; those that were read count to this process
    until it leaves them.
    """
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = pa.py_buffer(pages)
    parts = [pa.ipc.open_stream(whole[first:last]).read_all() for first, last in spans]
    keys = pa.concat_tables([part.select(order) for part in parts])
    places = _sorted_places(keys, order).to_numpy()
    del keys
    pages.madvise(mmap.MADV_DONTNEED)
    ends = np.cumsum([part.num_rows for part in parts])
    owners, taken = np.searchsorted(ends, places, side="right"), np.zeros(len(parts), np.int64)
    count, read = _rows_of_a_batch(parts), 0
    for first in range(0, len(places), count):
        owner = owners[first : first + count]
        shares = np.bincount(owner, minlength=len(parts))
        stretches = [
            _chosen(part.slice(start, share), columns)
            for part, start, share in zip(parts, taken.tolist(), shares.tolist(), strict=True)
            if share
        ]
        taken += shares
        # Rows of a part stand in their order already, so their places among the stretches are those of a stable sort.
        back = np.empty(len(owner), np.int64)
        back[np.argsort(owner, kind="stable")] = np.arange(len(owner))
        rows = pa.concat_tables(stretches).take(pa.array(back)).combine_chunks()
        yield from rows.to_batches()
        read += rows.nbytes
        if read >= _MAPPED_BYTES:
            read = 0
            pages.madvise(mmap.MADV_DONTNEED)
