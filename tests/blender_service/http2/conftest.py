"""A server of the made service on loopback; no test may leave threads or files behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from blender_service.http2.server import Http2Server
from blender_service.server import compile_kernels
from tests.blender_service.http2.made_service import MadeService, open_files, until
from tests.blender_service.http2.raw_client import RawClient

MOST_REQUEST_BYTES = 100_000
THREADS = 24


class Served:
    """A server that runs.

    Attributes:
        server: it.
        service: what it serves.
        port: where.
    """

    def __init__(self, **options: Any) -> None:
        self.service = MadeService()
        self.server = Http2Server(**{"threads": THREADS, "most_request_bytes": MOST_REQUEST_BYTES, **options})
        self.service.register(self.server)
        self.port = self.server.start("127.0.0.1", 0)

    def connect(self, **options: Any) -> RawClient:
        """Open a connection."""
        return RawClient(self.port, **options)


def unary(channel: grpc.Channel, path: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
    """Give a unary method of gRPC's own client, bytes in and bytes out."""
    method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    return method


def own_threads() -> set[threading.Thread]:
    """Give the server's threads that run."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("blender")}


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compile before anything is timed."""
    compile_kernels()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start servers; each stops with the test, and leaves no thread and no file."""
    files, threads = open_files(), own_threads()
    running: list[Served] = []

    def begin(**options: Any) -> Served:
        running.append(Served(**options))
        return running[-1]

    yield begin
    for one in running:
        one.service.may_end.set()
        assert one.server.stop(0).wait(10), "it did not stop"
    until(lambda: own_threads() <= threads)
    until(lambda: open_files() <= files)


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server as it is by default."""
    return serve()
