"""Sort the rows that a Python function gets, in little memory: in parts that go to disk, and are merged from there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.lake.engine.scratch import scratch_folder

_BATCH_ROWS, _BATCH_BYTES = 2_048, 16 << 20
_RUN_BYTES = 32 << 20  # of rows that one call sorts in memory


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
        parts = list[pa.Table]()
        for rows in _in_parts(batches):
            part = rows.take(_sorted_places(rows, order))
            parts.append(part)
            if len(parts) > 1 or part.nbytes >= _RUN_BYTES:  # else it is all there is
                parts[-1] = _on_disk(part, f"{folder}/{len(parts)}.arrow")
        if len(parts) == 1:
            yield from _chosen(parts[0], columns).to_batches(max_chunksize=_rows_of_a_batch(parts))
        elif parts:
            yield from _merged(parts, order, columns)


def _in_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows as tables of about `_RUN_BYTES`."""
    waiting, size = list[pa.RecordBatch](), 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= _RUN_BYTES:
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


def _on_disk(rows: pa.Table, path: str) -> pa.Table:
    """The rows as a file that is mapped: the machine may drop its pages from memory, and reads them again."""
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=_BATCH_ROWS)
    return pa.ipc.open_file(pa.memory_map(path)).read_all()


def _merged(
    parts: Sequence[pa.Table], order: tuple[str, ...], columns: tuple[str, ...] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of sorted parts, in the order of all."""
    keys = pa.concat_tables([part.select(order) for part in parts])
    places = _sorted_places(keys, order).to_numpy()
    del keys
    ends = np.cumsum([part.num_rows for part in parts])
    owners, taken = np.searchsorted(ends, places, side="right"), np.zeros(len(parts), np.int64)
    count = _rows_of_a_batch(parts)
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
        yield from pa.concat_tables(stretches).take(pa.array(back)).combine_chunks().to_batches()
