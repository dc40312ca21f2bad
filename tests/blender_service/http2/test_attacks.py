"""What a hostile client may send: it costs the server little, and an honest one is answered during and after it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from blender_service.http2 import connection
from tests.blender_service.http2.conftest import Served, own_threads, unary
from tests.blender_service.http2.made_service import ECHO, READ, open_files, until
from tests.blender_service.http2.raw_client import (
    BIG,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    literal,
)

MIB = 1 << 20
BEGIN = PREFACE + frame(SETTINGS, 0, 0)


def own_bytes() -> int:
    """Give this process's memory, mapped files left out."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024


def connect(served: Served) -> socket.socket:
    """Open a socket."""
    return socket.create_connection(("127.0.0.1", served.port), timeout=10)


def is_hung_up_on(sock: socket.socket, seconds: float = 5.0) -> bool:
    """Read until the server hangs up, or the time is over."""
    sock.settimeout(seconds)
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if not sock.recv(1 << 16):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def send_all_but_read_nothing(sock: socket.socket, content: bytes, most_bytes: int) -> int:
    """Send the same again and again until the server takes no more; give how many bytes it took."""
    sock.settimeout(0.5)
    sent = 0
    try:
        while sent < most_bytes:
            sent += sock.send(content)
    except OSError:
        pass
    return sent


def is_well(served: Served) -> bool:
    """Whether an honest client is answered."""
    with served.connect() as client:
        return client.unary(ECHO, b"hello") == b"hello"


def header_block(path: bytes = ECHO.encode()) -> bytes:
    """Give the headers of a call."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", b"application/grpc")]
    return b"".join(literal(*field) for field in fields)


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500),
        bytes(100),
        PREFACE[:10] + b"x" * 100,
        PREFACE + bytes(1000),
        PREFACE + b"\xff" * 1000,
    ],
)
def test_what_is_not_http2_is_hung_up_on(served: Served, content: bytes) -> None:
    """HTTP/1.1, TLS at a plain port and noise end at once."""
    with connect(served) as sock:
        sock.sendall(content)
        assert is_hung_up_on(sock, 2)
    assert is_well(served)


def test_a_frame_that_is_too_long_is_refused_before_it_is_there(served: Served) -> None:
    """Its header is enough; the server does not keep 16 MiB to say no."""
    with connect(served) as sock:
        sock.sendall(BEGIN + b"\xff\xff\xff\0\0\0\0\0\1")
        assert is_hung_up_on(sock, 2)


def test_a_header_bomb_is_refused(served: Served) -> None:
    """One long header in the table, named ten thousand times, is 40 MB of headers in one frame."""
    block = header_block() + b"\x40\1x\x7f\xe1\x1e" + b"y" * 4000 + b"\xbe" * 10_000
    before = own_bytes()
    with connect(served) as sock:
        sock.sendall(BEGIN + frame(HEADERS, END_HEADERS | END_STREAM, 1, block[:16384]))
        assert is_hung_up_on(sock, 5)
    assert own_bytes() - before < 32 * MIB
    assert is_well(served)


@pytest.mark.parametrize("size", [0, 1, 16_384])
def test_a_flood_of_continuations_is_cut_off(served: Served, size: int) -> None:
    """Headers that never end are ended."""
    before = own_bytes()
    with connect(served) as sock:
        sock.sendall(BEGIN + frame(HEADERS, 0, 1, header_block()))
        sent = send_all_but_read_nothing(sock, frame(CONTINUATION, 0, 1, bytes(size)) * 10, 64 * MIB)
        assert is_hung_up_on(sock, 5)
    assert sent < 16 * MIB
    assert own_bytes() - before < 32 * MIB
    assert is_well(served)


@pytest.mark.parametrize(
    "flood",
    [
        frame(PING, 0, 0, b"12345678"),
        frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, header_block()) + frame(RST, 0, 1, bytes(4)),
        frame(2, 0, 1, bytes(5)),
        frame(99, 0, 0, b"unknown"),
        frame(WINDOW_UPDATE, 0, 0, (1).to_bytes(4, "big")),
    ],
)
def test_a_flood_without_reading_is_bounded(served: Served, flood: bytes) -> None:
    """Whoever asks and never reads holds little memory and one thread; others are answered meanwhile."""
    before, threads = own_bytes(), len(own_threads())
    with connect(served) as sock:
        sock.sendall(BEGIN)
        send_all_but_read_nothing(sock, flood * 1000, 2 * MIB)
        assert is_well(served)
        assert own_bytes() - before < 32 * MIB
        assert len(own_threads()) <= threads + 30


def test_ten_thousand_calls_that_are_reset_at_once_leave_nothing(served: Served) -> None:
    """CVE-2023-44487: neither memory nor threads grow, and an honest client is answered meanwhile."""
    before = own_bytes()
    block = header_block()
    with connect(served) as sock:
        sock.sendall(BEGIN)
        reader = threading.Thread(target=is_hung_up_on, args=(sock, 20))
        reader.start()
        for first in range(0, 10_000, 100):
            sock.sendall(
                b"".join(
                    frame(HEADERS, END_HEADERS | END_STREAM, stream, block) + frame(RST, 0, stream, b"\0\0\0\x08")
                    for stream in range(2 * first + 1, 2 * first + 201, 2)
                )
            )
            if not first % 2500:
                assert is_well(served)
        assert is_well(served)
        assert len(own_threads()) < 60
        sock.shutdown(socket.SHUT_RDWR)
        reader.join()
    assert own_bytes() - before < 48 * MIB
    assert served.service.calls < 200, "calls that were given up are run"


def test_who_connects_and_says_nothing_is_closed(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing at all, and a preface that comes drop by drop, end after a while."""
    monkeypatch.setattr("blender_service.http2.line.SILENCE_SECONDS", 1)
    monkeypatch.setattr(connection, "BEGIN_SECONDS", 1)
    served = serve()
    with connect(served) as silent, connect(served) as slow:
        for byte in PREFACE[:15]:
            try:
                slow.sendall(bytes((byte,)))
            except OSError:
                break
            time.sleep(0.1)
        assert is_hung_up_on(slow, 1)
        assert is_hung_up_on(silent, 1)


def test_who_falls_silent_is_asked_and_then_closed(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer without an answer to a ping is gone; gRPC's client, idle for as long, is not."""
    monkeypatch.setattr("blender_service.http2.line.SILENCE_SECONDS", 1)
    served = serve()
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel, served.connect() as silent:
        echo = unary(channel, ECHO)
        assert echo(b"a", timeout=5) == b"a"
        started = time.monotonic()
        assert is_hung_up_on(silent.sock, 4)
        assert 1.5 < time.monotonic() - started < 3.5
        until(lambda: len(served.server._connections) == 1)
        assert echo(b"b", timeout=5) == b"b"


def test_half_closed_sockets_are_closed(served: Served) -> None:
    """A client that sends no more is gone: its streams end, its descriptor is freed."""
    files = open_files()
    with served.connect() as client:
        client.reads = False
        client.call(READ, b"1000 1000")
        until(lambda: served.service.streams == 1)
        client.sock.shutdown(socket.SHUT_WR)
        until(lambda: not served.service.streams, 2)
        client.until_closed(2)
    until(lambda: open_files() <= files)


def test_three_hundred_idle_connections_cost_little(served: Served) -> None:
    """Each is a thread and a descriptor; the three hundred and first is served, and all of them still are."""
    before = own_bytes()
    clients = [served.connect() for _ in range(300)]
    try:
        assert is_well(served)
        assert own_bytes() - before < 150 * MIB
        assert [client.unary(ECHO, b"x") for client in clients[::30]] == [b"x"] * 10
    finally:
        for client in clients:
            client.sock.close()
    until(lambda: not served.server._connections)


def test_no_thread_for_a_connection_is_no_end_of_the_server(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that gives no more threads loses that connection; later ones are served."""
    start = threading.Thread.start

    def fails(self: threading.Thread) -> None:
        if self.name == "blender-connection":
            raise RuntimeError("can't start new thread")
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        with connect(served) as sock:
            assert is_hung_up_on(sock, 2)
    assert is_well(served)


def test_one_connection_too_many_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are open go on, and when one leaves another may come."""
    monkeypatch.setattr("blender_service.http2.server.MOST_CONNECTIONS", 2)
    with served.connect() as first:
        with served.connect() as second, connect(served) as third:
            assert is_hung_up_on(third, 2)
            assert first.unary(ECHO, b"1") == second.unary(ECHO, b"1") == b"1"
        until(lambda: len(served.server._connections) == 1)
        assert is_well(served)


def test_windows_that_overflow_end_the_stream_or_the_connection(served: Served) -> None:
    """RFC 9113, 6.9.1."""
    with served.connect() as client:
        client.reads = False
        stream = client.call(READ, b"10 1000")
        client.until(lambda: client.data.get(stream))
        client.sock.sendall(frame(WINDOW_UPDATE, 0, stream, BIG.to_bytes(4, "big")) * 2)
        client.until(lambda: stream in client.resets)
        until(lambda: not served.service.streams)
        client.sock.sendall(frame(WINDOW_UPDATE, 0, 0, BIG.to_bytes(4, "big")) * 2)
        client.until_closed()
    assert is_well(served)
