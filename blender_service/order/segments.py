"""Resolve a blend to segments: ranges of offsets with constant weights.

A new segment starts at an update, or where a source runs out. Everything is closed form, no data is read::

    a: 4 rows, CONTINUE   b: 100 rows, END   weights 1:1

    segment 0   offsets [0, 8)      cycle ab    ends at the first slot that a cannot fill
    segment 1   offsets [8, 104)    cycle b     ends at the first slot that b cannot fill: the blend ends

A source is exhausted at the first slot it cannot fill, not after its last row: so a blend whose weights are the row
counts reads every row of every source in one segment, although each of them is an END source.

Where sources take turns of several rows, one without rows for a whole turn is exhausted, so every segment begins with a
turn; what it has left is never read.

An update keeps the segments before its first offset, and continues every source after its last row there. Where neither
the sources nor their weights change, the cycle continues in its phase, so that frequent updates cost no exactness.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from blender_service.exceptions import ExhaustedSourceError
from blender_service.order.epochs import ReadRuns, continue_read_runs, fresh_read_runs, longer_read_runs, row_limit
from blender_service.order.interleave import Cycle, build_cycle, reduce_weights

OFFSET_LIMIT: Final = 1 << 62  # offset + rows of any read then fits an int64 with a bit to spare


class Pin(NamedTuple):
    """The table and snapshot of a source's rows.

    Attributes:
        table: identifier, namespace.table.
        table_uuid: UUID of the table.
        snapshot_id: pinned snapshot, None for a live source.
        rows: number of rows N at that snapshot, None for a live source.
        generation: headrace.generation of the packing.
        cells: choice of cells (`headrace.tables.cells`) that its rows are of; None for all rows of the table.
        runs: hash of the runs of ordinals of these rows, kept with the blends; None where all are or it is live.
        unread: hash of which documents of a table of text were not read in the epoch in which rows became longer; None
            where they never did after its first row.
        unread_rows: rows of these documents, behind the `rows` of all.
    """

    table: str
    table_uuid: str
    snapshot_id: str | None
    rows: int | None
    generation: str
    cells: str | None = None
    runs: str | None = None
    unread: str | None = None
    unread_rows: int | None = None

    @property
    def snapshot_number(self) -> int | None:
        """The pinned snapshot as Iceberg numbers it."""
        return None if self.snapshot_id is None else int(self.snapshot_id)


class SourceOrder(NamedTuple):
    """The fields of a source deciding the order of rows.

    Attributes:
        name: its identity.
        weight: whole part of the cycle, >= 1.
        pin: its table and snapshot; only the number of rows decides the order.
        max_epochs: passes over the source; 0 goes round without end.
        ends_blend: whether the blend ends where this source does; otherwise it goes on without it.
    """

    name: str
    weight: int
    pin: Pin
    max_epochs: int
    ends_blend: bool


class Part(NamedTuple):
    """A source's part of a segment.

    Attributes:
        name: of the source.
        weight: rows in one cycle, whole turns; the weights of a segment have no other common divisor.
        first_row: rows given by the source before the segment's origin.
        end_row: rows given by it at the segment's end, None without end.
        read_runs: map its k-th read to an ordinal.
        pin: where its rows are; the latest pin of a source covers the rows of all earlier ones.
    """

    name: str
    weight: int
    first_row: int
    end_row: int | None
    read_runs: ReadRuns
    pin: Pin


class Segment(NamedTuple):
    """Offsets [start, end) with constant weights.

    Attributes:
        origin: offset where its cycle has slot 0; before `start` where an update changed no weight.
        start: its first offset.
        end: offset after its last one, None without end.
        parts: the participating sources, ascending by name.
        turn_rows: consecutive rows of one source.
    """

    origin: int
    start: int
    end: int | None
    parts: tuple[Part, ...]
    turn_rows: int = 1

    @property
    def weights(self) -> tuple[int, ...]:
        """The parts of the cycle."""
        return tuple(part.weight for part in self.parts)

    @property
    def cycle_rows(self) -> int:
        """Length P of the cycle."""
        return sum(part.weight for part in self.parts)

    @property
    def cycle(self) -> Cycle:
        """The interleaving of its sources."""
        return build_cycle(self.weights, self.turn_rows)

    def rows_at(self, offset: int) -> list[int]:
        """Count the rows given by each source before an offset of the segment, or at its end."""
        turns, slot = divmod(offset - self.origin, self.cycle_rows)
        counts = self.cycle.counts_before(slot).tolist() if slot else [0] * len(self.parts)
        return [part.first_row + part.weight * turns + count for part, count in zip(self.parts, counts, strict=True)]


class SourceProgress(NamedTuple):
    """How far a source was read.

    Attributes:
        rows: rows it has given.
        read_runs: map its reads, past and future, to ordinals.
        pin: table and snapshot of its rows.
    """

    rows: int
    read_runs: ReadRuns
    pin: Pin


def resolve_segments(
    sources: Sequence[SourceOrder], kept: Sequence[Segment] = (), from_offset: int = 0, turn_rows: int = 1
) -> list[Segment]:
    """Cut a blend into its segments; the end of the last one is the end of the blend.

    Args:
        sources: ascending by name; that order breaks ties inside the cycle.
        kept: the segments before `from_offset`, from `cut_segments`; none for a blend without parent.
        from_offset: first offset decided by the sources; a multiple of `turn_rows`.
        turn_rows: consecutive rows of one source, the same in `kept`.

    Raises:
        ExhaustedSourceError: a source ending the blend has no row, or no whole turn, left at `from_offset`.
    """
    segments = list(kept)
    progress = consumed(segments)
    taken = {source.name: _continue_source(source, progress.get(source.name)) for source in sources}
    limits = {
        source.name: turns_limit(row_limit(taken[source.name].read_runs, source.max_epochs), turn_rows)
        for source in sources
    }
    offset = from_offset
    while True:
        spent = {name for name, limit in limits.items() if limit is not None and taken[name].rows >= limit}
        ended = [source.name for source in sources if source.ends_blend and source.name in spent]
        if ended and offset == from_offset:
            raise ExhaustedSourceError(
                f"blend: source {', '.join(ended)} has no {'row' if turn_rows == 1 else f'turn of {turn_rows} rows'} "
                f"left at offset {from_offset} and would end the blend there; raise its max_epochs, remove it, or set "
                "on_exhausted to CONTINUE"
            )
        active = [source for source in sources if source.name not in spent]
        if ended or not active:
            return segments
        segment = _segment_at(offset, active, taken, limits, segments[-1] if segments else None, turn_rows)
        segments.append(segment)
        if segment.end is None:
            return segments
        offset = segment.end
        taken |= {part.name: SourceProgress(part.end_row or 0, part.read_runs, part.pin) for part in segment.parts}


def turns_limit(rows: int | None, turn_rows: int) -> int | None:
    """Count the rows of a source in whole turns, None without end."""
    return None if rows is None else rows - rows % turn_rows


def cut_segments(segments: Sequence[Segment], offset: int) -> list[Segment]:
    """Keep what lies before an offset; the last segment kept ends there."""
    kept = [segment for segment in segments if segment.start < offset]
    if kept and (kept[-1].end is None or kept[-1].end > offset):
        kept[-1] = _with_end(kept[-1], offset)
    return kept


def consumed(segments: Sequence[Segment]) -> dict[str, SourceProgress]:
    """Give how far each source was read at the end of the last segment; that segment must have an end."""
    progress: dict[str, SourceProgress] = {}
    for segment in segments:
        for part in segment.parts:
            progress[part.name] = SourceProgress(part.end_row or 0, part.read_runs, part.pin)
    return progress


def _continue_source(source: SourceOrder, before: SourceProgress | None) -> SourceProgress:
    """Start a source, or continue it after the last row read."""
    if before is None or before.rows == 0:
        return SourceProgress(0, fresh_read_runs(source.pin.rows), source.pin)
    if source.pin.unread != before.pin.unread:
        of_longer = longer_read_runs(before.read_runs, before.rows, source.pin.rows or 0, source.pin.unread_rows or 0)
        return SourceProgress(before.rows, of_longer, source.pin)
    return SourceProgress(
        before.rows, continue_read_runs(before.read_runs, before.rows, before.pin.rows, source.pin.rows), source.pin
    )


def _segment_at(
    start: int,
    active: Sequence[SourceOrder],
    taken: dict[str, SourceProgress],
    limits: dict[str, int | None],
    before: Segment | None,
    turn_rows: int,
) -> Segment:
    """Build the segment at `start`, up to the first offset of a source without a row left."""
    reduced = reduce_weights([Fraction(source.weight) for source in active])
    weights = tuple(weight * turn_rows for weight in reduced)
    names = tuple(source.name for source in active)
    goes_on = before is not None and before.weights == weights and tuple(part.name for part in before.parts) == names
    origin = before.origin if goes_on and before is not None else start
    parts = []
    for index, (source, weight) in enumerate(zip(active, weights, strict=True)):
        read = taken[source.name]
        first_row = before.parts[index].first_row if goes_on and before is not None else read.rows
        parts.append(Part(source.name, weight, first_row, None, read.read_runs, read.pin))
    segment = Segment(origin, start, None, tuple(parts), turn_rows)
    cycle_rows, cycle = segment.cycle_rows, segment.cycle
    ends: list[int] = []
    for index, part in enumerate(parts):
        limit = limits[part.name]
        if limit is not None:
            turns, rank = divmod(limit - part.first_row, part.weight)
            ends.append(origin + turns * cycle_rows + cycle.slot_of(index, rank))
    end = min(ends, default=OFFSET_LIMIT)
    return _with_end(segment, end) if end < OFFSET_LIMIT else segment


def _with_end(segment: Segment, end: int) -> Segment:
    """End a segment at an offset, and count the rows up to there."""
    parts = tuple(part._replace(end_row=rows) for part, rows in zip(segment.parts, segment.rows_at(end), strict=True))
    return segment._replace(end=end, parts=parts)
