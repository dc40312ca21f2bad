"""Records of web archives become documents; whatever is broken is a row with a reason, and the rest lands."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

pytest.importorskip("fastwarc")
pytest.importorskip("resiliparse")

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.opening.http_bodies import Response, decoded_body, parse_response
from spark_jobs.sources.refusals import Reason, Refusal

Configs = Callable[..., DocumentsConfig]
HTML = "<html><title>T</title><body><article><p>{} " + "and a sentence that is long enough to be content. " * 4


def record(number: int, block: bytes, kind: str = "response", **more: str) -> bytes:
    """A record of a WARC file."""
    headers = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{number}>",
        "WARC-Target-URI": f"https://example.org/{number}",
        "WARC-Date": "2026-01-02T03:04:05Z",
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(block)),
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return (
        b"WARC/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items()).encode() + b"\r\n" + block + b"\r\n\r\n"
    )


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A recorded answer of a server."""
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


def page(number: int, **more: str) -> bytes:
    """A record of a page."""
    return record(number, http(HTML.format(f"Page {number}").encode(), "Content-Type: text/html"), **more)


def reasons(arrivals: list[dict[str, Any]]) -> dict[str, str | None]:
    """Reason by the last part of the location."""
    return {os.path.basename(row["location"]): row["reason"] for row in arrivals}


def test_a_response_is_a_document_with_its_place(files_config: Configs, data: Path, landing: Any) -> None:
    """Its path is its record's id, and `offset` leads back to the record's bytes, compressed or not."""
    records = [page(1), record(2, b"GET /", "request"), page(3, WARC_Payload_Digest="sha1:X")]
    (data / "a.warc").write_bytes(b"".join(records))
    (data / "b.warc.gz").write_bytes(b"".join(map(gzip.compress, records)))
    (data / "c.warc.zst").write_bytes(b"".join(map(zstandard.compress, records)))
    documents, arrivals = landing.land(files_config())
    assert set(reasons(arrivals).values()) == {None}
    names = ["a.warc", "b.warc.gz", "c.warc.zst"]
    assert [row["path"] for row in documents] == [f"{name}#{number}" for name in names for number in (1, 3)]
    assert len({row["content"] for row in documents}) == 2 and "Page 3" in documents[1]["content"]
    metadata = documents[3]["metadata"]
    assert metadata["url"] == "https://example.org/3" and metadata["fetched"] == "2026-01-02T03:04:05Z"
    assert (metadata["status"], metadata["content_type"], metadata["digest"]) == ("200", "text/html", "sha1:X")
    packed = (data / "b.warc.gz").read_bytes()
    assert zlib.decompressobj(31).decompress(packed[int(metadata["offset"]) :]) == records[2]
    assert (data / "a.warc").read_bytes()[int(documents[1]["metadata"]["offset"]) :] == records[2]
    assert "offset" not in documents[5]["metadata"]


def test_texts_of_wet_files_are_taken_as_they_are(files_config: Configs, data: Path, landing: Any) -> None:
    """A conversion record is a text that somebody extracted; line ends and spaces stay."""
    wet = record(1, "Größe\r\n 2".encode(), "conversion", Content_Type="text/plain", WARC_Refers_To="<urn:uuid:9>")
    info = record(2, b"software: x", "warcinfo", Content_Type="application/warc-fields")
    (data / "a.warc.wet.gz").write_bytes(gzip.compress(info) + gzip.compress(wet))
    ((document,), _) = landing.land(files_config())
    assert (document["content"], document["path"]) == ("Größe\r\n 2", "a.warc.wet.gz#1")
    assert document["metadata"]["refers_to"] == "<urn:uuid:9>" and document["byte_count"] == 11


def test_a_bad_record_is_refused_and_the_next_is_read(files_config: Configs, data: Path, landing: Any) -> None:
    """One record for each fault, and a good one after them."""
    zipped = gzip.compress(HTML.encode())
    text = "Content-Type: text/html"
    faults = [
        ("http_error", record(0, http(b"gone", text, status="404 Not Found"))),
        ("unknown_format", record(0, http(b"{}", "Content-Type: application/json"))),
        ("bad_record", record(0, b"no status line")),
        ("bad_record", record(0, http(b"5\r\nhello\r\nzz\r\nworld", text, "Transfer-Encoding: chunked"))),
        ("bad_record", record(0, http(b"ff\r\nhello", text, "Transfer-Encoding: chunked"))),
        ("bad_record", record(0, http(zipped[:-9], text, "Content-Encoding: gzip"))),
        ("bad_record", record(0, http(b"\x01" * 99, text, "Content-Encoding: br"))),
        ("bad_record", record(0, http(b"\x01" * 99, text, "Content-Encoding: secret"))),
        ("bad_record", record(0, b"one byte too many")[:-5] + b"\r\n\r\n"),
        ("bad_record", record(0, b"no type", "response_")),
        ("too_large", record(0, http(gzip.compress(bytes(10_000_000)), text, "Content-Encoding: gzip"))),
        ("too_large", record(0, http(b"<p>" + b"x" * 1_000_000, text))),
        ("empty", record(0, http(b"", text))),
        ("undecodable", record(0, http(b"<p>\xff\x81", text))),
    ]
    (data / "a.warc").write_bytes(b"".join(fault for _, fault in faults) + page(1))
    (document, *others), arrivals = landing.land(files_config(max_document_bytes=500_000))
    assert not others and "Page 1" in document["content"]
    starts = [sum(len(fault) for _, fault in faults[:count]) for count in range(len(faults))]
    expected = {f"a.warc#offset:{start}": reason for start, (reason, _) in zip(starts, faults, strict=True)}
    assert reasons(arrivals) == {**expected, "a.warc": None}


def test_damage_ends_a_file_and_what_is_before_it_lands(files_config: Configs, data: Path, landing: Any) -> None:
    """With a row for the rest: damaged gzip, a checksum that lies, a length that is none or false at the end."""
    good, packed = page(1), gzip.compress(page(1))
    lying = bytearray(gzip.compress(page(2)))
    lying[-8] ^= 1
    broken = {
        "cut.warc": good + page(2)[:-20],
        "cut.warc.gz": packed + gzip.compress(page(2))[:-20],
        "flipped.warc.gz": packed + bytes(lying),
        "garbage.warc": good + b"garbage\r\n\r\n",
        "garbage.warc.gz": packed + b"garbage" * 9,
        "no_length.warc": good + page(2).replace(b"Content-Length", b"X-Length"),
        "bad_length.warc": good + page(2, Content_Length="-5"),
        "huge_length.warc": good + page(2, Content_Length="999999999999"),
        "long_header.warc": good + page(2, X="x" * 1_000_000),
    }
    for name, content in broken.items():
        (data / name).write_bytes(content)
    (data / "no_archive.warc").write_bytes(b"<html>" * 99)
    (data / "nothing.warc.gz").write_bytes(gzip.compress(b""))
    documents, arrivals = landing.land(files_config())
    assert sorted(row["path"] for row in documents) == sorted(f"{name}#1" for name in broken)
    expected = dict.fromkeys(broken) | {f"{name}#rest": "corrupt_archive" for name in broken}
    expected["huge_length.warc#offset:" + str(len(good))] = "too_large"
    del expected["huge_length.warc#rest"]
    assert reasons(arrivals) == {**expected, "no_archive.warc": "corrupt_archive", "nothing.warc.gz": "empty"}


def test_an_archive_cut_anywhere_is_told(data: Path, landing: Any) -> None:
    """At every byte: either the cut is between two records, or there is a row for the rest; no text is cut."""
    records = [record(n, b"text %d" % n, "conversion", Content_Type="text/plain") for n in range(3)]
    for packed in (False, True):
        parts = [gzip.compress(part) if packed else part for part in records]
        ends = [sum(map(len, parts[:count])) for count in range(4)]
        for cut in range(0, ends[-1], 7):
            (data / "a.warc").write_bytes(b"".join(parts)[:cut])
            documents, arrivals = type(landing)().land(config_of(data))
            whole = sum(end <= cut for end in ends[1:])
            slack = 4  # the line ends after a record's block tell nothing
            assert {row["content"] for row in documents} >= {f"text {n}" for n in range(whole)}
            assert all(row["content"] in ("text 0", "text 1", "text 2") for row in documents)
            is_end = any(end - (0 if packed else slack) <= cut <= end for end in ends)
            assert is_end or any(row["reason"] == "corrupt_archive" for row in arrivals), cut


def config_of(data: Path) -> DocumentsConfig:
    """The config of a folder."""
    return DocumentsConfig.model_validate({"dataset": "notes", "source": {"kind": "files", "path": str(data)}})


def test_an_answer_is_taken_apart_however_its_lines_end() -> None:
    """Old crawlers wrote LF; the values of several headers of one name are those of one."""
    found = parse_response(b"HTTP/1.0 200 OK\nContent-Type: text/html\ncontent-type: x\n\nbody\n\nmore")
    lines = (b"Content-Type: text/html", b"content-type: x")
    assert found == Response(200, {"content-type": "text/html, x"}, b"body\n\nmore", lines)
    assert parse_response(b"HTTP/2 204") == Response(204, {}, b"") and parse_response(b"") is None


def test_encodings_are_undone_in_order_and_false_claims_ignored() -> None:
    """A body that never was in the encoding that its headers name is taken as it is."""
    packed = gzip.compress(b"hello")
    both = {"transfer-encoding": "chunked", "content-encoding": "gzip"}
    chunks = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (packed[:9], packed[9:])) + b"0\r\n\r\n"
    assert decoded_body(Response(200, both, chunks), 100) == b"hello"
    assert decoded_body(Response(200, both, b"<p>hello"), 100) == b"<p>hello"
    assert decoded_body(Response(200, {"content-encoding": "deflate"}, zlib.compress(b"hello")), 100) == b"hello"
    assert decoded_body(Response(200, {"content-encoding": "zstd"}, zstandard.compress(b"hello")), 100) == b"hello"
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    assert decoded_body(Response(200, {"content-encoding": "deflate"}, bare.compress(b"hello") + bare.flush()), 9) == (
        b"hello"
    )
    for body, text in ((packed + gzip.compress(b" you"), b"hello you"), (packed + b"\r\n\0", b"hello")):
        assert decoded_body(Response(200, {"content-encoding": "gzip"}, body), 100) == text
    for packer, body in (("br", b"<p>hello"), ("zstd", b"<p>hello"), ("deflate", b"<p>hello")):
        assert decoded_body(Response(200, {"content-encoding": packer}, body), 100) == body
    assert decoded_body(Response(200, {"transfer-encoding": "gzip"}, packed), 100) == b"hello"
    for damaged in (packed[:-1], packed + packed[:-1]):
        assert isinstance(decoded_body(Response(200, {"content-encoding": "gzip"}, damaged), 100), Refusal)
    large = decoded_body(Response(200, {"content-encoding": "gzip"}, packed), 4)
    assert isinstance(large, Refusal) and large.reason == Reason.TOO_LARGE


@pytest.mark.nightly
def test_real_archives_end_with_documents_and_reasons(real_data: Path, landing: Any) -> None:
    """Good and malformed files of three projects: counts of documents, and what is refused for the malformed ones."""
    source = {"kind": "files", "path": str(real_data / "warc"), "glob": "**/*.warc*", "format": "warc"}
    documents, arrivals = landing.land(DocumentsConfig.model_validate({"dataset": "notes", "source": source}))
    counts: dict[str, int] = {}
    for row in documents:
        name = os.path.basename(row["path"].partition("#")[0])
        counts[name] = counts.get(name, 0) + 1
    assert counts == {
        "sample-0000.warc.gz": 22,
        "sample-0001.warc.gz": 15,
        "clueweb-quirk.warc.gz": 29,
        **dict.fromkeys(["warcfile.warc", "warcfile.warc.gz", "warcfile.warc.lz4"], 16),
        "example-bad-non-chunked.warc.gz": 1,
        "example-bad.warc.gz.bad": 1,
        "example-iana.org-chunked.warc": 1,
        "example-resource.warc.gz": 1,
        "example-wget-bad-target-uri.warc.gz": 1,
        "example-wrong-chunks.warc.gz": 1,
        "example.warc": 1,
        "example.warc.gz": 1,
    }
    told = {name: reason for name, reason in reasons(arrivals).items() if reason is not None}
    assert (told.pop("clipped.warc.gz"), told.pop("example-trunc.warc")) == ("corrupt_archive", "no_usable_record")
    assert told.pop("example-trunc.warc#offset:1197") == "bad_record"
    assert {reason for name, reason in told.items() if "post-test" in name} == {"unknown_format", "no_usable_record"}
    assert {reason for name, reason in told.items() if "example-bad" in name} == {"http_error"}
    assert {reason for name, reason in told.items() if "block-sized" in name} == {"bad_record", "no_usable_record"}
    named = ("post-test", "example-bad", "block-sized")
    others = {reason for name, reason in told.items() if not any(part in name for part in named)}
    assert others == {"empty"}


def test_a_segment_of_a_record_is_refused(files_config: Configs, data: Path, landing: Any) -> None:
    """Its first one is no whole document, and the others are not dropped without a word."""
    plain = http(b"The first half", "Content-Type: text/plain")
    first = record(1, plain, WARC_Segment_Number="1")
    rest = record(2, b" and the second.", "continuation", WARC_Segment_Number="2")
    (data / "a.warc").write_bytes(first + rest + record(3, plain))
    documents, arrivals = landing.land(files_config())
    assert [row["path"] for row in documents] == ["a.warc#3"]
    assert [row["detail"] for row in arrivals[:-1]] == ["a segment of a record; segments are not joined"] * 2
