"""What a server may send: ends, each beside what gRPC's own client makes of it, frames in any form, and damage."""

from __future__ import annotations

import random

import grpc
import pytest

from blender_service.direct.hpack import write_headers
from tests.blender_service.direct.scripted import (
    BEGIN,
    CONTINUATION,
    DATA,
    END,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    METHOD,
    OK_HEADERS,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    data,
    end_of,
    headers,
    scripted,
)
from tests.blender_service.http2.raw_client import frame, request_of

ENDS = {
    "trailers alone": headers(*OK_HEADERS, (b"grpc-status", b"5"), (b"grpc-message", b"not%20there"), ends=True),
    "trailers": BEGIN + data(b"x") + headers((b"grpc-status", b"9"), ends=True),
    "a status that nobody knows": BEGIN + headers((b"grpc-status", b"77"), ends=True),
    **{
        f"HTTP {number}": headers((b":status", str(number).encode()), (b"content-type", b"text/html"), ends=True)
        for number in (400, 401, 403, 404, 429, 500, 502, 503, 504)
    },
    **{
        f"HTTP {number} with a status": headers((b":status", str(number).encode()), (b"grpc-status", b"14"), ends=True)
        for number in (200, 204, 401)
    },
    "another type with a status": headers(
        (b":status", b"200"), (b"content-type", b"text/html"), (b"grpc-status", b"14"), ends=True
    ),
    "no type": headers((b":status", b"200")) + data(b"x") + END,
    **{f"reset {number}": BEGIN + frame(RST_STREAM, 0, 1, number.to_bytes(4, "big")) for number in (1, 2, 7, 8, 11)},
    "it hangs up": BEGIN + data(b"x"),
    "it hangs up at once": frame(200, 0, 0),
    "a compressed message": BEGIN + frame(DATA, 0, 1, b"\1" + request_of(b"packed")[1:]) + END,
    "it leaves before it took the call": frame(GOAWAY, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_call_ends_as_with_grpc(name: str) -> None:
    """Whatever the other side does, the status is the one that gRPC's own client gives."""
    with scripted(ENDS[name]) as server:
        found, details = end_of(server.reads()(b""))
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(METHOD)
            wanted, wanted_details = end_of(method(b"", timeout=5))
    assert found is wanted, f"{details} / {wanted_details}"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (data(b"x"), "before any answer began"),
        (BEGIN + frame(DATA, 0, 3, b"x"), "DATA on stream 3"),
        (BEGIN + frame(DATA, END_STREAM, 1, request_of(b"x")), "ended without a status"),
        (BEGIN + frame(DATA, 0, 1, request_of(b"xyz")[:-1]) + END, "ended inside a message"),
        (BEGIN + frame(DATA, 0, 1, b"\0\0") + END, "ended inside a message"),
        (BEGIN + frame(DATA, 8, 1, b"\6" + b"x" * 5), "longer than its content"),
        (BEGIN + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"), "a message of 4294967295 bytes"),
        (BEGIN + headers((b"a", b"b")) + END[:3], "connection was closed"),
        (frame(HEADERS, END_HEADERS, 1, b"\xbe"), "header 62"),
        (frame(HEADERS, 0, 1, b"\x88") + frame(DATA, 0, 1), "headers that break off"),
        (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, bytes(60_000)) * 2, "headers that break off"),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "no HTTP/2"),
        (frame(CONTINUATION, 4, 1, b""), "kind 9 where none may be"),
        (frame(PUSH_PROMISE, 4, 1, b""), "kind 5 where none may be"),
        (frame(200, 0, 0, bytes(100_000)), "kind 200 with 100000 bytes"),
        (headers((b":status", b"200"), (b"content-type", b"text/html")), "content-type b'text/html'"),
        (headers((b"content-type", b"application/grpc")), "HTTP status missing"),
        (headers((b":status", b"2x0")), "HTTP status 2x0"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_not_grpc_is_refused_by_name(content: bytes, complaint: str) -> None:
    """The message says what came."""
    with scripted(content) as server:
        code, details = end_of(server.reads()(b""))
    assert code is not grpc.StatusCode.OK
    assert complaint in details


def test_an_answer_may_be_announced() -> None:
    """Headers with a status of 1xx come before the answer's own; gRPC's client takes them for the answer."""
    with scripted(headers((b":status", b"103")) + BEGIN + data(b"x") + END) as server:
        assert list(server.reads()(b"")) == [b"x"]


def test_frames_may_be_cut_padded_and_mixed_in_any_way() -> None:
    """The messages are the same, and the window counts every byte that came."""
    random_ = random.Random(5)
    for _ in range(200):
        sent = [random_.randbytes(random_.choice([0, 1, 7, 300])) for _ in range(random_.randint(0, 6))]
        left, parts = b"".join(request_of(one) for one in sent), [BEGIN]
        while left:
            size = random_.randint(0, min(len(left), random_.choice([1, 5, 400])))
            padding = random_.randint(0, 20)
            parts += [
                random_.choice(
                    [
                        frame(DATA, 0, 1, left[:size]),
                        frame(DATA, 8, 1, bytes((padding,)) + left[:size] + bytes(padding)),
                    ]
                ),
                random_.choice([b"", frame(PING, 0, 0, b"12345678"), frame(200, 7, 0, b"new"), frame(DATA, 0, 1)]),
                random_.choice(
                    [b"", frame(WINDOW_UPDATE, 0, 0, bytes(4)), frame(SETTINGS, 0, 0), frame(2, 0, 1, b"12345")]
                ),
            ]
            left = left[size:]
        block = write_headers([(b"grpc-status", b"0"), (b"more", b"m" * 50)])
        cut = random_.randint(0, len(block))
        parts.append(frame(HEADERS, END_STREAM | 8 | 32, 1, b"\3" + b"prior" + block[:cut] + bytes(3)))
        parts.append(frame(CONTINUATION, END_HEADERS, 1, block[cut:]))
        with scripted(b"".join(parts)) as server:
            assert [bytes(message) for message in server.reads()(b"")] == sent


def test_damaged_conversations_end_in_an_error_or_in_messages() -> None:
    """What a server sends is flipped, cut, repeated and mixed; the reader always comes to an end that it knows."""
    random_ = random.Random(11)
    whole = [
        frame(SETTINGS, 0, 0),
        headers(*OK_HEADERS),
        data(b"a" * 50),
        frame(PING, 0, 0, b"12345678"),
        data(b"b"),
        END,
    ]
    codes: set[grpc.StatusCode] = set()
    for _ in range(400):
        frames = list(whole)
        for _ in range(random_.randint(1, 3)):
            place = random_.randrange(len(frames))
            kind = random_.randrange(4)
            damaged = bytearray(frames[place])
            if kind == 0:
                damaged[random_.randrange(len(damaged))] ^= 1 << random_.randrange(8)
            elif kind == 1:
                del damaged[random_.randrange(len(damaged)) :]
                damaged += b"\0"
            elif kind == 2:
                damaged *= 2
            else:
                frames.insert(random_.randrange(len(frames)), random_.randbytes(random_.randint(9, 40)))
            frames[place] = bytes(damaged) if kind < 3 else frames[place]
        with scripted(b"".join(frames)) as server:
            codes.add(end_of(server.reads()(b""))[0])
    assert {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE} < codes
