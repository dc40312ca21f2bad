"""A blend resolves to segments: ranges of offsets inside which the weights are constant.

A new segment starts where a source runs out. Everything is closed form, no data is read::

    a: 4 rows, CONTINUE   b: 100 rows, END   weights 1:1

    segment 0   offsets [0, 8)      cycle ab    ends at the first slot that a cannot fill
    segment 1   offsets [8, 104)    cycle b     ends at the first slot that b cannot fill: the blend ends

A source is exhausted at the first slot it cannot fill, not after its last row: so a blend whose weights are the row
counts reads every row of every source in one segment, although each of them is an END source.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from blender_service.cycle import Cycle, build_cycle, reduce_weights

OFFSET_LIMIT: Final = 1 << 62


class SourceOrder(NamedTuple):
    """What the order must know of a source.

    Attributes:
        weight: whole part of the cycle, >= 1.
        rows: number of rows N, >= 1.
        max_epochs: passes over the source; 0 goes round without end.
        ends_blend: whether the blend ends where this source does; otherwise it goes on without it.
    """

    weight: int
    rows: int
    max_epochs: int
    ends_blend: bool

    @property
    def row_limit(self) -> int | None:
        """Number of rows this source can give in all, None without end."""
        return self.max_epochs * self.rows if self.max_epochs else None


class Segment(NamedTuple):
    """Offsets [origin, end) with constant weights.

    Attributes:
        origin: offset where it starts, and where its cycle has place 0.
        end: offset after its last row, None without end.
        active: indices of the sources that take part.
        weights: their parts of the cycle, without a common divisor.
        first_rows: rows each of them had given before the origin.
    """

    origin: int
    end: int | None
    active: tuple[int, ...]
    weights: tuple[int, ...]
    first_rows: tuple[int, ...]

    @property
    def cycle(self) -> Cycle:
        """The interleaving of its sources."""
        return build_cycle(self.weights)


def resolve_segments(sources: Sequence[SourceOrder]) -> list[Segment]:
    """Cut a blend into its segments; the end of the last one is the end of the blend.

    Args:
        sources: in the order of the config, by name; that order breaks ties inside the cycle.
    """
    segments: list[Segment] = []
    consumed = [0] * len(sources)
    origin = 0
    while True:
        spent = [i for i, source in enumerate(sources) if consumed[i] == source.row_limit]
        if any(sources[i].ends_blend for i in spent):
            return segments
        active = tuple(i for i in range(len(sources)) if i not in spent)
        if not active:
            return segments
        segment = _segment_from(origin, active, sources, consumed)
        segments.append(segment)
        if segment.end is None:
            return segments
        for i, rows in zip(active, _rows_until(segment.cycle, segment.end - origin), strict=True):
            consumed[i] += rows
        failing = _source_at(segment, segment.end)
        if sources[failing].ends_blend:
            return segments
        origin = segment.end


def _segment_from(
    origin: int, active: tuple[int, ...], sources: Sequence[SourceOrder], consumed: Sequence[int]
) -> Segment:
    """Build the segment at `origin`, up to the first offset whose source has no row left."""
    weights = reduce_weights([Fraction(sources[i].weight) for i in active])
    cycle = build_cycle(weights)
    ends: list[int] = []
    for place, i in enumerate(active):
        limit = sources[i].row_limit
        if limit is not None:
            turns, rank = divmod(limit - consumed[i], weights[place])
            ends.append(origin + turns * cycle.rows + cycle.place_of(place, rank))
    end = min(ends, default=OFFSET_LIMIT)
    return Segment(origin, end if end < OFFSET_LIMIT else None, active, weights, tuple(consumed[i] for i in active))


def _rows_until(cycle: Cycle, length: int) -> list[int]:
    """Count the rows of each source among the first `length` rows of a segment."""
    turns, place = divmod(length, cycle.rows)
    counts = np.array(cycle.weights, dtype=object) * turns + cycle.counts_before(place)
    return [int(count) for count in counts]


def _source_at(segment: Segment, offset: int) -> int:
    """Name the source whose slot an offset is, by the segment's cycle."""
    cycle = segment.cycle
    return segment.active[int(cycle.source[(offset - segment.origin) % cycle.rows])]
