"""Starts and stops a Blender server.

Loopback by default: there is no authentication in this version, so give it another address only inside a network that
you trust. Any number of replicas may serve one lake.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Final

import grpc
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from headrace.blender.v1 import blends_pb2_grpc
from pyiceberg.catalog import Catalog

from blender_service.blocks import DEFAULT_CACHE_BYTES
from blender_service.catalogue import open_catalogue
from blender_service.exceptions import ServerStartError
from blender_service.order import BlendOrder
from blender_service.segments import Pin, SourceOrder, resolve_segments
from blender_service.service import BlendServicer, RowServicer, add_row_service
from blender_service.serving import Blender

DEFAULT_PORT: Final = 7170
MAX_STREAMS: Final = 256
STOP_GRACE_SECONDS: Final = 10.0
# A dead peer is noticed by pings; the client pings every 30 s, the server must not take that for an attack.
OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

logger = logging.getLogger(__name__)


class RunningServer:
    """A server that answers at `address` until it is stopped."""

    def __init__(self, server: grpc.Server, address: str, stopping: threading.Event, status: health.HealthServicer):
        """Hold a started server."""
        self.address = address
        self._server = server
        self._stopping = stopping
        self._status = status

    @property
    def port(self) -> int:
        """The port it took."""
        return int(self.address.rsplit(":", 1)[1])

    def stop(self, grace_seconds: float = STOP_GRACE_SECONDS) -> None:
        """Let streams end at their next batch, then close the port. Readers go on at another replica, or later."""
        self._status.enter_graceful_shutdown()
        self._stopping.set()
        self._server.stop(grace_seconds).wait()

    def wait(self) -> None:
        """Block until the server has been stopped."""
        self._server.wait_for_termination()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    catalogue: Catalog | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> RunningServer:
    """Start a server in this process.

    Args:
        catalogue: of the lake; opened by `open_catalogue` if None.
        host: address to listen on; no name or address but loopback is safe outside a trusted network.
        port: to listen on, 0 for any that is free.
        cache_bytes: bound of the decoded blocks in memory.

    Raises:
        CatalogueError: the lake cannot be opened.
        ServerStartError: the port is taken, or the host is not of this machine.
    """
    blender = Blender(catalogue if catalogue is not None else open_catalogue(), cache_bytes)
    prewarm()
    stopping = threading.Event()
    workers = ThreadPoolExecutor(MAX_STREAMS, thread_name_prefix="blender")
    server = grpc.server(workers, options=OPTIONS, maximum_concurrent_rpcs=MAX_STREAMS)
    blends_pb2_grpc.add_BlendServiceServicer_to_server(BlendServicer(blender), server)  # type: ignore[no-untyped-call]
    add_row_service(RowServicer(blender, stopping), server)
    status = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    bound = _bind(server, host, port)
    server.start()
    status.set("", health_pb2.HealthCheckResponse.SERVING)
    address = f"{host}:{bound}"
    logger.info("serving at %s", address)
    return RunningServer(server, address, stopping, status)


def serve(host: str = "127.0.0.1", port: int = DEFAULT_PORT, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
    """Serve until SIGTERM or SIGINT, then stop gracefully; for the main thread of a process."""
    running = start(None, host, port, cache_bytes)
    stop = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop.wait()
    finally:
        running.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)
    logger.info("stopped")


def prewarm() -> None:
    """Compile the order's kernels, so that the first read does not wait for it."""
    pin = Pin("", "", "", 2, "")
    segments = resolve_segments([SourceOrder(name, 1, pin, 1, True) for name in ("a", "b")])
    order = BlendOrder(0, segments, 1, 1)
    order.resolve(np.arange(2, dtype=np.int64))


def _bind(server: grpc.Server, host: str, port: int) -> int:
    """Take the port, with one line where that fails."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass  # gRPC's own failure prints a page and does not say why; a plain socket does
        bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ServerStartError(
            f"serve: cannot listen on {host}:{port}: {reason}; stop what listens there or choose another --port"
        ) from error
    return int(bound)
