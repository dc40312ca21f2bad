"""A small service with every kind of method, which keeps count of what it does."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from blender_service.http2.server import Http2Server
from blender_service.scattered import Scattered

PIECE_BYTES = 4096


def until(is_so: Callable[[], Any], seconds: float = 5.0) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it was not within the time.
    """
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)


def open_files() -> int:
    """Count this process's file descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


class MadeService:
    """The handlers.

    Attributes:
        streams: generators that are running now.
        calls: calls of `Echo` that have begun.
        may_end: lets `Wait` end.
        waiting: calls of `Wait` that are running.
    """

    def __init__(self) -> None:
        self.streams = 0
        self.calls = 0
        self.may_end = threading.Event()
        self.waiting = 0
        self._lock = threading.Lock()
        self.block = np.arange(1 << 20, dtype=np.uint32)  # 4 MiB, no two pieces alike

    def message(self, piece_count: int) -> Scattered:
        """Give pieces of the block, from its last to its first and around."""
        places = (-1 - np.arange(piece_count, dtype=np.int64)) % (self.block.nbytes // PIECE_BYTES)
        return Scattered(b"begin", self.block.ctypes.data + places * PIECE_BYTES, PIECE_BYTES)

    def Echo(self, request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: N802
        """Give the request back."""
        with self._lock:
            self.calls += 1
        return request

    def Wait(self, request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: N802
        """Wait until it may end, or is given up."""
        with self._lock:
            self.waiting += 1
        try:
            while not self.may_end.wait(0.005) and context.is_active():
                pass
            return request
        finally:
            with self._lock:
                self.waiting -= 1

    def Fail(self, request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: N802
        """End with the request as the message."""
        context.set_trailing_metadata((("kind", "made"), ("raw-bin", b"\0\xff")))
        context.abort(grpc.StatusCode.NOT_FOUND, request.decode(errors="replace"))

    def Raise(self, request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: N802
        """Fail as no handler should."""
        raise ValueError("made to fail")

    def Metadata(self, request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: N802
        """Give the caller's metadata back, before and after."""
        metadata = tuple((key, value) for key, value in context.invocation_metadata() or () if key.startswith("own"))
        context.send_initial_metadata(metadata)
        context.set_trailing_metadata(metadata)
        return repr(metadata).encode()

    def Read(self, request: bytes, context: grpc.ServicerContext) -> Iterator[Scattered]:  # noqa: N802
        """Give messages; the request has how many, and of how many pieces each."""
        asked = re.fullmatch(rb"([0-9]{1,8}) ([0-9]{1,5})", request)
        if asked is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no two numbers")
        count, piece_count = int(asked[1]), int(asked[2])
        with self._lock:
            self.streams += 1
        try:
            for _ in range(count):
                yield self.message(piece_count)
        finally:
            with self._lock:
                self.streams -= 1

    def Chat(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:  # noqa: N802
        """Give each request back as it comes."""
        yield from requests

    def Deaf(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:  # noqa: N802
        """Answer once and take no request until it may end."""
        yield b"here"
        while not self.may_end.wait(0.005) and context.is_active():
            pass

    def register(self, server: Http2Server) -> None:
        """Serve all of them."""
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(getattr(self, name))
            for name in ("Echo", "Wait", "Fail", "Raise", "Metadata")
        }
        handlers["Read"] = grpc.unary_stream_rpc_method_handler(self.Read)
        handlers["Chat"] = grpc.stream_stream_rpc_method_handler(self.Chat)
        handlers["Deaf"] = grpc.stream_stream_rpc_method_handler(self.Deaf)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Made", handlers),))


ECHO, WAIT, FAIL, RAISE, METADATA, READ, CHAT, DEAF = (
    f"/test.Made/{name}" for name in ("Echo", "Wait", "Fail", "Raise", "Metadata", "Read", "Chat", "Deaf")
)
