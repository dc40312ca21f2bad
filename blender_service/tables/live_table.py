"""Rows of a table that grows while it is read: what is there now, and waiting for what is not.

A live table is looked at again when a row is asked for that it did not have, at most every half second, so a row can be
served within a second of its commit. A table that does not grow costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blender_service.exceptions import RowNotThereYetError
from blender_service.tables.block_reader import BlockReader

LOOK_SECONDS: Final = 0.5
TELL_SECONDS: Final = 5.0
NAP_SECONDS: Final = 0.1


class LiveRows:
    """Gives the blocks of a live table as it is now; one reader, one thread."""

    def __init__(self, name: str, look: Callable[[], BlockReader | None]) -> None:
        """Follow a table.

        Args:
            name: of the source.
            look: opens the table as it is now; None while it has no row.
        """
        self.name = name
        self._look = look
        self._reader = look()
        self._looked = time.monotonic()

    def lacks(self, ordinals: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say which rows are not there; looks again first if some are not.

        Args:
            ordinals: (R,) in any order.

        Returns:
            (R,) whether each is missing.
        """
        if ordinals.size and ordinals.max() >= self._rows and time.monotonic() - self._looked >= LOOK_SECONDS:
            self._reader = self._look()
            self._looked = time.monotonic()
        missing: NDArray[np.bool_] = ordinals >= self._rows
        return missing

    @property
    def reader(self) -> BlockReader | None:
        """The blocks that are there; None while there is no row."""
        return self._reader

    @property
    def _rows(self) -> int:
        return self._reader.table.rows if self._reader is not None else 0


class Wait:
    """A wait for one live row after the other, each with a deadline."""

    def __init__(self, seconds: float, stopped: Callable[[], bool]) -> None:
        """Wait at most `seconds` for a row, 0 without end; `stopped` ends a wait at once."""
        self._seconds = seconds
        self._stopped = stopped
        self.over()

    def over(self) -> None:
        """The row came."""
        self._began = self._told = 0.0

    def pause(self, missing: str) -> bool:
        """Sleep a little; say whether it is time to tell the reader what it waits for.

        Raises:
            RowNotThereYetError: the deadline has passed.
        """
        now = time.monotonic()
        if not self._began:
            self._began = now
        if self._seconds and now - self._began >= self._seconds:
            raise RowNotThereYetError(
                f"read: {missing} did not come within {self._seconds:g} s; append to the table, read again later, or "
                "update the blend without it"
            )
        if not self._stopped():
            time.sleep(NAP_SECONDS)
        if not self._told or now - self._told >= TELL_SECONDS or self._stopped():
            self._told = now
            return True
        return False
