"""When the next request may be sent: after pauses requested by the endpoint, and never more at once than it bears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace_features.synthetic.generated_config import Asking

LONGEST_PAUSE: Final = 60.0
_FIRST_PAUSE: Final = 1.0  # seconds, where a 429 names no time; twice that after each next one


class Gate:
    """Lets requests through.

    Attributes:
        sent: requests in flight.
    """

    def __init__(self, asking: Asking) -> None:
        self.sent = 0
        self._asking, self._at_once, self._room = asking, asking.at_once, asyncio.Event()
        self._resume = self._next = 0.0  # moments before which the endpoint, or requests_a_minute, lets nothing be sent
        self._pause_seconds = 0.0  # of the last pause for which the endpoint named no time; 0 after an answer

    async def turn(self) -> None:
        """Wait for the moment to send a request."""
        while (left := max(self._resume, self._next) - time.monotonic()) > 0 or self.sent >= self._at_once:
            self._room.clear()
            await (asyncio.sleep(left) if left > 0 else self._room.wait())
        self._next = max(self._next, time.monotonic()) + 60.0 / self._asking.requests_a_minute

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Count a request while it is in flight."""
        self.sent += 1
        try:
            yield
        finally:
            self.sent -= 1
            self._room.set()

    def pause(self, began: float, seconds: float | None) -> None:
        """Send nothing for as long as the endpoint asks; where it names no time, longer each time, then one at once.

        Args:
            began: when the request was sent; those sent before a pause do not make it longer.
            seconds: named by the endpoint; 0 (also: a past date) is no time.
        """
        if not seconds and (not self._pause_seconds or began >= self._resume):
            self._pause_seconds = seconds = min(max(_FIRST_PAUSE, 2 * self._pause_seconds), LONGEST_PAUSE)
            self._at_once = 1
        if seconds:
            self._resume = max(self._resume, time.monotonic() + seconds)

    def answered(self) -> None:
        """After an answer: the next pause is short again, and one more may be in flight."""
        self._pause_seconds = 0.0
        self._at_once = min(self._at_once + 1, self._asking.at_once)
