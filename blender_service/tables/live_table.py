"""Wait for the rows that a growing table does not have yet.

Tables of open streams are looked at twice a second (`table_watch`), so a row can be served within a second of its
commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from blender_service.exceptions import RowNotThereYetError
from blender_service.turns import turn_lent

TELL_SECONDS: Final = 5.0  # well within the silence after which a client takes a stream for dead
NAP_SECONDS: Final = 0.1


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
            with turn_lent():
                time.sleep(NAP_SECONDS)
        if not self._told or now - self._told >= TELL_SECONDS or self._stopped():
            self._told = now
            return True
        return False
