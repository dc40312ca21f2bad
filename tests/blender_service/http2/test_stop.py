"""Stopping: clients are told, running calls go on, new ones are refused, what is left at the end is cut off."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import grpc
import pytest
from h2.settings import SettingCodes

from tests.blender_service.http2.conftest import Served, unary
from tests.blender_service.http2.made_service import ECHO, READ, WAIT, until
from tests.blender_service.http2.raw_client import BIG, PING, frame

OPEN = {SettingCodes.INITIAL_WINDOW_SIZE: BIG}


def test_running_calls_go_on_and_new_ones_are_refused(served: Served) -> None:
    """GOAWAY names the last call that is served; a later one may be made elsewhere; no connection is taken."""
    with served.connect() as client:
        running = client.call(WAIT, b"x")
        until(lambda: served.service.waiting == 1)
        stopped = served.server.stop(10)
        client.until(lambda: client.farewells)
        assert client.farewells == [(running, 0)]
        late = client.call(ECHO, b"y")
        client.until(lambda: late in client.resets)
        assert client.resets[late] == 7  # REFUSED_STREAM
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", served.port), timeout=5)
        served.service.may_end.set()
        assert client.answer(running)[0] == [b"x"]
        client.until_closed(5)
        assert not client.resets.keys() - {late}
    assert stopped.wait(5)


def test_what_is_left_after_the_grace_is_cut_off(served: Served) -> None:
    """A handler that goes on, and a reader that is stalled, end when the grace is over, not before."""
    with served.connect() as client:
        client.reads = False
        client.call(WAIT, b"")
        client.call(READ, b"1000 1000")
        until(lambda: served.service.waiting == served.service.streams == 1)
        started = time.monotonic()
        stopped = served.server.stop(0.7)
        client.until_closed(5)
        assert stopped.wait(5)
        assert 0.6 < time.monotonic() - started < 3
        assert not served.service.waiting


def test_a_client_that_does_not_read_holds_up_nobody(served: Served) -> None:
    """Its socket is full; others hear of the stop at once, and the stop ends with the grace."""
    with served.connect(settings=OPEN, window=BIG - 65535) as deaf, served.connect() as flooding:
        deaf.call(READ, b"1000 1000")
        flooding.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            while True:
                flooding.sock.send(frame(PING, 0, 0, bytes(8)) * 1000)
        until(lambda: served.service.streams == 1)
        clients = [served.connect() for _ in range(3)]
        for client in clients:
            client.unary(ECHO)
        started = time.monotonic()
        stopped = served.server.stop(1)
        for client in clients:
            client.until(lambda: client.farewells, 1)  # noqa: B023
            client.sock.close()
        assert stopped.wait(5)
        assert time.monotonic() - started < 3


def test_a_full_socket_that_nobody_sends_to_does_not_hold_up_a_stop(served: Served) -> None:
    """The farewell waits for room, whoever stops the server does not."""
    with served.connect(settings=OPEN) as deaf:
        deaf.unary(ECHO)
        (connection,) = served.server._connections
        line = connection._line._socket  # type: ignore[attr-defined]
        with pytest.raises(BlockingIOError):
            while True:
                line.send(bytes(1 << 16), socket.MSG_DONTWAIT)
        started = time.monotonic()
        connection.leave()
        connection.finish()
        assert time.monotonic() - started < 1
        assert served.server.stop(0.5).wait(5)
        assert time.monotonic() - started < 3


def test_all_of_an_answer_arrives_though_the_server_stops(served: Served) -> None:
    """What a call has sent before it ended is taken by a slow reader after that, trailers and all."""
    with served.connect(settings=OPEN, window=1 << 24) as client:
        stream = client.call(READ, b"2 60")  # fits into the sockets' buffers
        client.until(lambda: client.headers)
        client.reads = False
        until(lambda: not served.server._running)
        served.server.stop(10)
        for _ in range(20):  # unread content at a close makes the kernel throw away what was to be sent
            client.h2.increment_flow_control_window(1)
            client.h2.ping(b"too late")
            client.flush()
            time.sleep(0.01)
        messages, headers = client.answer(stream)
        assert messages == [served.service.message(60).join()] * 2
        assert headers[b"grpc-status"] == b"0"


def test_a_stop_without_connections_is_over_at_once(served: Served) -> None:
    """Nobody is waited for; a second stop is the first one."""
    started = time.monotonic()
    stopped = served.server.stop(30)
    assert served.server.stop(0) is stopped
    assert stopped.wait(2)
    served.server.wait()
    assert time.monotonic() - started < 1


def test_idle_clients_of_grpc_let_go_at_once(served: Served) -> None:
    """GOAWAY is enough for them; the grace is not used up."""
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        assert unary(channel, ECHO)(b"x", timeout=5) == b"x"
        started = time.monotonic()
        assert served.server.stop(30).wait(5)
        assert time.monotonic() - started < 2


def test_a_connection_that_comes_during_the_stop_is_closed(serve: Callable[..., Served]) -> None:
    """Whoever slips in between neither stays nor keeps the server."""
    for _ in range(30):
        served = serve()
        clients = []
        for _ in range(3):
            clients.append(socket.create_connection(("127.0.0.1", served.port), timeout=5))
        stopped = served.server.stop(0)
        assert stopped.wait(5)
        assert not served.server._connections
        for client in clients:
            client.close()


def test_a_port_is_free_after_the_stop(serve: Callable[..., Served]) -> None:
    """The next server listens there at once."""
    served = serve()
    with served.connect() as client:
        client.unary(ECHO)
        assert served.server.stop(0).wait(5)
    other = serve()
    again = type(other.server)(1)
    assert again.start("127.0.0.1", served.port) == served.port
    assert again.stop(0).wait(5)
