"""Take a recorded HTTP response apart: its status, its headers, and its body without the encodings of the transfer.

Archives differ in whether they keep those encodings, and many say so wrongly. A body that is not in the encoding its
headers claim, by its first bytes, is taken as it is; one that breaks off or breaks within it is refused.
"""

from __future__ import annotations

import re
import zlib
from io import BytesIO
from typing import NamedTuple

from spark_jobs.sources.formats.compressed.gzip_members import GzipMembers
from spark_jobs.sources.refusals import Reason, Refusal

_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"[ \t]*([0-9a-fA-F]{1,12})[ \t]*(?:;[^\r\n]*)?\r?\n")
_GZIP = b"\x1f\x8b"
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_SNIFFED = 512


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
    content, transfer = (response.headers.get(f"{of}-encoding", "").lower() for of in ("content", "transfer"))
    if "chunked" in transfer:
        body = _joined_chunks(response.body)
    for encoding in reversed(f"{content},{transfer}".split(",")):
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
    """The body without one encoding; as it is where it begins as a text, which no encoding does."""
    if encoding in ("", "chunked", "identity", "none", "utf-8"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate", "br", "zstd"):
        return Refusal(Reason.BAD_RECORD, f"its body is in the encoding {encoding!r:.40}, which is not known")
    try:
        data = _unpacked(body, encoding, max_bytes + 1)
    except (OSError, zlib.error) as error:
        if _CONTROL.search(body, 0, _SNIFFED) is None:
            return body
        return Refusal(Reason.BAD_RECORD, f"its body is damaged, or not in the encoding {encoding}: {error}"[:200])
    if len(data) > max_bytes:
        return Refusal(Reason.TOO_LARGE, f"more than {max_bytes} bytes decompressed; max_document_bytes is {max_bytes}")
    return data


def _unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """At most so many bytes of a compressed body; bytes after its end are left out, as browsers do.

    Raises:
        OSError, zlib.error: it is not in this encoding, or ends early.
    """
    if encoding in ("br", "zstd"):
        from fastwarc.stream_io import BrotliReader, ZstdReader

        return bytes((BrotliReader if encoding == "br" else ZstdReader)(BytesIO(body)).read(most))
    if encoding == "deflate" and not body.startswith(_GZIP):  # zlib's as HTTP has it, and the bare one of old servers
        has_header = body[:1].endswith((b"\x48", b"\x58", b"\x68", b"\x78")) and int.from_bytes(body[:2]) % 31 == 0
        one = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        data = one.decompress(body, most)
        if not one.eof and len(data) < most:
            raise OSError(f"ends early, after {len(data)} bytes of text")
        return data
    members, pieces, left = GzipMembers(BytesIO(body)), list[bytes](), most
    try:
        while left and (piece := members.read(left)):
            pieces.append(piece)
            left -= len(piece)
    except OSError:
        if not pieces or body.startswith(_GZIP, members.member_start(members.tell())):
            raise
    return b"".join(pieces)
