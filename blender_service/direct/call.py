"""Reads over connections of their own: one thread each receives ahead, within the window, and answers pings."""

from __future__ import annotations

import contextlib
import logging
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
        self._failures = 0
        self._calls: weakref.WeakSet[DirectCall] = weakref.WeakSet()

    def __call__(self, request: bytes) -> DirectCall:
        """Begin a call."""
        call = DirectCall(self._targets, self._failures, self._headers(), request, self._note_failure)
        self._calls.add(call)
        return call

    def close(self) -> None:
        """Cancel the calls."""
        for call in list(self._calls):
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

    def _note_failure(self) -> None:
        self._failures += 1


class DirectCall(Iterator[memoryview]):
    """Answers of a call, as bytes."""

    def __init__(
        self,
        targets: Sequence[Target],
        first: int,
        headers: Sequence[tuple[bytes, bytes]],
        request: bytes,
        fail: Callable[[], None],
    ) -> None:
        """Begin; a thread connects and receives.

        Args:
            targets: where to connect to.
            first: number of the address to begin with, counted round.
            headers: all but the authority.
            request: the only one.
            fail: hears of it when the server was not there, or went away.
        """
        self._targets = targets
        self._first = first
        self._headers = headers
        self._request = request
        self._fail = fail
        self._received: queue.SimpleQueue[Message | CallError | None] = queue.SimpleQueue()
        self._ended: list[CallError | None] = []
        self._changing = threading.Lock()
        self._stream: MessageStream | None = None
        self._is_cancelled = False
        threading.Thread(target=self._run, name="blend-receiver", daemon=True).start()

    def __next__(self) -> memoryview:
        """Wait for the next answer.

        Raises:
            CallError: the call did not end well.
        """
        message = self._ended[0] if self._ended else self._received.get()
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
        with self._changing:
            self._is_cancelled = True
            stream = self._stream
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
            self._fail()
        self._received.put(end)

    def _receive(self) -> None:
        target, connected = self._connect()
        stream = MessageStream(connected)
        with self._changing:
            self._stream = stream
            if self._is_cancelled:
                return
        stream.ask([*self._headers[:3], (b":authority", target.authority.encode()), *self._headers[3:]], self._request)
        for message in stream.messages():
            self._received.put(message)

    def _connect(self) -> tuple[Target, socket.socket]:
        """Connect to the first address that answers, beginning with the one whose turn it is."""
        places = [(target, place) for target in self._targets for place in _addresses_of(target)]
        turn = self._first % len(places) if places else 0
        error: OSError = OSError("no such host")
        for target, (family, place) in places[turn:] + places[:turn]:
            connected = socket.socket(family, socket.SOCK_STREAM)
            try:
                connected.settimeout(CONNECT_SECONDS)
                connected.connect(place)
            except OSError as failure:
                connected.close()
                error = failure
            else:
                return target, connected
            if self._is_cancelled:
                break
        raise error


def _addresses_of(target: Target) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Look a host up."""
    with contextlib.suppress(socket.gaierror):
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        return [(family, place) for family, _, _, _, place in found]  # type: ignore[misc]
    return []
