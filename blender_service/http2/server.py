"""A gRPC server: takes connections, and runs each call in a thread.

It takes the handlers that generated code and gRPC's own services register, as `grpc.Server` does.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import grpc

from blender_service.http2.connection import Connection
from blender_service.http2.line import Line, PlainLine, TlsLine, prepare
from blender_service.http2.rpc import Aborted, RefusedRequestError, Rpc, only

BACKLOG: Final = 512
MOST_CONNECTIONS: Final = 4096
ACCEPT_PAUSE_SECONDS: Final = 0.1
LINGER_SECONDS: Final = 1.0  # for clients to take the last of what was sent

logger = logging.getLogger(__name__)


class CallDetails(NamedTuple):
    """What a call is, before its handler is known; as `grpc.HandlerCallDetails`."""

    method: str
    invocation_metadata: Any


class Http2Server:
    """Serves at one port until it is stopped."""

    def __init__(
        self,
        threads: int,
        interceptor: grpc.ServerInterceptor | None = None,
        most_request_bytes: int = 4 << 20,
        most_answer_bytes: int = 1 << 30,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Prepare to serve.

        Args:
            threads: calls at once; one more is RESOURCE_EXHAUSTED.
            interceptor: stands before all handlers.
            most_request_bytes: longest request.
            most_answer_bytes: longest answer; another one ends its call.
            tls: gives the settings of a new connection; None to serve without TLS.
        """
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="blender")
        self._interceptor = interceptor
        self._most_request_bytes = most_request_bytes
        self._most_answer_bytes = most_answer_bytes
        self._tls = tls
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._running = 0
        self._idle = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._listening: socket.socket | None = None
        self._accepting = threading.Thread(target=self._accept, name="blender-accept", daemon=True)

    # As generated code and gRPC's own services call them.

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve some methods."""
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Nothing: the same methods come as generic ones too."""

    # Its own.

    def start(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Listen, and give the port.

        Args:
            host: address to listen on.
            port: 0 for any that is free.
            reuse_port: share the port with other processes of this machine.

        Raises:
            OSError: the port is taken, or the host is not of this machine.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=reuse_port)
        self._accepting.start()
        return int(self._listening.getsockname()[1])

    def wait(self) -> None:
        """Block until the server has been stopped."""
        self._stopped.wait()

    def stop(self, grace_seconds: float) -> threading.Event:
        """Take no call any more at once; those that run have `grace_seconds`. Give what says that all is over."""
        with self._lock:
            if self._stopping.is_set() or self._listening is None:
                return self._stopped
            self._stopping.set()
            listening = self._listening
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, which closes it
        threading.Thread(target=self._end, args=(grace_seconds,), name="blender-stop").start()
        return self._stopped

    def _end(self, grace_seconds: float) -> None:
        deadline = time.monotonic() + grace_seconds
        self._accepting.join()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.leave()
        with self._idle:
            self._idle.wait_for(lambda: not self._running, max(0.0, deadline - time.monotonic()))
        if time.monotonic() < deadline:
            for connection in connections:
                connection.finish()
            with self._idle:
                linger = min(LINGER_SECONDS, max(0.0, deadline - time.monotonic()))
                self._idle.wait_for(lambda: not self._connections, linger)
        for connection in connections:
            connection.hang_up()
        with self._idle:
            self._idle.wait_for(lambda: not self._running and not self._connections, 5.0)
        self._pool.shutdown(wait=False)
        self._stopped.set()

    def _accept(self) -> None:
        assert self._listening is not None
        with self._listening:
            while not self._stopping.is_set():
                try:
                    self._welcome(*self._listening.accept())
                except (OSError, RuntimeError) as error:
                    if not self._stopping.is_set():  # too many open files or threads: those that are open go on
                        logger.error("accept: %s", error)
                        time.sleep(ACCEPT_PAUSE_SECONDS)

    def _welcome(self, connected: socket.socket, peer: Any) -> None:
        """Serve a new connection in a thread of its own.

        Raises:
            OSError: it is gone already, or one too many.
            RuntimeError: there can be no more threads.
        """
        address = f"ipv6:[{peer[0]}]:{peer[1]}" if connected.family == socket.AF_INET6 else f"ipv4:{peer[0]}:{peer[1]}"
        connection = None
        try:
            if len(self._connections) >= MOST_CONNECTIONS:
                raise ConnectionError(f"{address} is refused, there are {MOST_CONNECTIONS} connections already")
            prepare(connected)
            plain = PlainLine(connected)
            line: Line = plain if self._tls is None else TlsLine(plain, self._tls())
            connection = Connection(line, address, self._begin, self._run, self._most_request_bytes)
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="blender-connection", daemon=True).start()
        except (OSError, RuntimeError):
            with self._lock:
                self._connections.discard(connection)
            connected.close()
            raise

    def _serve(self, connection: Connection) -> None:
        """Serve one connection."""
        try:
            connection.serve()
        finally:
            with self._idle:
                self._connections.discard(connection)
                self._idle.notify_all()

    def _begin(self, call: Rpc) -> bool:
        """Find the handler of a call; say whether it takes its requests one by one, or there is none."""
        details: Any = CallDetails(call.method, call.invocation_metadata())
        handler = (
            self._find(details)
            if self._interceptor is None
            else self._interceptor.intercept_service(self._find, details)
        )
        call.handler = handler
        return handler is None or handler.request_streaming

    def _find(self, details: Any) -> Any:
        return next((found for one in self._handlers if (found := one.service(details)) is not None), None)

    def _run(self, call: Rpc) -> None:
        """Run a call in a thread, if there is one."""
        if call.is_cancelled:
            call.finish(grpc.StatusCode.CANCELLED, "")
            return
        with self._lock:
            is_free = self._running < self._threads and not self._stopped.is_set()
            self._running += is_free
        if not is_free:
            call.finish(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"server: {self._threads} calls run, no more are allowed; ask another replica, or later",
            )
            return
        try:
            self._pool.submit(self._answer, call)
        except RuntimeError:  # it has just stopped
            with self._idle:
                self._running -= 1
                self._idle.notify_all()
            call.finish(grpc.StatusCode.UNAVAILABLE, "server: it has stopped; connect again, or to another replica")

    def _answer(self, call: Rpc) -> None:
        """Run a call to its end, whatever its handler does."""
        code, details = grpc.StatusCode.OK, ""
        try:
            if call.handler is None:
                raise RefusedRequestError(
                    grpc.StatusCode.UNIMPLEMENTED, f"method {call.method}: there is none; see the protos"
                )
            self._respond(call)
            code, details = call.code(), call.details()
            if call.time_remaining() == 0:
                code, details = grpc.StatusCode.DEADLINE_EXCEEDED, "call: its deadline passed before it ended"
        except Aborted:
            code, details = call.code(), call.details()
        except RefusedRequestError as error:
            code, details = error.code, str(error)
        except Exception:  # the client must hear of an end, whatever a handler does
            logger.exception("%s failed", call.method)
            code, details = grpc.StatusCode.UNKNOWN, "server: this should not happen; its log has more"
        finally:
            try:
                call.finish(code, details)
            except Exception:  # this thread has other calls to run, and counts them
                logger.exception("the end of %s failed", call.method)
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _respond(self, call: Rpc) -> None:
        """Give a handler its requests, and the client its answers."""
        handler = call.handler
        given: Any = call.requests(handler.request_deserializer or bytes)
        if not handler.request_streaming:
            given = only(list(given))
        if not handler.response_streaming:
            self._send(call, (handler.stream_unary if handler.request_streaming else handler.unary_unary)(given, call))
            return
        answers = (handler.stream_stream if handler.request_streaming else handler.unary_stream)(given, call)
        try:
            for answer in answers:
                if not self._send(call, answer):
                    return
        finally:
            close = getattr(answers, "close", None)  # frees what a generator holds, at once
            if close is not None:
                close()

    def _send(self, call: Rpc, answer: Any) -> bool:
        """Send an answer; say whether anybody wants another one."""
        message = answer if call.handler.response_serializer is None else call.handler.response_serializer(answer)
        if len(message) > self._most_answer_bytes:
            raise RefusedRequestError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"answer: {len(message)} bytes, {self._most_answer_bytes} are allowed; raise --max-response-bytes",
            )
        return call.send(message)
