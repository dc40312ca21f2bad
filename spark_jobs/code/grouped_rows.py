"""Neighbouring rows with the same key, whole, out of Arrow batches that may cut them anywhere.

batches   [a a b] [b b] [b c]      runs   [a a]  [b b b b]  [c]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

Keep = Callable[[pa.RecordBatch], pa.RecordBatch]


def _as_it_is(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def runs_of(
    batches: Iterable[pa.RecordBatch], key: tuple[str, ...], keep: Callable[[], Keep] = lambda: _as_it_is
) -> Iterator[pa.Table]:
    """Join the rows of each key; one run at a time is held.

    Args:
        batches: rows sorted by the key.
        key: columns whose values neighbours share; null is a value.
        keep: makes, for every run, what its parts go through before they wait for the rest.
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
    """First row and row after the last of each run inside a batch."""
    if not batch.num_rows:
        return
    changes = np.zeros(batch.num_rows - 1, dtype=np.bool_)
    for name in key:
        codes = batch.column(name).dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    yield from zip(starts, [*starts[1:], batch.num_rows], strict=True)
