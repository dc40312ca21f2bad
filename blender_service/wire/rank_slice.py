"""Cut a global step into the rows of each rank: plain arithmetic, shared by server, client and torch.

A step of B rows from offset o on covers [o, o + B). Rank r of W takes [o + floor(rB/W), o + floor((r+1)B/W))::

    B = 8, W = 2    rank 0: o..o+3    rank 1: o+4..o+7

The mix of the global batch is exact; that of one rank alone is not (weights 1:1 with B = W = 8 give rank 0 rows of one
source only), so take no statistics per source from one rank.
"""

from __future__ import annotations

from typing import NamedTuple

from blender_service.exceptions import InvalidReadError


class Slice(NamedTuple):
    """One rank's part of every step.

    Attributes:
        step_rows: rows B of a global step.
        rank: r, from 0.
        world_size: W.
        uneven: whether parts may differ by one row, where W does not divide B.
    """

    step_rows: int
    rank: int = 0
    world_size: int = 1
    uneven: bool = False

    @property
    def start(self) -> int:
        """First row of the part, counted from the start of the step."""
        return self.rank * self.step_rows // self.world_size

    @property
    def rows(self) -> int:
        """Rows of the part."""
        return (self.rank + 1) * self.step_rows // self.world_size - self.start

    @property
    def loss_scale(self) -> float:
        """Factor for the rank's mean loss that makes the mean over ranks the mean over the global batch."""
        return self.rows * self.world_size / self.step_rows

    def check(self) -> None:
        """Refuse an impossible slice, or one to bias a mean of means.

        Raises:
            InvalidReadError: with the wrong value.
        """
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise InvalidReadError(
                f"slice: rank {self.rank} of world_size {self.world_size}; ranks are 0 to world_size - 1"
            )
        if self.step_rows < self.world_size:
            raise InvalidReadError(
                f"slice: a step of {self.step_rows} rows leaves some of {self.world_size} ranks without a row; "
                "raise the rows of a step to world_size or more"
            )
        if self.step_rows % self.world_size and not self.uneven:
            raise InvalidReadError(
                f"slice: {self.world_size} ranks do not divide {self.step_rows} rows, so a mean of means is biased; "
                "choose a multiple, or set uneven and scale the loss by loss_scale"
            )
