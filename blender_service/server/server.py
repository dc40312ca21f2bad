"""Start and stop a Blender server.

It listens on the loopback by default: give it another address only with tokens or client certificates, and TLS
(docs/feed/operation.md). Any number of replicas may serve one lake.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import grpc
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from pyiceberg.catalog import Catalog

from blender_service.auth.access import Access
from blender_service.auth.tls import server_credentials
from blender_service.blend.store import open_store
from blender_service.catalogue import open_catalogue
from blender_service.exceptions import ServerStartError
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import Pin, SourceOrder, resolve_segments
from blender_service.server.audit_log import AuditLog
from blender_service.server.blender import Blender
from blender_service.server.interceptor import REQUEST_PLACES, CallInterceptor, Observer
from blender_service.server.limits import CallWatch, StreamLimits
from blender_service.server.metrics import Metrics
from blender_service.server.process_limits import allow_open_files, most_connections, use_one_heap
from blender_service.server.run_register import RunObserver, RunRegister
from blender_service.server.servicers import BlendServicer, RowServicer, add_row_service
from blender_service.server.settings import COMPRESSION, OperationConfig
from blender_service.tables.block import NO_ROWS, in_order
from blender_service.tables.block_cache import DEFAULT_CACHE_BYTES
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2

DEFAULT_PORT: Final = 7170
STOP_GRACE_SECONDS: Final = 10.0
END_SECONDS: Final = 1.0  # after the grace, for what hangs
SPARE_THREADS: Final = 16  # for short calls while every stream is taken
DRAIN_LOOK_SECONDS: Final = 0.05
MOST_HEADER_BYTES: Final = 16 << 10
OPTIONS: Final = (
    ("grpc.absolute_max_metadata_size", MOST_HEADER_BYTES),
    ("grpc.max_metadata_size", MOST_HEADER_BYTES),  # between this and the absolute limit gRPC refuses calls at random
    # A dead peer is noticed by pings. The client pings every 30 s; the server must not take that for an attack.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Connections without a call or without an end to their handshake leave their places to new ones within seconds;
    # clients connect again by themselves.
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # gRPC bounds the bytes of a compressed request, not those it becomes: 1 MiB of gzip becomes 1 GiB.
    (COMPRESSION, 1),
)
UNIX: Final = "unix:"
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
REFLECTION: Final = "grpc.reflection.v1.ServerReflection"
SERVICES: Final = ((blends_pb2, "BlendService"), (rows_pb2, "RowService"))
DEFAULT_OPERATION: Final = OperationConfig()


class AddedService(NamedTuple):
    """A service of a server beside its own.

    Attributes:
        name: in full, as the protos have it.
        close: ends it, once the server has stopped.
    """

    name: str
    close: Callable[[], None]


AddService = Callable[[Catalog, grpc.Server], AddedService]
"""Opens a service and adds it to a server that has not started."""

logger = logging.getLogger(__name__)


class RunningServer:
    """A server, answering at `address` until it is stopped."""

    def __init__(self, server: grpc.Server, address: str, drain: Drain, limits: StreamLimits):
        """Hold a started server."""
        self.address = address
        self._server = server
        self._drain = drain
        self._limits = limits
        self.metrics_port: int | None = None
        self._close: list[Callable[[], None]] = []

    @property
    def port(self) -> int:
        """The port it took, 0 where it listens at a path."""
        return 0 if self.address.startswith(UNIX) else int(self.address.rsplit(":", 1)[1])

    def at_stop(self, close: Callable[[], None]) -> None:
        """Register a function to call once the server has stopped."""
        self._close.append(close)

    def stop(self, grace_seconds: float = STOP_GRACE_SECONDS, drain_seconds: float = 0.0) -> None:
        """Stop in three steps; clients continue at another replica, or later.

        At once no call is admitted any more and health says NOT_SERVING. Streams continue for `drain_seconds`, then
        each ends at its next batch, with UNAVAILABLE and its next row. A stream whose client takes nothing is cut off
        after another `grace_seconds`.
        """
        self._drain.begun.set()
        self._drain.health.enter_graceful_shutdown()
        stopped = self._server.stop(drain_seconds + grace_seconds)
        self._wait_for_streams(drain_seconds)
        self._drain.ending.set()
        stopped.wait()
        # gRPC reports the end of a stream whose client has left before the thread that serves it ends: only then do the
        # register and the audit log record how far that stream came.
        self._wait_for_streams(grace_seconds)
        for close in self._close:
            close()
        self._close.clear()

    def _wait_for_streams(self, seconds: float) -> None:
        """Wait until no stream is served, for `seconds` at most."""
        deadline = time.monotonic() + seconds
        while self._limits.running and time.monotonic() < deadline:
            time.sleep(DRAIN_LOOK_SECONDS)

    def wait(self) -> None:
        """Block until the server has been stopped."""
        self._server.wait_for_termination()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Drain(NamedTuple):
    """The steps of stopping.

    Attributes:
        begun: once set, no stream begins.
        ending: once set, streams end at their next batch.
        health: service to say NOT_SERVING then.
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
    add_services: Sequence[AddService] = (),
) -> RunningServer:
    """Start a server in this process.

    Args:
        catalogue: of the lake; opened by `open_catalogue` if None.
        host: address to listen on, or unix:PATH.
        port: to listen on, 0 for any free one.
        cache_bytes: bound of the decoded blocks in memory.
        operation: allowed callers, how much at once, what is logged.
        reuse_port: share the port with other processes of this machine.
        add_services: each adds one more service, with calls guarded like the others.

    Raises:
        CatalogueError: the lake cannot be opened.
        AccessConfigError: a file of tokens or rules is wrong.
        ServerStartError: the port is taken, the host is not of this machine, or a file of TLS is wrong.
    """
    catalogue = catalogue if catalogue is not None else open_catalogue()
    blender = Blender(catalogue, cache_bytes)
    access = Access(catalogue, operation.tokens, operation.rules)
    blender.cache.share_of = lambda team: access.shares("cache_share").get(team, 0.0)
    limits = StreamLimits(operation.max_streams, operation.streams_per_principal, lambda: access.shares("stream_share"))
    drain = Drain(threading.Event(), threading.Event(), _Health(experimental_non_blocking=False))
    audit = AuditLog(operation.audit) if operation.audit is not None else None
    metrics = Metrics(limits, blender.cache, lambda: audit.failures if audit is not None else 0)
    runs = RunObserver(RunRegister(open_store(catalogue).objects))
    observers: list[Observer] = [metrics, runs, *([audit] if audit is not None else [])]
    compile_kernels()
    interceptor = CallInterceptor(access, limits, blender, drain.begun, observers, operation.request_seconds)
    server = grpc.server(
        ThreadPoolExecutor(operation.max_streams + SPARE_THREADS + REQUEST_PLACES, thread_name_prefix="blender"),
        interceptors=[interceptor],
        options=(
            *OPTIONS,
            ("grpc.so_reuseport", int(reuse_port)),
            ("grpc.max_allowed_incoming_connections", most_connections()),
            ("grpc.max_concurrent_streams", operation.streams_per_principal + SPARE_THREADS),  # of a connection
            ("grpc.max_receive_message_length", operation.max_request_bytes),
            ("grpc.max_send_message_length", operation.max_response_bytes),
            *operation.grpc_arguments,
        ),
    )
    address = _bind(server, host, port, operation, reuse_port)
    blends_pb2_grpc.add_BlendServiceServicer_to_server(BlendServicer(blender), server)
    stalls = CallWatch(operation.stall_seconds, "its reader took nothing")
    add_row_service(RowServicer(blender, drain.ending, limits, stalls, runs), server)
    health_pb2_grpc.add_HealthServicer_to_server(drain.health, server)
    services = [pb2.DESCRIPTOR.services_by_name[name].full_name for pb2, name in SERVICES]
    added = [add(catalogue, server) for add in add_services]
    services += [service.name for service in added]
    _reflect((*services, health.SERVICE_NAME), server)
    server.start()
    for service in ("", *services):
        drain.health.set(service, health_pb2.HealthCheckResponse.SERVING)
    _warn_if_open(host, access, operation)
    running = RunningServer(server, address, drain, limits)
    for service_added in added:
        running.at_stop(service_added.close)
    running.at_stop(stalls.close)
    running.at_stop(interceptor.close)
    if operation.metrics_port is not None:
        running.metrics_port, stop_metrics = metrics.serve(
            operation.metrics_host, operation.metrics_port, lambda: not drain.begun.is_set()
        )
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
    add_services: Sequence[AddService] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, then stop gracefully; for the main thread of a process ending then.

    The process ends even if a thread hangs, as in an unanswering store. Port 0 is any free one.
    """
    stops: SimpleQueue[int] = SimpleQueue()  # not an Event: its lock may be held by the very thread that a signal stops
    use_one_heap()
    allow_open_files()
    running = start(None, host, port, cache_bytes, operation, reuse_port, add_services)
    previous = on_stop(stops.put)
    try:
        logger.info("serving at %s", running.address)
        started()
        stops.get()
        longest = operation.drain_seconds + STOP_GRACE_SECONDS + END_SECONDS
        threading.Thread(target=_end_after, args=(longest,), name="blender-end", daemon=True).start()
        running.stop(drain_seconds=operation.drain_seconds)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    logger.info("stopped")


def on_stop(call: Callable[[int], None]) -> dict[signal.Signals, Any]:
    """Have SIGTERM and SIGINT call a function, with their number; give what handled them before.

    A server says that it serves only after this: a signal that came earlier would end the process at once, or be lost
    where the process has inherited that it is ignored.
    """
    return {
        number: signal.signal(number, lambda number, frame: call(number)) for number in (signal.SIGTERM, signal.SIGINT)
    }


def end_process() -> None:
    """End this process after its server has stopped, without the interpreter's own end.

    There gRPC waits up to 20 seconds for each client that does not answer its goodbye, and no thread is left to end it.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_after(seconds: float) -> None:
    """End this process, unless it has ended by itself."""
    time.sleep(seconds)
    logger.warning("ended while calls still wait for the lake's store or catalogue")
    end_process()


class _Health(health.HealthServicer):  # type: ignore[misc]
    """gRPC's health service; that alone would keep every name ever watched."""

    def Watch(  # noqa: N802 (the proto's name)
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext, *callback: Any
    ) -> Any:
        """Watch a service; for an unknown name the answer is SERVICE_UNKNOWN, and the call ends."""
        if request.service not in self._server_status:
            return iter([health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)])
        return super().Watch(request, context, *callback)


def compile_kernels() -> None:
    """Compile the functions for resolving and copying rows, so that the first read does not wait for it."""
    pin = Pin("", "", "", 2, "")
    segments = resolve_segments([SourceOrder(name, 1, pin, 1, True) for name in ("a", "b")])
    order = BlendOrder(0, segments, 1, 1)
    order.resolve(np.arange(2, dtype=np.int64))
    in_order([NO_ROWS], [np.empty(0, dtype=np.int64)])


def _reflect(services: tuple[str, ...], server: grpc.Server) -> None:
    """Offer reflection, v1alpha and v1: grpcio has the first alone, and the two differ in their names only."""
    names = (REFLECTION, reflection.SERVICE_NAME)
    reflection.enable_server_reflection((*services, *names), server)
    method: Any = grpc.stream_stream_rpc_method_handler(
        reflection.ReflectionServicer((*services, *names)).ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(REFLECTION, {"ServerReflectionInfo": method}),)
    )


def _bind(server: grpc.Server, host: str, port: int, operation: OperationConfig, reuse_port: bool) -> str:
    """Take the port; give the address.

    Raises:
        ServerStartError: it is taken, the host is not of this machine, or a file of TLS is wrong.
    """
    credentials = server_credentials(operation.tls) if operation.tls is not None else None
    is_path = host.startswith(UNIX)
    where = f"[{host}]" if ":" in host and not is_path else host
    try:
        if is_path:
            _require_free_path(host.removeprefix(UNIX))
        elif not reuse_port:  # a shared port was checked by `processes`
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.create_server((host, port), family=family):
                pass  # the error of a plain socket says why it cannot listen, that of gRPC does not
        address = host if is_path else f"{where}:{port}"
        bound = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        other = "path" if is_path else "--port"
        raise ServerStartError(
            f"serve: cannot listen on {host}{'' if is_path else f':{port}'}: {reason}; stop what listens there or "
            f"choose another {other}"
        ) from error
    return host if is_path else f"{where}:{bound}"


def _require_free_path(path: str) -> None:
    """Refuse a socket with another server at it, and a file other than a socket: gRPC would replace both.

    Raises:
        OSError: says which of them it is.
    """
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise OSError(errno.EEXIST, "there is a file of that name")
    with socket.socket(socket.AF_UNIX) as knocking:
        if knocking.connect_ex(path) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _warn_if_open(host: str, access: Access, operation: OperationConfig) -> None:
    """Warn where callers need no credentials, or rows travel in clear text."""
    if host in LOOPBACK or host.startswith(UNIX):
        return
    if not access.asks_for_tokens and operation.client_authority is None:
        logger.warning("anybody who reaches %s may read all blends: give --tokens, or --client-authority", host)
    if operation.tls is None:
        logger.warning("rows and tokens go over the network as they are: give --certificate and --key")
