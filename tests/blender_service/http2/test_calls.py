"""Calls that are right, wrong and hostile: each gets the status gRPC has for it, none harms its neighbours."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.blender_service.http2.conftest import MOST_REQUEST_BYTES, THREADS, Served, unary
from tests.blender_service.http2.made_service import (
    CHAT,
    DEAF,
    ECHO,
    FAIL,
    METADATA,
    RAISE,
    READ,
    WAIT,
    until,
)
from tests.blender_service.http2.raw_client import (
    ACK,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    RST,
    RawClient,
    frame,
    literal,
    request_of,
)

INTERNAL, UNIMPLEMENTED, EXHAUSTED, DEADLINE = b"13", b"12", b"8", b"4"


@pytest.fixture
def client(served: Served) -> Iterator[RawClient]:
    """A raw client of a server."""
    with served.connect() as connected:
        yield connected
        assert connected.unary(ECHO, b"at the end") == b"at the end"


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    """A client of gRPC's own."""
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as connected:
        yield connected


def status_of(client: RawClient, stream: int) -> bytes | None:
    """Wait for the end of a call; give its status."""
    return client.answer(stream)[1].get(b"grpc-status")


@pytest.mark.parametrize("requests", [(), (b"one", b"two")])
def test_a_unary_call_has_one_message(client: RawClient, requests: tuple[bytes, ...]) -> None:
    """None and two are INTERNAL, as with gRPC's own server."""
    assert status_of(client, client.call(ECHO, *requests)) == INTERNAL


def test_a_call_that_ends_with_its_headers_has_no_message(client: RawClient) -> None:
    """END_STREAM on HEADERS is an end."""
    assert status_of(client, client.open(ECHO, ends=True)) == INTERNAL


def test_an_unknown_method_is_named(client: RawClient) -> None:
    """UNIMPLEMENTED, with the method in the message."""
    headers = client.answer(client.call("/test.Made/None", b""))[1]
    assert (headers[b"grpc-status"], b"/test.Made/None" in headers[b"grpc-message"]) == (UNIMPLEMENTED, True)


@pytest.mark.parametrize("kind", [b"text/html", b"application/grpc-web", b"application/grpcx", b""])
def test_another_content_type_is_415(client: RawClient, kind: bytes) -> None:
    """What is not gRPC is told so in HTTP's terms."""
    assert client.answer(client.open(ECHO, ends=True, content_type=kind))[1] == {b":status": b"415"}


@pytest.mark.parametrize("kind", [b"application/grpc+proto", b"application/grpc;charset=utf-8"])
def test_variants_of_the_content_type_are_taken(client: RawClient, kind: bytes) -> None:
    """A suffix or a parameter changes nothing."""
    stream = client.open(ECHO, content_type=kind)
    client.h2.send_data(stream, request_of(b"x"), end_stream=True)
    client.flush()
    assert client.answer(stream)[0] == [b"x"]


def test_a_request_may_come_in_any_pieces(client: RawClient) -> None:
    """Frames of one byte, and empty ones between, make the same request."""
    stream = client.open(ECHO)
    for byte in request_of(b"in pieces"):
        client.h2.send_data(stream, bytes((byte,)))
        client.h2.send_data(stream, b"")
        client.flush()
    client.h2.end_stream(stream)
    client.flush()
    assert client.answer(stream)[0] == [b"in pieces"]


def test_the_longest_request_is_taken_and_a_longer_one_is_not(client: RawClient) -> None:
    """A length that is too long is refused before its bytes are there."""
    stream = client.open(ECHO)
    client.h2.send_data(stream, b"\0" + (MOST_REQUEST_BYTES + 1).to_bytes(4, "big"))
    client.flush()
    assert status_of(client, stream) == EXHAUSTED
    stream = client.open(ECHO)
    client.send_request(stream, bytes(MOST_REQUEST_BYTES))
    assert client.answer(stream)[0] == [bytes(MOST_REQUEST_BYTES)]


def test_a_request_that_is_too_long_ends_a_running_call(client: RawClient) -> None:
    """In a call that has been answered already, the status comes as trailers, and only the call ends."""
    stream = client.open(CHAT)
    client.h2.send_data(stream, request_of(b"first"))
    client.flush()
    client.until(lambda: client.data.get(stream))
    client.h2.send_data(stream, b"\0\xff\xff\xff\xff")
    client.flush()
    assert status_of(client, stream) == EXHAUSTED


def test_a_compressed_request_is_refused(client: RawClient) -> None:
    """Compression was never offered; the status says what to do."""
    stream = client.open(ECHO, (b"grpc-encoding", b"gzip"))
    client.h2.send_data(stream, b"\1\0\0\0\1x", end_stream=True)
    client.flush()
    headers = client.answer(stream)[1]
    assert (headers[b"grpc-status"], b"compress" in headers[b"grpc-message"]) == (UNIMPLEMENTED, True)


@pytest.mark.parametrize("path", [ECHO, DEAF])
def test_requests_that_nobody_takes_do_not_pile_up(served: Served, client: RawClient, path: str) -> None:
    """A client that sends without end is refused after few requests, not when memory is full."""
    stream = client.open(path)
    sent = 0
    while stream not in client.ended | set(client.resets):
        client.until(lambda: client.h2.local_flow_control_window(stream) > 16_384 or stream in client.ended)
        if stream in client.ended:
            break
        client.h2.send_data(stream, request_of(b"") * 3000)
        client.flush()
        client.receive(0.01)
        sent += 3000
        assert sent < 200_000, "they are all kept"
    assert client.headers[stream][b"grpc-status"] in (INTERNAL, EXHAUSTED)


@pytest.mark.parametrize(
    "headers",
    [
        [(b":path", b"/y")],
        [(b"te", b"trailers"), (b":method", b"POST")],
        [(b":unknown", b"x")],
        [(b"Upper", b"x")],
        [(b"connection", b"close")],
        [(b"te", b"gzip")],
        [(b"a b", b"x")],
        [(b"fine", b"a\nb")],
    ],
)
def test_malformed_headers_end_the_stream_alone(client: RawClient, headers: list[tuple[bytes, bytes]]) -> None:
    """RFC 9113, 8.1.1: a stream error of type PROTOCOL_ERROR; the connection goes on."""
    stream = client.h2.get_next_available_stream_id()
    usual = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x")]
    client.h2.send_headers(stream, [*usual, *headers], end_stream=True)
    client.flush()
    client.until(lambda: client.resets.get(stream) == 1)
    assert client.unary(ECHO, b"on") == b"on"


def test_a_call_with_malformed_trailers_is_not_run(served: Served, client: RawClient) -> None:
    """It is reset, so its handler must not do what nobody will hear of."""
    before = served.service.calls
    stream = client.open(ECHO)
    client.h2.send_data(stream, request_of(b"x"))
    client.h2.send_headers(stream, [(b"connection", b"close")], end_stream=True)
    client.flush()
    client.until(lambda: stream in client.resets)
    client.unary(ECHO, b"y")
    assert served.service.calls == before + 1


def raw_headers(path: bytes = ECHO.encode(), kind: bytes = b"application/grpc") -> bytes:
    """Give the header block of a call."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", kind)]
    return b"".join(literal(*field) for field in fields)


@pytest.mark.parametrize(
    "what", ["415", "timeout", "compressed", "too long", "trailers", "leaving"]
)  # fmt: skip
def test_a_refusal_of_what_was_given_up_ends_nothing_else(served: Served, what: str) -> None:
    """Headers, what is wrong with the call, RST_STREAM and the next call's headers may all come in one piece."""
    with served.connect() as client:
        client.unary(ECHO, b"before")
        wait = client.call(WAIT, b"w")
        until(lambda: served.service.waiting == 1)
        if what == "leaving":
            stopped = served.server.stop(5)
            client.until(lambda: client.farewells)
        stream = 101
        kind = b"text/html" if what == "415" else b"application/grpc"
        block = raw_headers(kind=kind) + (literal(b"grpc-timeout", b"soon") if what == "timeout" else b"")
        content = frame(HEADERS, END_HEADERS, stream, block)
        if what == "compressed":
            content += frame(0, 0, stream, b"\1\0\0\0\0")
        if what == "too long":
            content += frame(0, 0, stream, b"\0\xff\0\0\0")
        if what == "trailers":
            content += frame(HEADERS, END_HEADERS | END_STREAM, stream, literal(b"connection", b"x"))
        content += frame(RST, 0, stream, (8).to_bytes(4, "big"))
        content += frame(HEADERS, END_HEADERS, stream + 2, block) + frame(RST, 0, stream + 2, (8).to_bytes(4, "big"))
        client.sock.sendall(content)
        time.sleep(0.2)
        served.service.may_end.set()
        for one in (stream, stream + 2):
            client.h2._begin_new_stream(one, 1)  # type: ignore[arg-type]
            client.h2.streams[one].state_machine.state = client.h2.streams[wait].state_machine.state
        assert client.answer(wait)[0] == [b"w"]
        if what == "leaving":
            client.sock.close()
            assert stopped.wait(5)


def test_a_status_message_survives_whatever_it_is(channel: grpc.Channel) -> None:
    """Blanks at either end, line breaks, percent signs, any script: a gRPC client reads what the service said."""
    fail = unary(channel, FAIL)
    for text in (" blanks ", "two\nlines\r", "100%", "%41%zz", "grüße 水 🐟", "\t", " ", "~\x7f\x00", "x" * 3000):
        with pytest.raises(grpc.RpcError) as caught:
            fail(text.encode(), timeout=5)
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, text)
        trailing: Any = caught.value.trailing_metadata()
        assert ("raw-bin", b"\0\xff") in list(trailing)


def test_metadata_goes_both_ways(channel: grpc.Channel) -> None:
    """Text and binary values, twice the same key among them, come back before and after the answer."""
    sent = (("own-a", "x"), ("own-a", "y z"), ("own-b-bin", b"\0\1\2,\xff"), ("own-b-bin", b""), ("own-c", ""))
    answer, call = unary(channel, METADATA).with_call(b"", metadata=sent, timeout=5)
    assert answer == repr(sent).encode()
    for received in (call.initial_metadata(), call.trailing_metadata()):
        assert tuple((key, value) for key, value in received if key.startswith("own")) == sent


@pytest.mark.parametrize("timeout", [b"99999999H", b"9223372H", b"2562047H", b"99999999M"])
def test_a_deadline_in_a_thousand_years_is_none(client: RawClient, timeout: bytes) -> None:
    """The longest deadlines that clients write are longer than Python can wait; their streams still wait."""
    client.reads = False
    stream = client.call(READ, b"1 100", headers=((b"grpc-timeout", timeout),))
    client.until(lambda: len(client.data.get(stream, b"")) == 65535)
    client.reads = True
    client.h2.increment_flow_control_window(1 << 20, stream)
    client.h2.increment_flow_control_window(1 << 20)
    client.flush()
    assert status_of(client, stream) == b"0"


@pytest.mark.parametrize("timeout", [b"", b"5", b"S", b"-1S", b"123456789S", b"1s", b"1.5S", b"\xb21S"])
def test_a_deadline_that_is_none_is_refused(client: RawClient, timeout: bytes) -> None:
    """INTERNAL, and the message has the form."""
    headers = client.answer(client.open(ECHO, (b"grpc-timeout", timeout), ends=True))[1]
    assert (headers[b"grpc-status"], b"grpc-timeout" in headers[b"grpc-message"]) == (INTERNAL, True)


def test_a_call_whose_deadline_has_passed_says_so(client: RawClient) -> None:
    """A handler that ends after its deadline has not ended well."""
    assert status_of(client, client.call(WAIT, b"", headers=((b"grpc-timeout", b"50m"),))) == DEADLINE


def test_a_handler_that_fails_ends_its_call_alone(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    """UNKNOWN for the client, the trace for the log."""
    assert status_of(client, client.call(RAISE, b"")) == b"2"
    assert "made to fail" in caplog.text


def test_one_call_more_than_threads_is_refused(served: Served, client: RawClient) -> None:
    """RESOURCE_EXHAUSTED at once; when one has ended the next is taken."""
    running = [client.call(WAIT, b"") for _ in range(THREADS)]
    until(lambda: served.service.waiting == THREADS)
    assert status_of(client, client.call(ECHO, b"")) == EXHAUSTED
    served.service.may_end.set()
    assert {status_of(client, stream) for stream in running} == {b"0"}


def test_a_goaway_of_the_client_frees_what_it_asked_for(served: Served) -> None:
    """A client that leaves gets nothing more; its handlers end and its connection is closed at once."""
    with served.connect() as client:
        client.reads = False
        client.call(READ, b"1000 1000")
        until(lambda: served.service.streams == 1)
        client.sock.sendall(frame(GOAWAY, 0, 0, bytes(8)))
        until(lambda: not served.service.streams, 2)
        client.until_closed(2)


def test_a_health_watch_that_is_given_up_frees_its_thread(served: Served) -> None:
    """A handler that waits for something other than its context is woken too: by its end, as gRPC does it."""
    servicer = health.HealthServicer(experimental_non_blocking=False)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, served.server)
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(THREADS * 2):
            watch = stub.Watch(health_pb2.HealthCheckRequest(service="x"), timeout=10)
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            watch.cancel()
        until(lambda: served.server._running == 0, 5)


def test_a_request_that_cannot_be_read_is_the_clients_fault(
    served: Served, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERNAL without a trace in the log, however many come; in unary calls and in those of many requests."""
    from grpc_reflection.v1alpha import reflection

    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), served.server)
    reflection.enable_server_reflection([reflection.SERVICE_NAME], served.server)
    with caplog.at_level(logging.WARNING):
        for path in (
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ):
            headers = client.answer(client.call(path, b"\xff\xff"))[1]
            assert (headers[b"grpc-status"], b"request" in headers[b"grpc-message"]) == (INTERNAL, True)
    assert not caplog.records


def test_the_settings_are_acknowledged_first(served: Served) -> None:
    """The server's first frame is SETTINGS, and its second says that it has taken the client's."""
    with served.connect() as client:
        content = b""
        while content.count(b"\0\0\0\4\1") < 1:
            content += client.sock.recv(100)
        assert content[3:5] == b"\4\0"
        assert content.endswith(frame(4, ACK, 0))
