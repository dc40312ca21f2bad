"""Put the recognised lines of a page into the order of reading: column by column.

The page is cut from top to bottom at the place where most lines stand in two columns side by side, then each column in
the same way, until no cut is left. Lines that cross a cut alone, such as a headline, divide the page there:

    HEADLINE HEADLINE      the headline, a, b, c, d, then the line across, e, f
    a a a a   c c c c
    b b b b   d d d d      A line crossing with others beside it (the e at its left reaches below f) speaks
    across across acr      against a cut, and goes to the side of its middle.
    e e e e   f f f f

This is the recursive X-Y cut (Nagy and Seth 1984) with lines perhaps spanning columns; columns go from left to right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_LEVEL = 0.3  # radians; a page that leans more stands on its side, and is not turned
_TRIED_CUTS = 16
_CROSSING_COST = 3  # lines in columns that one line with others beside it outweighs


class Line(NamedTuple):
    """A recognised line: its text, how sure the engine is of it (0 to 1), and its corners (x, y), top left first."""

    text: str
    confidence: float
    corners: Sequence[Sequence[float]]


class _Box(NamedTuple):
    """The place of a line on the levelled page, and its text."""

    left: float
    top: float
    right: float
    bottom: float
    text: str

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


_Row = list[_Box]
_Band = tuple[list[_Box], list[_Box], list[_Box]]  # left of a cut, right of it, the line across below them


def text_in_order(lines: Sequence[Line]) -> str:
    """The text of a page, one line for what stands in one line of a column."""
    rows = _in_columns(_levelled(lines)) if lines else []
    return "\n".join(" ".join(box.text for box in row) for row in rows)


def _levelled(lines: Sequence[Line]) -> list[_Box]:
    """Boxes of the lines, turned by the median angle of the longer ones."""
    corners = np.array([line.corners for line in lines], np.float64)
    tops = corners[:, 1] - corners[:, 0]
    widths = np.hypot(tops[:, 0], tops[:, 1])
    angle = float(np.median(np.arctan2(tops[:, 1], tops[:, 0])[widths >= np.median(widths)]))
    cosine, sine = (np.cos(angle), np.sin(angle)) if abs(angle) <= _LEVEL else (1.0, 0.0)
    level = corners @ np.array([[cosine, -sine], [sine, cosine]])
    starts, ends = level.min(axis=1).tolist(), level.max(axis=1).tolist()
    places = zip(starts, ends, lines, strict=True)
    return [_Box(left, top, right, bottom, line.text) for (left, top), (right, bottom), line in places]


def _in_columns(boxes: list[_Box]) -> list[_Row]:
    """Rows of the boxes in the order of reading."""
    best, bands = 0, list[_Band]()
    for cut in _likely_cuts(boxes):
        cut_bands, crossing_count = _bands(boxes, cut)
        in_columns = sum(len(left) + len(right) for left, right, _ in cut_bands if _are_columns(left, right))
        if in_columns - _CROSSING_COST * crossing_count > best:
            best, bands = in_columns - _CROSSING_COST * crossing_count, cut_bands
    if not bands:
        return _rows(boxes)
    rows = list[_Row]()
    for left, right, across in bands:
        if _are_columns(left, right):
            rows += _in_columns(left) + _in_columns(right)
        else:
            rows += _in_columns(left + right)
        rows += _rows(across)
    return rows


def _likely_cuts(boxes: list[_Box]) -> list[float]:
    """Left edges of boxes with two or more on either side, those crossing the fewest first; at most those tried."""
    lefts, rights = np.array([box.left for box in boxes]), np.array([box.right for box in boxes])
    cuts = np.unique(lefts)
    before, after = (rights[:, None] <= cuts).sum(axis=0), (lefts[:, None] >= cuts).sum(axis=0)
    crossing = np.where((before > 1) & (after > 1), len(boxes) - before - after, len(boxes))
    likely = np.argsort(crossing, kind="stable")[:_TRIED_CUTS]
    return [float(cuts[index]) for index in likely if crossing[index] < len(boxes)]


def _are_columns(left: list[_Box], right: list[_Box]) -> bool:
    """Whether there are two rows or more on either side."""
    return len(left) > 1 and len(right) > 1 and len(_rows(left)) > 1 and len(_rows(right)) > 1


def _bands(boxes: list[_Box], cut: float) -> tuple[list[_Band], int]:
    """What stands left and right of a cut, between the lines crossing it alone; how many cross it beside others."""
    left = [box for box in boxes if box.right <= cut]
    right = [box for box in boxes if box.left >= cut]
    sides, across, crossing_count = (*left, *right), list[_Box](), 0
    for box in boxes:
        if box.left < cut < box.right:
            if any(_is_beside(box, other) for other in sides):
                crossing_count += 1
                (left if box.left + box.right < 2 * cut else right).append(box)
            else:
                across.append(box)
    across.sort(key=lambda box: box.middle)
    ends = np.array([box.middle for box in across])
    bands: list[_Band] = [([], [], [box]) for box in across] + [([], [], [])]
    for side, members in enumerate((left, right)):
        for box in members:
            bands[int(np.searchsorted(ends, box.middle))][side].append(box)
    return bands, crossing_count


def _is_beside(box: _Box, other: _Box) -> bool:
    """Whether two boxes have half of the lower one's height in common."""
    shared = min(box.bottom, other.bottom) - max(box.top, other.top)
    return shared > 0.5 * min(box.bottom - box.top, other.bottom - other.top)


def _rows(boxes: list[_Box]) -> list[_Row]:
    """Group boxes of one line, from top to bottom; each line from left to right."""
    rows = list[_Row]()
    for box in sorted(boxes, key=lambda box: (box.middle, box.left)):
        if rows and rows[-1][0].top < box.middle < rows[-1][0].bottom:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [sorted(row) for row in rows]
