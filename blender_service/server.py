"""Starts and stops a Blender server.

Loopback by default: give it another address only with tokens or client certificates, and TLS (docs/operation.md). Any
number of replicas may serve one lake.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NamedTuple

import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2
from pyiceberg.catalog import Catalog

from blender_service.access import Access
from blender_service.audit import AuditLog
from blender_service.block_cache import DEFAULT_CACHE_BYTES
from blender_service.block_file import ADDRESS_COUNT
from blender_service.catalogue import open_catalogue
from blender_service.exceptions import ServerStartError
from blender_service.gather_kernel import number_blocks, write_rows
from blender_service.http2.frames import HEADER_BYTES, lay_out
from blender_service.http2.server import Http2Server
from blender_service.interceptor import CallInterceptor, Observer
from blender_service.limits import StreamLimits
from blender_service.metrics import Metrics
from blender_service.operation import OperationConfig
from blender_service.order import BlendOrder
from blender_service.runs import RunObserver, RunRegister
from blender_service.scattered import copy_vectors
from blender_service.segments import Pin, SourceOrder, resolve_segments
from blender_service.service import BlendServicer, RowServicer, add_row_service
from blender_service.serving import Blender
from blender_service.store import open_objects
from blender_service.tls import renewing_context

DEFAULT_PORT: Final = 7170
STOP_GRACE_SECONDS: Final = 10.0
SPARE_THREADS: Final = 16  # for short calls and health checks while every stream is taken
DRAIN_LOOK_SECONDS: Final = 0.05
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
SERVICES: Final = ((blends_pb2, "BlendService"), (rows_pb2, "RowService"))
DEFAULT_OPERATION: Final = OperationConfig()

logger = logging.getLogger(__name__)


class RunningServer:
    """A server that answers at `address` until it is stopped."""

    def __init__(self, server: Http2Server, address: str, drain: Drain, limits: StreamLimits):
        """Hold a started server."""
        self.address = address
        self._server = server
        self._drain = drain
        self._limits = limits
        self.metrics_port: int | None = None
        self._close: list[Callable[[], None]] = []

    @property
    def port(self) -> int:
        """The port it took."""
        return int(self.address.rsplit(":", 1)[1])

    def at_stop(self, close: Callable[[], None]) -> None:
        """Call something once the server has stopped."""
        self._close.append(close)

    def stop(self, grace_seconds: float = STOP_GRACE_SECONDS, drain_seconds: float = 0.0) -> None:
        """Stop in three steps; readers go on at another replica, or later.

        At once no call is taken any more and health says NOT_SERVING. Streams go on for `drain_seconds`, then each ends
        at its next batch, with UNAVAILABLE and its next row. A stream that is stuck in a slow reader is cut off after
        another `grace_seconds`.
        """
        self._drain.begun.set()
        self._drain.health.enter_graceful_shutdown()
        stopped = self._server.stop(drain_seconds + grace_seconds)
        deadline = time.monotonic() + drain_seconds
        while self._limits.running and time.monotonic() < deadline:
            time.sleep(DRAIN_LOOK_SECONDS)
        self._drain.ending.set()
        stopped.wait()
        for close in self._close:
            close()
        self._close.clear()

    def wait(self) -> None:
        """Block until the server has been stopped."""
        self._server.wait()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Drain(NamedTuple):
    """How far stopping has come.

    Attributes:
        begun: no stream begins any more.
        ending: streams end at their next batch.
        health: says NOT_SERVING.
    """

    begun: threading.Event
    ending: threading.Event
    health: health.HealthServicer


def start(
    catalogue: Catalog | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    operation: OperationConfig = DEFAULT_OPERATION,
    reuse_port: bool = False,
) -> RunningServer:
    """Start a server in this process.

    Args:
        catalogue: of the lake; opened by `open_catalogue` if None.
        host: address to listen on.
        port: to listen on, 0 for any that is free.
        cache_bytes: bound of the block files.
        operation: who may call, how much at once, what is written down.
        reuse_port: share the port with other processes of this machine.

    Raises:
        CatalogueError: the lake cannot be opened.
        BlockCacheError: the cache folder cannot be made.
        AccessConfigError: a file of tokens or rules is wrong.
        ServerStartError: the port is taken, the host is not of this machine, or a file of TLS is wrong.
    """
    catalogue = catalogue if catalogue is not None else open_catalogue()
    blender = Blender(catalogue, cache_bytes, operation.cache_folder)
    access = Access(catalogue, operation.tokens, operation.rules)
    limits = StreamLimits(operation.max_streams, operation.max_streams_per_principal)
    drain = Drain(threading.Event(), threading.Event(), health.HealthServicer(experimental_non_blocking=False))
    audit = AuditLog(operation.audit) if operation.audit is not None else None
    metrics = Metrics(limits, blender.cache_events, lambda: audit.failures if audit is not None else 0)
    runs = RunObserver(RunRegister(open_objects(catalogue)))
    observers: list[Observer] = [metrics, runs, *([audit] if audit is not None else [])]
    compile_kernels()
    threads = operation.max_streams + SPARE_THREADS
    server = Http2Server(
        threads,
        CallInterceptor(access, limits, blender, drain.begun, observers),
        operation.max_request_bytes,
        operation.max_response_bytes,
        renewing_context(operation.tls) if operation.tls is not None else None,
    )
    blends_pb2_grpc.add_BlendServiceServicer_to_server(BlendServicer(blender), server)
    add_row_service(RowServicer(blender, drain.ending), server)
    health_pb2_grpc.add_HealthServicer_to_server(drain.health, server)
    services = [pb2.DESCRIPTOR.services_by_name[name].full_name for pb2, name in SERVICES]
    reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        bound = server.start(host, port, reuse_port=reuse_port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServerStartError(
            f"serve: cannot listen on {host}:{port}: {reason}; stop what listens there or choose another --port"
        ) from error
    for service in ("", *services):
        drain.health.set(service, health_pb2.HealthCheckResponse.SERVING)
    address = f"{host}:{bound}"
    _warn_if_open(host, access, operation)
    logger.info("serving at %s", address)
    running = RunningServer(server, address, drain, limits)
    if operation.metrics_port is not None:
        running.metrics_port, stop_metrics = metrics.serve(operation.metrics_host, operation.metrics_port)
        running.at_stop(stop_metrics)
        logger.info("metrics at http://%s:%d/metrics", operation.metrics_host, running.metrics_port)
    running.at_stop(runs.close)
    if audit is not None:
        running.at_stop(audit.close)
    return running


def serve(
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    operation: OperationConfig = DEFAULT_OPERATION,
    reuse_port: bool = False,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop gracefully; for the main thread of a process.

    Args:
        host: address to listen on.
        port: to listen on, 0 for any that is free.
        cache_bytes: bound of the block files.
        operation: who may call, how much at once, what is written down.
        reuse_port: share the port with other processes of this machine.
        started: called once the server answers.
    """
    running = start(None, host, port, cache_bytes, operation, reuse_port)
    started()
    stop = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop.wait()
    finally:
        running.stop(drain_seconds=operation.drain_seconds)
        for number, handler in previous.items():
            signal.signal(number, handler)
    logger.info("stopped")


def compile_kernels() -> None:
    """Compile what resolves and copies rows, so that the first read does not wait for it."""
    pin = Pin("", "", "", 2, "")
    segments = resolve_segments([SourceOrder(name, 1, pin, 1, True) for name in ("a", "b")])
    order = BlendOrder(0, segments, 1, 1)
    order.resolve(np.arange(2, dtype=np.int64))
    nothing = np.empty(0, dtype=np.int32)
    table = np.empty((0, ADDRESS_COUNT), dtype=np.int64)
    addresses, names = np.empty(0, dtype=np.int64), np.frombuffer(b"", dtype=np.uint8)
    number_blocks(addresses)
    write_rows(table, addresses, nothing, nothing, np.empty(0, dtype=np.uint8), addresses, names, 0, (1, 2))
    vectors = np.empty((4, 2), dtype=np.int64)
    lay_out((0, 1), addresses, 1, (0, 1), 1, 1, np.empty((1, HEADER_BYTES), dtype=np.uint8), vectors)
    copy_vectors(vectors[:0], 0, 0, np.empty(0, dtype=np.uint8))


def _warn_if_open(host: str, access: Access, operation: OperationConfig) -> None:
    """Say so where anybody in reach may read everything, or listen to it."""
    if host in LOOPBACK:
        return
    if not access.asks_for_tokens and operation.client_authority is None:
        logger.warning("whoever reaches %s may read all blends: give --tokens, or --client-authority", host)
    if operation.tls is None:
        logger.warning("rows and tokens go over the network as they are: give --certificate and --key")
