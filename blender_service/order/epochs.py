"""Legs say which row the k-th row of a source is, also after its table has grown in the middle of an epoch.

A source that never changes has one leg: epochs of N rows without end. Where an update finds it in epoch e, the legs of
that epoch are kept to its end, the new rows follow as an extent of the same epoch, shuffled among themselves, and the
next epochs go over all rows::

    N = 4, after 2 rows the table grows to 6          k  0 1 | 2 3   4 5   6 7 8 9 10 11 ...
                                                 ordinal  2 0 | 3 1   5 4   3 0 5 1 4  2
                                                          epoch 0  | extent | epoch 1 over six rows

A live source is read in the order of its ordinals. One that becomes live goes on behind the rows its epoch still
covers; one that is pinned again shuffles what it has not read. No row comes twice in an epoch and none is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blender_service.exceptions import ShrunkSourceError


class Leg(NamedTuple):
    """A stretch of rows of one source.

    Attributes:
        first: row k of the source that it starts with.
        rows: how many it has, None without end; whole epochs, but for a live leg that was cut.
        base: smallest ordinal that it gives.
        size: rows of one epoch, the ordinals [base, base + size); 0 for rows in the order of their ordinals.
        epoch: of its first row.
    """

    first: int
    rows: int | None
    base: int
    size: int
    epoch: int

    @property
    def end(self) -> int | None:
        """Row after its last one, None without end."""
        return None if self.rows is None else self.first + self.rows

    @property
    def reach(self) -> int:
        """Ordinal after the largest that it gives, for a leg that has an end."""
        return self.base + (self.size or self.rows or 0)


Legs = tuple[Leg, ...]


def fresh_legs(rows: int | None) -> Legs:
    """Give the legs of a source of which no row was read.

    Args:
        rows: N of the pinned snapshot, None for a live source.
    """
    return (Leg(0, None, 0, rows or 0, 0),)


def leg_of(legs: Legs, row: int) -> Leg:
    """Find the leg that a row of the source belongs to."""
    return next(leg for leg in reversed(legs) if leg.first <= row)


def epoch_of(legs: Legs, row: int) -> int:
    """Give the epoch of a row of the source."""
    leg = leg_of(legs, row)
    return leg.epoch + (row - leg.first) // leg.size if leg.size else leg.epoch


def epoch_span(legs: Legs, epoch: int) -> tuple[int, int]:
    """Give the first row of an epoch and the row after its last one.

    Args:
        legs: of a pinned source.
        epoch: one that they hold.
    """
    held = _legs_of_epoch(legs, epoch)
    return held[0].first, held[-1].first + (held[-1].rows or 0)


def covered_rows(legs: Legs, consumed: int) -> int:
    """Count the ordinals that a source has read by the end of the epoch it is in; no update can take them back.

    Args:
        legs: of the source.
        consumed: rows read so far, >= 1.
    """
    return max(leg.reach for leg in _to_end_of_epoch(legs, consumed))


def continue_legs(legs: Legs, consumed: int, old_rows: int | None, new_rows: int | None) -> Legs:
    """Give the legs of a source after an update.

    Args:
        legs: before it.
        consumed: rows read so far, >= 1.
        old_rows: N before, None if it was live.
        new_rows: N from now on, at least `covered_rows`; None if it is live now.

    Raises:
        ShrunkSourceError: N is less, so some row would be named that is not there, or never be read.
    """
    if old_rows == new_rows:
        return legs
    kept = _to_end_of_epoch(legs, consumed)
    covered = max(leg.reach for leg in kept)
    epoch = epoch_of(legs, consumed - 1)
    end = kept[-1].first + (kept[-1].rows or 0)
    if new_rows is None:
        return (*kept, Leg(end, None, covered, 0, epoch))
    if new_rows < covered:
        raise ShrunkSourceError(
            f"source: {covered} rows are read by the end of epoch {epoch}, the snapshot has {new_rows}; remove the "
            "source, and add its table under a new name, where it starts at row 0"
        )
    if new_rows > covered:
        kept = (*kept, Leg(end, new_rows - covered, covered, new_rows - covered, epoch))
        end += new_rows - covered
    return (*kept, Leg(end, None, 0, new_rows, epoch + 1))


def row_limit(legs: Legs, max_epochs: int) -> int | None:
    """Count the rows that a source can give in all, None without end.

    Args:
        legs: of the source.
        max_epochs: passes over it, 0 for no end. One below what was read already gives a limit that is passed.
    """
    if max_epochs == 0 or legs[-1].size == 0:
        return None
    held = _legs_of_epoch(legs, max_epochs - 1)
    if not held:
        return legs[0].first
    return held[-1].first + (held[-1].rows or 0)


def _to_end_of_epoch(legs: Legs, consumed: int) -> Legs:
    """Keep what belongs to the epoch of the last row read; a live leg ends with that row."""
    kept = []
    for leg in _legs_of_epoch(legs, epoch_of(legs, consumed - 1)):
        rows = leg.rows if leg.rows is not None else max(0, consumed - leg.first)
        if rows:
            kept.append(leg._replace(rows=rows))
    return tuple(kept)


def _legs_of_epoch(legs: Sequence[Leg], epoch: int) -> Legs:
    """Cut the legs down to one epoch."""
    found = []
    for leg in legs:
        turn = epoch - leg.epoch
        if leg.size == 0 and turn == 0:
            found.append(leg)
        elif leg.size and turn >= 0 and (leg.rows is None or turn < leg.rows // leg.size):
            found.append(leg._replace(first=leg.first + turn * leg.size, rows=leg.size, epoch=epoch))
    return tuple(found)
