"""Map the k-th read of a source to an ordinal of its table, across epochs and growth.

The reads of a source are cut into runs, each with a range of ordinals and a way to order them. A source that never
changes has one run of reads: epochs of N rows without end. Where its table grows in epoch e, the runs of that epoch are
kept to its end, the new rows follow as an extent of the same epoch, shuffled among themselves, and the next epochs go
over all rows::

    N = 4, after 2 rows the table grows to 6          k  0 1 | 2 3   4 5   6 7 8 9 10 11 ...
                                                 ordinal  2 0 | 3 1   5 4   3 0 5 1 4  2
                                                          epoch 0  | extent | epoch 1 over six rows

A live source is read in the order of its ordinals. A source turned live goes on after the rows its epoch
covers; one pinned again shuffles the rows it has not read. No row comes twice in an epoch and none is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blender_service.exceptions import ShrunkSourceError


class ReadRun(NamedTuple):
    """Consecutive reads of one source, with ordinals by one rule.

    Attributes:
        first: number k of its first read.
        rows: how many reads it has, None without end; whole epochs, but for a cut live run of reads.
        base: its smallest ordinal.
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
        """Ordinal after its largest; only for a run of reads with an end."""
        return self.base + (self.size or self.rows or 0)


ReadRuns = tuple[ReadRun, ...]


def fresh_read_runs(rows: int | None) -> ReadRuns:
    """Give the runs of reads of a still unread source.

    Args:
        rows: N of the pinned snapshot, None for a live source.
    """
    return (ReadRun(0, None, 0, rows or 0, 0),)


def read_run_of(read_runs: ReadRuns, row: int) -> ReadRun:
    """Find the run of reads of a row of the source."""
    return next(read_run for read_run in reversed(read_runs) if read_run.first <= row)


def epoch_of(read_runs: ReadRuns, row: int) -> int:
    """Give the epoch of a row of the source."""
    read_run = read_run_of(read_runs, row)
    return read_run.epoch + (row - read_run.first) // read_run.size if read_run.size else read_run.epoch


def epoch_span(read_runs: ReadRuns, epoch: int) -> tuple[int, int]:
    """Give the first row of an epoch and the row after its last one."""
    runs = _read_runs_of_epoch(read_runs, epoch)
    return runs[0].first, runs[-1].first + (runs[-1].rows or 0)


def covered_rows(read_runs: ReadRuns, consumed: int) -> int:
    """Count the ordinals read of a source by the end of its epoch; an update needs a table of that many.

    `consumed` is the number of rows read so far, at least 1.
    """
    return max(read_run.reach for read_run in _to_end_of_epoch(read_runs, consumed))


def distinct_rows(read_runs: ReadRuns, consumed: int) -> int:
    """Count the rows of a source that were read at least once, after `consumed` reads."""
    if not consumed:
        return 0
    epoch, distinct = epoch_of(read_runs, consumed - 1), 0
    for read_run in _read_runs_of_epoch(read_runs, epoch):
        # What an epoch begins with, from ordinal 0 on, was read by the epoch before; the rest is new to it.
        is_old = epoch > 0 and read_run.base == 0
        distinct += read_run.size if is_old else max(0, min(consumed, read_run.end or consumed) - read_run.first)
    return distinct


def continue_read_runs(read_runs: ReadRuns, consumed: int, old_rows: int | None, new_rows: int | None) -> ReadRuns:
    """Give the runs of reads of a source after an update.

    Args:
        read_runs: before it.
        consumed: rows read so far, >= 1.
        old_rows: N before, None if it was live.
        new_rows: N from now on, at least `covered_rows`; None if it is live now.

    Raises:
        ShrunkSourceError: `new_rows` is less, so a read would name a missing row, or a row would never be read.
    """
    if old_rows == new_rows:
        return read_runs
    kept = _to_end_of_epoch(read_runs, consumed)
    covered = max(read_run.reach for read_run in kept)
    epoch = epoch_of(read_runs, consumed - 1)
    end = kept[-1].first + (kept[-1].rows or 0)
    if new_rows is None:
        return (*kept, ReadRun(end, None, covered, 0, epoch))
    if new_rows < covered:
        raise ShrunkSourceError(
            f"source: {covered} rows are read by the end of epoch {epoch}, the snapshot has {new_rows}; remove the "
            "source, and add its table under a new name, where it starts at row 0"
        )
    if new_rows > covered:
        kept = (*kept, ReadRun(end, new_rows - covered, covered, new_rows - covered, epoch))
        end += new_rows - covered
    return (*kept, ReadRun(end, None, 0, new_rows, epoch + 1))


def longer_read_runs(read_runs: ReadRuns, consumed: int, rows: int, unread_rows: int) -> ReadRuns:
    """Give the runs of reads of a source of texts whose rows became longer.

    The epoch under way ends with the documents not read in it, in rows of their own; later ones go over all::

        5 of 8 rows of 2,048 tokens read, then rows of 8,192: 3 of all documents, 2 of those unread

        k          0 .. 4 | 5 6   7 8 9 ..
        ordinal      past | 4 3   1 2 0 ..

    Args:
        read_runs: before it.
        consumed: rows read so far, >= 1.
        rows: N, of all documents.
        unread_rows: of the unread ones, with the ordinals behind N.
    """
    epoch = epoch_of(read_runs, consumed - 1)
    first = epoch_span(read_runs, epoch)[0]
    past = ReadRun(first, consumed - first, 0, consumed - first, epoch)  # which no offset from here on resolves to
    rest = (ReadRun(consumed, unread_rows, rows, unread_rows, epoch),) if unread_rows else ()
    return (past, *rest, ReadRun(consumed + unread_rows, None, 0, rows, epoch + 1))


def row_limit(read_runs: ReadRuns, max_epochs: int) -> int | None:
    """Count the rows of a source in all, None without end.

    Args:
        read_runs: of the source.
        max_epochs: passes over it, 0 for no end. With fewer than were read already, the limit is below the rows read.
    """
    if max_epochs == 0 or read_runs[-1].size == 0:
        return None
    runs = _read_runs_of_epoch(read_runs, max_epochs - 1)
    if not runs:
        return read_runs[0].first
    return runs[-1].first + (runs[-1].rows or 0)


def _to_end_of_epoch(read_runs: ReadRuns, consumed: int) -> ReadRuns:
    """Keep what belongs to the epoch of the last row read; a live run of reads ends with that row."""
    kept = []
    for read_run in _read_runs_of_epoch(read_runs, epoch_of(read_runs, consumed - 1)):
        rows = read_run.rows if read_run.rows is not None else max(0, consumed - read_run.first)
        if rows:
            kept.append(read_run._replace(rows=rows))
    return tuple(kept)


def _read_runs_of_epoch(read_runs: Sequence[ReadRun], epoch: int) -> ReadRuns:
    """Cut the runs of reads down to one epoch."""
    cut = []
    for read_run in read_runs:
        turn = epoch - read_run.epoch
        if read_run.size == 0 and turn == 0:
            cut.append(read_run)
        elif read_run.size and turn >= 0 and (read_run.rows is None or turn < read_run.rows // read_run.size):
            cut.append(read_run._replace(first=read_run.first + turn * read_run.size, rows=read_run.size, epoch=epoch))
    return tuple(cut)
