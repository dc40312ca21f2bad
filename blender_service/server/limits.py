"""Limit the streams of a server and of each caller, the bytes of messages in flight, and stalled streams."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import grpc

from blender_service.exceptions import TooManyStreamsError
from blender_service.rows.held_rows import HeldRows
from blender_service.rows.row_limits import AHEAD_ROWS, Bounds
from blender_service.server.call_context import call_of
from blender_service.server.process_limits import trim_heap

# What the streams of a server share. Bytes of ids in messages that wait to be sent: gRPC copies each, so a server holds
# twice as many. Smaller messages cost throughput, larger ones memory: `make bench-blender` measures both. Bytes of ids
# that are copied out of blocks for the next messages. Rows that are located before they are sent, some 6 bytes each.
LEAST_MESSAGE_BYTES, MOST_MESSAGE_BYTES = 32 << 10, 1 << 20
IN_FLIGHT_BYTES: Final = 8 << 20
COPIED_BYTES: Final = 64 << 20
PLANNED_ROWS: Final = 2 << 20
CROWDED: Final = 1.25  # times as many streams as before: what they hold is compared with their shares again
LEAST_TRIMMED: Final = 64  # streams of which half have left before their memory is given back to the machine

logger = logging.getLogger(__name__)


class StreamLimits:
    """Counts the running streams, and refuses those beyond a limit; safe for many threads."""

    def __init__(
        self,
        max_streams: int,
        max_streams_per_principal: int,
        shares: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Allow `max_streams` in all and `max_streams_per_principal` to each caller.

        `shares` gives the share of each team with one; as long as a team has less, others leave that free.
        """
        self._max_streams = max_streams
        self._max_per_principal = max_streams_per_principal
        self._shares = shares
        self._running: Counter[str] = Counter()
        self._of_team: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._held: set[HeldRows] = set()
        self._sharers = 0  # streams when shares were compared last, fewer since half have left

    @property
    def running(self) -> int:
        """Number of running streams."""
        return self._running.total()

    def bounds(self) -> Bounds:
        """Give the share of each stream in what all of them may hold.

        It depends on the number of streams alone, so that no stream waits for another one to send. A message that was
        made while there were fewer stays as long as its reader takes nothing: as each stream that waits is one of
        those, n streams have n x 32 KiB and 28 MiB at most in messages.
        """
        streams = max(1, self.running)
        message_bytes = min(max(LEAST_MESSAGE_BYTES, IN_FLIGHT_BYTES // streams), MOST_MESSAGE_BYTES)
        return Bounds(message_bytes, COPIED_BYTES // streams, min(AHEAD_ROWS, PLANNED_ROWS // streams))

    @contextmanager
    def holding(self) -> Iterator[HeldRows]:
        """Give what a stream may fill within its share; where streams come and it waits, it is let go."""
        kept = HeldRows()
        self._held.add(kept)
        try:
            yield kept
        finally:
            self._held.discard(kept)

    def _compare_shares(self) -> None:
        """Take back what streams hold above their present share, from before there were so many."""
        share = self.bounds().held_bytes
        for kept in self._held.copy():
            if kept.byte_count > share:
                kept.let_go()

    def take(self, principal: str, team: str = "") -> None:
        """Begin a stream, of a caller and the team behind his shares.

        Raises:
            TooManyStreamsError: the caller, or the server, has as many as it may, or the rest is kept for other teams.
        """
        shares = self._shares()
        with self._lock:
            mine, total = self._running[principal], self._running.total()
            if mine >= self._max_per_principal:
                raise TooManyStreamsError(
                    f"read: {principal} has {mine} streams here, {self._max_per_principal} are allowed; end some, or "
                    "read from another replica"
                )
            if total >= self._max_streams:
                raise TooManyStreamsError(
                    f"read: this server has {total} streams, {self._max_streams} are allowed; read from another "
                    "replica, or later"
                )
            kept = {name: int(share * self._max_streams) - self._of_team[name] for name, share in shares.items()}
            waiting = sum(max(0, count) for name, count in kept.items() if name != team)
            if kept.get(team, 0) <= 0 and total + waiting >= self._max_streams:
                raise TooManyStreamsError(
                    f"read: this server has {total} streams, and keeps the {waiting} that are left for teams with a "
                    "share; read from another replica, or later"
                )
            self._running[principal] += 1
            self._of_team[team] += 1
            if is_crowded := total + 1 > CROWDED * self._sharers:
                self._sharers = total + 1
        if is_crowded:
            self._compare_shares()

    def give_back(self, principal: str, team: str = "") -> None:
        """End a stream."""
        with self._lock:
            self._of_team[team] -= 1
            self._running[principal] -= 1
            if not self._running[principal]:
                del self._running[principal]
            before, total = self._sharers, self._running.total()
            if have_left := 2 * total < before:
                self._sharers = total
        if have_left and before >= LEAST_TRIMMED:
            trim_heap()


class CallWatch:
    """Watch over calls in one state for too long, such as a stream without a taking client; they end.

    gRPC limits neither. One thread checks all calls, so that entering and leaving cost two assignments. With `places`,
    at most so many calls are in that state: one more ends the oldest call of the connection that holds most of them, so
    whoever opens thousands of calls loses his own. Such a client may call again.
    """

    def __init__(self, seconds: float, reason: str, places: int | None = None) -> None:
        """Let a call stay for `seconds`; `reason` says in the log what it did not do."""
        self._seconds = seconds
        self._reason = reason
        self._places = places
        self._since: dict[grpc.ServicerContext, float] = {}
        self._cut, self._told = 0, float("-inf")
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="blender-watch", daemon=True).start()

    @contextmanager
    def watching(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Watch a call while the `with` block runs."""
        self._since[context] = time.monotonic()
        if self._places is not None and len(self._since) > self._places:
            self._make_room(self._places)
        try:
            yield
        finally:
            self._since.pop(context, None)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._seconds / 8):
            for context, since in self._since.copy().items():
                if time.monotonic() - since >= self._seconds and context.is_active():
                    call = call_of(context)
                    call.detail = f"{self._reason} for {self._seconds:g} s"
                    logger.info(
                        "%s of %s at %s ends: %s",
                        call.method or "health",
                        call.principal or "nobody",
                        context.peer(),
                        call.detail,
                    )
                    context.cancel()

    def _make_room(self, places: int) -> None:
        """End the oldest call of the connection with most places; a flood is logged once a second."""
        staying = list(self._since.copy())
        peers = [context.peer() for context in staying]
        (most, most_calls), *_ = Counter(peers).most_common(1)
        oldest = staying[peers.index(most)]
        if self._since.pop(oldest, None) is None:
            return  # it has left by itself
        call_of(oldest).detail = f"it was the oldest of {most_calls} calls of {most}, more than {places} at once"
        oldest.cancel()
        self._cut += 1
        if (now := time.monotonic()) - self._told >= 1:
            logger.warning("%d calls cut, the last of %s: %s, and others came", self._cut, most, self._reason)
            self._cut, self._told = 0, now
