"""Map the k-th read of a source to an ordinal of its table, across epochs and growth.

The reads of a source are cut into stretches, each with a range of ordinals and a way to order them. A source that never
changes has one stretch: epochs of N rows without end. Where its table grows in epoch e, the stretches of that epoch are
kept to its end, the new rows follow as an extent of the same epoch, shuffled among themselves, and the next epochs go
over all rows::

    N = 4, after 2 rows the table grows to 6          k  0 1 | 2 3   4 5   6 7 8 9 10 11 ...
                                                 ordinal  2 0 | 3 1   5 4   3 0 5 1 4  2
                                                          epoch 0  | extent | epoch 1 over six rows

A live source is read in the order of its ordinals. A source that becomes live goes on after the rows that its epoch
covers; one that is pinned again shuffles the rows it has not read. No row comes twice in an epoch and none is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blender_service.exceptions import ShrunkSourceError


class Stretch(NamedTuple):
    """Consecutive reads of one source whose ordinals follow one rule.

    Attributes:
        first: number k of its first read.
        rows: how many reads it has, None without end; whole epochs, but for a live stretch that was cut.
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
        """Ordinal after the largest that it gives; only for a stretch that has an end."""
        return self.base + (self.size or self.rows or 0)


Stretches = tuple[Stretch, ...]


def fresh_stretches(rows: int | None) -> Stretches:
    """Give the stretches of a source of which no row was read.

    Args:
        rows: N of the pinned snapshot, None for a live source.
    """
    return (Stretch(0, None, 0, rows or 0, 0),)


def stretch_of(stretches: Stretches, row: int) -> Stretch:
    """Find the stretch that a row of the source belongs to."""
    return next(stretch for stretch in reversed(stretches) if stretch.first <= row)


def epoch_of(stretches: Stretches, row: int) -> int:
    """Give the epoch of a row of the source."""
    stretch = stretch_of(stretches, row)
    return stretch.epoch + (row - stretch.first) // stretch.size if stretch.size else stretch.epoch


def epoch_span(stretches: Stretches, epoch: int) -> tuple[int, int]:
    """Give the first row of an epoch and the row after its last one."""
    held = _stretches_of_epoch(stretches, epoch)
    return held[0].first, held[-1].first + (held[-1].rows or 0)


def covered_rows(stretches: Stretches, consumed: int) -> int:
    """Count the ordinals that a source has read by the end of its epoch; an update needs a table of that many.

    `consumed` is the number of rows read so far, at least 1.
    """
    return max(stretch.reach for stretch in _to_end_of_epoch(stretches, consumed))


def continue_stretches(stretches: Stretches, consumed: int, old_rows: int | None, new_rows: int | None) -> Stretches:
    """Give the stretches of a source after an update.

    Args:
        stretches: before it.
        consumed: rows read so far, >= 1.
        old_rows: N before, None if it was live.
        new_rows: N from now on, at least `covered_rows`; None if it is live now.

    Raises:
        ShrunkSourceError: N is less, so some row would be named that is not there, or never be read.
    """
    if old_rows == new_rows:
        return stretches
    kept = _to_end_of_epoch(stretches, consumed)
    covered = max(stretch.reach for stretch in kept)
    epoch = epoch_of(stretches, consumed - 1)
    end = kept[-1].first + (kept[-1].rows or 0)
    if new_rows is None:
        return (*kept, Stretch(end, None, covered, 0, epoch))
    if new_rows < covered:
        raise ShrunkSourceError(
            f"source: {covered} rows are read by the end of epoch {epoch}, the snapshot has {new_rows}; remove the "
            "source, and add its table under a new name, where it starts at row 0"
        )
    if new_rows > covered:
        kept = (*kept, Stretch(end, new_rows - covered, covered, new_rows - covered, epoch))
        end += new_rows - covered
    return (*kept, Stretch(end, None, 0, new_rows, epoch + 1))


def row_limit(stretches: Stretches, max_epochs: int) -> int | None:
    """Count the rows that a source can give in all, None without end.

    Args:
        stretches: of the source.
        max_epochs: passes over it, 0 for no end. With fewer than were read already, the limit is below the rows read.
    """
    if max_epochs == 0 or stretches[-1].size == 0:
        return None
    held = _stretches_of_epoch(stretches, max_epochs - 1)
    if not held:
        return stretches[0].first
    return held[-1].first + (held[-1].rows or 0)


def _to_end_of_epoch(stretches: Stretches, consumed: int) -> Stretches:
    """Keep what belongs to the epoch of the last row read; a live stretch ends with that row."""
    kept = []
    for stretch in _stretches_of_epoch(stretches, epoch_of(stretches, consumed - 1)):
        rows = stretch.rows if stretch.rows is not None else max(0, consumed - stretch.first)
        if rows:
            kept.append(stretch._replace(rows=rows))
    return tuple(kept)


def _stretches_of_epoch(stretches: Sequence[Stretch], epoch: int) -> Stretches:
    """Cut the stretches down to one epoch."""
    found = []
    for stretch in stretches:
        turn = epoch - stretch.epoch
        if stretch.size == 0 and turn == 0:
            found.append(stretch)
        elif stretch.size and turn >= 0 and (stretch.rows is None or turn < stretch.rows // stretch.size):
            found.append(stretch._replace(first=stretch.first + turn * stretch.size, rows=stretch.size, epoch=epoch))
    return tuple(found)
