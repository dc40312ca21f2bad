"""The socket below a connection, plain or TLS: bytes in, scattered bytes out.

Each waits in the kernel, and gives up after `SILENCE_SECONDS`, or when it is hung up from another thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import ssl
import struct
import threading
import time
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from blender_service.scattered import copy_vectors

RECEIVE_BYTES: Final = 64 << 10
SEND_BUFFER_BYTES: Final = 512 << 10  # in the kernel; more has left the caches when the reader takes it
SILENCE_SECONDS: Final = 30
PATIENCE_SECONDS: Final = 50  # how long a peer may take nothing of what it allowed
HANDSHAKE_SECONDS: Final = 30  # for all of it
TLS_PART_BYTES: Final = 128 << 10


class Line(Protocol):
    """What a connection sends over. One thread receives; whoever sends holds the connection's lock."""

    def shake_hands(self) -> str:
        """Agree on keys, before anything else; give the name in the client's certificate, empty without one."""

    def receive(self) -> bytes | None:
        """Wait for bytes: empty where the peer has hung up, None after `SILENCE_SECONDS` without any."""

    def send(self, content: bytes) -> None:
        """Send bytes; OSError where the peer takes them no more."""

    def send_vectors(self, vectors: NDArray[np.int64], count: int, byte_count: int) -> None:
        """Send the first of (V, 2) addresses and lengths, int64, so many bytes in all; OSError as above."""

    def has_room(self) -> bool:
        """Say whether a few bytes can be sent without a wait; for any thread."""

    def finish(self) -> None:
        """Say that nothing more is sent; the peer gets what was."""

    def hang_up(self) -> None:
        """End waits of other threads; nothing can be sent any more. For any thread."""

    def close(self) -> None:
        """Free the socket; nobody may use the line any more."""


class _MessageHeader(ctypes.Structure):
    """`struct msghdr`."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_bytes", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


_library = ctypes.CDLL(None, use_errno=True)
_send_message: Any = _library.sendmsg
_send_message.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_send_message.restype = ctypes.c_ssize_t


def prepare(connected: socket.socket) -> None:
    """Set a socket's waits and buffers."""
    connected.setblocking(True)
    if connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    for option, seconds in ((socket.SO_RCVTIMEO, SILENCE_SECONDS), (socket.SO_SNDTIMEO, PATIENCE_SECONDS)):
        connected.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


class PlainLine:
    """A TCP connection."""

    def __init__(self, connected: socket.socket) -> None:
        """Use a socket that `prepare` has seen."""
        self._socket = connected
        self._message = _MessageHeader()
        self._message_address = ctypes.addressof(self._message)
        self._closing = threading.Lock()  # so that no other socket has its number while it is hung up

    def shake_hands(self) -> str:
        """Nothing to agree on."""
        return ""

    def receive(self) -> bytes | None:
        """Wait for bytes."""
        try:
            return self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None

    def send(self, content: bytes) -> None:
        """Send bytes."""
        view = memoryview(content)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError as error:
                raise TimeoutError(errno.ETIMEDOUT, f"nothing was taken for {PATIENCE_SECONDS} s") from error

    def send_vectors(self, vectors: NDArray[np.int64], count: int, byte_count: int) -> None:
        """Send from where the bytes lie."""
        self._message.vectors, self._message.vector_count = vectors.ctypes.data, count
        left = byte_count
        while (sent := _send_message(self._socket.fileno(), self._message_address, socket.MSG_NOSIGNAL)) != left:
            if sent < 0:
                number = ctypes.get_errno()
                if number == errno.EINTR:
                    continue
                if number == errno.EAGAIN:
                    raise TimeoutError(errno.ETIMEDOUT, f"nothing was taken for {PATIENCE_SECONDS} s")
                raise OSError(number, os.strerror(number))
            left -= sent
            vectors = _after(vectors[:count], sent)
            count = len(vectors)
            self._message.vectors, self._message.vector_count = vectors.ctypes.data, count

    def has_room(self) -> bool:
        """Ask the kernel."""
        with self._closing:
            number = self._socket.fileno()
            return number >= 0 and bool(_poll_output(number))

    def finish(self) -> None:
        """End one direction."""
        with contextlib.suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """End both directions."""
        with self._closing, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        with self._closing:
            self._socket.close()


class TlsLine:
    """A TLS session; OpenSSL's object may serve one thread at a time, so it works on memory, under a lock."""

    def __init__(self, plain: PlainLine, context: ssl.SSLContext) -> None:
        """Be the server of a session over a plain line; `shake_hands` must come first."""
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._lock = threading.Lock()  # of the session
        self._sending = threading.Lock()  # of the socket, taken first: records leave in the order they were made
        self._buffer = np.empty(TLS_PART_BYTES, dtype=np.uint8)

    @property
    def common_name(self) -> str:
        """Name in the client's certificate, empty without one."""
        certificate: Any = self._session.getpeercert() or {}
        names = (value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")
        return next(names, "")

    def shake_hands(self) -> str:
        """Agree on keys.

        Raises:
            OSError: the client does not want to (`ssl.SSLError`), says nothing, is too slow, or is gone.
        """
        until = time.monotonic() + HANDSHAKE_SECONDS
        while True:
            try:
                self._session.do_handshake()
                return self.common_name
            except ssl.SSLWantReadError:
                self._plain.send(self._outgoing.read())
                content = self._plain.receive()
                if not content:
                    raise ConnectionError("the client left the handshake") from None
                if time.monotonic() > until:
                    raise TimeoutError(errno.ETIMEDOUT, f"no TLS within {HANDSHAKE_SECONDS} s") from None
                self._incoming.write(content)
            finally:
                self._plain.send(self._outgoing.read())

    def receive(self) -> bytes | None:
        """Wait for bytes and decrypt them."""
        while True:
            with self._lock:
                try:
                    content = self._session.read(RECEIVE_BYTES)
                except ssl.SSLWantReadError:
                    content = None
                except ssl.SSLError:  # the end of the session among them
                    return b""
                has_answer = self._outgoing.pending > 0
            if has_answer:
                self._flush()
            if content is not None:
                return content
            received = self._plain.receive()
            if not received:
                return received
            with self._lock:
                self._incoming.write(received)

    def send(self, content: bytes) -> None:
        """Encrypt bytes and send them."""
        with self._sending:
            self._encrypt(memoryview(content))

    def send_vectors(self, vectors: NDArray[np.int64], count: int, byte_count: int) -> None:
        """Join some, encrypt them and send them, until all are."""
        with self._sending:
            at = 0
            while at < byte_count:
                joined = min(byte_count - at, len(self._buffer))
                copy_vectors(vectors[:count], at, joined, self._buffer)
                self._encrypt(self._buffer[:joined].data)
                at += joined

    def has_room(self) -> bool:
        """Ask the kernel."""
        return self._plain.has_room()

    def finish(self) -> None:
        """End one direction."""
        self._plain.finish()

    def hang_up(self) -> None:
        """End both directions."""
        self._plain.hang_up()

    def close(self) -> None:
        """Close the socket."""
        self._plain.close()

    def _encrypt(self, content: memoryview) -> None:
        """Encrypt and send, the lock of the socket held."""
        while content:
            with self._lock:
                content = content[self._session.write(content) :]
                record = self._outgoing.read()
            self._plain.send(record)

    def _flush(self) -> None:
        """Send what the session itself has to say."""
        with self._sending:
            with self._lock:
                record = self._outgoing.read()
            self._plain.send(record)


def _poll_output(number: int) -> int:
    """Give the events of a file descriptor that may be written, 0 where it may not."""
    asked = select.poll()
    asked.register(number, select.POLLOUT)
    return sum(events for _, events in asked.poll(0))


def _after(vectors: NDArray[np.int64], sent: int) -> NDArray[np.int64]:
    """Leave out bytes that were sent."""
    ends = np.cumsum(vectors[:, 1])
    first = int(np.searchsorted(ends, sent, side="right"))
    rest = vectors[first:].copy()
    within = sent - int(ends[first] - vectors[first, 1])
    rest[0] += (within, -within)
    return rest
