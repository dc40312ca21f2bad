"""Reads over connections of their own: one thread each receives ahead, within the window, and answers pings."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import grpc

from blender_service.direct.status import CallError, unavailable
from blender_service.direct.stream import Message, MessageStream
from blender_service.direct.targets import Target
from blender_service.http2.metadata import CONTENT_TYPE, headers_of

CONNECT_SECONDS: Final = 10
USER_AGENT: Final = b"headrace-blender"

logger = logging.getLogger(__name__)


class DirectReads:
    """A method that streams answers, as gRPC's `unary_stream` gives it; each call connects anew."""

    def __init__(
        self, targets: Sequence[Target], method: str, metadata: Callable[[], Iterable[tuple[str, str | bytes]]]
    ) -> None:
        """Prepare calls.

        Args:
            targets: where to connect to, the first that can be reached; after a failure the next one comes first.
            method: path, such as /package.Service/Method.
            metadata: of a call, asked for each time.
        """
        self._targets = tuple(targets)
        self._method = method
        self._metadata = metadata
        self._turn = _Turn()
        self._changing = threading.RLock()  # a finaliser may come here from inside
        self._is_closed = False
        self._calls: weakref.WeakSet[DirectCall] = weakref.WeakSet()

    def __call__(self, request: bytes) -> DirectCall:
        """Begin a call; after `close` it is cancelled at once."""
        call = DirectCall(self._targets, self._turn, self._headers(), request)
        with self._changing:
            self._calls.add(call)
            is_closed = self._is_closed
        if is_closed:
            call.cancel()
        return call

    def close(self) -> None:
        """Cancel the calls."""
        with self._changing:
            self._is_closed = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", self._method.encode()),
            (b"te", b"trailers"),
            (b"content-type", CONTENT_TYPE),
            (b"user-agent", USER_AGENT),
            *headers_of(self._metadata()),
        ]


class _Turn:
    """Which address comes first: the one that was reached last, and after a failure the next one.

    Attributes:
        first: its number among all that the targets have, counted round.
    """

    def __init__(self) -> None:
        self.first = 0

    def fail(self, number: int) -> None:
        """Have another one come first than one that failed, unless it does already."""
        if self.first == number:
            self.first += 1


class DirectCall(Iterator[memoryview]):
    """Answers of a call, as bytes."""

    def __init__(
        self,
        targets: Sequence[Target],
        turn: _Turn,
        headers: Sequence[tuple[bytes, bytes]],
        request: bytes,
    ) -> None:
        """Begin; a thread connects and receives.

        Args:
            targets: where to connect to.
            turn: which address comes first; hears which was reached, and of it when that failed.
            headers: all but the authority.
            request: the only one.
        """
        self._targets = targets
        self._turn = turn
        self._number = turn.first
        self._headers = headers
        self._request = request
        self._process = os.getpid()
        self._is_awaited = False
        self._received: queue.SimpleQueue[Message | CallError | None] = queue.SimpleQueue()
        self._ended: list[CallError | None] = []
        self._changing = threading.RLock()
        self._stream: MessageStream | None = None
        self._is_cancelled = False
        threading.Thread(target=self._run, name="blend-receiver", daemon=True).start()

    def __next__(self) -> memoryview:
        """Wait for the next answer.

        Raises:
            CallError: the call did not end well.
        """
        if os.getpid() != self._process:
            raise unavailable("the read was begun in another process, before a fork")
        self._is_awaited = True
        message = self._ended[0] if self._ended else self._received.get()
        self._is_awaited = False
        if isinstance(message, Message):
            assert self._stream is not None
            self._stream.give_back(message.credit)
            return message.content
        self._ended.append(message)
        if message is None:
            raise StopIteration
        raise message

    def cancel(self) -> None:
        """Break the call off; from any thread."""
        if os.getpid() != self._process:  # the connection is the parent's, after a fork
            return
        with self._changing:
            self._is_cancelled = True
            stream = self._stream
        if self._is_awaited:  # so long that somebody has had enough
            self._turn.fail(self._number)
        self._received.put(CallError(grpc.StatusCode.CANCELLED, "the read was broken off"))
        if stream is not None:
            stream.hang_up()

    def _run(self) -> None:
        end: CallError | None = None
        try:
            self._receive()
        except CallError as error:
            end = error
        except OSError as error:
            end = unavailable(str(error))
        except Exception as error:  # nobody is above this thread, and whoever waits must hear of it
            logger.exception("receiving failed")
            end = CallError(grpc.StatusCode.INTERNAL, f"receiving failed: {error!r}")
        finally:
            if self._stream is not None:
                self._stream.close()
        if end is not None and end.code() is grpc.StatusCode.UNAVAILABLE and not self._is_cancelled:
            self._turn.fail(self._number)
        self._received.put(end)

    def _receive(self) -> None:
        target, connected = self._connect()
        try:
            stream = MessageStream(connected, lambda: self._is_awaited)
        except OSError:
            connected.close()
            raise
        with self._changing:
            self._stream = stream
            if self._is_cancelled:
                raise CallError(grpc.StatusCode.CANCELLED, "the read was broken off")
        stream.ask([*self._headers[:3], (b":authority", target.authority.encode()), *self._headers[3:]], self._request)
        for message in stream.messages():
            self._received.put(message)

    def _connect(self) -> tuple[Target, socket.socket]:
        """Connect to the first address that answers, beginning with the one whose turn it is."""
        places = [(target, place) for target in self._targets for place in _addresses_of(target)]
        first = self._turn.first
        error: OSError = OSError("no such host")
        for number in range(first, first + len(places)):
            target, (family, place) = places[number % len(places)]
            if self._is_cancelled:
                break
            try:
                connected = socket.socket(family, socket.SOCK_STREAM)
            except OSError as failure:  # a family that this machine does not have
                error = failure
                continue
            try:
                connected.settimeout(CONNECT_SECONDS)
                connected.connect(place)
            except OSError as failure:
                connected.close()
                error = failure
                continue
            self._number = self._turn.first = number % len(places)
            return target, connected
        raise error


def _addresses_of(target: Target) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Look a host up."""
    with contextlib.suppress(socket.gaierror):
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        return [(family, place) for family, _, _, _, place in found]  # type: ignore[misc]
    return []
