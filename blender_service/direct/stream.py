"""One call over a connection of its own: frames in, messages out, each received where it stays.

    server  [DATA header][DATA ......][DATA header][DATA ...]..[HEADERS: status]
    here     9 bytes      |<- straight into the message's memory ->|

The window is what the server may send before its messages are taken. A message that would not fit into half of it is
allowed for when its length is known, so messages of any length get through, and not many wait.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import grpc
import numpy as np

from blender_service.direct.hpack import HeaderBlockError, read_headers, write_headers
from blender_service.direct.status import CallError, check_begun, check_ended, error_of_reset, unavailable

WINDOW_BYTES: Final = 16 << 20  # about 8 messages
MOST_MESSAGE_BYTES: Final = 1 << 30
GREETING_SECONDS: Final = 10  # within which a server says anything; one that is frozen is still connected to
SILENCE_SECONDS: Final = 30  # without a byte, before the server is asked whether it is there, and again before the end
SEND_SECONDS: Final = 30

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 4, 5
MOST_FRAME_BYTES: Final = (1 << 24) - 1
MOST_OTHER_BYTES: Final = 64 << 10  # of a frame that is no DATA, and of a header block
SENT_FRAME_BYTES: Final = 16 << 10
FIRST_WINDOW_BYTES: Final = (1 << 16) - 1  # of a connection, before anything is said
STREAM: Final = 1  # the only one


class Message(NamedTuple):
    """A message, to be taken.

    Attributes:
        content: read-only.
        credit: bytes of the window that it holds until it is taken.
    """

    content: memoryview
    credit: int


class _Frame(NamedTuple):
    """What comes before a frame's content."""

    byte_count: int
    kind: int
    flags: int
    stream: int


class MessageStream:
    """A call. One thread receives; whoever takes messages gives their credit back, and any thread hangs up."""

    def __init__(self, connected: socket.socket, is_awaited: Callable[[], bool]) -> None:
        """Use a socket.

        Args:
            connected: closed by `close`.
            is_awaited: says whether anybody waits for a message; nobody needs a server that is silent otherwise, and
                some end a connection for its pings.
        """
        self._socket = connected
        self._is_awaited = is_awaited
        self._sending = threading.Lock()
        # So that no other socket has its number while it is hung up; by a finaliser perhaps, inside of that.
        self._closing = threading.RLock()
        self._owed = 0
        self._has_greeted = False
        self._is_asked = False
        self._start = memoryview(bytearray(9))
        connected.setblocking(True)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, seconds in ((socket.SO_RCVTIMEO, GREETING_SECONDS), (socket.SO_SNDTIMEO, SEND_SECONDS)):
            connected.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))

    def ask(self, headers: Sequence[tuple[bytes, bytes]], request: bytes) -> None:
        """Begin the call with its only request.

        Raises:
            CallError: the request is too long for a window of 64 KiB.
            OSError: the server is gone.
        """
        if len(request) > FIRST_WINDOW_BYTES - 5:
            raise CallError(grpc.StatusCode.INVALID_ARGUMENT, f"request: it has {len(request)} bytes; ask for less")
        settings = (
            (HEADER_TABLE_SIZE, 0),
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW_SIZE, WINDOW_BYTES),
            (MAX_FRAME_SIZE, MOST_FRAME_BYTES),
        )
        parts = [PREFACE, _frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *setting) for setting in settings))]
        parts.append(_window_update(0, WINDOW_BYTES - FIRST_WINDOW_BYTES))
        block = _cut(write_headers(headers))
        for number, part in enumerate(block):
            flags = END_HEADERS if number == len(block) - 1 else 0
            parts.append(_frame(CONTINUATION if number else HEADERS, flags, STREAM, part))
        content = _cut(b"\0" + len(request).to_bytes(4, "big") + request)
        parts += [_frame(DATA, END_STREAM if part is content[-1] else 0, STREAM, part) for part in content]
        self._send(b"".join(parts))

    def messages(self) -> Iterator[Message]:
        """Receive messages until the server ends the call.

        Raises:
            CallError: it did not end well, or what comes is not gRPC.
            OSError: the server is gone.
        """
        inbox = _Inbox(self)
        has_begun = False
        while True:
            frame = self._receive_frame()
            if frame.kind == DATA:
                if not has_begun or frame.stream != STREAM:
                    raise unavailable(f"DATA on stream {frame.stream}, before any answer began")
                yield from inbox.receive(frame)
                if frame.flags & END_STREAM:
                    raise CallError(grpc.StatusCode.INTERNAL, "the stream ended without a status")
            elif frame.kind == HEADERS:
                headers = self._receive_headers(frame)
                fields, ends = dict(headers), frame.flags & END_STREAM
                if fields.get(b":status", b"").startswith(b"1"):
                    continue  # of an answer that is still to come
                if not has_begun and not (ends and b"grpc-status" in fields):
                    check_begun(headers)
                has_begun = True
                if ends:
                    check_ended(headers)
                    inbox.check_whole()
                    return
            else:
                self._heed(frame, self._receive(frame.byte_count))

    def give_back(self, credit: int) -> None:
        """Let the server send as many bytes more; for whoever takes messages."""
        self._owed += credit
        if self._owed >= WINDOW_BYTES // 4:
            credit, self._owed = self._owed, 0
            with contextlib.suppress(OSError):  # whoever receives hears of it
                self.allow(credit)

    def allow(self, byte_count: int) -> None:
        """Let the server send more."""
        self._send(_window_update(0, byte_count) + _window_update(STREAM, byte_count))

    def hang_up(self) -> None:
        """End waits of other threads; nothing comes any more. For any thread."""
        with self._closing, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket."""
        self.hang_up()
        with self._sending, self._closing:
            self._socket.close()

    def fill(self, view: memoryview) -> None:
        """Receive until a piece of memory is full.

        Raises:
            CallError: the server says nothing, not even to a ping.
            OSError: it is gone.
        """
        at = 0
        while at < len(view):
            try:
                received = self._socket.recv_into(view[at:], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                if not self._has_greeted:
                    raise unavailable(f"it is connected, but said nothing for {GREETING_SECONDS} s") from None
                if not self._is_awaited():
                    continue
                if self._is_asked:
                    raise unavailable("it says nothing, not even to a ping") from None
                self._is_asked = True
                self._send(_frame(PING, 0, 0, b"headrace"))
                continue
            if not received:
                raise ConnectionError("the connection was closed")
            self._is_asked = False
            at += received

    def _receive(self, byte_count: int) -> bytes:
        content = bytearray(byte_count)
        self.fill(memoryview(content))
        return bytes(content)

    def _receive_frame(self) -> _Frame:
        """Receive what comes before a frame's content."""
        start = self._start
        self.fill(start)
        if not self._has_greeted:
            self._has_greeted = True
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", SILENCE_SECONDS, 0))
        frame = _Frame(
            int.from_bytes(start[:3], "big"), start[3], start[4], int.from_bytes(start[5:], "big") & 0x7FFFFFFF
        )
        if frame.kind != DATA and frame.byte_count > MOST_OTHER_BYTES:
            raise unavailable(f"a frame of kind {frame.kind} with {frame.byte_count} bytes, no HTTP/2")
        return frame

    def _receive_headers(self, frame: _Frame) -> list[tuple[bytes, bytes]]:
        """Receive the rest of a header block and read it."""
        content = self._receive(frame.byte_count)
        if frame.flags & PADDED:
            content = content[1 : len(content) - content[0]] if content else b""
        if frame.flags & PRIORITY:
            content = content[5:]
        flags = frame.flags
        while not flags & END_HEADERS:
            following = self._receive_frame()
            if following.kind != CONTINUATION or len(content) + following.byte_count > MOST_OTHER_BYTES:
                raise unavailable("headers that break off, or never end")
            content += self._receive(following.byte_count)
            flags = following.flags
        try:
            return read_headers(content)
        except HeaderBlockError as error:
            raise unavailable(f"headers: {error}") from error

    def _heed(self, frame: _Frame, content: bytes) -> None:
        """Do what a frame asks for that is of no message; what is unknown asks for nothing."""
        if frame.kind == SETTINGS and not frame.flags & ACK:
            self._send(_frame(SETTINGS, ACK, 0))
        elif frame.kind == PING and not frame.flags & ACK:
            self._send(_frame(PING, ACK, 0, content))
        elif frame.kind == RST_STREAM and frame.stream == STREAM:
            raise error_of_reset(int.from_bytes(content, "big"))
        elif frame.kind == GOAWAY and int.from_bytes(content[:4], "big") < STREAM:
            raise unavailable(f"GOAWAY with error {int.from_bytes(content[4:8], 'big')}, before it took the call")
        elif frame.kind in (PUSH_PROMISE, CONTINUATION):
            raise unavailable(f"a frame of kind {frame.kind} where none may be")

    def _send(self, content: bytes) -> None:
        with self._sending:
            self._socket.sendall(content, socket.MSG_NOSIGNAL)  # a training job may let SIGPIPE end it


class _Inbox:
    """The message that is being received."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._prefix = memoryview(bytearray(5))
        self._content: memoryview | None = None
        self._at = 0  # of the prefix, or of the content
        self._credit = 0

    def receive(self, frame: _Frame) -> Iterator[Message]:
        """Receive a frame; give the messages that become whole."""
        left, padding = frame.byte_count, 0
        if frame.flags & PADDED:
            length = bytearray(1)
            self._stream.fill(memoryview(length))
            padding = length[0]
            left -= 1 + padding
            self._credit += 1 + padding
        while left > 0:
            left -= self._receive_part(left)
            if self._content is not None and self._at == len(self._content):
                yield Message(self._content.toreadonly(), self._credit)
                self._content, self._at, self._credit = None, 0, 0
        if left < 0:
            raise unavailable("a frame that is longer than its content")
        if padding:
            self._stream.fill(memoryview(bytearray(padding)))

    def check_whole(self) -> None:
        """See whether nothing is left over.

        Raises:
            CallError: a message is not whole.
        """
        if self._at or self._content is not None:
            raise CallError(grpc.StatusCode.INTERNAL, "the stream ended inside a message")

    def _receive_part(self, most: int) -> int:
        """Receive more of a message; say how many bytes."""
        into = self._prefix if self._content is None else self._content
        size = min(most, len(into) - self._at)
        self._stream.fill(into[self._at : self._at + size])
        self._at += size
        self._credit += size
        if self._content is None and self._at == len(into):
            self._begin()
        return size

    def _begin(self) -> None:
        """Make room for the message that the prefix announces."""
        size = int.from_bytes(self._prefix[1:], "big")
        if self._prefix[0]:
            raise CallError(grpc.StatusCode.INTERNAL, "a compressed message, which nobody asked for")
        if size > MOST_MESSAGE_BYTES:
            raise CallError(grpc.StatusCode.INTERNAL, f"a message of {size} bytes; ask for fewer rows")
        beyond = size - WINDOW_BYTES // 2
        if beyond > 0:
            self._stream.allow(beyond)
            self._credit -= beyond
        self._content, self._at = np.empty(size, dtype=np.uint8).data, 0


def _frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Write a frame."""
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def _window_update(stream: int, byte_count: int) -> bytes:
    return _frame(WINDOW_UPDATE, 0, stream, byte_count.to_bytes(4, "big"))


def _cut(content: bytes) -> list[bytes]:
    """Cut what is sent into the content of frames."""
    return [content[at : at + SENT_FRAME_BYTES] for at in range(0, len(content), SENT_FRAME_BYTES)]
