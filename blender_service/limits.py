"""How much one server serves at once, and one caller of it."""

from __future__ import annotations

import threading
from collections import Counter

from blender_service.exceptions import TooManyStreamsError


class StreamLimits:
    """Counts the streams that run; safe for many threads."""

    def __init__(self, max_streams: int, max_streams_per_principal: int) -> None:
        """Allow `max_streams` in all and `max_streams_per_principal` to each caller."""
        self._max_streams = max_streams
        self._max_per_principal = max_streams_per_principal
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """Streams that run now."""
        return self._running.total()

    def take(self, principal: str) -> None:
        """Begin a stream.

        Raises:
            TooManyStreamsError: the caller, or the server, has as many as it may.
        """
        with self._lock:
            own, total = self._running[principal], self._running.total()
            if own >= self._max_per_principal:
                raise TooManyStreamsError(
                    f"read: {principal} has {own} streams here, {self._max_per_principal} are allowed; end some, or "
                    "read from another replica"
                )
            if total >= self._max_streams:
                raise TooManyStreamsError(
                    f"read: this server has {total} streams, {self._max_streams} are allowed; read from another "
                    "replica, or later"
                )
            self._running[principal] += 1

    def give_back(self, principal: str) -> None:
        """End a stream."""
        with self._lock:
            self._running[principal] -= 1
            if not self._running[principal]:
                del self._running[principal]
