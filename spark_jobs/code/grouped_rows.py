"""Group sorted rows by a key; a group may begin and end anywhere in the Arrow batches.

batches   [a a b] [b b] [b c]      groups   [a a]  [b b b b]  [c]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

Keep = Callable[[pa.RecordBatch], pa.RecordBatch]


def _unchanged(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def grouped_rows(
    batches: Iterable[pa.RecordBatch], key: tuple[str, ...], keep: Callable[[], Keep] = lambda: _unchanged
) -> Iterator[pa.Table]:
    """Join the rows of each key; one group at a time is in memory.

    Args:
        batches: rows sorted by the key.
        key: the columns of the key; null is a value of its own.
        keep: called once per group; the returned function reduces each part of the group before it is held.
    """
    waiting: list[pa.RecordBatch] = []
    current: tuple[object, ...] | None = None
    shorten = keep()
    for batch in batches:
        for begin, end in _bounds(batch, key):
            values = tuple(batch.column(name)[begin].as_py() for name in key)
            if waiting and values != current:
                yield pa.Table.from_batches(waiting)
                waiting, shorten = [], keep()
            current = values
            waiting.append(shorten(batch.slice(begin, end - begin)))
    if waiting:
        yield pa.Table.from_batches(waiting)


def _bounds(batch: pa.RecordBatch, key: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """(first row, row after the last) of each group inside a batch."""
    if not batch.num_rows:
        return
    changes = np.zeros(batch.num_rows - 1, dtype=np.bool_)
    for name in key:
        codes = batch.column(name).dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    yield from zip(starts, [*starts[1:], batch.num_rows], strict=True)
