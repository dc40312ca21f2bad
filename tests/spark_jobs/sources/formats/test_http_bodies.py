"""Recorded answers, with their headers written in every way, in any encodings, give the body that was sent."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable

import pytest
import zstandard

pytest.importorskip("fastwarc")

from spark_jobs.sources.opening.http_bodies import Response, content_type_of, decoded_body, parse_response
from spark_jobs.sources.refusals import Reason, Refusal
from tests.tiers import tries

IGNORED = ("identity", "none", "8bit", "binary", "ISO-8859-1", "utf-8", "secret", "")
TEXTS = (
    b"<!DOCTYPE html><html><body><p>A page of some words.</p></body></html>",
    b"<html>\r\n<p>Lines that end as those of HTTP.\r\n</html>\r\n",
    b"1865\nThe year stands on the first line.\n",
    b"1865\r\nThe year stands on the first line.\r\n",
    b"0\n1\n2\nA list of numbers opens this text.\n",
    b"0\r\n1\r\n2\r\nA list of numbers opens this text.\r\n",
    b"Face\nis a word of hexadecimal letters.",
    b"5\nwords and more, and 0 at the end\n0\n\n",
    b"1\n2\n3\n4\n5\n6\n7\n8\n9\n",
    "Žluťoučký kůň".encode() * 9,
    b"words " * 5000,
)


def bare_deflate(data: bytes) -> bytes:
    """Deflate without zlib's header, as old servers sent it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": bare_deflate,
    "zstd": zstandard.compress,
}


def chunked(body: bytes, rng: random.Random, *, last: bytes = b"0\r\n\r\n") -> bytes:
    """A body in chunks of random sizes, with extensions and sizes as servers write them."""
    pieces, at = list[bytes](), 0
    while at < len(body):
        piece = body[at : at + rng.choice((1, 7, 100, 5000))]
        size = rng.choice(("%x", "%X", "%04x", " %x ")) % len(piece)
        pieces.append(size.encode() + rng.choice((b"", b";name=value")) + b"\r\n" + piece + b"\r\n")
        at += len(piece)
    return b"".join(pieces) + last


def shaped(name: str, values: list[str], rng: random.Random) -> list[str]:
    """The lines of a header: in one line, in several of one name, or folded; in any case."""
    written = [rng.choice((name, name.lower(), name.upper())) for _ in values]
    if rng.random() < 0.4:
        return [f"{one}:{rng.choice(('', ' ', '  '))}{value}" for one, value in zip(written, values, strict=True)]
    joint = rng.choice((", ", ",", ",\r\n ", " ,\r\n\t"))
    start = rng.choice(("", "\r\n "))
    return [f"{written[0]}: {start}{joint.join(values)}"] if values else []


def answer(lines: list[str], body: bytes, line_end: str = "\r\n") -> Response:
    """A recorded answer, taken apart."""
    head = line_end.join(["HTTP/1.1 200 OK", *lines, "", ""]).replace("\r\n", line_end)
    found = parse_response(head.encode() + body)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(tries(400, 40)))
def test_a_body_comes_out_as_it_was_sent(seed: int) -> None:
    """Headers in every shape, up to three encodings, names that are none, chunks, no last chunk, no chunks at all."""
    rng = random.Random(seed)
    for text in TEXTS:
        body, names = text, list[str]()
        for name in rng.choices(list(CODINGS), k=rng.choice((0, 0, 1, 1, 2, 3))):
            body = CODINGS[name](body)
            names.append(name)
        for _ in range(rng.choice((0, 0, 1, 2))):
            names.insert(rng.randrange(len(names) + 1), rng.choice(IGNORED))
        headers = [["Server: x: y"], shaped("Content-Encoding", names, rng)]
        framing = rng.choice(("none", "stale", "chunks", "no last chunk", "trailers"))
        if framing != "none":
            headers.append(shaped("Transfer-Encoding", ["chunked"], rng))
        if framing not in ("none", "stale"):
            last = {"chunks": rng.choice((b"0\r\n\r\n", b"000\r\n\r\n", b"0;x\r\n\r\n", b"0\r\n"))}
            last |= {"no last chunk": rng.choice((b"", b"0", b"0\r")), "trailers": b"0\r\nExpires: 0\r\nX: y\r\n\r\n"}
            body = chunked(body, rng, last=last[framing])
        rng.shuffle(headers)  # lines of one name keep their order
        lines = [line for header in headers for line in header]
        found = answer(lines, body, rng.choice(("\r\n", "\n")))
        assert decoded_body(found, 100_000) == text, (lines, body[:60])


@pytest.mark.parametrize("seed", range(tries(400, 40)))
def test_no_part_of_a_damaged_body_is_taken_for_the_whole(seed: int) -> None:
    """A cut chunk, a chunk of a false length, a compressed body that was cut: refused."""
    rng = random.Random(seed)
    text = b"<html><p>" + bytes(rng.randrange(97, 123) for _ in range(3000))
    name = rng.choice(list(CODINGS))
    packed = CODINGS[name](text)
    cut = rng.randrange(20, len(packed) - 9)
    faults = [
        ([f"Content-Encoding: {name}"], packed[:cut]),
        ([f"Content-Encoding: {name}", "Transfer-Encoding: chunked"], chunked(packed[:cut], rng)),
        (["Transfer-Encoding: chunked"], b"%x\r\n" % len(text) + text[: rng.randrange(len(text))]),
        (["Transfer-Encoding: chunked"], b"9\r\n" + text[:9] + b"\r\n%x\r\n" % len(text) + text[:99]),
        (["Transfer-Encoding: chunked"], b"%x\r\n" % (len(text) - 5) + text + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"9\r\n" + text[:9] + b"\r\nzz\r\n" + text),
        (["Content-Encoding: secret"], b"\x01\x02" + packed),
    ]
    for lines, body in faults:
        found = decoded_body(answer(lines, body), 100_000)
        assert isinstance(found, Refusal) and found.reason == Reason.BAD_RECORD, (lines, body[:40])


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("text/html", ("text/html", None)),
        ("Text/HTML;  Charset = 'koi8-r'", ("text/html", "koi8-r")),
        ('text/plain; x="a, b/c; charset=no"; charset="koi8-r"', ("text/plain", "no")),
        ("text/html; charset=koi8-r, text/html", ("text/html", "koi8-r")),
        ("text/html; charset=koi8-r, text/plain", ("text/plain", None)),
        ("text/html; charset=koi8-r, text/html;charset=big5", ("text/html", "big5")),
        ("text/html, x, */*", ("text/html", None)),
        ("text/html charset=koi8-r", ("text/html", "koi8-r")),
        ("html", ("", None)),
        ("", ("", None)),
        ('"' * 99_999, ("", None)),
    ],
)
def test_the_last_valid_content_type_counts(header: str, wanted: tuple[str, str | None]) -> None:
    """As browsers take several: what is no media type is left out, and a charset goes on while the type does."""
    assert content_type_of(header) == wanted


def test_a_response_stands_behind_interim_ones() -> None:
    """As in what servers send before they have it; an interim one alone is what was answered."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    found = parse_response(b"HTTP/1.1 100 Continue\r\n\r\n" + early * 3 + b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody")
    assert found == Response(200, {"a": "b"}, b"body", (b"A: b",))
    assert parse_response(early + b"body") == Response(103, {"link": "</a.css>"}, b"body", (b"Link: </a.css>",))
    found = parse_response(early * 100_000 + b"HTTP/2 204 \n\n")
    assert found is not None and found.status == 204


def test_headers_are_read_in_linear_time() -> None:
    """A name that is there many thousand times once took hours."""
    found = parse_response(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300_000 + b"c:\r\n\r\n")
    assert found is not None and len(found.headers["a"]) == 3 * 300_000 - 2 and found.headers["c"] == ""
