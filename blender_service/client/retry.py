"""Bound and measure the waits of a client: pauses between attempts, silent streams, the stall of a training loop."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from blender_service.exceptions import BlenderError, ServerUnavailableError, UnauthenticatedError

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
TOLD_AFTER_SECONDS: Final = 2.0
RENEWAL_SECONDS: Final = 10.0  # longest wait for another token where none was ever taken

logger = logging.getLogger(__name__)


class Backoff:
    """Doubling pauses between attempts, until the time allowed is up.

    A refused token is tried again where it comes from a file, since whoever renews it writes it there and gives
    it to the servers, in either order: for as long as a server that is away where an attempt has succeeded before, else
    for `RENEWAL_SECONDS`, so that a mistake is told soon.
    """

    def __init__(self, seconds: float, closed: threading.Event, token_file: str = "") -> None:
        """Allow attempts for `seconds` after the first failure; `closed` ends a pause at once."""
        self._seconds = seconds
        self._closed = closed
        self._token_file = token_file
        self._refused_seconds = min(seconds, RENEWAL_SECONDS)
        self._start()

    def check_open(self) -> None:
        """Refuse an attempt on a closed client."""
        if self._closed.is_set():
            raise ServerUnavailableError("client: it was closed; connect again")

    def reset(self) -> None:
        """Start anew after a success."""
        self._refused_seconds = self._seconds
        self._start()

    def _start(self) -> None:
        self._deadline: float | None = None
        self._waits_for_token = False
        self._pause = FIRST_PAUSE_SECONDS

    def wait(self, error: BlenderError) -> None:
        """Pause before the next attempt, or raise the error where another attempt cannot help."""
        now = time.monotonic()
        refused = isinstance(error, UnauthenticatedError) and bool(self._token_file)
        if self._deadline is None:
            self._deadline = now + (self._refused_seconds if refused else self._seconds)
        if not (refused or isinstance(error, ServerUnavailableError)) or now + self._pause > self._deadline:
            raise error
        left = self._deadline - now
        if left < self._seconds - TOLD_AFTER_SECONDS:
            logger.warning("%s; trying again for %.0f s", error, left)
        if refused and not self._waits_for_token:
            self._waits_for_token = True
            logger.warning("%s; %s is read again for %.0f s", error, self._token_file, left)
        # Random, so that the ranks that lost one server do not all come back at the same moment.
        self._closed.wait(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)


class SilenceWatch:
    """Interrupts too long a wait for a message.

    A stuck server still answers the pings of HTTP/2, so keep-alive does not notice it. A thread looks at the
    wait eight times in the allowed span, so a message costs two assignments.
    """

    def __init__(self, seconds: float) -> None:
        """Allow `seconds` of silence."""
        self.seconds = seconds
        self._wait: tuple[float, Callable[[], object]] | None = None
        self._interrupted = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Watch a wait; `interrupt` is called, from another thread, when it lasts too long."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="blend-silence", daemon=True)
            thread.start()  # should none be to be had, the next wait tries again
            self._thread = thread
        self._interrupted = False
        self._wait = (time.monotonic(), interrupt)
        try:
            yield
        finally:
            self._wait = None

    @property
    def interrupted(self) -> bool:
        """Whether the last wait was interrupted."""
        return self._interrupted

    def end(self) -> None:
        """Let the thread end."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self.seconds / 8):
            wait = self._wait
            if wait is not None and time.monotonic() - wait[0] >= self.seconds:
                self._interrupted = True
                self._wait = None
                wait[1]()


class InputClock:
    """Measures how much of a training loop's time goes into waiting for input.

    The wait for the first batch is measured apart: it opens the blend and fills caches, once for each loop.

        first wait | step | wait | step | wait         input_stall_seconds = the waits after the first
                   |<------- elapsed ------->|         input_stall_share   = their share of the time elapsed
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Measure by the clock `now`, in seconds."""
        self.first_batch_seconds = 0.0
        self.input_stall_seconds = 0.0
        self._now = now
        self._began: float | None = None
        self._last = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a wait for one batch."""
        began = self._now()
        try:
            yield
        finally:
            self._last = self._now()
            if self._began is None:
                self._began = self._last
                self.first_batch_seconds = self._last - began
            else:
                self.input_stall_seconds += self._last - began

    @property
    def elapsed_seconds(self) -> float:
        """Time from the first batch to the last one."""
        return self._last - self._began if self._began is not None else 0.0

    @property
    def input_stall_share(self) -> float:
        """Share of that time spent by the loop in waiting for input, 0 to 1."""
        return self.input_stall_seconds / self.elapsed_seconds if self.elapsed_seconds > 0 else 0.0
