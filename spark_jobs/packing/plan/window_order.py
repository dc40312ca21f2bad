"""Number plans, and map the windows that they plan to ordinals: cell by cell, length class by length class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_jobs.arrays import Int64Array
from spark_jobs.packing.plan.shuffle_at_rest import permute


@dataclass(frozen=True)
class PlanNumbers:
    """Numbers of plans: cell by cell, in each class by class, in each shard by shard.

    Attributes:
        cell_shards: plans of a cell and class.
        classes: lengths of sequences, descending; none where a window is one.
    """

    cell_shards: int = 1 << 62  # all are of one
    classes: tuple[int, ...] = ()

    @property
    def class_count(self) -> int:
        """Classes of units by length; 1 without any."""
        return len(self.classes) or 1

    def of(self, shards: Int64Array, lengths: Int64Array) -> Int64Array:
        """(N,) number of the plan of units, by the shard of their bucket and their length."""
        cell, shard = np.divmod(shards, self.cell_shards)
        number = np.searchsorted(-np.array(self.classes), -lengths)
        return (cell * self.class_count + np.minimum(number, self.class_count - 1)) * self.cell_shards + shard


ONE_CELL = PlanNumbers()


@dataclass(frozen=True)
class WindowOrder:
    """The map from planned windows to ordinals.

    Attributes:
        base: ordinal of the increment's first row.
        window_count: windows of the increment.
        key: of the permutation (`shuffle_at_rest`).
    """

    base: int
    window_count: int
    key: int

    def ordinals(self, windows: Int64Array) -> Int64Array:
        """(N,) ordinals of windows."""
        if not len(windows):  # all documents of a task may be empty
            return windows
        return self.base + permute(windows, self.window_count, self.key)


@dataclass(frozen=True)
class CellOrder:
    """The same where windows of a cell stay together: each cell has an order, from where the one before ends.

    Attributes:
        cells: order of the windows of each cell.
        first_windows: (C,) number of the first window of each.
    """

    cells: tuple[WindowOrder, ...]
    first_windows: Int64Array

    def ordinals(self, windows: Int64Array) -> Int64Array:
        """(N,) ordinals of windows."""
        cell = np.searchsorted(self.first_windows, windows, side="right") - 1
        ordinals = np.empty_like(windows)
        for number in np.unique(cell).tolist():
            there = cell == number
            ordinals[there] = self.cells[number].ordinals(windows[there] - self.first_windows[number])
        return ordinals
