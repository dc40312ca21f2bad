"""Streams that meet slow readers, silent servers and replicas: bounded memory, nothing held, nothing for ever."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.client import BlenderClient, connect, retry
from blender_service.client.retry import Backoff, InputClock
from blender_service.exceptions import MalformedMessageError, ServerStartError, ServerUnavailableError
from blender_service.rows.blend_reader import BlendReader
from blender_service.server import server as server_module
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.server.servicers import RowServicer
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch, concatenate, encode
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.waiting import until

Serve = Callable[..., RunningServer]
MIB = 1 << 20


@contextmanager
def pretended_server(read: Callable[[Any, grpc.ServicerContext], Iterator[bytes]]) -> Iterator[str]:
    """Serve ReadBlend by a function that gives bytes; give the address."""
    server = grpc.server(ThreadPoolExecutor(8))
    handler: Any = grpc.unary_stream_rpc_method_handler(read)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("headrace.blender.v1.RowService", {"ReadBlend": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def batches(lake: Catalog, prose: PackedFixture) -> list[RowBatch]:
    """The 100 rows of a blend, ten in a batch."""
    blender = Blender(lake)
    blend_id = blender.create(BlendSpec((SourceSpec(prose.identifier),))).blend_id
    return [batch for batch in blender.open(blend_id).read(0, 100, max_batch_rows=10) if batch.rows]


def test_a_server_that_falls_silent_is_given_up(batches: list[RowBatch]) -> None:
    """A stream that stays open and says nothing ends in an error within the time given, not never."""
    released = threading.Event()
    calls: list[int] = []

    def silent(_: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        calls.append(len(calls))
        if len(calls) == 1:
            yield encode(batches[0])
        released.wait()

    with pretended_server(silent) as address, connect(address, silence_seconds=0.4, retry_seconds=0.3) as client:
        stream = client.read("x", 0, 100)
        assert next(stream).rows == 10
        with pytest.raises(ServerUnavailableError, match=r"said nothing for 0\.4 s"):
            next(stream)
        released.set()


def test_a_stream_that_falls_silent_once_is_read_on(batches: list[RowBatch]) -> None:
    """The next connection gives the rows that the silent one did not, none twice."""
    released = threading.Event()
    calls: list[int] = []

    def silent_once(_: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        calls.append(len(calls))
        for batch in batches[:3] if len(calls) == 1 else batches[3:]:
            yield encode(batch)
        if len(calls) == 1:
            released.wait()

    with pretended_server(silent_once) as address, connect(address, silence_seconds=0.4, retry_seconds=10) as client:
        assert [batch.offset for batch in client.read("x", 0, 100)] == list(range(0, 100, 10))
        released.set()
    assert calls == [0, 1]


@pytest.mark.parametrize("wrong", [3, 5])
def test_rows_that_are_not_next_are_refused(batches: list[RowBatch], wrong: int) -> None:
    """A server that skips or repeats rows is found by the offsets, before a row goes into training."""

    def faulty(_: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from (encode(batch) for batch in [*batches[:4], batches[wrong]])

    with pretended_server(faulty) as address, connect(address, retry_seconds=0) as client:
        stream = client.read("x", 0, 100)
        assert [next(stream).offset for _ in range(4)] == [0, 10, 20, 30]
        with pytest.raises(MalformedMessageError, match=f"row {wrong}0 came where row 40 was to come"):
            next(stream)


def test_parts_that_are_not_next_are_refused(batches: list[RowBatch]) -> None:
    """The same for one rank's part of every step."""
    rows = concatenate(batches)

    def faulty(_: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        for start in (5, 15, 35):
            yield encode(replace(rows.tail(start), **_first_rows(rows.tail(start), 5)))

    with pretended_server(faulty) as address, connect(address, retry_seconds=0) as client:
        stream = client.read("x", 0, 100, part=Slice(10, 1, 2))
        assert [(batch.offset, batch.rows) for batch in (next(stream), next(stream))] == [(5, 5), (15, 5)]
        with pytest.raises(MalformedMessageError, match="row 35 came where row 25"):
            next(stream)


def _first_rows(batch: RowBatch, rows: int) -> dict[str, Any]:
    """Give the fields of a batch cut after some rows."""
    segments = int(batch.segment_counts[:rows].sum())
    per_row = ("input_ids", "token_counts", "sources", "epochs", "ordinals", "segment_counts")
    per_segment = ("doc_id_lengths", "document_starts", "segment_token_counts", "window_starts")
    cut = {name: getattr(batch, name)[:rows] for name in per_row}
    cut |= {name: getattr(batch, name)[:segments] for name in per_segment}
    return {**cut, "doc_id_bytes": batch.doc_id_bytes[: int(batch.doc_id_lengths[:segments].sum())]}


def test_a_reader_that_goes_away_frees_its_stream_at_once(
    serve: Serve, lake: Catalog, prose: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams that are sent, that are stalled and that wait for a live row are all gone soon after their readers."""
    servicers: list[RowServicer] = []

    def kept(*arguments: Any) -> RowServicer:
        servicers.append(RowServicer(*arguments))
        return servicers[-1]

    monkeypatch.setattr(server_module, "RowServicer", kept)
    news = create_packed(lake, "main.packed_news_16").append(1, seed=1)
    with connect(serve().address) as client:
        endless = client.create_blend([SourceSpec(prose.identifier, max_epochs=0)]).blend_id
        live = client.create_blend([SourceSpec(news.identifier, live=True)]).blend_id
        streams = [client.read(blend, 0) for blend in (endless, live) for _ in range(6)]
        for stream in streams:
            next(stream)
        assert servicers[0].open_streams == 12
        for stream in streams:
            stream.close()
        until(lambda: servicers[0].open_streams == 0)


def held_bytes(process: int) -> int:
    """Give the memory of a process's own; mapped files, which the kernel may drop at any time, left out."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024


def settled_bytes(process: int) -> int:
    """Wait until a process's memory has not grown for a second, however loaded the machine; give the most it had."""
    most, since, deadline = held_bytes(process), time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since < 1:
        assert time.monotonic() < deadline, f"memory still grows, it is {most >> 20} MiB"
        time.sleep(0.05)
        now = held_bytes(process)
        if now > most + MIB // 4:
            since = time.monotonic()
        most = max(most, now)
    return most


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_stalled_readers_hold_bounded_memory(tmp_path: Path, lake: Catalog, prose: PackedFixture) -> None:
    """24 readers that never take a second batch cost less than 2 MiB each, and no more while another reads on."""
    blend_id = Blender(lake).create(BlendSpec((SourceSpec(prose.identifier, max_epochs=0),))).blend_id
    root = Path(__file__).parents[2]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYICEBERG_")}
    environment["PYTHONPATH"] = str(root)
    command = [sys.executable, "-m", "blender_service", "--port", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = next(line for line in process.stderr if "serving at" in line).split()[-1]
        with connect(address) as client:
            reader = client.read(blend_id, 0, max_batch_rows=2000)
            for _ in range(50):
                next(reader)
            before = settled_bytes(process.pid)
            stalled = [BlenderClient(address) for _ in range(24)]
            streams = [one.read(blend_id, 0, max_batch_rows=2000) for one in stalled]
            for stream in streams:
                next(stream)
            filled = settled_bytes(process.pid)
            for _ in range(150):
                next(reader)
            later = settled_bytes(process.pid)
            for one, stream in zip(stalled, streams, strict=True):
                stream.close()
                one.close()
        assert filled - before < 24 * 2 * MIB
        assert later - filled < 16 * MIB
    finally:
        process.kill()
        process.communicate()


def test_a_read_goes_on_at_another_replica(serve: Serve, lake: Catalog, prose: PackedFixture) -> None:
    """An address that names two replicas survives the loss of either, in mid-stream."""
    blend_id = Blender(lake).create(BlendSpec((SourceSpec(prose.identifier, max_epochs=0),))).blend_id
    servers = [serve(), serve()]
    target = "ipv4:" + ",".join(server.address for server in servers)
    offsets: list[int] = []
    with connect(target, retry_seconds=20) as client:
        for batch in client.read(blend_id, 0, 2000, max_batch_rows=20):
            offsets += range(batch.offset, batch.end)
            if len(offsets) == 400:
                servers[0].stop(grace_seconds=0)
            if len(offsets) == 1200:
                servers[1].stop(grace_seconds=0)
                servers.append(serve(port=servers[0].port))
    assert offsets == list(range(2000))


def test_the_share_of_waiting_is_waiting_over_elapsed() -> None:
    """The first wait is told apart; later ones are summed and divided by the time since the first batch."""
    times = iter([0.0, 5.0, 6.0, 6.5, 9.0, 10.0])  # waits 0..5, 6..6.5, 9..10
    clock = InputClock(lambda: next(times))
    for _ in range(3):
        with clock.waiting():
            pass
    assert clock.first_batch_seconds == 5.0
    assert clock.input_stall_seconds == 1.5
    assert clock.elapsed_seconds == 5.0
    assert clock.input_stall_share == 0.3


class FreezingProxy:
    """Passes bytes between clients and a server until it freezes: connections stay, and are taken, nothing moves."""

    def __init__(self, port: int) -> None:
        self.frozen = threading.Event()
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let go."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                if self.frozen.is_set():
                    return
                sink.sendall(content)


def test_a_frozen_replica_is_left_after_the_silence_that_is_allowed(serve: Serve, prose: PackedFixture) -> None:
    """Its connection stays open and takes what is sent, so only another connection leads to the next replica."""
    first, second = serve(), serve()
    proxy = FreezingProxy(first.port)
    with connect(second.address) as client:
        blend = client.create_blend([SourceSpec(prose.identifier, max_epochs=0)]).blend_id
    target = f"ipv4:127.0.0.1:{proxy.port},127.0.0.1:{second.port}"
    with connect(target, silence_seconds=1, retry_seconds=10, timeout_seconds=1) as client:
        stream = client.read(blend, 0, max_batch_rows=100)
        assert next(stream).end == 100
        proxy.frozen.set()
        end = 100
        while end < 100_000:
            batch = next(stream)
            assert batch.offset == end
            end = batch.end
        assert client.get_blend(blend).blend_id == blend
        stream.close()
    proxy.close()


def test_each_retry_is_told_after_two_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong port is no minute of silence, and a short pause none of many lines."""
    now = 0.0

    class Pauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now += timeout or 0.0
            return False

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: now))
    backoff, told = Backoff(60, Pauses()), dict[float, str]()
    error = ServerUnavailableError("127.0.0.1:1: refused")
    with pytest.raises(ServerUnavailableError):
        while True:
            caplog.clear()
            at = now
            backoff.wait(error)
            told.update((at, record.getMessage()) for record in caplog.records if record.name == retry.__name__)
    assert min(told) > 2 > min(told) - 5, "soon, and not at once"
    assert all("127.0.0.1:1" in message and "trying again for" in message for message in told.values())
    assert len(told) > 8 and now > 50


def test_an_end_of_the_blend_that_comes_early_is_not_believed(
    serve: Serve, prose: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A faulty server loses no row without a word."""
    server = serve()
    with connect(server.address) as client:
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
        assert sum(batch.rows for batch in client.read(blend, 0, part=Slice(30, 0, 1))) == 90
        assert sum(batch.rows for batch in client.read(blend, 0)) == 100
        plain = BlendReader.read_messages

        def early(reader: BlendReader, offset: int, *given: Any) -> Iterator[Any]:
            yield next(plain(reader, offset, 10, *given[1:]))
            yield from plain(reader, 100, 0, *given[1:])

        monkeypatch.setattr(BlendReader, "read_messages", early)
        with pytest.raises(MalformedMessageError, match="said to end at row 10, it ends at 100"):
            list(client.read(blend, 0))


@pytest.mark.nightly
def test_a_program_that_leaves_iterators_open_ends(serve: Serve, prose: PackedFixture) -> None:
    """However many; each has a thread that waits for a server or for its consumer."""
    pytest.importorskip("torch", reason="torch is in the extra torch")
    with connect(serve().address) as client:
        blend = client.create_blend([SourceSpec(prose.identifier, max_epochs=0)]).blend_id
        program = (
            "from blender_service.torch import BlendDataset\n"
            f"kept = [iter(BlendDataset({client.address!r}, {blend!r}, 8)) for _ in range(30)]\n"
            "for batches in kept: next(batches)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        assert done.stderr == ""


def test_a_server_may_listen_at_a_path(serve: Serve, prose: PackedFixture, tmp_path: Path) -> None:
    """`unix:PATH` for clients of the same machine; a socket that was left there is replaced, one in use is not."""
    host = f"unix:{tmp_path / 'blender'}"
    for _ in range(2):
        server = serve(host=host)
        with connect(host) as client:
            blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
            assert sum(batch.rows for batch in client.read(blend, 0)) == 100
        with pytest.raises(ServerStartError, match="stop what listens there or choose another path"):
            serve(host=host)
        server.stop(grace_seconds=0)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:
            (tmp_path / "blender").unlink(missing_ok=True)
            left.bind(str(tmp_path / "blender"))
    (tmp_path / "blender").unlink()
    (tmp_path / "blender").write_text("a file")
    with pytest.raises(ServerStartError, match="there is a file of that name"):
        serve(host=host)
