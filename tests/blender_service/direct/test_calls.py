"""Reads of our own from gRPC's server, and from scripted ones: messages, metadata, waits, addresses, ends of calls."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from blender_service.direct import stream as stream_module
from blender_service.direct.call import DirectReads
from blender_service.direct.status import CallError
from blender_service.direct.stream import WINDOW_BYTES
from blender_service.direct.targets import Target
from tests.blender_service.direct.conftest import receivers
from tests.blender_service.direct.scripted import (
    BEGIN,
    CONTINUATION,
    DATA,
    END,
    HEADERS,
    METHOD,
    PING,
    SETTINGS,
    WINDOW_UPDATE,
    data,
    end_of,
    scripted,
)
from tests.blender_service.http2.made_service import open_files, until
from tests.blender_service.http2.raw_client import ACK, frame, request_of

MIB = 1 << 20
Serve = Callable[[Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start gRPC's own server of a function; give its port."""
    running: list[grpc.Server] = []

    def begin(answer: Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]) -> int:
        server = grpc.server(ThreadPoolExecutor(8), options=(("grpc.max_send_message_length", -1),))
        handler: Any = grpc.unary_stream_rpc_method_handler(answer)
        service, method = METHOD[1:].split("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        running.append(server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return port

    yield begin
    for server in running:
        server.stop(0).wait()


def reads_from(port: int, *metadata: tuple[str, str | bytes]) -> DirectReads:
    """Give what reads from a server on loopback."""
    return DirectReads([Target("127.0.0.1", port)], METHOD, lambda: metadata)


@pytest.mark.parametrize("sizes", [[0], [0, 0, 1], [5, 70_000, 3 * MIB], [20 * MIB] * 3, [9 * MIB] * 9, [1] * 3000])
def test_messages_of_any_length_are_received(serve: Serve, sizes: list[int]) -> None:
    """Empty ones, many small ones, and some that are longer than the window."""
    sent = [random.Random(number).randbytes(size) for number, size in enumerate(sizes)]
    port = serve(lambda request, context: iter([*sent, request]))
    received = list(reads_from(port)(b"asked"))
    assert [bytes(message) for message in received] == [*sent, b"asked"]
    assert all(message.readonly for message in received)


def test_a_reader_that_waits_gets_the_same(serve: Serve) -> None:
    """Whoever takes a message a little later than it comes changes nothing of it."""
    sent = [random.Random(number).randbytes(6 * MIB) for number in range(12)]
    port = serve(lambda request, context: iter(sent))
    for number, message in enumerate(reads_from(port)(b"")):
        time.sleep(0.01 * (number % 3))
        assert message == sent[number]


def test_metadata_and_the_status_go_both_ways(serve: Serve) -> None:
    """Text, bytes and messages in any language."""
    seen: dict[str, Any] = {}

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        seen.update(context.invocation_metadata() or ())
        context.set_trailing_metadata((("kind", "made"), ("raw-bin", b"\0\xff")))
        yield b"first"
        context.abort(grpc.StatusCode.NOT_FOUND, "blend ä%: es gibt keinen; \U0001f600")

    long = "n" * 40_000  # more than a frame
    call = reads_from(serve(answer), ("authorization", "Bearer x"), ("own-bin", b"\1\2"), ("notes", "n" * 5000))(b"")
    assert bytes(next(call)) == b"first"
    for _ in range(2):  # an end stays an end
        with pytest.raises(CallError) as caught:
            next(call)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "blend ä%: es gibt keinen; \U0001f600"
    assert dict(caught.value.trailing_metadata()) == {"kind": "made", "raw-bin": b"\0\xff"}
    assert (seen["authorization"], seen["own-bin"], seen["notes"]) == ("Bearer x", b"\1\2", "n" * 5000)
    with scripted(BEGIN + END) as server:
        assert list(DirectReads([Target("127.0.0.1", server.port)], METHOD, lambda: (("notes", long),))(b"")) == []
        assert [len(content) for _, _, _, content in server.frames(HEADERS)] == [16_384]
        assert len(server.frames(CONTINUATION)) == 2


def test_a_method_that_is_not_there(serve: Serve) -> None:
    """The status is the server's."""
    port = serve(lambda request, context: iter(()))
    call = DirectReads([Target("127.0.0.1", port)], "/none/None", list)(b"")
    assert end_of(call)[0] is grpc.StatusCode.UNIMPLEMENTED


def test_pings_and_settings_are_answered_though_nobody_takes_messages() -> None:
    """A consumer that is busy for long is still there."""
    with scripted(BEGIN + data(b"one", b"two") + frame(PING, 0, 0, b"are you?"), b"") as server:
        call = server.reads()(b"")
        assert bytes(next(call)) == b"one"
        until(lambda: server.received and server.frames(PING))
        assert server.frames(PING) == [(PING, ACK, 0, b"are you?")]
        assert (SETTINGS, ACK, 0, b"") in server.frames(SETTINGS)
        assert bytes(next(call)) == b"two"
        call.cancel()


def test_a_silent_server_is_asked_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before a ping is left without an answer, and only while somebody waits."""
    monkeypatch.setattr(stream_module, "SILENCE_SECONDS", 1)
    with scripted(BEGIN + data(b"one"), b"") as server, ThreadPoolExecutor(1) as reader:
        call = server.reads()(b"")
        assert bytes(next(call)) == b"one"
        time.sleep(2.5)
        assert server.frames(PING) == []
        waiting = reader.submit(next, call)
        until(lambda: server.frames(PING))
        server.connected[-1].sendall(frame(PING, ACK, 0, b"headrace") + data(b"here"))
        assert bytes(waiting.result(5)) == b"here"
        started = time.monotonic()
        code, details = end_of(call)
        assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "it says nothing, not even to a ping")
        assert 1 < time.monotonic() - started < 5
        assert len(server.frames(PING)) == 2


def test_no_more_is_received_than_the_window(serve: Serve) -> None:
    """A reader that takes nothing holds a bounded part of an endless answer, and gets all of it later."""
    sent = 0

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        nonlocal sent
        for number in range(200):
            sent = number
            yield bytes((number,)) * MIB

    call = reads_from(serve(answer))(b"")
    next(call)
    before = -1
    while before != sent:
        before = sent
        time.sleep(0.3)
    assert sent <= WINDOW_BYTES // MIB + 12  # and what is in gRPC's and the kernel's buffers
    assert [message[0] for message in call] == list(range(1, 200))


def test_the_window_is_given_back_by_the_byte() -> None:
    """All that came and was taken, not more, whatever its frames and padding."""
    padded = frame(DATA, 8, 1, b"\x0a" + request_of(bytes(2 * MIB)) + bytes(10))
    with scripted(BEGIN + padded * 4, b"") as server:
        call = server.reads()(b"")
        assert [len(next(call)) for _ in range(4)] == [2 * MIB] * 4
        until(lambda: len(server.frames(WINDOW_UPDATE)) >= 5)
        given = {0: 0, 1: 0}
        for _, _, stream, content in server.frames(WINDOW_UPDATE):
            given[stream] += int.from_bytes(content, "big")
        call.cancel()
    one = 2 * MIB + 5 + 11
    assert given[1] == 4 * one
    assert given[0] == 4 * one + WINDOW_BYTES - 65_535


def test_cancelling_wakes_the_reader_and_ends_the_call_on_the_server(serve: Serve) -> None:
    """From another thread, in the middle of a wait."""
    ended = threading.Event()

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(ended.set)
        yield b"one"
        ended.wait(20)

    call = reads_from(serve(answer))(b"")
    assert bytes(next(call)) == b"one"
    threading.Timer(0.2, call.cancel).start()
    assert end_of(call)[0] is grpc.StatusCode.CANCELLED
    assert ended.wait(5)


def test_closing_cancels_all_calls_and_leaves_no_thread(serve: Serve) -> None:
    """Those that wait, and those whose messages nobody takes."""
    released = threading.Event()

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield b"one"
        released.wait(20)

    reads = reads_from(serve(answer))
    calls = [reads(b"") for _ in range(4)]
    assert [bytes(next(call)) for call in calls] == [b"one"] * 4
    assert receivers() == 4
    reads.close()
    assert {end_of(call)[0] for call in calls} == {grpc.StatusCode.CANCELLED}
    assert end_of(reads(b""))[0] is grpc.StatusCode.CANCELLED  # one that began a moment too late
    until(lambda: receivers() == 0)
    released.set()


def test_calls_leave_no_file_behind() -> None:
    """Whether they end well, badly or not at all."""
    before = open_files()
    for content in (BEGIN + data(b"x") + END, BEGIN + data(b"x"), b"HTTP/1.1 200 OK"):
        with scripted(content) as server:
            end_of(server.reads()(b""))
    with scripted(BEGIN + data(b"x"), b"") as server:
        call = server.reads()(b"")
        next(call)
        call.cancel()
    end_of(DirectReads([Target("127.0.0.1", 1)], METHOD, list)(b""))
    until(lambda: open_files() <= before)  # gRPC may have closed some of its own


def test_a_call_that_is_cancelled_before_it_connects_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that is slow is not waited for, and nothing is asked any more."""
    answered = threading.Event()
    found = socket.getaddrinfo

    def slow(*arguments: Any, **options: Any) -> Any:
        answered.wait(10)
        return found(*arguments, **options)

    with scripted(BEGIN + END) as server:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        call = server.reads()(b"")
        call.cancel()
        assert end_of(call)[0] is grpc.StatusCode.CANCELLED
        answered.set()
        until(lambda: receivers() == 0)
        assert not any(server.received)


def test_the_next_address_is_tried_where_one_does_not_answer(serve: Serve) -> None:
    """And one that failed a call comes last in the next."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        refusing = int(free.getsockname()[1])
    asked: list[str] = []

    def first(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        asked.append("first")
        if not request:
            context.abort(grpc.StatusCode.UNAVAILABLE, "it stops")
        yield request

    def second(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        asked.append("second")
        yield b"here"

    reads = DirectReads([Target("127.0.0.1", port) for port in (refusing, serve(first), serve(second))], METHOD, list)
    assert end_of(reads(b"")) == (grpc.StatusCode.UNAVAILABLE, "it stops")
    for _ in range(6):
        end_of(reads(b""))
    assert asked[0] == "first"
    assert "second" in asked
    assert asked[-1] == "second"  # it has not failed, so its turn stays


def test_an_address_that_answered_stays_the_first(serve: Serve) -> None:
    """One that does not is not waited for again by each call."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    good = serve(lambda request, context: iter((b"good",)))
    reads = DirectReads([Target("127.0.0.1", port), Target("127.0.0.1", good)], METHOD, list)
    assert [bytes(message) for message in reads(b"")] == [b"good"]
    with socket.create_server(("127.0.0.1", port)) as back:
        assert [bytes(message) for message in reads(b"")] == [b"good"]
        back.settimeout(0.1)
        with pytest.raises(TimeoutError):
            back.accept()


def test_a_frozen_server_is_left(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel still connects to it, but it never says a word; the next call goes to another one."""
    monkeypatch.setattr(stream_module, "GREETING_SECONDS", 1)
    good = serve(lambda request, context: iter((b"good",)))
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        targets = [Target("127.0.0.1", int(frozen.getsockname()[1])), Target("127.0.0.1", good)]
        reads = DirectReads(targets, METHOD, list)
        code, details = end_of(reads(b""))
        assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "it is connected, but said nothing for 1 s")
        assert [bytes(message) for message in reads(b"")] == [b"good"]


def test_a_server_that_was_waited_for_in_vain_is_left(serve: Serve) -> None:
    """Whoever breaks a call off in the middle of a wait wants another server; who does it otherwise does not."""
    good = serve(lambda request, context: iter((b"good",)))
    with scripted(BEGIN + data(b"one"), b"") as stuck, ThreadPoolExecutor(1) as reader:
        reads = DirectReads([Target("127.0.0.1", port) for port in (stuck.port, good)], METHOD, list)
        for _ in range(2):
            call = reads(b"")
            assert bytes(next(call)) == b"one"
            call.cancel()
        call = reads(b"")
        assert bytes(next(call)) == b"one"
        waiting = reader.submit(end_of, call)
        time.sleep(0.3)
        call.cancel()
        assert waiting.result(5)[0] is grpc.StatusCode.CANCELLED
        assert [bytes(message) for message in reads(b"")] == [b"good"]


def test_a_family_that_the_machine_does_not_have_is_passed_over(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next address may be of another one."""
    port = serve(lambda request, context: iter((b"good",)))
    made = socket.socket

    def without_six(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return made(family, kind)

    reads = DirectReads([Target("::1", port), Target("127.0.0.1", port)], METHOD, list)
    monkeypatch.setattr(socket, "socket", without_six)
    assert [bytes(message) for message in reads(b"")] == [b"good"]


def test_a_process_that_lets_sigpipe_end_it_survives() -> None:
    """A send into a connection that is gone is an error, not a signal."""
    script = """
import signal, socket, sys
from blender_service.direct.stream import MessageStream
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
with socket.create_server(("127.0.0.1", 0)) as server:
    stream = MessageStream(socket.create_connection(server.getsockname()), lambda: True)
    stream.hang_up()
    try:
        stream.allow(1)
    except BrokenPipeError:
        print("alive")
    stream.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_a_fork_leaves_the_reads_of_its_parent_alone() -> None:
    """The child is told to begin its own; nothing that it does or forgets ends the parent's."""
    with scripted(BEGIN + data(b"one"), b"") as server:
        call = server.reads()(b"")
        assert bytes(next(call)) == b"one"
        child = os.fork()
        if not child:
            code, details = end_of(call)
            call.cancel()
            os._exit(code is not grpc.StatusCode.UNAVAILABLE or "before a fork" not in details)
        assert os.waitpid(child, 0)[1] == 0
        server.connected[-1].sendall(data(b"two") + END)
        assert [bytes(message) for message in call] == [b"two"]


@pytest.mark.parametrize("targets", [[Target("127.0.0.1", 1)], [Target("no-such-host.invalid", 7170)]])
def test_nobody_there(targets: list[Target]) -> None:
    """The end says so, and is one that clients try again after."""
    assert end_of(DirectReads(targets, METHOD, list)(b""))[0] is grpc.StatusCode.UNAVAILABLE


def test_a_request_that_no_window_takes_is_refused() -> None:
    """Before anything is sent."""
    with scripted(BEGIN + END) as server:
        assert end_of(server.reads()(bytes(70_000)))[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert list(server.reads()(bytes(60_000))) == []
        assert sum(len(content) for _, _, _, content in server.frames(DATA)) == 60_005
