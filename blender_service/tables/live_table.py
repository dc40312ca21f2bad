"""Read a table that grows while it is read: which rows it has now, and the wait for those it does not have yet.

A live table is loaded again when a row is asked for that it did not have, at most every half second, so a row can be
served within a second of its commit. A table that has the rows asked for costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int64Array
from blender_service.exceptions import RowNotThereYetError
from blender_service.tables.block_reader import BlockReader

RELOAD_SECONDS: Final = 0.5
TELL_SECONDS: Final = 5.0  # well within the silence after which a client takes a stream for dead
NAP_SECONDS: Final = 0.1


class LiveRows:
    """Gives the blocks of a live table as it is now; one reader, one thread."""

    def __init__(self, name: str, load: Callable[[], BlockReader | None]) -> None:
        """Follow a table.

        Args:
            name: of the source.
            load: opens the table as it is now; None while it has no row.
        """
        self.name = name
        self._load = load
        self._reader = load()
        self._loaded = time.monotonic()

    def lacks(self, ordinals: Int64Array) -> NDArray[np.bool_]:
        """Say which rows the table lacks; loads it again first if some are missing.

        Args:
            ordinals: (R,) in any order.

        Returns:
            (R,) whether each is missing.
        """
        if ordinals.size and ordinals.max() >= self._rows and time.monotonic() - self._loaded >= RELOAD_SECONDS:
            self._reader = self._load()
            self._loaded = time.monotonic()
        missing: NDArray[np.bool_] = ordinals >= self._rows
        return missing

    @property
    def reader(self) -> BlockReader | None:
        """The blocks of the table as it was last loaded; None while it has no row."""
        return self._reader

    @property
    def _rows(self) -> int:
        return self._reader.table.rows if self._reader is not None else 0


class Wait:
    """Waits for one live row after the other, each with a deadline."""

    def __init__(self, seconds: float, stopped: Callable[[], bool]) -> None:
        """Wait at most `seconds` for a row, 0 without end; once `stopped` is true, pauses do not sleep any more."""
        self._seconds = seconds
        self._stopped = stopped
        self.reset()

    def reset(self) -> None:
        """Start the deadline of the next row: this one came."""
        self._began = self._told = 0.0

    def pause(self, missing: str) -> bool:
        """Sleep a little; say whether it is time to tell the client what its stream waits for.

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
