"""A server that sends what a test tells it, right or wrong, to whoever asks, and keeps what it receives."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from blender_service.direct.call import DirectReads
from blender_service.direct.hpack import write_headers
from blender_service.direct.targets import Target
from tests.blender_service.http2.raw_client import PREFACE, frame, request_of

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
METHOD = "/headrace.blender.v1.RowService/ReadBlend"
OK_HEADERS = ((b":status", b"200"), (b"content-type", b"application/grpc"))


def headers(*fields: tuple[bytes, bytes], ends: bool = False) -> bytes:
    """Write headers, or trailers."""
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), 1, write_headers(fields))


BEGIN = headers(*OK_HEADERS)
END = headers((b"grpc-status", b"0"), ends=True)


def data(*messages: bytes) -> bytes:
    """Write messages, each a frame of its own."""
    return b"".join(frame(DATA, 0, 1, request_of(one)) for one in messages)


def end_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Read a call to its end; give its status."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


class Scripted:
    """It runs.

    Attributes:
        port: where.
        received: frames of each connection: kind, flags, stream, content.
        connected: sockets, the last one last.
    """

    def __init__(self, parts: Sequence[bytes]) -> None:
        """Greet each client, send the parts to each that has asked, and hang up then unless the last one is empty."""
        self.received: list[list[tuple[int, int, int, bytes]]] = []
        self.connected: list[socket.socket] = []
        self._parts = parts
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Hang up on everybody."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        for connected in self.connected:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for connected in self.connected:
            connected.close()

    def reads(self) -> DirectReads:
        """Give what reads from it."""
        return DirectReads([Target("127.0.0.1", self.port)], METHOD, list)

    def frames(self, kind: int) -> list[tuple[int, int, int, bytes]]:
        """Give the frames of a kind that the last client has sent."""
        return [found for found in self.received[-1] if found[0] == kind]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                self.connected.append(connected)
                self.received.append([])
                self._threads.append(threading.Thread(target=self._serve, args=(connected, self.received[-1])))
                self._threads[-1].start()

    def _serve(self, connected: socket.socket, received: list[tuple[int, int, int, bytes]]) -> None:
        """Take a request, answer it, and go on listening."""
        with contextlib.suppress(OSError, EOFError):
            connected.sendall(frame(SETTINGS, 0, 0))
            assert _exactly(connected, len(PREFACE)) == PREFACE
            for kind, flags, stream, content in _frames(connected):
                received.append((kind, flags, stream, content))
                if kind == DATA and flags & END_STREAM:
                    for part in self._parts:
                        connected.sendall(part)
                    if self._parts and self._parts[-1]:
                        connected.shutdown(socket.SHUT_WR)


@contextmanager
def scripted(*parts: bytes) -> Iterator[Scripted]:
    """Run a server that sends some parts."""
    server = Scripted(parts)
    try:
        yield server
    finally:
        server.close()


def _exactly(connected: socket.socket, byte_count: int) -> bytes:
    content = b""
    while len(content) < byte_count:
        part = connected.recv(byte_count - len(content))
        if not part:
            raise EOFError
        content += part
    return content


def _frames(connected: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    for _ in itertools.count():
        start = _exactly(connected, 9)
        stream = int.from_bytes(start[5:], "big")
        yield start[3], start[4], stream, _exactly(connected, int.from_bytes(start[:3], "big"))
