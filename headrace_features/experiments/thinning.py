"""Thinned sources: a small run repeats each as often as a large one will.

A run of b tokens stands for one of B, so it reads b/B of the rows of each source, round and round: every B/b-th of the
table, which is shuffled at rest, so they stand for the whole table, each of its increments and cells alike. The order
of the blend goes over these rows as over a table of so many.

    a source of 8 rows at 1/2    rows 0 2 4 6, in an order of their own in each epoch
"""

from __future__ import annotations

import numpy as np

from blender_service.arrays import Int64Array
from blender_service.blend.config import BlendConfig
from blender_service.order.epochs import fresh_read_runs
from blender_service.order.resolve import BlendOrder, ResolvedRows
from blender_service.order.resolved_blend import Head


def kept_rows(rows: int, share: float) -> int:
    """How many of the rows of a source are read."""
    return rows if share >= 1 else max(1, round(rows * share))


class ThinnedOrder(BlendOrder):
    """The order of a blend of pinned sources without end, over a share of the rows of each."""

    def __init__(self, config: BlendConfig, head: Head, share: float) -> None:
        """Thin the sources of a blend that was never updated."""
        self.rows = {name: pin.rows or 0 for name, pin in head.pins().items()}
        self.kept = {name: kept_rows(rows, share) for name, rows in self.rows.items()}
        segments = [
            segment._replace(
                parts=tuple(part._replace(read_runs=fresh_read_runs(self.kept[part.name])) for part in segment.parts)
            )
            for segment in head.segments
        ]
        super().__init__(int(config.seed), segments, config.block_rows, config.group_blocks)
        self._rows = np.array([self.rows[name] for name in self.names], np.int64)
        self._kept = np.array([self.kept[name] for name in self.names], np.int64)

    def resolve(self, offsets: Int64Array) -> ResolvedRows:
        """Find the rows of any offsets, in any order."""
        resolved = super().resolve(offsets)
        return resolved._replace(ordinal=resolved.ordinal * self._rows[resolved.source] // self._kept[resolved.source])
