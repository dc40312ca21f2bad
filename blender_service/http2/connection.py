"""One HTTP/2 connection: frames in, frames out, each stream as fast as its reader allows.

One thread receives; calls send from theirs. Two locks, never the other way round::

    _writing   the socket, held for one turn of a call: what `h2` has to say, then some frames of a message
    _changed   `h2` and the calls, held for moments

The thread that receives never waits for the socket: whoever holds it sends what has come up meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
import numpy as np
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from blender_service.http2.frames import HEADER_BYTES, MOST_FRAMES, MOST_VECTORS, farewell, lay_out, most_frame_bytes
from blender_service.http2.line import Line
from blender_service.http2.metadata import (
    CONTENT_TYPE,
    Headers,
    Metadata,
    fault_of,
    headers_of,
    is_grpc,
    metadata_of,
    seconds_of,
    trailers,
)
from blender_service.http2.protocol import new_protocol
from blender_service.http2.rpc import PREFIX_BYTES, RefusedRequestError, Rpc
from blender_service.scattered import Scattered

TURN_BYTES: Final = 4 << 20  # of one message before another stream has its turn
MOST_UNSENT_BYTES: Final = 1 << 20  # of what is not rows: a peer that asks and never reads is hung up on
BEGIN_SECONDS: Final = 30  # within which a client must have said anything that is HTTP/2
OK_HEADERS: Final = [(b":status", b"200"), (b"content-type", CONTENT_TYPE)]

_address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))

logger = logging.getLogger(__name__)


class Connection:
    """A client's connection.

    Attributes:
        peer: address of the client.
        common_name: in its certificate, empty without one.
    """

    def __init__(
        self,
        line: Line,
        peer: str,
        begin: Callable[[Rpc], bool],
        run: Callable[[Rpc], None],
        most_request_bytes: int,
    ) -> None:
        """Prepare to serve.

        Args:
            line: connected.
            peer: address of the client.
            begin: hears of a call once its headers are there; says whether it runs before its requests are.
            run: hears of a call that may be run; must not wait.
            most_request_bytes: longest request.
        """
        self.peer = peer
        self.common_name = ""
        self._line = line
        self._begin = begin
        self._run = run
        self._most_request_bytes = most_request_bytes
        self._h2 = new_protocol()
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._unsent = bytearray()
        self._calls: dict[int, Rpc] = {}
        self._gone: list[Rpc] = []  # given up, but who waits for their end was not told
        self._last_stream = 0
        self._may_flush = False  # not before hands are shaken, and not after `finish`
        self._is_leaving = False
        self._is_over = False
        self._headers = np.empty((MOST_FRAMES, HEADER_BYTES), dtype=np.uint8)
        self._vectors = np.empty((MOST_VECTORS, 2), dtype=np.int64)
        self._h2.initiate_connection()
        self._take_unsent()

    def serve(self) -> None:
        """Receive until the client is gone; its calls are cancelled then."""
        try:
            self.common_name = self._line.shake_hands()
            self._may_flush = True
            self.flush()
            self._receive()
        except ProtocolError as error:
            logger.info("connection of %s: %s", self.peer, error)
            with self._changed:
                self._take_unsent()  # h2's farewell
            self.flush()
        except OSError as error:
            logger.info("connection of %s: %s", self.peer, error)
        except Exception:  # nobody is above this thread, and its calls must end
            logger.exception("connection of %s failed", self.peer)
        finally:
            self.end()
            self._line.hang_up()
            with self._writing:
                self._line.close()

    def end(self) -> None:
        """Cancel the calls, let no other begin, wake whoever waits."""
        with self._changed:
            self._is_over = True
            self._gone += self._calls.values()
            for call in self._calls.values():
                call.give_up()
            self._calls.clear()
            self._changed.notify_all()
        self._tell_ends()

    def leave(self) -> None:
        """Tell the client to make its next calls elsewhere; those that run go on."""
        with self._changed:
            self._is_leaving = True
            # h2 would let nothing follow its own farewell.
            self._unsent += farewell(self._last_stream)
        if self._line.has_room():  # a client that does not read must not hold up who stops the server
            self.flush()

    def finish(self) -> None:
        """Send nothing more; the client still gets what was sent, and should hang up."""
        if self._line.has_room():
            self.flush()
        if self._writing.acquire(blocking=False):
            try:
                self._may_flush = False  # an answer to a ping would be an error now, and that the end
                self._line.finish()
            finally:
                self._writing.release()

    def hang_up(self) -> None:
        """Break off."""
        self.end()
        self._line.hang_up()

    # What goes out.

    def begin_answer(self, call: Rpc, metadata: Metadata) -> None:
        """Prepare what comes before the answers; it leaves with the first one, or with `flush`."""
        self._send_headers(call, [*OK_HEADERS, *headers_of(metadata)], ends=False)

    def send_status(self, call: Rpc, metadata: Metadata, has_answered: bool, status: tuple[int, str, Metadata]) -> None:
        """Send how a call ended, with what comes before where no answer was sent."""
        begun: Headers = [] if has_answered else [*OK_HEADERS, *headers_of(metadata)]
        self._send_headers(call, [*begun, *trailers(*status)], ends=True)
        self.flush()
        with self._changed:
            self._calls.pop(call.stream, None)

    def send_message(self, call: Rpc, message: Scattered) -> bool:
        """Send a message from where it lies, as fast as the client takes it; say whether all of it was sent."""
        start = b"".join((b"\0", len(message).to_bytes(PREFIX_BYTES - 1, "big"), message.start))
        address = _address_of(start)
        at, last = 0, PREFIX_BYTES + len(message)
        fitting = most_frame_bytes(message.piece_bytes)
        while at < last:
            room, frame_bytes = self._reserve(call, min(last - at, TURN_BYTES, fitting))
            if not room:
                return False
            try:
                with self._writing:
                    if self._unsent:
                        self._send_unsent()
                    if call.is_cancelled:  # its end has been sent
                        self._give_back(call, room)
                        return False
                    used, taken, wire_bytes = lay_out(
                        (address, len(start)), message.pieces, message.piece_bytes, (at, room),
                        min(frame_bytes, fitting), call.stream, self._headers, self._vectors,
                    )  # fmt: skip
                    self._line.send_vectors(self._vectors, used, wire_bytes)
            except OSError as error:
                logger.info("connection of %s: %s", self.peer, error)
                self.hang_up()
                return False
            self.flush()
            at += taken
            if taken < room:
                self._give_back(call, room - taken)
        return True

    def _reserve(self, call: Rpc, wanted: int) -> tuple[int, int]:
        """Wait until the client takes bytes of a stream; give how many, none where it is gone, and the longest frame.

        The windows are h2's own; it would copy what it sends.
        """
        with self._changed:
            found = self._take_room(call, wanted)
        if found is None:
            self.flush()  # what comes before the message does not wait for the window
        with self._changed:
            while found is None and (found := self._take_room(call, wanted)) is None:
                self._changed.wait(call.time_remaining())
        return found

    def _take_room(self, call: Rpc, wanted: int) -> tuple[int, int] | None:
        """Take what `_reserve` gives, the lock held; None where the client takes nothing yet."""
        stream = self._h2.streams.get(call.stream)
        if call.is_cancelled or self._is_over or stream is None or stream.closed:
            return 0, 0
        room = min(wanted, self._h2.outbound_flow_control_window, stream.outbound_flow_control_window)
        if room > 0:
            self._h2.outbound_flow_control_window -= room
            stream.outbound_flow_control_window -= room
            return room, self._h2.max_outbound_frame_size
        return (0, 0) if call.time_remaining() == 0 else None

    def _give_back(self, call: Rpc, unused: int) -> None:
        with self._changed:
            self._h2.outbound_flow_control_window += unused
            stream = self._h2.streams.get(call.stream)
            if stream is not None:
                stream.outbound_flow_control_window += unused
            self._changed.notify_all()

    def reset(self, call: Rpc) -> None:
        """Break a call off."""
        with self._changed:
            self._reset(call.stream, ErrorCodes.CANCEL)
            self._take_unsent()
        self._tell_ends()
        self.flush()

    def _send_headers(self, call: Rpc, headers: Headers, *, ends: bool) -> None:
        with self._changed:
            if not (call.is_cancelled or self._is_over):
                self._answer(call.stream, headers, ends=ends)
                self._take_unsent()

    def _take_unsent(self) -> None:
        """Take what h2 has to say, its lock held."""
        self._unsent += self._h2.data_to_send()

    def _send_unsent(self) -> None:
        """Send what has come up, the socket's lock held."""
        with self._changed:
            content = bytes(self._unsent)
            self._unsent.clear()
        if content:
            self._line.send(content)

    def flush(self) -> None:
        """Send what has come up, unless somebody who sends does so next."""
        while self._unsent and self._may_flush and self._writing.acquire(blocking=False):
            try:
                if self._may_flush:
                    self._send_unsent()
            except OSError as error:
                logger.debug("connection of %s: %s", self.peer, error)
                self._unsent.clear()
                self.hang_up()
            finally:
                self._writing.release()

    # What comes in.

    def _receive(self) -> None:
        is_asked, has_begun, until = False, False, time.monotonic() + BEGIN_SECONDS
        while not self._is_over:
            content = self._line.receive()
            if content is None:  # silence: is anybody there?
                if is_asked or not has_begun:
                    raise TimeoutError("it says nothing, not even to a ping")
                is_asked = True
                with self._changed:
                    self._h2.ping(b"headrace")
                    self._take_unsent()
                self.flush()
                continue
            if not content:
                return
            is_asked = False
            with self._changed:
                events = self._h2.receive_data(content)
                ready = [call for event in events if (call := self._take(event)) is not None]
                self._take_unsent()
                self._changed.notify_all()
            has_begun = has_begun or bool(events)
            if not has_begun and time.monotonic() > until:
                raise TimeoutError(f"no HTTP/2 within {BEGIN_SECONDS} s")
            for call in ready:
                self._run(call)
            self._tell_ends()
            self.flush()
            if len(self._unsent) > MOST_UNSENT_BYTES:
                raise ConnectionError(f"it asks without reading: {len(self._unsent)} bytes of answers wait")

    def _take(self, event: Event) -> Rpc | None:
        """Take one event, the lock held; give a call that may be run now."""
        if isinstance(event, RequestReceived):
            return self._open(event.stream_id, event.headers)
        if isinstance(event, TrailersReceived) and fault_of(event.headers, are_trailers=True):
            self._reset(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
        if isinstance(event, ConnectionTerminated):
            raise ConnectionError("the client leaves")  # h2 lets nothing follow
        call = self._calls.get(getattr(event, "stream_id", 0))
        if isinstance(event, DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if call is not None:
                self._feed(call, event.data)
        elif isinstance(event, StreamEnded) and call is not None:
            self._feed(call, None)
            return None if call.runs_early or call.is_cancelled else call
        elif isinstance(event, StreamReset) and call is not None:
            self._give_up(call)
        return None

    def _open(self, stream: int, headers: Any) -> Rpc | None:
        """Begin a call."""
        if self._is_leaving or self._is_over:
            # Not processed, so that the client may make it again elsewhere.
            self._reset(stream, ErrorCodes.REFUSED_STREAM)
            return None
        self._last_stream = stream
        if fault_of(headers):
            self._reset(stream, ErrorCodes.PROTOCOL_ERROR)
            return None
        found = {bytes(name): bytes(value) for name, value in headers}
        if found.get(b":method") != b"POST" or not is_grpc(found.get(b"content-type", b"")):
            self._answer(stream, [(b":status", b"415")])
            return None
        try:
            timeout = found.get(b"grpc-timeout")
            deadline = None if timeout is None else time.monotonic() + seconds_of(timeout.decode("ascii", "replace"))
        except ValueError as error:
            self._refuse(stream, grpc.StatusCode.INTERNAL, str(error))
            return None
        method = found.get(b":path", b"").decode(errors="replace")
        call = Rpc(self, stream, method, metadata_of(headers), deadline)
        self._calls[stream] = call
        call.runs_early = self._begin(call)
        return call if call.runs_early else None

    def _feed(self, call: Rpc, content: bytes | None) -> None:
        """Give a call bytes of its requests, None at their end, the lock held."""
        try:
            if content is None:
                call.feed_end()
            else:
                call.feed(content, self._most_request_bytes)
        except RefusedRequestError as error:
            self._give_up(call)
            self._refuse(call.stream, error.code, str(error))

    def _give_up(self, call: Rpc) -> None:
        """Take a call that nobody waits for out, the lock held."""
        call.give_up()
        del self._calls[call.stream]
        self._gone.append(call)

    def _tell_ends(self) -> None:
        """Tell whoever waits for the end of calls that were given up, no lock held."""
        while self._gone:
            with contextlib.suppress(IndexError):  # another thread was faster
                self._gone.pop().tell_end()

    def _refuse(self, stream: int, code: grpc.StatusCode, details: str) -> None:
        """Answer with a status alone, the lock held."""
        known = self._h2.streams.get(stream)
        begun = [] if known is not None and known.state_machine.headers_sent else OK_HEADERS
        self._answer(stream, [*begun, *trailers(code.value[0], details, ())])

    def _answer(self, stream: int, headers: Headers, *, ends: bool = True) -> None:
        """Send headers, the lock held; none where the client has just given the stream up."""
        try:
            self._h2.send_headers(stream, headers, end_stream=ends)
            if ends and not self._h2.streams[stream].closed:  # the client may still send: nobody listens
                self._h2.reset_stream(stream, ErrorCodes.NO_ERROR)
        except ProtocolError as error:
            logger.debug("connection of %s: %s", self.peer, error)

    def _reset(self, stream: int, code: ErrorCodes) -> None:
        """Break a stream off, the lock held."""
        if stream in self._calls:
            self._give_up(self._calls[stream])
        with contextlib.suppress(ProtocolError):  # the client was faster
            self._h2.reset_stream(stream, code)
        self._changed.notify_all()
