"""Serve with one process per core, all at one port: a Python process uses one core, the kernel spreads connections.

SO_REUSEPORT gives each new connection to one of the processes. They share nothing but the lake and the page
cache of the operating system; each decodes for itself what its streams read, in its part of the memory. A process that
dies is started again; one dying while it starts ends them all.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Final, NamedTuple

from blender_service.exceptions import BlenderError, ServerStartError
from blender_service.server.server import STOP_GRACE_SECONDS, UNIX, AddService, end_process, on_stop, serve
from blender_service.server.settings import OperationConfig

POLL_SECONDS: Final = 0.2
Setting = tuple[str, int, int, OperationConfig, Sequence[AddService]]

logger = logging.getLogger(__name__)


def set_up_logging() -> None:
    """Log to standard error, one line for each event."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)  # it logs every table that a read opens


def serve_processes(
    processes: int,
    host: str,
    port: int,
    cache_bytes: int,
    operation: OperationConfig,
    add_services: Sequence[AddService] = (),
) -> None:
    """Serve with several processes until SIGTERM or SIGINT, then stop them gracefully; for the main thread.

    Args:
        processes: how many; limits on streams hold for each of them.
        host: address to listen on.
        port: to listen on, 0 for any free one.
        cache_bytes: bound of the decoded blocks of all processes together.
        operation: as for one; the n-th process (from 0) has its metrics at `metrics_port` + n.
        add_services: as for one; they are pickled.

    Raises:
        ServerStartError: the port is taken, or a process cannot start; it has logged why.
    """
    if host.startswith(UNIX):
        raise ServerStartError(f"serve: {host} is one process's; leave --processes out, or give a host and a port")
    stop = threading.Event()
    previous = on_stop(lambda number: stop.set())
    bound = _hold_port(host, port)
    running: list[_ServerProcess] = []
    try:
        taken = int(bound.getsockname()[1])
        settings: list[Setting] = [
            (host, taken, cache_bytes // processes, _settings_of(operation, number), add_services)
            for number in range(processes)
        ]
        running = [_begin(*setting) for setting in settings]
        while not stop.is_set():
            wait([child.process.sentinel for child in running], timeout=POLL_SECONDS)
            for number, (process, started) in enumerate(running):
                if process.is_alive() or stop.is_set():
                    continue
                if not started.is_set():
                    raise ServerStartError(f"serve: a process ended at its start, status {process.exitcode}; mend that")
                logger.error("a process ended with %s, another takes its place", process.exitcode)
                running[number] = _begin(*settings[number])
    finally:
        _end([child.process for child in running], operation.drain_seconds + STOP_GRACE_SECONDS)
        bound.close()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _hold_port(host: str, port: int) -> socket.socket:
    """Bind a port without listening, so that no other program takes it while a process is started again."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        with socket.socket(bound.family) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((host, port))  # fails if another server listens there; with SO_REUSEPORT it would not
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ServerStartError(
            f"serve: cannot listen on {host}:{port}: {error.strerror}; stop what listens there or choose another --port"
        ) from error
    return bound


def _settings_of(operation: OperationConfig, number: int) -> OperationConfig:
    """Give one process's settings: its own port for metrics."""
    if not operation.metrics_port:
        return operation
    return operation.model_copy(update={"metrics_port": operation.metrics_port + number})


class _ServerProcess(NamedTuple):
    """A server process, and its event, set once it serves."""

    process: BaseProcess
    started: Event


def _begin(
    host: str, port: int, cache_bytes: int, operation: OperationConfig, add_services: Sequence[AddService]
) -> _ServerProcess:
    """Start a process; a fresh one, since gRPC's threads do not survive a fork."""
    spawning = multiprocessing.get_context("spawn")
    started = spawning.Event()
    process = spawning.Process(target=_serve_one, args=(host, port, cache_bytes, operation, add_services, started))
    process.start()
    return _ServerProcess(process, started)


def _serve_one(
    host: str,
    port: int,
    cache_bytes: int,
    operation: OperationConfig,
    add_services: Sequence[AddService],
    started: Event,
) -> None:
    """Serve in a process of its own; it ends with its parent."""
    set_up_logging()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(host, port, cache_bytes, operation, True, started.set, add_services)
        end_process()
    except BlenderError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


def _end_with_parent() -> None:
    """Stop this process when its parent ends, also where that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _end(processes: list[BaseProcess], seconds: float) -> None:
    """Stop processes gracefully, all at once."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + seconds + 2
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
