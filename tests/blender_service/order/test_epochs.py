"""Runs of reads through growth, live tables and pins, beside a list that has every read."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blender_service.exceptions import ShrunkSourceError
from blender_service.order.epochs import (
    ReadRuns,
    continue_read_runs,
    covered_rows,
    epoch_of,
    epoch_span,
    fresh_read_runs,
    read_run_of,
    row_limit,
)
from tests.tiers import tries

READS = 120


class Read(NamedTuple):
    """One read: its epoch, and the rows that it is shuffled among, [base, base + size); of a live table its ordinal."""

    epoch: int
    base: int
    size: int


class Listed:
    """A source with its reads as a list, by the rules in words."""

    def __init__(self, rows: int | None) -> None:
        self.rows = rows
        self.past: list[Read] = []  # reads up to the end of the epoch that an update left
        self.epoch = 0
        self.base = 0  # of a live table

    def reads(self) -> list[Read]:
        """The first `READS` reads."""
        made = list(self.past)
        for epoch in itertools.count(self.epoch):
            if len(made) >= READS or (self.rows is None and epoch > self.epoch):
                return made[:READS]
            if self.rows is None:
                made += [Read(epoch, self.base + at, 0) for at in range(READS)]
            else:
                made += [Read(epoch, 0, self.rows)] * self.rows

    def covered(self, consumed: int) -> int:
        """Rows that are read by the end of the epoch of the last read; of a live table those read so far."""
        epoch = self.reads()[consumed - 1].epoch
        of_epoch = [(at, read) for at, read in enumerate(self.reads()) if read.epoch == epoch]
        return max(
            read.base + read.size if read.size else read.base + 1 for at, read in of_epoch if read.size or at < consumed
        )

    def update(self, consumed: int, rows: int | None) -> None:
        """Take another number of rows after some reads."""
        if rows == self.rows:
            return
        reads, covered = self.reads(), self.covered(consumed)
        epoch = reads[consumed - 1].epoch
        kept = [read for at, read in enumerate(reads) if at < consumed or (read.epoch == epoch and read.size)]
        if rows is None:
            self.past, self.epoch, self.base = kept, epoch, covered
        else:
            extent = rows - covered
            self.past, self.epoch = kept + [Read(epoch, covered, extent)] * extent, epoch + 1
        self.rows = rows


def listed(read_runs: ReadRuns) -> list[Read]:
    """What runs of reads say of each read from the first one on."""
    found = []
    for row in range(read_runs[0].first, READS):
        run = read_run_of(read_runs, row)
        found.append(Read(epoch_of(read_runs, row), run.base if run.size else run.base + row - run.first, run.size))
    return found


@settings(max_examples=tries(1000, 200))
@given(
    st.none() | st.integers(1, 6), st.lists(st.tuples(st.integers(1, 9), st.none() | st.integers(1, 15)), max_size=4)
)
def test_read_runs_are_those_of_a_list_of_all_reads(rows: int | None, updates: list[tuple[int, int | None]]) -> None:
    """After each update the epoch and the rows of each read; a table with fewer rows than are read is refused.

    Spans, covered rows and limits are counted in the list. No run is empty, and runs follow each other.
    """
    source, read_runs, consumed = Listed(rows), fresh_read_runs(rows), 0
    for more, after in [*updates, (1, rows)]:
        consumed += more
        reads = source.reads()
        assert listed(read_runs) == reads[read_runs[0].first :]
        assert covered_rows(read_runs, consumed) == source.covered(consumed)
        at_hand = list(enumerate(reads))[read_runs[0].first :]
        for epoch in range(read_runs[0].epoch, reads[-1].epoch if source.rows is not None else 0):
            of_epoch = [at for at, read in at_hand if read.epoch == epoch]
            assert epoch_span(read_runs, epoch) == (of_epoch[0], of_epoch[-1] + 1)
        for most in range(1, reads[-1].epoch):
            limit = read_runs[0].first + sum(read.epoch < most for _, read in at_hand)
            assert row_limit(read_runs, most) == (None if source.rows is None else limit)
        assert row_limit(read_runs, 0) is None
        if after is not None and after != source.rows and after < source.covered(consumed):
            with pytest.raises(ShrunkSourceError, match=f"the snapshot has {after}; remove the source"):
                continue_read_runs(read_runs, consumed, source.rows, after)
            return
        read_runs = continue_read_runs(read_runs, consumed, source.rows, after)
        source.update(consumed, after)
        assert all(run.rows is None or run.rows > 0 for run in read_runs)
        assert all(one.end == other.first for one, other in itertools.pairwise(read_runs))
        assert read_runs[-1].end is None
