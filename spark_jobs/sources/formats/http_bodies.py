"""Take a recorded HTTP response apart: its status, its headers, and its body without the encodings of the transfer.

Archives differ in whether they keep those encodings, and many say so wrongly. A body that is not in the encoding its
headers claim, by its first bytes, is taken as it is; one that breaks off or breaks within it is refused.
"""

from __future__ import annotations

import re
import zlib
from io import BytesIO
from typing import NamedTuple

from spark_jobs.sources.refusals import Reason, Refusal

_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"[ \t]*([0-9a-fA-F]{1,12})[ \t]*(?:;[^\r\n]*)?\r?\n")
_ANY_ZLIB = 47  # of zlib's wbits: a header of gzip or zlib


class Response(NamedTuple):
    """Status, headers by lower-case name (of several of one name the first), and the body as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse_response(block: bytes) -> Response | None:
    """The response in a record's block, or None where it does not begin with a status line."""
    status = _STATUS.match(block)
    if status is None:
        return None
    end = _END_OF_HEAD.search(block)
    head, body = (block[: end.start()], block[end.end() :]) if end else (block, b"")
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").splitlines()[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    return Response(int(status[1]), headers, body)


def decoded_body(response: Response, max_bytes: int) -> bytes | Refusal:
    """The body without its transfer and content encodings, or why it cannot be had."""
    body: bytes | Refusal = response.body
    if "chunked" in response.headers.get("transfer-encoding", "").lower():
        body = _joined_chunks(response.body)
    for encoding in reversed(response.headers.get("content-encoding", "").lower().split(",")):
        if isinstance(body, Refusal):
            return body
        body = _decompressed(body, encoding.strip(), max_bytes)
    return body


def _joined_chunks(body: bytes) -> bytes | Refusal:
    """The chunks of a body, one after the other (RFC 9112, 7.1); a body without a first chunk as it is."""
    chunks, at = list[bytes](), 0
    while found := _CHUNK.match(body, at):
        size = int(found[1], 16)
        if size == 0:
            return b"".join(chunks)
        chunk = body[found.end() : found.end() + size]
        if len(chunk) < size:
            return Refusal(Reason.BAD_RECORD, f"chunk {len(chunks) + 1} has {len(chunk)} of its {size} bytes")
        chunks.append(chunk)
        at = found.end() + size
        at += 2 if body[at : at + 2] == b"\r\n" else 1
    if not chunks:
        return body
    return Refusal(Reason.BAD_RECORD, f"no length of a chunk at byte {at} of the body, after {len(chunks)} chunks")


def _decompressed(body: bytes, encoding: str, max_bytes: int) -> bytes | Refusal:
    """The body without one content encoding."""
    if encoding in ("gzip", "x-gzip", "deflate"):
        if body[:2] != b"\x1f\x8b" and not (encoding == "deflate" and body[:1] == b"\x78"):
            return body
        return _inflated(body, max_bytes)
    if encoding in ("br", "zstd"):
        from fastwarc.stream_io import BrotliReader, ZstdReader

        reader = BrotliReader if encoding == "br" else ZstdReader
        try:
            data = reader(BytesIO(body)).read(max_bytes + 1)
        except OSError as error:
            return Refusal(Reason.BAD_RECORD, f"its body is not in the encoding {encoding}: {error}"[:200])
        return _too_large(max_bytes) if len(data) > max_bytes else bytes(data)
    if encoding in ("", "identity", "none", "utf-8"):
        return body
    return Refusal(Reason.BAD_RECORD, f"its body is in the encoding {encoding!r:.40}, which is not known")


def _inflated(body: bytes, max_bytes: int) -> bytes | Refusal:
    """The body decompressed, in bounded memory."""
    decompressor = zlib.decompressobj(_ANY_ZLIB)
    try:
        data = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        return Refusal(Reason.BAD_RECORD, f"its compressed body is damaged: {error}")
    if len(data) > max_bytes:
        return _too_large(max_bytes)
    if not decompressor.eof:
        return Refusal(Reason.BAD_RECORD, f"its compressed body ends early, after {len(data)} bytes of text")
    return data


def _too_large(max_bytes: int) -> Refusal:
    """The refusal of a body that grows past the limit when it is decompressed."""
    return Refusal(Reason.TOO_LARGE, f"more than {max_bytes} bytes decompressed; max_document_bytes is {max_bytes}")
