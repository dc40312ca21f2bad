"""One damaged record of an archive is refused, and its neighbours land, however the archive is written."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator
from io import BytesIO

import pytest

pytest.importorskip("fastwarc")

from headrace_features.formats.warc_records import WarcRecord, warc_records
from headrace_features.formats.web_archives import archive_records
from spark_jobs.sources.opening.gzip_members import GzipMembers
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record, Refused
from spark_jobs.sources.refusals import Reason, Refusal
from tests.tiers import tries

COUNT = 5
MAX_BYTES = 100_000


def text_of(number: int, line_end: bytes) -> bytes:
    """A text of a few lines, some of them empty; every third ends in a line end."""
    lines = [b"Text %d has a line." % number, b"", b"And another one" * number, b"", b"WARC/1.0 is said here too."]
    return line_end.join(lines) + (line_end if number % 3 == 0 else b"")


def record(number: int, line_end: bytes) -> bytes:
    """A record of a WARC file: a text, or an answer with one."""
    kind, media_type, block = "conversion", "text/plain", text_of(number, b"\n")
    if number % 2:
        answer = line_end.join([b"HTTP/1.1 200 OK", b"Content-Type: text/plain", b"", block])
        kind, media_type, block = "response", "application/http", answer
    head = (
        f"WARC/1.{number % 2}\nWARC-Type: {kind}\nWARC-Record-ID: <urn:uuid:{number}>\nContent-Type: {media_type}\n"
        f"Content-Length: {len(block)}\n\n"
    )
    return head.encode().replace(b"\n", line_end) + block + line_end * 2


def packed(records: list[bytes], form: str) -> BytesIO | GzipMembers:
    """An archive, plain or compressed by record or as a whole, decompressed again as it is read."""
    if form == "plain":
        return BytesIO(b"".join(records))
    members = map(gzip.compress, records) if form == "members" else [gzip.compress(b"".join(records))]
    return GzipMembers(BytesIO(b"".join(members)))


def read(archive: BytesIO | GzipMembers) -> Iterator[Record | Refused]:
    """The documents and refusals of an archive; texts are taken as UTF-8."""

    def extract(_reader: str, data: bytes, _charset: str | None, _cut: bool) -> Extracted | Refusal:
        return Extracted(data.decode(), {})

    return archive_records(archive, extract, MAX_BYTES, lambda position: position)


def with_length(data: bytes, change: int | str) -> bytes:
    """A record with another length: so many bytes more or less, or what is given."""

    def other(found: re.Match[bytes]) -> bytes:
        value = change if isinstance(change, str) else str(max(0, int(found[1]) + change))
        return b"Content-Length: " + value.encode()

    return re.sub(rb"Content-Length: (\d+)", other, data, count=1)


def damages(data: bytes, line_end: bytes, rng: random.Random) -> Iterator[bytes]:
    """A record damaged in each way."""
    block = len(data) - data.index(line_end * 2) - 4 * len(line_end)
    shorter = [1, 2, 3, 5, 17, rng.randrange(1, block), block]
    for change in [-one for one in shorter] + [1, 2, 3, 4, 5, 17, 60, rng.randrange(1, 300), MAX_BYTES - 1, 10**14]:
        yield with_length(data, change)
    for value in ("", "-5", "12x", "0x20", "1, 2", "²", "9" * 5000):
        yield with_length(data, value)
    yield data.replace(b"Content-Length", b"X-Length", 1)
    yield data.replace(b"WARC/1", b"WORC/1", 1)
    yield data.replace(b"WARC-Type: ", b"WARC-Type: un", 1)
    yield data.replace(b"WARC-Type: ", b"X: " + b"x" * 600_000 + line_end + b"WARC-Type: ", 1)
    yield data[: -2 * len(line_end) - rng.randrange(1, block)] + line_end * 2


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
@pytest.mark.parametrize("form", ["plain", "members", "whole"])
def test_every_record_is_a_document_or_a_refusal(form: str, line_end: bytes) -> None:
    """Whichever of them is damaged, all others land with their whole text, and no text of the damaged one does."""
    for seed in range(tries(40, 1)):
        rng = random.Random(seed)
        for at in range(COUNT):
            records = [record(number, line_end) for number in range(COUNT)]
            whole = {text_of(number, b"\n").decode() for number in range(COUNT) if number != at}
            for damaged in damages(records[at], line_end, rng):
                found = list(read(packed([*records[:at], damaged, *records[at + 1 :]], form)))
                texts = [one.text for one in found if isinstance(one, Record)]
                blank = text_of(at, b"\n").decode().strip()  # a text without its last line end is not another one
                assert len(found) == COUNT and {text for text in texts if text.strip() != blank} == whole, damaged[:200]


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
@pytest.mark.parametrize("form", ["plain", "members", "whole"])
def test_sound_archives_lose_nothing(form: str, line_end: bytes) -> None:
    """Of either kind of lines, with more or fewer lines between records, with padding, and one inside of another."""
    inner = b"".join(record(number, line_end) for number in range(3))
    head = b"WARC/1.0\nWARC-Type: conversion\nContent-Type: text/plain\nContent-Length: %d\n\n" % len(inner)
    records = [record(0, line_end), head.replace(b"\n", line_end) + inner + line_end * 2, record(1, line_end)]
    records[0] += line_end * 3
    records[2] = records[2].removesuffix(line_end * 2) + b"\0" * 9000
    found = list(read(packed(records, form)))
    assert [one.text for one in found if isinstance(one, Record)] == [
        text_of(0, b"\n").decode(),
        inner.decode(),
        text_of(1, b"\n").decode(),
    ]
    assert len(found) == 3


def test_a_block_that_is_too_large_is_not_held() -> None:
    """It is skipped to its end; one with another record inside has a false length."""
    large = record(0, b"\r\n").replace(b"Text 0", b"Text" + bytes(MAX_BYTES))
    large = with_length(large, MAX_BYTES - 2)
    first, second = warc_records(BytesIO(large + record(1, b"\r\n")), MAX_BYTES)
    assert isinstance(first, WarcRecord) and not first.block and isinstance(second, WarcRecord) and second.block
    first, second = warc_records(BytesIO(with_length(record(0, b"\r\n"), 10**6) + record(1, b"\r\n")), MAX_BYTES)
    assert isinstance(first, Refused) and first.refusal.reason == Reason.BAD_RECORD
    assert isinstance(second, WarcRecord) and second.headers["warc-record-id"] == "<urn:uuid:1>"
