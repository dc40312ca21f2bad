"""Runs: neighbouring pieces of one repository packed as one unit, so that they share a window.

Pieces join in order while the run has at most L tokens. A piece of a cut document begins a run (only the last such
piece is ever joined by others), and so does the first piece of a repository. Most of these runs are 0.5 to 1 L long,
with no small units to fill the gaps in windows. So runs below a share theta of the window are split again, into runs of
at most L / 16:

    L = 32, theta = .75     pieces  10 12 3 | 2 9 1 | 30          a run ends where the next piece would not fit, or at |
                            joined    25    |  12   | 30
                            loosened  25    | 2 9 1 | 30          12 < .75 * 32: split into runs of at most 2

Units depend on lengths alone, so those of all thetas are counted in one pass; `affinity` chooses among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.packing.plan.units import Pieces

ALONE = -1  # in place of a theta: every piece is a unit
EVERY_RUN = 0  # as a theta: no run is split again
CUTS_IN_ROWS = -5  # in place of a theta, with the others of `baselines`: how often rows longer than a window are cut
THETA_PERCENTS = tuple(range(50, 100, 5))
_FILLER_SHARE = 16


@dataclass(frozen=True)
class GreedyRuns:
    """Greedy runs over some pieces, and the short runs in place of a run too empty to keep.

    Attributes:
        lengths: (N,) tokens of the pieces.
        starts: (N,) whether a piece begins a run of at most L.
        filler_starts: (N,) whether a piece begins a run of at most L / 16 inside of it.
        fill: (N,) tokens of the piece's run.
        window_tokens: L.
    """

    lengths: Int64Array
    starts: BoolArray
    filler_starts: BoolArray
    fill: Int64Array
    window_tokens: int

    def unit_starts(self, theta_percent: int) -> BoolArray:
        """(N,) whether a piece begins a unit.

        Args:
            theta_percent: least fill of a kept run, in percent of L; EVERY_RUN keeps all, ALONE makes every piece a
                unit.
        """
        if theta_percent == ALONE:
            return np.ones(len(self.lengths), dtype=np.bool_)
        too_empty = self.fill * 100 < theta_percent * self.window_tokens
        return self.starts | (self.filler_starts & too_empty)


def join_runs(pieces: Pieces, group_starts: BoolArray, window_tokens: int) -> GreedyRuns:
    """Join neighbouring pieces of each group into runs.

    Args:
        pieces: all pieces of some groups of documents.
        group_starts: (D,) whether a document is the first of its group; pieces of two groups never join.
        window_tokens: L.
    """
    cut = ~(pieces.first & pieces.ends)
    group = np.cumsum(group_starts)[pieces.document]  # its first document may be empty, and have no piece to mark
    hard = cut | (np.diff(group, prepend=-1) != 0)
    starts = greedy_starts(pieces.length, hard, window_tokens)
    filler_starts = greedy_starts(pieces.length, starts, max(1, window_tokens // _FILLER_SHARE))
    return GreedyRuns(pieces.length, starts, filler_starts, _fill(pieces.length, starts), window_tokens)


def greedy_starts(lengths: Int64Array, hard: BoolArray, limit: int) -> BoolArray:
    """Find where runs begin if each run takes the next piece while it stays within a limit.

    For every piece a binary search finds where a run beginning with it ends. The starts of runs are reached by
    following this map from the hard boundaries on. The map is composed with itself in each pass (pointer doubling), so
    that there are log2(runs between two boundaries) passes over arrays and no loop over pieces.

    Args:
        lengths: (N,) > 0; one above the limit is a run by itself.
        hard: (N,) whether a piece begins a run in any case; true for the first.
        limit: most tokens of a run of several pieces.

    Returns:
        (N,) whether a piece begins a run.
    """
    count = len(lengths)
    sums = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(lengths, out=sums[1:])
    following = np.searchsorted(sums, sums[:-1] + limit, side="right") - 1
    following = np.maximum(following, np.arange(1, count + 1))
    boundaries = np.append(np.flatnonzero(hard), count)
    next_hard = boundaries[np.searchsorted(boundaries, np.arange(count), side="right")]
    # A run that reaches a hard boundary is followed no further: the next run starts from the boundary by itself.
    jump = np.append(np.where(following >= next_hard, count, following), count)
    reached = np.append(hard, False)
    waiting = np.flatnonzero(jump[:count] < count)
    while waiting.size:
        reached[jump[np.flatnonzero(reached)]] = True
        jump = jump[jump]
        waiting = waiting[jump[waiting] < count]
    return reached[:count]


def unit_lengths(lengths: Int64Array, starts: BoolArray) -> Int64Array:
    """(U,) tokens of the units from `starts` on."""
    if not len(lengths):
        return np.zeros(0, dtype=np.int64)
    units: Int64Array = np.add.reduceat(lengths, np.flatnonzero(starts))
    return units


def _fill(lengths: Int64Array, starts: BoolArray) -> Int64Array:
    """(N,) tokens of each piece's run."""
    return unit_lengths(lengths, starts)[np.cumsum(starts) - 1] if len(lengths) else lengths
