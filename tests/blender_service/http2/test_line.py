"""The socket below a connection, plain and TLS, with buffers so small that everything is sent in parts."""

from __future__ import annotations

import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from blender_service.http2 import line as line_module
from blender_service.http2.line import Line, PlainLine, TlsLine, _after, prepare
from tests.blender_service.certificates import Authority
from tests.blender_service.http2.made_service import until

MEMORY = np.random.default_rng(5).integers(0, 256, 1 << 22, dtype=np.uint8)


def scattered(piece_count: int, piece_bytes: int, seed: int) -> tuple[NDArray[np.int64], bytes]:
    """Give vectors of random pieces of memory, and what they hold."""
    random_ = random.Random(seed)
    places = [random_.randrange(MEMORY.size - piece_bytes) for _ in range(piece_count)]
    sizes = [random_.randint(1, piece_bytes) for _ in range(piece_count)]
    vectors = np.array(
        [(MEMORY.ctypes.data + place, size) for place, size in zip(places, sizes, strict=True)], dtype=np.int64
    )
    content = b"".join(MEMORY[place : place + size].tobytes() for place, size in zip(places, sizes, strict=True))
    return vectors, content


def read_all(sock: socket.socket, size: int, pause: float = 0.0) -> bytes:
    """Read so many bytes, or until the other side hangs up."""
    content = bytearray()
    while len(content) < size and (got := sock.recv(min(7001, size - len(content)))):
        content += got
        time.sleep(pause)
    return bytes(content)


@contextmanager
def small_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give two connected sockets with the smallest buffers there are."""
    one, other = socket.socketpair()
    with one, other:
        prepare(one)
        for sock in (one, other):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.settimeout(None if sock is one else 10)
        yield one, other


def test_what_is_left_after_a_part_is_the_rest() -> None:
    """For every number of bytes that may have been sent."""
    vectors = np.array([(100, 3), (200, 1), (300, 4)], dtype=np.int64)
    places = [100, 101, 102, 200, 300, 301, 302, 303]
    for sent in range(8):
        rest = _after(vectors, sent)
        assert [address + at for address, length in rest for at in range(length)] == places[sent:]
    assert vectors.tolist() == [[100, 3], [200, 1], [300, 4]]


def test_a_scattered_message_arrives_through_a_tiny_buffer() -> None:
    """The kernel takes parts that end anywhere, in the middle of pieces too."""
    for seed, (count, size) in enumerate([(1000, 300), (3, 100_000), (1024, 1), (200, 5000)]):
        with small_pair() as (one, other):
            vectors, content = scattered(count, size, seed)
            found: list[bytes] = []
            reader = threading.Thread(target=lambda: found.append(read_all(other, len(content))))  # noqa: B023
            reader.start()
            PlainLine(one).send_vectors(vectors, count, len(content))
            reader.join()
            assert found == [content]


def test_only_the_vectors_that_count_are_sent() -> None:
    """What stands behind them in the table is of an earlier turn."""
    with small_pair() as (one, other):
        vectors, content = scattered(10, 20, 1)
        size = int(vectors[:4, 1].sum())
        PlainLine(one).send_vectors(vectors, 4, size)
        one.shutdown(socket.SHUT_WR)
        assert read_all(other, 1000) == content[:size]


def test_a_peer_that_closes_ends_a_send() -> None:
    """In the middle of a message, and before it: an error, no signal and no wait."""
    vectors, content = scattered(1000, 1000, 2)
    with small_pair() as (one, other):
        threading.Timer(0.1, other.close).start()
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            PlainLine(one).send_vectors(vectors, 1000, len(content))
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            PlainLine(one).send_vectors(vectors, 1000, len(content))
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            PlainLine(one).send(b"x")


def test_a_hang_up_ends_the_waits_of_other_threads() -> None:
    """One that sends and one that receives; a line that is closed can be hung up and asked once more."""
    with small_pair() as (one, _):
        line = PlainLine(one)
        vectors, content = scattered(1000, 1000, 3)
        ended: list[object] = []

        def send() -> None:
            try:
                line.send_vectors(vectors, 1000, len(content))
            except OSError as error:
                ended.append(error)

        threads = [threading.Thread(target=send), threading.Thread(target=lambda: ended.append(line.receive()))]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        assert not line.has_room()
        line.hang_up()
        for thread in threads:
            thread.join(2)
        assert len(ended) == 2
        line.close()
        line.hang_up()
        assert not line.has_room()
        with pytest.raises(OSError, match="descriptor"):
            line.send_vectors(vectors, 1000, len(content))


def test_a_peer_that_takes_nothing_is_an_error_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of sending end; silence while receiving is no error, it is None."""
    monkeypatch.setattr(line_module, "PATIENCE_SECONDS", 1)
    monkeypatch.setattr(line_module, "SILENCE_SECONDS", 1)
    vectors, content = scattered(1000, 1000, 4)
    with small_pair() as (one, _), pytest.raises(TimeoutError, match="nothing was taken"):
        PlainLine(one).send_vectors(vectors, 1000, len(content))
    with small_pair() as (one, _):
        with pytest.raises(TimeoutError, match="nothing was taken"):
            PlainLine(one).send(content)
        assert PlainLine(one).receive() is None


def test_a_slow_peer_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience is for one that takes nothing; one that takes a little again and again may take as long as it needs."""
    monkeypatch.setattr(line_module, "PATIENCE_SECONDS", 1)
    vectors, content = scattered(100, 2000, 5)
    with small_pair() as (one, other):
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.append(read_all(other, len(content), 0.1)))
        reader.start()
        PlainLine(one).send_vectors(vectors, 100, len(content))
        reader.join()
        assert found == [content]


@contextmanager
def tls_pair(folder: Path) -> Iterator[tuple[Line, ssl.SSLSocket]]:
    """Give a TLS line with tiny buffers below, and the client at its other end."""
    authority = Authority(folder)
    pair = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    trusting = ssl.create_default_context(cafile=str(authority.path))
    with small_pair() as (one, other):
        line = TlsLine(PlainLine(one), context)
        shaking = threading.Thread(target=line.shake_hands)
        shaking.start()
        with trusting.wrap_socket(other, server_hostname="localhost") as client:
            shaking.join()
            yield line, client


def test_tls_carries_scattered_messages_both_ways_at_once(tmp_path: Path) -> None:
    """Megabytes out while megabytes come in: each direction has its own bytes, in order."""
    vectors, content = scattered(1000, 3000, 6)
    asked = MEMORY[: 1 << 20].tobytes()
    with tls_pair(tmp_path) as (line, client):
        received = bytearray()

        def receive() -> None:
            while len(received) < len(asked):
                received.extend(line.receive() or b"")

        def send() -> None:
            line.send_vectors(vectors, 1000, len(content))
            line.send(b"the end")

        threads = [threading.Thread(target=receive), threading.Thread(target=send)]
        for thread in threads:
            thread.start()
        found, sent = bytearray(), 0
        client.setblocking(False)  # OpenSSL wants one thread for both directions
        deadline = time.monotonic() + 20
        while len(found) < len(content) + 7 or sent < len(asked):
            assert time.monotonic() < deadline, f"{len(found)} bytes came, {sent} were sent"
            with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent += client.send(asked[sent : sent + 5000]) if sent < len(asked) else 0
            with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                found += client.recv(1 << 14)
            select.select([client], [client] if sent < len(asked) else [], [], 0.01)
        for thread in threads:
            thread.join(5)
        assert bytes(received) == asked
        assert bytes(found) == content + b"the end"


def test_a_tls_client_that_leaves_is_an_end(tmp_path: Path) -> None:
    """With or without a word: no bytes, or an error of the socket."""
    for leave in (lambda client: client.close(), lambda client: socket.socket(fileno=client.detach()).close()):
        with tls_pair(tmp_path) as (line, client):
            leave(client)
            with suppress(ConnectionResetError):
                assert line.receive() == b""


def test_a_handshake_drop_by_drop_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that come one by one do not hold a thread for ever."""
    monkeypatch.setattr(line_module, "HANDSHAKE_SECONDS", 0.3)
    pair = Authority(tmp_path).sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with small_pair() as (one, other):
        failed: list[OSError] = []

        def shake() -> None:
            try:
                TlsLine(PlainLine(one), context).shake_hands()
            except OSError as error:
                failed.append(error)

        shaking = threading.Thread(target=shake)
        shaking.start()
        for byte in b"\x16\x03\x01\x02\0" + bytes(20):
            if not failed:
                other.send(bytes((byte,)))
                time.sleep(0.05)
        until(lambda: failed)
        shaking.join()
