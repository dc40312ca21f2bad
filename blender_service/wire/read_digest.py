"""Digests of the rows that a reader consumed, to compare runs that should have read the same.

The digest of a row is a keyed sum over its tokens, its segments and its place in the blend. Digests of rows are added
up by stretches of the blend, so that it does not matter how many ranks read which of them::

    rank 0   rows 0, 2, 4, ..   stretch 0: 2,048 rows, 0x1d..  |
    rank 1   rows 1, 3, 5, ..   stretch 0: 2,048 rows, 0x9a..  |  together 4,096 rows, the sum modulo 2^64
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.wire.row_batch import RowBatch
from headrace.kernels.mixing import GOLDEN, mix64

STRETCH_ROWS: Final = 4096  # some seconds of a large run; a month of one has some ten thousand
_UInt64Array = NDArray[np.uint64]


class Stretch(NamedTuple):
    """What was consumed of a stretch: its number, how many rows, the sum of their digests."""

    number: int
    rows: int
    digest: int


def row_digests(batch: RowBatch) -> _UInt64Array:
    """(R,) digests of rows: equal where tokens, bounds of segments and the row's number are."""
    ids = np.ascontiguousarray(batch.input_ids)
    words: NDArray[np.unsignedinteger] = ids.view(np.uint64) if ids.shape[1] * ids.itemsize % 8 == 0 else ids
    keys = _keys(max(words.shape[1], ids.shape[1] + 1))
    sums = (words * keys[: words.shape[1]]).sum(axis=1, dtype=np.uint64)
    bounds = np.zeros(batch.window_starts.size + 1, np.uint64)
    np.cumsum(keys[batch.window_starts] * batch.segment_token_counts.astype(np.uint64), out=bounds[1:])
    ends = np.cumsum(batch.segment_counts, dtype=np.int64)
    sums = mix64(sums) + (bounds[ends] - bounds[ends - batch.segment_counts])
    digests: _UInt64Array = mix64(sums + mix64(np.arange(batch.offset, batch.end).astype(np.uint64) * GOLDEN))
    return digests


class ReadDigest:
    """Digests of a read: added as rows come, taken up to where the consumer is. One thread adds, another takes."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._waiting: deque[tuple[int, int, _UInt64Array]] = deque()
        self._sums: dict[int, tuple[int, int]] = {}
        self._changed: set[int] = set()

    def add(self, batch: RowBatch) -> None:
        """Add rows that came."""
        self._waiting.append((batch.end, batch.offset, row_digests(batch)))

    def consume(self, row: int) -> None:
        """Count the rows below `row` as consumed."""
        while self._waiting and self._waiting[0][0] <= row:
            end, first, digests = self._waiting.popleft()
            for number in range(first // STRETCH_ROWS, (end - 1) // STRETCH_ROWS + 1):
                part = digests[max(0, number * STRETCH_ROWS - first) : (number + 1) * STRETCH_ROWS - first]
                rows, digest = self._sums.get(number, (0, 0))
                self._sums[number] = rows + part.size, (digest + int(part.sum(dtype=np.uint64))) % (1 << 64)
                self._changed.add(number)

    def take(self) -> list[Stretch]:
        """Give the stretches of which more was consumed since the last time."""
        taken = [Stretch(number, *self._sums[number]) for number in sorted(self._changed)]
        kept = max(self._sums, default=0)  # of the stretches before, no further row can come
        self._sums = {number: sums for number, sums in self._sums.items() if number == kept}
        self._changed.clear()
        return taken

    def restart(self) -> None:
        """Count what is consumed from here on as another read's."""
        self._sums.clear()
        self._changed.clear()


@functools.lru_cache(maxsize=8)
def _keys(count: int) -> _UInt64Array:
    """(count,) odd numbers that look random."""
    keys: _UInt64Array = mix64(np.arange(1, count + 1).astype(np.uint64) * GOLDEN) | np.uint64(1)
    keys.flags.writeable = False
    return keys
