"""The wire over a real loopback socket: definition, streaming, restarts, replicas, refusals."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import SourceChange, SourceSpec, Stage
from blender_service.client import Blend, BlenderClient, connect
from blender_service.client.retry import Backoff
from blender_service.exceptions import (
    BlenderError,
    BlendNotFoundError,
    InvalidBlendError,
    InvalidReadError,
    OffsetOutOfRangeError,
    ServerStartError,
    ServerUnavailableError,
    SourceChangedError,
    UpdateRefusedError,
    WindowMismatchError,
)
from blender_service.server.server import RunningServer, start
from blender_service.wire.expected_window import ExpectedWindow
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import MessageCutter, RowBatch
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2, rows_pb2_grpc
from tests.blender_service.packed_tables import TOKENIZER, VOCABULARY_SIZE, WINDOW_TOKENS, PackedFixture
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.tiers import sampled

Serve = Callable[..., RunningServer]


@pytest.fixture
def blend(client: BlenderClient, code: PackedFixture, prose: PackedFixture) -> Blend:
    """A blend of both tables, 3:1, created over the wire; prose goes round without end."""
    sources = [SourceSpec(code.identifier, "0.75"), SourceSpec(prose.identifier, "1/4", max_epochs=0)]
    return client.create_blend(sources, seed=17, name="mixed", block_rows=32, group_blocks=3)


def messages(address: str, request: rows_pb2.ReadBlendRequest) -> list[bytes]:
    """Read the raw messages of a stream."""
    with grpc.insecure_channel(address) as channel:
        stub = rows_pb2_grpc.RowServiceStub(channel)
        return [message.SerializeToString(deterministic=True) for message in stub.ReadBlend(request)]


@pytest.mark.nightly
def test_definitions_travel_whole(client: BlenderClient, blend: Blend, code: PackedFixture) -> None:
    """What create gives is what get and list give, by id, prefix and name; creating again changes nothing."""
    assert client.get_blend("mixed") == client.get_blend(blend.blend_id[:8]) == blend
    assert client.list_blends() == [blend]
    assert (blend.window_tokens, blend.tokenizer_sha256, blend.vocabulary_size) == (
        WINDOW_TOKENS,
        TOKENIZER,
        VOCABULARY_SIZE,
    )
    assert [(source.weight, source.rows, source.max_epochs) for source in blend.sources] == [(3, 700, 1), (1, 100, 0)]
    assert blend.end is not None
    assert blend.end > 900


def test_streamed_rows_are_the_written_ones(
    client: BlenderClient, blend: Blend, code: PackedFixture, prose: PackedFixture
) -> None:
    """Every row of the whole blend comes over the socket as it was written, once, in order."""
    written = {code.identifier: code.rows, prose.identifier: prose.rows}
    offset = 0
    for batch in client.read("mixed", 0, max_batch_rows=100):
        assert batch.offset == offset
        offset = batch.end
        for i, row in enumerate(rows_of(batch)):
            assert row == written[batch.source_names[batch.sources[i]]][batch.ordinals[i]]
    assert offset == blend.end


def test_a_read_may_start_anywhere_and_ends_where_asked(client: BlenderClient, blend: Blend) -> None:
    """Offset and length bound the rows; the end of the blend is marked, and only there."""
    batches = list(client.read("mixed", 123, 77, max_batch_rows=10))
    assert [batch.offset for batch in batches] == list(range(123, 200, 10))
    assert sum(batch.rows for batch in batches) == 77
    assert not any(batch.end_of_blend for batch in batches)
    assert blend.end is not None
    assert [b.end_of_blend for b in client.read("mixed", blend.end - 5, 5)] == [False, True]
    assert [b.rows for b in client.read("mixed", blend.end)] == [0]


def test_replicas_and_restarts_give_the_same_bytes(serve: Serve, blend: Blend, code: PackedFixture) -> None:
    """Two servers at once, and one started after the table grew, send byte for byte the same messages."""
    request = rows_pb2.ReadBlendRequest(blend=blend.blend_id, offset=50, rows=300)
    first, second = serve(), serve(cache_bytes=1)
    expected = messages(first.address, request)
    assert messages(second.address, request) == expected
    first.stop(grace_seconds=1)
    code.append(10, seed=5, increment=2)
    assert messages(serve().address, request) == expected


def test_a_read_goes_on_over_a_restart(serve: Serve, blend: Blend) -> None:
    """A server that stops in mid-stream and comes back on its port loses and repeats no row."""
    server = serve()
    expected = [(b.offset, b.rows) for b in connect(server.address).read("mixed", 0, 600, max_batch_rows=7)]
    got: list[tuple[int, int]] = []
    with connect(server.address, retry_seconds=20) as client:
        for batch in client.read("mixed", 0, 600, max_batch_rows=7):
            got.append((batch.offset, batch.rows))
            if len(got) == 20:
                server.stop(grace_seconds=0)
                server = serve(port=server.port)
    assert [offset for offset, _ in got] == sorted({offset for offset, _ in got})
    covered = [row for offset, rows in got for row in range(offset, offset + rows)]
    assert covered == list(range(600))
    assert sum(rows for _, rows in expected) == 600


@sampled()
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_sliced_read_goes_on_over_a_restart(serve: Serve, blend: Blend, rank: int) -> None:
    """Also one rank's part, cut into batches smaller than the part."""
    server = serve()
    part = Slice(24, rank, 3)
    got: list[RowBatch] = []
    with connect(server.address, retry_seconds=20) as client:
        for batch in client.read("mixed", 10, 480, part=part, max_batch_rows=3):
            got.append(batch)
            if len(got) == 25:
                server.stop(grace_seconds=0)
                server = serve(port=server.port)
    expected = [10 + step * 24 + rank * 8 + i for step in range(20) for i in range(8)]
    assert [row for batch in got for row in range(batch.offset, batch.end)] == expected


def test_mistakes_come_back_as_the_errors_they_are(client: BlenderClient, blend: Blend, code: PackedFixture) -> None:
    """Each mistake has its gRPC status, and its class and message on the client's side."""
    with pytest.raises(InvalidBlendError, match="2 mistakes"):
        client.create_blend([SourceSpec("main.nothing", weight="0")])
    with pytest.raises(BlendNotFoundError, match="nightly"):
        client.get_blend("nightly")
    assert blend.end is not None
    with pytest.raises(OffsetOutOfRangeError, match=f"beyond its end {blend.end}"):
        next(client.read("mixed", blend.end + 1))
    with pytest.raises(InvalidReadError, match="rank 3"):
        next(client.read("mixed", 0, part=Slice(8, 3, 2)))
    with (
        grpc.insecure_channel(client.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        list(rows_pb2_grpc.RowServiceStub(channel).ReadBlend(rows_pb2.ReadBlendRequest(blend="mixed", offset=-1)))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    code.table.transaction().set_properties({"headrace.generation": "second"}).commit_transaction()
    with pytest.raises(SourceChangedError, match="generation second"):
        next(client.read("mixed", 0))


@pytest.mark.parametrize(
    "expected",
    [
        ExpectedWindow(tokenizer_sha256="0" * 64),
        ExpectedWindow(window_tokens=WINDOW_TOKENS + 1),
        ExpectedWindow(vocabulary_size=VOCABULARY_SIZE + 1),
    ],
)
def test_what_the_reader_was_not_built_for_is_refused(
    client: BlenderClient, blend: Blend, expected: ExpectedWindow
) -> None:
    """Another tokenizer, window or vocabulary is refused before any row; the right ones are served."""
    with pytest.raises(WindowMismatchError):
        next(client.read("mixed", 0, expected=expected))
    right = ExpectedWindow(WINDOW_TOKENS, TOKENIZER, VOCABULARY_SIZE)
    assert next(client.read("mixed", 0, expected=right)).rows > 0


def test_a_server_that_is_not_there_is_one_line() -> None:
    """After its patience the client says which address did not answer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        connect(f"127.0.0.1:{port}", retry_seconds=0.3) as client,
        pytest.raises(ServerUnavailableError, match=str(port)),
    ):
        client.list_blends()


def test_updates_and_descriptions_travel_whole(client: BlenderClient, blend: Blend, code: PackedFixture) -> None:
    """An update over the wire is the one a schedule makes; what its description counts is what its stream gives."""
    code_name, prose_name = (source.name for source in blend.sources)
    stages = (
        Stage(50, (SourceChange(code_name, weight="1"), SourceChange(prose_name, weight="1")), align=True),
        Stage(90, (SourceChange(prose_name, remove=True),)),
    )
    child = client.update_blend("mixed", 50, stages[0].changes, align=True, name="child", schedule=stages[1:])
    assert (child.names, child.from_offset) == (("child",), 90)
    middle = client.get_blend(child.parent)
    assert (middle.parent, middle.from_offset) == (blend.blend_id, 52)
    described = client.describe_blend("child", 200)
    rows = Counter(b.source_names[i] for b in client.read("child", 0, 200) for i in b.sources)
    assert {source.name: source.rows for source in described.sources} == rows
    assert [(s.start, s.end, s.weights) for s in described.segments] == [
        (0, 52, {code_name: 3, prose_name: 1}),
        (52, 90, {code_name: 1, prose_name: 1}),
        (90, child.end, {code_name: 1}),
    ]
    code.table.transaction().set_properties({"headrace.excised": "3"}).commit_transaction()
    found = {source.name: source.excised_documents for source in client.describe_blend("child").sources}
    assert found == {code_name: 3, prose_name: None}
    with pytest.raises(UpdateRefusedError, match="no row left"):
        client.update_blend("child", child.end or 0)
    with grpc.insecure_channel(client.address) as channel, pytest.raises(grpc.RpcError) as caught:
        request = blends_pb2.UpdateBlendRequest(parent="child", from_offset=child.end or 0)
        blends_pb2_grpc.BlendServiceStub(channel).UpdateBlend(request)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_lists_come_in_pages(client: BlenderClient, code: PackedFixture) -> None:
    """Pages of two hold every blend once, ascending; a token or a size that cannot be is refused."""
    made = sorted(client.create_blend([SourceSpec(code.identifier)], seed=seed).blend_id for seed in range(5))
    with grpc.insecure_channel(client.address) as channel:
        stub = blends_pb2_grpc.BlendServiceStub(channel)
        found, token = [], ""
        for _ in range(3):
            page = stub.ListBlends(blends_pb2.ListBlendsRequest(page_size=2, page_token=token))
            found.append([blend.id for blend in page.blends])
            token = page.next_page_token
        assert (found, token) == ([made[:2], made[2:4], made[4:]], "")
        for request in (blends_pb2.ListBlendsRequest(page_size=1001), blends_pb2.ListBlendsRequest(page_token="x")):
            with pytest.raises(grpc.RpcError) as caught:
                stub.ListBlends(request)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert [blend.blend_id for blend in client.list_blends()] == made


def test_closing_a_client_ends_its_waits(serve: Serve, blend: Blend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that waits for a server to come back stops as soon as the client is closed."""
    waits, wait = threading.Event(), Backoff.wait

    def told(self: Backoff, error: BlenderError) -> None:
        waits.set()
        wait(self, error)

    monkeypatch.setattr(Backoff, "wait", told)
    server = serve()
    client = connect(server.address, retry_seconds=600)
    stream = client.read("mixed", 0, max_batch_rows=1)
    next(stream)
    server.stop(grace_seconds=0)
    failed: list[BlenderError] = []

    def drain() -> None:
        try:
            for _ in stream:
                pass
        except BlenderError as error:
            failed.append(error)

    thread = threading.Thread(target=drain)
    thread.start()
    assert waits.wait()
    client.close()
    thread.join()
    assert len(failed) == 1


def test_a_slow_reader_holds_back_the_server(
    serve: Serve, lake: Catalog, prose: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a blend without end the server gathers what fits into the connection's window, then waits for the reader."""
    gathered: list[int] = []
    cut = MessageCutter.cut

    def counted(self: MessageCutter, *place: int) -> bytes:
        gathered.append(len(message := cut(self, *place)))
        return message

    monkeypatch.setattr(MessageCutter, "cut", counted)
    with connect(serve().address) as client:
        blend = client.create_blend([SourceSpec(prose.identifier, max_epochs=0)])
        stream = client.read(blend.blend_id, 0)
        next(stream)
        before = -1
        while len(gathered) != before:
            before = len(gathered)
            time.sleep(1)
        stream.close()
    assert 0 < sum(gathered) < 64 << 20  # the transport's own estimate goes to some 32 MiB


def test_a_taken_port_is_one_line(serve: Serve, lake: Catalog, code: PackedFixture) -> None:
    """A second server on the same port, or a host that is not of this machine, says so in one line."""
    server = serve()
    with pytest.raises(ServerStartError, match=rf"127\.0\.0\.1:{server.port}"):
        start(lake, port=server.port)
    with pytest.raises(ServerStartError, match="cannot listen") as caught:
        start(lake, host="203.0.113.1")
    assert "\n" not in str(caught.value)


def run_module(
    directory: Path, *arguments: str, command: Sequence[str] = ("-m", "blender_service")
) -> subprocess.Popen[str]:
    """Start `python -m blender_service` in a directory."""
    root = Path(__file__).parents[3]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYICEBERG_")}
    environment["PYTHONPATH"] = str(root)
    return subprocess.Popen(
        [sys.executable, *command, *arguments], cwd=directory, env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.nightly
def test_the_module_serves_until_sigterm(tmp_path: Path, lake: Catalog, blend: Blend) -> None:
    """`python -m blender_service` serves ./warehouse without settings and ends cleanly on SIGTERM."""
    process = run_module(tmp_path, "--port", "0")
    assert process.stderr is not None
    line = next(line for line in process.stderr if "serving at" in line)
    with connect(line.split()[-1]) as client:
        stream = client.read("mixed", 0, max_batch_rows=1)
        next(stream)
        process.send_signal(signal.SIGTERM)
        stream.close()
    assert process.wait(timeout=60) == 0
    assert "stopped" in process.stderr.read()
    process.stderr.close()


IGNORING = """
import logging, signal
logging.basicConfig(level=logging.INFO)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
from blender_service.server import server
server.serve(port=0)
"""


@pytest.mark.nightly  # a server of its own; tests/headrace/process/test_interrupts.py tries the ignored signal alone
def test_a_signal_that_comes_as_soon_as_it_serves_is_not_lost(tmp_path: Path, lake: Catalog, blend: Blend) -> None:
    """Also where the process has inherited that SIGTERM is ignored, as the children of some supervisors do."""
    process = run_module(tmp_path, command=("-c", IGNORING))
    assert process.stderr is not None
    next(line for line in process.stderr if "serving at" in line)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    process.stderr.close()


HANGING = """
import sys, time
from blender_service.rows import batch_assembly
from blender_service.server import server
server.STOP_GRACE_SECONDS = 0.5
batch_assembly.Chunk.copy = lambda *a: time.sleep(600)
server.serve(port=0, operation=server.OperationConfig(drain_seconds=0.2))
"""


@pytest.mark.nightly
def test_a_store_that_hangs_does_not_hold_a_server_that_is_told_to_stop(
    tmp_path: Path, lake: Catalog, blend: Blend
) -> None:
    """A stream waits for bytes that never come; SIGTERM ends the process all the same."""
    code = f"import logging; logging.basicConfig(level=logging.INFO)\n{HANGING}"
    process = run_module(tmp_path, command=("-c", code))
    assert process.stderr is not None
    line = next(line for line in process.stderr if "serving at" in line)
    with connect(line.split()[-1], retry_seconds=0.1) as client:

        def read() -> None:
            with contextlib.suppress(BlenderError):
                next(client.read("mixed", 0))

        threading.Thread(target=read, daemon=True).start()
        next(line for line in process.stderr if "read " in line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    process.stderr.close()


@pytest.mark.nightly  # test_processes.py has line and status too
def test_a_missing_lake_is_one_line(tmp_path: Path) -> None:
    """Without tables the module says what is missing and exits with 2."""
    process = run_module(tmp_path / "..", "--port", "0")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error.count("\n") == 1
    assert "catalog.db does not exist" in error
