"""The order of a blend: a pure function from (config, offset) to (source, epoch, ordinal).

Which source an offset belongs to comes from its segment's `cycle`; the k-th row of a source is row k mod N of epoch
k div N, sent through the epoch's own grouped permutation. Any offset costs the same, however far it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.cycle import Cycle
from blender_service.order_kernel import resolve_rows
from blender_service.permutation import shuffle, source_key, tweak
from blender_service.segments import Segment, SourceOrder, resolve_segments

Int64Array = NDArray[np.int64]


class ResolvedRows(NamedTuple):
    """Where the rows of some offsets lie.

    Attributes:
        source: (R,) index of the source in the config.
        epoch: (R,) pass over that source, from 0.
        ordinal: (R,) row of its packed table.
    """

    source: Int64Array
    epoch: Int64Array
    ordinal: Int64Array


class BlendOrder:
    """Resolves offsets of one blend; holds segments and tables of cycles, reads nothing."""

    def __init__(
        self, seed: int, names: Sequence[str], sources: Sequence[SourceOrder], block_rows: int, group_blocks: int
    ) -> None:
        """Resolve the segments.

        Args:
            seed: of the blend.
            names: (n,) of the sources, ascending.
            sources: (n,) in the same order.
            block_rows: rows of a block of the grouped permutation.
            group_blocks: blocks whose rows are shuffled together.
        """
        self.segments = resolve_segments(sources)
        self._keys = np.array([source_key(seed, name) for name in names], dtype=np.uint64)
        self._sizes = np.array([source.rows for source in sources], dtype=np.int64)
        self._block_rows = block_rows
        self._group_blocks = group_blocks
        self._origins = [segment.origin for segment in self.segments]

    @property
    def end(self) -> int | None:
        """Number of rows of the blend: valid offsets are [0, end). None without end."""
        return self.segments[-1].end

    def resolve(self, offsets: Int64Array) -> ResolvedRows:
        """Find the rows of any offsets, in any order.

        Args:
            offsets: (R,) each in [0, end).
        """
        resolved = ResolvedRows(*(np.empty(offsets.size, dtype=np.int64) for _ in range(3)))
        for segment, members in self._by_segment(offsets):
            active = np.array(segment.active, dtype=np.int64)
            cycle: Cycle = segment.cycle
            source, epoch, ordinal = resolve_rows(
                offsets[members] - segment.origin,
                cycle.source,
                cycle.rank,
                np.array(segment.weights, dtype=np.int64),
                np.array(segment.first_rows, dtype=np.int64),
                self._sizes[active],
                self._keys[active],
                self._block_rows,
                self._group_blocks,
            )
            resolved.source[members] = active[source]
            resolved.epoch[members] = epoch
            resolved.ordinal[members] = ordinal
        return resolved

    def resolve_with_numpy(self, offsets: Int64Array) -> ResolvedRows:
        """Do what `resolve` does, in NumPy alone: the readable form, and the reference for the compiled one."""
        resolved = ResolvedRows(*(np.empty(offsets.size, dtype=np.int64) for _ in range(3)))
        for segment, members in self._by_segment(offsets):
            cycle = segment.cycle
            turn, place = np.divmod(offsets[members] - segment.origin, cycle.rows)
            local = cycle.source[place].astype(np.int64)
            weights = np.array(segment.weights, dtype=np.int64)
            first_rows = np.array(segment.first_rows, dtype=np.int64)
            k = first_rows[local] + turn * weights[local] + cycle.rank[place]
            source = np.array(segment.active, dtype=np.int64)[local]
            epoch, epoch_place = np.divmod(k, self._sizes[source])
            resolved.source[members] = source
            resolved.epoch[members] = epoch
            for i, e in np.unique(np.column_stack([source, epoch]), axis=0):
                chosen = np.flatnonzero((source == i) & (epoch == e))
                word = tweak(int(self._keys[i]), 0, int(e), 0)
                places = epoch_place[chosen].astype(np.uint64)
                ordinals = shuffle(places, word, int(self._sizes[i]), self._block_rows, self._group_blocks)
                resolved.ordinal[members[chosen]] = ordinals.astype(np.int64)
        return resolved

    def _by_segment(self, offsets: Int64Array) -> list[tuple[Segment, Int64Array]]:
        """Split offsets by segment: each segment met, with the positions of its offsets."""
        if offsets.size == 0:
            return []
        first = bisect_right(self._origins, int(offsets.min())) - 1
        last = bisect_right(self._origins, int(offsets.max())) - 1
        if first == last:
            return [(self.segments[first], np.arange(offsets.size))]
        index = np.searchsorted(np.array(self._origins), offsets, side="right") - 1
        return [(self.segments[i], np.flatnonzero(index == i)) for i in np.unique(index)]
