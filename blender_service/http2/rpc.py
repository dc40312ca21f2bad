"""One call: what the client asked, what it is answered, how it ends. Services know it as gRPC's context."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc

from blender_service.http2.metadata import Metadata
from blender_service.scattered import Scattered

if TYPE_CHECKING:
    from blender_service.http2.connection import Connection

PREFIX_BYTES: Final = 5  # of a message: whether it is compressed, and its length
REQUEST_BYTES: Final = 100  # that a request takes in memory besides its own

logger = logging.getLogger(__name__)


class Aborted(Exception):  # noqa: N818 (nothing went wrong: a service ended its call)
    """A service ended its call by `abort`."""


class Rpc(grpc.ServicerContext):
    """A call. The connection's thread feeds it, one thread of the server's runs it.

    Attributes:
        stream: number of its HTTP/2 stream.
        method: path, such as /package.Service/Method.
        is_cancelled: nobody waits for it any more.
        runs_early: it runs before its last request is there.
        handler: of its method, None where there is none.
    """

    def __init__(
        self, connection: Connection, stream: int, method: str, metadata: Metadata, deadline: float | None
    ) -> None:
        """Begin a call.

        Args:
            connection: that it came over.
            stream: its number there.
            method: path, such as /package.Service/Method.
            metadata: of the caller.
            deadline: of the monotonic clock, None without.
        """
        self.stream = stream
        self.method = method
        self.is_cancelled = False
        self.runs_early = False
        self.handler: Any = None
        self._connection = connection
        self._metadata = metadata
        self._deadline = deadline
        self._received = bytearray()
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._fed_bytes = 0
        self._taken_bytes = 0
        self._initial: Metadata = ()
        self._trailing: Metadata = ()
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._callbacks: list[Callable[[], None]] = []
        self._is_over = False
        self._has_answered = False

    # What comes in.

    def feed(self, content: bytes, most_bytes: int) -> None:
        """Take bytes of requests.

        Raises:
            RefusedRequestError: a request is compressed, or longer than `most_bytes`; or more wait than are allowed,
                which is one in a call that has one, and otherwise `most_bytes` of them.
        """
        self._received += content
        while len(self._received) >= PREFIX_BYTES:
            size = int.from_bytes(self._received[1:PREFIX_BYTES], "big")
            if self._received[0]:
                raise RefusedRequestError(
                    grpc.StatusCode.UNIMPLEMENTED, "request: it is compressed; send it as it is, compression off"
                )
            if size > most_bytes:
                raise RefusedRequestError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"request: {size} bytes, {most_bytes} are allowed; ask for less, or raise --max-request-bytes",
                )
            if len(self._received) < PREFIX_BYTES + size:
                return
            self._requests.put(bytes(self._received[PREFIX_BYTES : PREFIX_BYTES + size]))
            del self._received[: PREFIX_BYTES + size]
            self._fed_bytes += size + REQUEST_BYTES
            if not self.runs_early and self._requests.qsize() > 1:
                raise RefusedRequestError(
                    grpc.StatusCode.INTERNAL, "request: a second message in a call that has one; mend the client"
                )
            if self._fed_bytes - self._taken_bytes > most_bytes + REQUEST_BYTES:
                raise RefusedRequestError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"request: {self._requests.qsize()} wait, {most_bytes} bytes are allowed; wait for answers",
                )

    def feed_end(self) -> None:
        """No request follows.

        Raises:
            RefusedRequestError: the last one is not whole.
        """
        if self._received:
            raise RefusedRequestError(grpc.StatusCode.INTERNAL, "request: it ends before its length; mend the client")
        self._requests.put(None)

    def requests(self, deserialize: Callable[[bytes], Any]) -> Iterator[Any]:
        """Give the requests as they come, until the client has sent its last one, or is gone.

        Raises:
            RefusedRequestError: one cannot be read.
        """
        while (request := self._requests.get()) is not None:
            self._taken_bytes += len(request) + REQUEST_BYTES
            try:
                given = deserialize(request)
            except Exception as error:  # whatever a parser finds wrong, it is the request
                raise RefusedRequestError(
                    grpc.StatusCode.INTERNAL,
                    f"request: {len(request)} bytes are not what {self.method} asks for; use its protos",
                ) from error
            yield given

    def give_up(self) -> None:
        """End the call: the client gave it up, or the server stops; `tell_end` must follow, without locks."""
        self.is_cancelled = True
        self._requests.put(None)

    def tell_end(self) -> None:
        """Tell whoever waits for the end, each once, from whichever thread comes first."""
        self._is_over = True
        while self._callbacks:
            with contextlib.suppress(IndexError):  # another thread was faster
                callback = self._callbacks.pop()
                try:
                    callback()
                except Exception:  # the others must hear of it all the same
                    logger.exception("hearing the end of %s failed", self.method)

    # What goes out; for the thread that runs it.

    def send(self, message: bytes | Scattered) -> bool:
        """Send an answer; say whether anybody wants another one."""
        self._begin_answer()
        scattered = message if isinstance(message, Scattered) else Scattered(message, piece_bytes=len(message) or 1)
        return self._connection.send_message(self, scattered)

    def finish(self, code: grpc.StatusCode, details: str) -> None:
        """Send the status; for the thread that runs the call, or that refuses it."""
        try:
            if not self.is_cancelled:
                self._connection.send_status(
                    self, self._initial, self._has_answered, (code.value[0], details, self._trailing)
                )
        finally:
            self.tell_end()

    def _begin_answer(self) -> None:
        if not self._has_answered:
            self._has_answered = True
            self._connection.begin_answer(self, self._initial)

    # What services ask, as `grpc.ServicerContext` says.

    def is_active(self) -> bool:
        """Say whether anybody waits for answers."""
        remaining = self.time_remaining()
        return not self.is_cancelled and not self._is_over and (remaining is None or remaining > 0)

    def cancel(self) -> bool:
        """Break the call off; the client hears CANCELLED."""
        self._connection.reset(self)
        return True

    def time_remaining(self) -> float | None:  # type: ignore[override]
        """Give the seconds until the caller gives up, None if it never does."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have something called at the end; False where that has been."""
        self._callbacks.append(callback)
        if self._is_over or self.is_cancelled:  # perhaps a moment ago: whoever takes it out again was first
            with contextlib.suppress(ValueError):
                self._callbacks.remove(callback)
                return False
        return True

    def invocation_metadata(self) -> Metadata:
        """Give the caller's metadata."""
        return self._metadata

    def peer(self) -> str:
        """Give the caller's address."""
        return self._connection.peer

    def auth_context(self) -> Mapping[str, list[bytes]]:  # type: ignore[override]
        """Give what the client's certificate says."""
        name = self._connection.common_name
        return {"x509_common_name": [name.encode()]} if name else {}

    def peer_identities(self) -> list[bytes] | None:
        """Give the names in the client's certificate."""
        return self.auth_context().get("x509_common_name")

    def peer_identity_key(self) -> str | None:
        """Say which names those are."""
        return "x509_common_name" if self._connection.common_name else None

    def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Send metadata before the first answer."""
        self._initial = tuple(initial_metadata)
        self._begin_answer()
        self._connection.flush()

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Keep metadata to be sent with the status."""
        self._trailing = tuple(trailing_metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        """Keep the status."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Keep the status's message."""
        self._details = details

    def code(self) -> grpc.StatusCode:
        """Give the status as it was set."""
        return self._code or grpc.StatusCode.OK

    def details(self) -> str:
        """Give its message."""
        return self._details

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with a status."""
        self.set_code(code)
        self.set_details(details)
        raise Aborted

    def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with a status and its metadata."""
        self.set_trailing_metadata(status.trailing_metadata)
        self.abort(status.code, status.details)


class RefusedRequestError(Exception):
    """A request cannot be taken; has the status that says so."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        """Keep the status."""
        super().__init__(details)
        self.code = code


def only(requests: Sequence[Any]) -> Any:
    """Give the one request of a call that has one.

    Raises:
        RefusedRequestError: there is none, or there are several.
    """
    if len(requests) != 1:
        raise RefusedRequestError(
            grpc.StatusCode.INTERNAL, f"request: {len(requests)} messages in a call that has one; mend the client"
        )
    return requests[0]
