"""Describe what a blend has read at an offset, and when its sources run out: from its head alone, no row is read.

The counted rows of a source are exact. The expected rows follow from its weights, summed over the segments; the two
differ by less than one row, or turn, per segment (Tijdeman's bound holds from the origin of a segment, not over all).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from blender_service.blend.config import BlendConfig
from blender_service.blend.definition_messages import Description, SegmentDescription, SourceDescription
from blender_service.exceptions import InvalidReadError, OffsetOutOfRangeError
from blender_service.order.epochs import distinct_rows, epoch_of, epoch_span, row_limit
from blender_service.order.resolved_blend import Head
from blender_service.order.segments import OFFSET_LIMIT, Part, turns_limit

_LINES, _NAMES = 12, 6  # about the ends of hundreds of sources


class SourceEnd(NamedTuple):
    """How a blend ends for a source.

    Attributes:
        runs_out_at: first offset with a slot it cannot fill, None if there is none. The blend ends there, or goes on
            without it.
        unread_rows: rows of its table that the blend never reads; None for a live source.
    """

    runs_out_at: int | None
    unread_rows: int | None


def describe(config: BlendConfig, head: Head, offset: int | None = None) -> Description:
    """Describe the rows [0, offset) of a blend.

    Args:
        config: of the blend.
        head: what it resolves to.
        offset: None for the end, or for the first cycle of the last segment of a blend without end.

    Raises:
        InvalidReadError: the offset is below 0 or too large.
        OffsetOutOfRangeError: the offset is beyond the end.
    """
    end = head.end
    if offset is None:
        last = head.segments[-1] if end is None else None
        offset = last.start + last.cycle_rows if last is not None else end or 0
    if not 0 <= offset < OFFSET_LIMIT:
        raise InvalidReadError(f"describe: offset {offset} is not in 0 to 2**62 - 1")
    if end is not None and offset > end:
        raise OffsetOutOfRangeError(
            f"blend {config.blend_id}: offset {offset} is beyond its end {end}; give 0 to {end}"
        )
    rows: dict[str, int] = {}
    tokens: dict[str, int] = {}
    expected: dict[str, list[float]] = {}
    at: dict[str, Part] = {}
    for segment in head.segments:
        if segment.start >= offset and segment.start > 0:
            break
        stop = offset if segment.end is None else min(offset, segment.end)
        counts = [part.end_row or 0 for part in segment.parts] if stop == segment.end else segment.rows_at(stop)
        window_tokens = config.window_tokens_at(segment.start)
        for part, count in zip(segment.parts, counts, strict=True):
            tokens[part.name] = tokens.get(part.name, 0) + (count - rows.get(part.name, 0)) * window_tokens
            rows[part.name], at[part.name] = count, part
            expected.setdefault(part.name, []).append((stop - segment.start) * part.weight / segment.cycle_rows)
    following = next((s for s in head.segments if s.start <= offset and (s.end is None or offset < s.end)), None)
    active = {part.name for part in following.parts} if following is not None else set()
    pins = head.pins()
    ends = source_ends(config, head)
    sources = []
    for name in sorted(pins):
        read, promised = rows.get(name, 0), math.fsum(expected.get(name, []))
        sources.append(
            SourceDescription(
                name=name,
                table=pins[name].table,
                rows=read,
                tokens=tokens.get(name, 0),
                expected_rows=promised,
                share=read / offset if offset else 0.0,
                expected_share=promised / offset if offset else 0.0,
                epochs=_epochs(at.get(name), read),
                runs_out_at=ends[name].runs_out_at,
                active=name in active,
                live=pins[name].rows is None,
                unread_rows=ends[name].unread_rows,
            )
        )
    segments = (
        SegmentDescription(cut.start, cut.end, {part.name: part.weight for part in cut.parts}) for cut in head.segments
    )
    return Description(offset, sum(tokens.values()), tuple(sources), tuple(segments))


def source_ends(config: BlendConfig, head: Head) -> dict[str, SourceEnd]:
    """Give how the blend ends for every source, by name, from its segments alone.

    Sources removed by an update have not run out, nor have those without a limit of epochs.
    """
    max_epochs = {source.name: source.max_epochs or 0 for source in config.sources}
    last = {part.name: (part, segment.end) for segment in head.segments for part in segment.parts}
    ends: dict[str, SourceEnd] = {}
    for name, (part, end) in last.items():
        limit, rows, read = row_limit(part.read_runs, max_epochs.get(name, 0)), part.pin.rows, part.end_row
        limit = turns_limit(limit, config.turn_rows or 1)
        runs_out = end is not None and limit is not None and (read or 0) >= limit
        if part.pin.unread is not None:  # the rest of the epoch in which rows became longer
            unread = 0 if read is None else max(0, part.read_runs[-1].first - read)
        else:
            unread = 0 if read is None or rows is None else rows - distinct_rows(part.read_runs, read)
        ends[name] = SourceEnd(end if runs_out else None, None if rows is None else unread)
    return ends


def ending_lines(ends: Mapping[str, SourceEnd], end: int | None) -> list[str]:
    """Say in words when sources run out, what happens then, and what stays unread.

    Args:
        ends: of the sources, by name.
        end: rows of the blend, None without end.
    """
    out: dict[int, list[str]] = {}
    for name, at in sorted(ends.items()):
        if at.runs_out_at is not None:
            out.setdefault(at.runs_out_at, []).append(name)
    lines = [
        f"{_listed(names)} {'runs' if len(names) == 1 else 'run'} out at row {offset:,}: the blend "
        f"{'ends' if offset == end else 'goes on without it' if len(names) == 1 else 'goes on without them'}"
        for offset, names in sorted(out.items())
    ]
    if len(lines) > _LINES:
        lines[_LINES - 1 : -1] = [f".. {len(lines) - _LINES:,} more such rows .."]
    unread = sorted(((at.unread_rows or 0, name) for name, at in ends.items() if at.unread_rows), reverse=True)
    if unread:
        total = sum(rows for rows, _ in unread)
        lines.append(f"{total:,} rows stay unread: {_listed([f'{rows:,} of {name}' for rows, name in unread])}")
    elif end is not None and all(at.unread_rows == 0 for at in ends.values()):
        lines.append("every row of every source is read")
    return lines


def _listed(names: list[str]) -> str:
    """Name some of many."""
    return ", ".join([*names[:_NAMES], *([f"{len(names) - _NAMES:,} more"] if len(names) > _NAMES else [])])


def _epochs(part: Part | None, rows: int) -> float | None:
    """Count the passes done as a fraction: the whole ones, and the share of the current one."""
    if part is not None and part.pin.rows is None:
        return None
    if part is None or rows == 0:
        return 0.0
    epoch = epoch_of(part.read_runs, rows - 1)
    first, end = epoch_span(part.read_runs, epoch)
    return epoch + (rows - first) / (end - first)
