"""What gRPC is set to do: attacks end, slots are given up, headers are bounded, streams share, a stop is quick."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import ssl
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from blender_service.blend.requests import SourceSpec
from blender_service.client import Identity, connect
from blender_service.exceptions import BlendNotFoundError, InvalidReadError, TooManyStreamsError
from blender_service.server import server as server_module
from blender_service.server.limits import (
    COPIED_BYTES,
    IN_FLIGHT_BYTES,
    LEAST_MESSAGE_BYTES,
    MOST_MESSAGE_BYTES,
    PLANNED_ROWS,
    StreamLimits,
)
from blender_service.server.server import MOST_HEADER_BYTES, RunningServer
from blender_service.server.settings import OperationConfig
from blender_service.wire.rank_slice import Slice
from blender_service.wire.status import error_of
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2, rows_pb2_grpc
from tests.blender_service.certificates import Authority
from tests.blender_service.packed_tables import PackedFixture
from tests.blender_service.server.test_settings import health_of
from tests.blender_service.test_streaming import MIB, held_bytes
from tests.tiers import sampled, tries
from tests.waiting import until

Serve = Callable[..., RunningServer]
DATA, HEADERS, RST, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4
CHECK = b"/grpc.health.v1.Health/Check"
READ, CREATE = b"/headrace.blender.v1.RowService/ReadBlend", b"/headrace.blender.v1.BlendService/CreateBlend"
TOKEN, OTHER_TOKEN = "a-token-of-enough-characters", "another-one-of-enough-characters"


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Write one frame of HTTP/2."""
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def header_block(path: bytes = CHECK, *more: tuple[bytes, bytes]) -> bytes:
    """Write the headers of a call for HPACK as they are, nothing kept in its table."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", b"application/grpc")]
    fields += [(b":authority", b"x"), (b"te", b"trailers"), *more]
    return b"".join(
        b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
        for name, value in sorted(fields, key=lambda field: not field[0].startswith(b":"))
    )


BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)


def open_socket(server: RunningServer) -> socket.socket:
    """Connect, speaking nothing yet."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def is_hung_up_on(sock: socket.socket) -> bool:
    """Read until the server hangs up; whether it does."""
    try:
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def flood(sock: socket.socket, content: bytes, most_bytes: int) -> int:
    """Send the same again and again, reading nothing, until the server takes no more; give how many bytes it took."""
    sock.settimeout(0.5)
    sent = 0
    try:
        while sent < most_bytes:
            sent += sock.send(content)
    except OSError:
        pass
    sock.settimeout(10)
    return sent


def is_well(server: RunningServer) -> bool:
    """Whether an honest client is answered."""
    return health_of(server.address) == health_pb2.HealthCheckResponse.SERVING


def own_bytes() -> int:
    """Give the memory of this process, which the server runs in."""
    return held_bytes(os.getpid())


@pytest.fixture
def endless(serve: Serve, prose: PackedFixture) -> Callable[[RunningServer], str]:
    """Make a blend without end."""

    def make(server: RunningServer) -> str:
        with connect(server.address) as client:
            return client.create_blend([SourceSpec(prose.identifier, max_epochs=0)]).blend_id

    return make


@pytest.mark.parametrize(
    "content",
    [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500), bytes(100)],
)
def test_what_is_not_http2_is_hung_up_on(serve: Serve, content: bytes) -> None:
    """HTTP/1.1, TLS at a plain port and noise end at once."""
    server = serve()
    with open_socket(server) as sock:
        sock.sendall(content)
        assert is_hung_up_on(sock)
    assert is_well(server)


def test_a_flood_of_pings_ends_its_connection(serve: Serve) -> None:
    """Whoever pings without end is told so (ENHANCE_YOUR_CALM) and hung up on."""
    server = serve()
    with open_socket(server) as sock:
        sock.sendall(BEGIN + frame(PING, 0, 0, bytes(8)) * 100)
        assert b"too_many_pings" in b"".join(iter(lambda: received(sock), b""))
    assert is_well(server)


def received(sock: socket.socket) -> bytes:
    """Receive some bytes; none when the server has hung up."""
    try:
        return sock.recv(1 << 16)
    except ConnectionError:
        return b""


@sampled()
@pytest.mark.parametrize(
    "content",
    [
        frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff") * 100,
        frame(PING, 0, 0, bytes(8)) * 100,
        frame(CONTINUATION, 0, 1, bytes(16_384)),
        frame(99, 0, 0, b"unknown") * 100,
    ],
    ids=["settings", "pings", "continuations", "unknown"],
)
def test_a_flood_without_reading_is_bounded(serve: Serve, content: bytes) -> None:
    """Whoever sends and never reads holds little memory; others are answered meanwhile."""
    server = serve()
    before = own_bytes()
    with open_socket(server) as sock:
        sock.sendall(BEGIN + (frame(HEADERS, 0, 1, header_block()) if content[3] == CONTINUATION else b""))
        flood(sock, content, 16 * MIB)
        assert is_well(server)
        assert own_bytes() - before < 32 * MIB


def test_calls_that_are_reset_at_once_leave_nothing(serve: Serve) -> None:
    """CVE-2023-44487: memory does not grow with them, and an honest client is answered meanwhile."""
    server = serve()
    before, block = own_bytes(), header_block()
    with open_socket(server) as sock:
        reader = threading.Thread(target=is_hung_up_on, args=(sock,))
        sock.sendall(BEGIN)
        reader.start()
        for first in range(1, 20_001, 400):
            calls = (
                frame(HEADERS, END_HEADERS | END_STREAM, stream, block) + frame(RST, 0, stream, b"\0\0\0\x08")
                for stream in range(first, first + 400, 2)
            )
            try:
                sock.sendall(b"".join(calls))
            except OSError:
                break  # hung up on
        assert is_well(server)
        assert own_bytes() - before < 48 * MIB
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        reader.join()


class HeadersAlone:
    """Opens calls that have no request on one connection, thousands, reading what comes, until it is stopped."""

    def __init__(self, server: RunningServer, block: bytes) -> None:
        self.calls = 0
        self._block = block
        self._stopping = threading.Event()
        self._sock = open_socket(server)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Hang up."""
        self._stopping.set()
        self._thread.join()
        self._sock.close()

    def _run(self) -> None:
        self._sock.sendall(BEGIN)
        self._sock.settimeout(0.01)
        while not self._stopping.is_set():
            first = 2 * self.calls + 1
            try:
                calls = (frame(HEADERS, END_HEADERS, first + 2 * ahead, self._block) for ahead in range(100))
                self._sock.sendall(b"".join(calls))
                self.calls += 100
                self._sock.recv(1 << 18)
            except TimeoutError:
                continue


@sampled(3)
@pytest.mark.parametrize("path", [CHECK, b"/grpc.health.v1.Health/Watch", READ, CREATE], ids=lambda path: path.decode())
@pytest.mark.parametrize("token", [b"", b"wrong", TOKEN.encode()], ids=["none", "wrong", "right"])
def test_calls_without_a_request_leave_threads_for_others(
    tmp_path: Path, serve: Serve, prose: PackedFixture, path: bytes, token: bytes
) -> None:
    """Health answers, honest clients read, whoever sends headers alone; his calls end, those of others do not."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"trainer {TOKEN}\nother {OTHER_TOKEN}")
    server = serve(operation=OperationConfig(max_streams=2, tokens=tokens, request_seconds=1))
    block = header_block(path, (b"authorization", b"Bearer " + token))
    attackers = [HeadersAlone(server, block) for _ in range(3)]
    until(lambda: all(attacker.calls > 1000 for attacker in attackers))
    with connect(server.address, Identity(token=OTHER_TOKEN), silence_seconds=30) as client:
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
        for _ in range(5):
            assert is_well(server)
            assert sum(batch.rows for batch in client.read(blend, 0)) == 100
    for attacker in attackers:
        attacker.stop()


def test_a_call_whose_request_never_comes_ends(serve: Serve) -> None:
    """After `request_seconds`, also where nobody else wants its place."""
    server = serve(operation=OperationConfig(request_seconds=0.2))
    for path in (CHECK, READ):
        with open_socket(server) as sock:
            sock.sendall(BEGIN + frame(HEADERS, END_HEADERS, 1, header_block(path)))
            content = b""
            while b"CANCELLED" not in content:
                content += sock.recv(1 << 16)


def test_every_rank_of_a_large_job_may_call_at_once(serve: Serve) -> None:
    """Calls whose requests do come are not taken for an attack, however many begin together."""
    server = serve()
    with contextlib.ExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [stack.enter_context(grpc.insecure_channel(server.address, options)) for _ in range(16)]
        stubs = [blends_pb2_grpc.BlendServiceStub(channel) for channel in channels]
        calls = [stub.ListBlends.future(blends_pb2.ListBlendsRequest()) for _ in range(16) for stub in stubs]
        assert all(not call.result().blends for call in calls)


@pytest.mark.nightly
def test_connections_without_a_call_leave_their_places(
    serve: Serve, endless: Callable[[RunningServer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most so many are open; a new client gets in once idle ones have ended, and who reads keeps his connection."""
    monkeypatch.setattr(server_module, "most_connections", lambda: 8)
    server = serve(operation=OperationConfig(grpc_options="grpc.max_connection_idle_ms=1000"))
    with grpc.insecure_channel(server.address) as channel, contextlib.ExitStack() as stack:
        request = rows_pb2.ReadBlendRequest(blend=endless(server))
        reading = rows_pb2_grpc.RowServiceStub(channel).ReadBlend(request)
        at = next(reading).rows
        idle = [stack.enter_context(open_socket(server)) for _ in range(20)]
        for sock in idle:
            with contextlib.suppress(OSError):
                sock.sendall(BEGIN)
        with connect(server.address, retry_seconds=60) as client:
            assert client.get_blend(request.blend).blend_id == request.blend
        assert all(is_hung_up_on(sock) for sock in idle)
        for _ in range(200):
            batch = next(reading)
            assert batch.offset == at
            at += batch.rows
        reading.cancel()


def test_a_server_raises_its_limit_of_open_files() -> None:
    """To what it may have: a connection is an open file, and a thousand are too few for the streams of a process."""
    code = (
        "import resource as r; from blender_service.server.process_limits import *\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (600, 5000)); few = most_connections(); allow_open_files()\n"
        "print(few, most_connections(), r.getrlimit(r.RLIMIT_NOFILE))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "300 4488 (5000, 5000)\n"


def test_a_call_without_any_request_is_told_so(serve: Serve) -> None:
    """Its client has ended its side."""
    server = serve()
    with grpc.insecure_channel(server.address) as channel:
        for path in (CHECK, READ):
            method = channel.stream_unary(path.decode())
            with pytest.raises(grpc.RpcError, match="the call ended without one"):
                method(iter(()))


def test_headers_above_16_kib_are_refused(serve: Serve) -> None:
    """And those below are not, always: gRPC by itself refuses some of what has 8 KiB or more, by chance."""
    server = serve()
    with grpc.insecure_channel(server.address) as channel:
        stub = blends_pb2_grpc.BlendServiceStub(channel)
        for _ in range(20):
            stub.ListBlends(
                blends_pb2.ListBlendsRequest(), metadata=(("x", "y" * (MOST_HEADER_BYTES - 1000)),), timeout=5
            )
        with pytest.raises(grpc.RpcError) as caught:
            stub.ListBlends(blends_pb2.ListBlendsRequest(), metadata=(("x", "y" * MOST_HEADER_BYTES),), timeout=5)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_one_caller_cannot_take_every_stream() -> None:
    """By default the limit of one is below that of all."""
    assert [OperationConfig(max_streams=n).streams_per_principal for n in (2, 512)] == [1, 256]
    assert OperationConfig().streams_per_principal < OperationConfig().max_streams


def test_a_team_finds_its_share_of_the_streams_free_and_may_have_more() -> None:
    """Others take what the share leaves; the team takes beyond it what is free; what it gives back is kept again."""
    limits = StreamLimits(10, 10, lambda: {"nlp": 0.4})
    for _ in range(6):
        limits.take("bob")
    with pytest.raises(TooManyStreamsError, match="keeps the 4 that are left for teams"):
        limits.take("bob")
    for _ in range(4):
        limits.take("ann", "nlp")
    with pytest.raises(TooManyStreamsError, match="has 10 streams"):
        limits.take("ann", "nlp")
    limits.give_back("bob")
    limits.take("ann", "nlp")  # beyond its share, for nobody else has one
    limits.give_back("ann", "nlp")
    limits.take("bob")
    limits.give_back("ann", "nlp")
    with pytest.raises(TooManyStreamsError, match="keeps the 1 that are left"):
        limits.take("bob")


def test_what_streams_hold_together_is_bounded() -> None:
    """The more there are, the smaller the messages of each, down to a size that is still worth a call."""
    limits, seen = StreamLimits(1000, 1000), []
    for _ in range(800):
        limits.take("someone")
        seen.append(limits.bounds().message_bytes)
    assert seen == sorted(seen, reverse=True)
    assert (seen[0], seen[127], seen[-1]) == (MOST_MESSAGE_BYTES, IN_FLIGHT_BYTES // 128, LEAST_MESSAGE_BYTES)
    bounds = limits.bounds()
    assert bounds.copied_bytes * 800 <= COPIED_BYTES and bounds.rows_ahead * 800 <= PLANNED_ROWS


@pytest.mark.nightly
def test_a_reader_that_takes_nothing_gives_its_slot_up_and_goes_on_later(
    serve: Serve, endless: Callable[[RunningServer], str]
) -> None:
    """Another one gets the slot; the first asks again by itself, and loses and repeats no row."""
    server = serve(operation=OperationConfig(max_streams=1, stall_seconds=0.4))
    blend = endless(server)
    with connect(server.address, retry_seconds=30) as client, connect(server.address, retry_seconds=30) as other:
        stream = client.read(blend, 0)
        offset = next(stream).end
        with other.read(blend, 0) as later:
            assert next(later).offset == 0
        for batch in stream:
            assert batch.offset == offset
            offset = batch.end
            if offset > 2_000_000:
                break
        stream.close()


def test_a_deadline_that_passes_in_a_stalled_stream_frees_its_slot(
    serve: Serve, endless: Callable[[RunningServer], str]
) -> None:
    """Though its reader never takes another message."""
    server = serve()
    with grpc.insecure_channel(server.address) as channel:
        request = rows_pb2.ReadBlendRequest(blend=endless(server))
        stream = rows_pb2_grpc.RowServiceStub(channel).ReadBlend(request, timeout=3)
        next(stream)
        until(lambda: server._limits.running == 1)
        until(lambda: server._limits.running == 0)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


@sampled()
@pytest.mark.parametrize("channels", [1, 32])
def test_streams_that_read_flat_out_all_get_their_share(
    serve: Serve, endless: Callable[[RunningServer], str], channels: int
) -> None:
    """None of 32 starves while the others take what they can get, over one connection or one each."""
    server = serve()
    request = rows_pb2.ReadBlendRequest(blend=endless(server)).SerializeToString()
    options = (("grpc.use_local_subchannel_pool", 1),)
    opened = [grpc.insecure_channel(server.address, options) for _ in range(channels)]
    taken, stopped = [0] * 32, threading.Event()

    def read(number: int) -> None:
        method: Any = opened[number % channels].unary_stream("/headrace.blender.v1.RowService/ReadBlend")
        for _ in method(request):
            taken[number] += 1
            if stopped.is_set():
                return

    threads = [threading.Thread(target=read, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: min(taken) >= tries(20, 5))
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
        for channel in opened:
            channel.close()


def test_a_stop_is_held_up_by_nobody(serve: Serve, endless: Callable[[RunningServer], str]) -> None:
    """A stalled reader is cut off after the grace, a peer that says nothing at once; then the port is free."""
    server = serve()
    with grpc.insecure_channel(server.address) as channel, open_socket(server) as silent:
        stream = rows_pb2_grpc.RowServiceStub(channel).ReadBlend(rows_pb2.ReadBlendRequest(blend=endless(server)))
        next(stream)
        server.stop(grace_seconds=0.5)
        assert is_hung_up_on(silent)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    with pytest.raises(OSError, match="refused"):
        open_socket(server)
    assert serve(port=server.port).port == server.port


def test_handshakes_that_fail_or_never_come_harm_nobody(tmp_path: Path, serve: Serve) -> None:
    """Plain HTTP/2, noise, and clients that say nothing; TLS clients are served beside them, and a stop ends them."""
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    server = serve(operation=OperationConfig(certificate=pair.certificate, key=pair.key))
    silent = [open_socket(server) for _ in range(20)]
    for content in (BEGIN, bytes(1000), b"\x16\x03\x01\0\x05\1\0\0\1\0"):
        with open_socket(server) as sock:
            sock.sendall(content)
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_alpn_protocols(["h2"])
    with open_socket(server) as sock, context.wrap_socket(sock, server_hostname="localhost") as spoken:
        assert (spoken.selected_alpn_protocol(), spoken.version()) == ("h2", "TLSv1.3")
    server.stop(grace_seconds=0.5)
    for sock in silent:
        assert is_hung_up_on(sock)
        sock.close()


@sampled()
@pytest.mark.parametrize(("path", "encoding"), [(CHECK, "gzip"), (CREATE, "deflate")])
def test_requests_that_are_compressed_are_refused_unread(serve: Serve, path: bytes, encoding: str) -> None:
    """A quarter of a MiB would become a quarter of a GiB before anybody is asked who he is."""
    server = serve()
    bomb = (zlib if encoding == "deflate" else gzip).compress(bytes(200 * MIB), 9)
    before = own_bytes()
    content = b"\1" + len(bomb).to_bytes(4, "big") + bomb
    with open_socket(server) as sock:
        block = header_block(path, (b"grpc-encoding", encoding.encode()))
        sock.sendall(BEGIN + frame(HEADERS, END_HEADERS, 1, block))
        with contextlib.suppress(OSError):
            for start in range(0, len(content), 16_384):
                sock.sendall(frame(DATA, 0, 1, content[start : start + 16_384]))
        until(lambda: b"grpc-status" in sock.recv(1 << 16))
    assert is_well(server)
    assert own_bytes() - before < 32 * MIB


def test_connections_of_a_bounded_age_cost_no_row(serve: Serve, endless: Callable[[RunningServer], str]) -> None:
    """The options of gRPC hold, and a read that loses its connection goes on at the next row."""
    options = "grpc.max_connection_age_ms=200,grpc.max_connection_age_grace_ms=100"
    server = serve(operation=OperationConfig(grpc_options=options))
    with connect(server.address, retry_seconds=30) as client:
        opened, offset = 0, 0
        read = client._read_blend

        def counted(request: Any) -> Any:
            nonlocal opened
            opened += 1
            return read(request)

        client._read_blend = counted  # type: ignore[assignment]
        for batch in client.read(endless(server), 0, max_batch_rows=50):
            assert batch.offset == offset
            offset = batch.end
            if opened == 4:
                break
    with pytest.raises(ValueError, match=r"grpc\.NAME=VALUE"):
        OperationConfig(grpc_options="max_connection_age_ms=200")


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_services_tell_of_themselves(serve: Serve, version: str) -> None:
    """Reflection as newer and older tools ask for it."""
    with grpc.insecure_channel(serve().address) as channel:
        method: Any = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="headrace.blender.v1.RowService"),
        ]
        listed, found = method(iter(asked), timeout=10)
    names = {service.name for service in listed.list_services_response.service}
    assert {
        "headrace.blender.v1.RowService",
        "grpc.health.v1.Health",
        f"grpc.reflection.{version}.ServerReflection",
    } <= names
    assert found.file_descriptor_response.file_descriptor_proto


def test_statuses_have_the_standard_details(serve: Serve) -> None:
    """google.rpc.Status with an ErrorInfo, which names the error; a long message leaves room for both."""
    server = serve()
    with grpc.insecure_channel(server.address) as channel:
        stub = blends_pb2_grpc.BlendServiceStub(channel)
        for name in ("nightly", "x" * 100_000, "水" * 50_000):
            with pytest.raises(grpc.RpcError) as caught:
                stub.GetBlend(blends_pb2.GetBlendRequest(blend=name), timeout=10)
            call: Any = caught.value
            status = status_pb2.Status.FromString(dict(call.trailing_metadata())["grpc-status-details-bin"])
            info = error_details_pb2.ErrorInfo()
            assert status.details[0].Unpack(info)
            assert (status.code, status.message) == (call.code().value[0], call.details())
            assert (info.reason, info.domain) == ("BLEND_NOT_FOUND", "headrace")
            assert isinstance(error_of(call, server.address), BlendNotFoundError)


def test_a_request_that_no_message_holds_is_one_line(serve: Serve) -> None:
    """A number that is too large for its field is a mistake of the caller, named before anything is sent."""
    with connect(serve().address) as client:
        for arguments in ({"offset": 1 << 70}, {"offset": 0, "part": Slice(8, -1, 2)}):
            with pytest.raises(InvalidReadError) as caught:
                client.read("x", **arguments)  # type: ignore[arg-type]
            assert "\n" not in str(caught.value)
