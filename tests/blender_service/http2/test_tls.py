"""Connections with TLS: who shakes hands slowly, wrongly or never."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from blender_service.tls import TlsFiles, renewing_context
from tests.blender_service.certificates import Authority
from tests.blender_service.http2.conftest import Served, own_threads, unary
from tests.blender_service.http2.made_service import ECHO, READ, until

Serve = Callable[..., Served]


@pytest.fixture
def secure(serve: Serve, tmp_path: Path) -> tuple[Served, bytes]:
    """A server with a certificate, and that of its authority."""
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    return serve(tls=renewing_context(TlsFiles(pair.certificate, pair.key))), authority.path.read_bytes()


def echoes(secure: tuple[Served, bytes]) -> bool:
    """Whether gRPC's client is answered."""
    served, authority = secure
    with grpc.secure_channel(f"localhost:{served.port}", grpc.ssl_channel_credentials(authority)) as channel:
        wanted = [served.service.message(700).join()] * 3
        read: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(READ)
        return list(read(b"3 700", timeout=10)) == wanted and unary(channel, ECHO)(b"x", timeout=10) == b"x"


def test_rows_come_over_tls(secure: tuple[Served, bytes]) -> None:
    """Byte for byte."""
    assert echoes(secure)


def test_a_handshake_that_fails_ends_its_connection_alone(
    secure: tuple[Served, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Plain HTTP/2, noise, an old TLS and a client that leaves: nothing stays, nothing is an error of the server."""
    served, _ = secure
    for content in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes(1000), b"\x16\x03\x01\0\x05\1\0\0\1\0", b""):
        with socket.create_connection(("127.0.0.1", served.port), timeout=5) as sock:
            sock.sendall(content)
    until(lambda: not served.server._connections)
    assert echoes(secure)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_silent_handshakes_count_as_connections(secure: tuple[Served, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever never shakes hands cannot hold more threads than connections are allowed."""
    served, _ = secure
    monkeypatch.setattr("blender_service.http2.server.MOST_CONNECTIONS", 5)
    socks = [socket.create_connection(("127.0.0.1", served.port), timeout=5) for _ in range(8)]
    try:
        for sock in socks[5:]:
            assert sock.recv(1) == b""
        assert len(served.server._connections) == 5
    finally:
        for sock in socks:
            sock.close()
    until(lambda: not served.server._connections)
    assert echoes(secure)


def test_a_stop_ends_handshakes(secure: tuple[Served, bytes]) -> None:
    """A client in the middle of one holds up nothing, and nothing of it is left."""
    served, _ = secure
    threads = len(own_threads())
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as sock:
        until(lambda: len(own_threads()) > threads)
        started = time.monotonic()
        assert served.server.stop(0.3).wait(5)
        assert time.monotonic() - started < 2
        assert sock.recv(1) == b""
        assert not served.server._connections


def test_a_client_that_is_slow_to_shake_hands_is_told_of_a_stop(secure: tuple[Served, bytes]) -> None:
    """GOAWAY comes after SETTINGS, in TLS, however early the stop."""
    served, authority = secure
    context = ssl.create_default_context(cadata=authority.decode())
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as sock:
        until(lambda: served.server._connections)
        for connection in list(served.server._connections):
            connection.leave()
        with context.wrap_socket(sock, server_hostname="localhost") as client:
            content = b""
            while b"\0\0\x08\x07\0\0\0\0\0" not in content and (got := client.recv(1000)):
                content += got
            assert content[3] == 4
            assert b"\0\0\x08\x07\0\0\0\0\0" in content
