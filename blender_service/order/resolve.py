"""Resolve offsets of a blend: a pure function from (config, offset) to (source, epoch, ordinal).

The cycle of an offset's segment gives the source (`interleave`); its runs of reads give the epoch of the source's k-th
read (`epochs`), and the epoch's grouped permutation gives the ordinal (`resolve_kernel`). Any offset costs the same,
however far it is.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from blender_service.arrays import Int64Array, UInt64Array
from blender_service.order.resolve_kernel import EpochState, new_state, resolve_rows
from blender_service.order.segments import Segment

SEGMENTS_AT_HAND: Final = 64


def source_key(seed: int, name: str) -> int:
    """Give the 64-bit key of a source: the same for the same seed and name, in every blend.

    Args:
        seed: of the blend, 0 <= seed < 2**64.
        name: of the source inside the blend, its identity; renaming the table changes nothing.

    Returns:
        First 8 bytes, little-endian, of SHA-256("headrace.blend.order.1", NUL, seed in decimal, NUL, name).
    """
    text = f"headrace.blend.order.1\0{seed}\0{name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


class ResolvedRows(NamedTuple):
    """Where the rows of some offsets lie.

    Attributes:
        source: (R,) index into the order's names.
        epoch: (R,) pass over that source, from 0.
        ordinal: (R,) row of its packed table; of a source of cells, the number of the row along their runs.
    """

    source: Int64Array
    epoch: Int64Array
    ordinal: Int64Array


class _SegmentArrays(NamedTuple):
    """The arguments of `resolve_rows` for a segment of n sources and G runs of reads; `source` indexes names, (n,)."""

    source: Int64Array
    parts: Int64Array
    keys: UInt64Array
    read_runs: Int64Array


class BlendOrder:
    """Resolves offsets of one blend; holds its segments and the cycles of those used last, and reads no table."""

    def __init__(self, seed: int, segments: Sequence[Segment], block_rows: int, group_blocks: int) -> None:
        """Order the rows of some segments.

        Args:
            seed: of the blend.
            segments: of the whole blend, those before its first update included.
            block_rows: rows of a block of the grouped permutation.
            group_blocks: blocks with rows shuffled together.
        """
        self.segments = tuple(segments)
        self.names = tuple(sorted({part.name for segment in segments for part in segment.parts}))
        self._index = {name: index for index, name in enumerate(self.names)}
        self._keys = np.array([source_key(seed, name) for name in self.names], dtype=np.uint64)
        self.block_rows = block_rows
        self.group_blocks = group_blocks
        self._starts = [segment.start for segment in self.segments]
        self._states = threading.local()
        self._arrays_of = functools.lru_cache(maxsize=SEGMENTS_AT_HAND)(self._build_arrays)

    @property
    def end(self) -> int | None:
        """Number of rows of the blend: valid offsets are [0, end). None without end."""
        return self.segments[-1].end if self.segments else 0

    def key(self, name: str) -> np.uint64:
        """The key of a source's permutations."""
        return np.uint64(self._keys[self._index[name]])

    def resolve(self, offsets: Int64Array) -> ResolvedRows:
        """Find the rows of any offsets, in any order.

        Args:
            offsets: (R,) each in [0, end).
        """
        parts = self._by_segment(offsets)
        if len(parts) == 1:
            return self._resolve_in(parts[0][0], offsets)
        resolved = ResolvedRows(*(np.empty(offsets.size, dtype=np.int64) for _ in range(3)))
        for index, members in parts:
            rows = self._resolve_in(index, offsets[members])
            for whole, part in zip(resolved, rows, strict=True):
                whole[members] = part
        return resolved

    def _resolve_in(self, index: int, offsets: Int64Array) -> ResolvedRows:
        """Find the rows of offsets in one segment."""
        segment, arrays = self.segments[index], self._arrays_of(index)
        source, epoch, ordinal = resolve_rows(
            offsets - segment.origin,
            segment.cycle.source,
            segment.cycle.rank,
            arrays.parts,
            arrays.keys,
            arrays.read_runs,
            self.block_rows,
            self.group_blocks,
            self._state_of(index),
        )
        return ResolvedRows(arrays.source[source], epoch, ordinal)

    def _state_of(self, index: int) -> EpochState:
        """Give this thread's state of a segment: with hundreds of sources, half of the time went into making it."""
        kept: tuple[int, EpochState] | None = getattr(self._states, "kept", None)
        if kept is None or kept[0] != index:
            kept = self._states.kept = index, new_state(len(self.segments[index].parts), self.group_blocks)
        return kept[1]

    def _build_arrays(self, index: int) -> _SegmentArrays:
        """Lay a segment out for the kernel."""
        parts = self.segments[index].parts
        source = np.array([self._index[part.name] for part in parts], dtype=np.int64)
        read_runs = [
            (read_run.first, read_run.base, read_run.size, read_run.epoch)
            for part in parts
            for read_run in part.read_runs
        ]
        read_run_ends = np.cumsum([len(part.read_runs) for part in parts], dtype=np.int64)
        facts = np.array([(part.weight, part.first_row) for part in parts], dtype=np.int64)
        return _SegmentArrays(
            source, np.column_stack([facts, read_run_ends]), self._keys[source], np.array(read_runs, dtype=np.int64)
        )

    def _by_segment(self, offsets: Int64Array) -> list[tuple[int, Int64Array]]:
        """Split offsets by segment: the index of each segment met, with the positions of its offsets."""
        if offsets.size == 0:
            return []
        first = bisect_right(self._starts, int(offsets.min())) - 1
        last = bisect_right(self._starts, int(offsets.max())) - 1
        if first == last:
            return [(first, np.arange(offsets.size))]
        index = np.searchsorted(np.array(self._starts), offsets, side="right") - 1
        return [(int(i), np.flatnonzero(index == i)) for i in np.unique(index)]
