"""Take a recorded HTTP response apart as a browser does: its status, its headers, and its body without its encodings.

Archives differ in whether they keep those encodings, and many say so wrongly. A body not in the encoding its headers
claim, by its first bytes, is taken as it is; one breaking off or breaking within it is refused. A name other than an
encoding (`8bit`, `ISO-8859-1`) changes nothing.
"""

from __future__ import annotations

import re
import zlib
from io import BytesIO
from typing import NamedTuple

from spark_jobs.sources.opening.gzip_members import GzipMembers
from spark_jobs.sources.refusals import Reason, Refusal

_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})", re.I)
_INTERIM = re.compile(rb"(?:HTTP/\d(?:\.\d)?[ \t]+1\d\d[^\n]*\n(?:[^\r\n][^\n]*\n)*\r?\n(?=HTTP/))+", re.I)
"""100 Continue, 103 Early Hints: what a server says before its response."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_CHUNK = re.compile(rb"[ \t]*([0-9a-fA-F]{1,12})[ \t]*(?:;[^\r\n]*)?(\r?\n)")
_CHUNK_END = re.compile(rb"\r?(?:\n|\Z)")
_TRAILERS = re.compile(rb"(?:[!#-'*+.^-z|~0-9A-Z-]+:[^\n]*\n)*\r?\n?\Z")
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd")
_NO_CODING = ("", "chunked", "identity", "none")
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_SNIFFED = 512
_VALUE = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|[^,])+""")
_ESSENCE = re.compile(r"\s*([!#-'*+.^-z|~0-9A-Z-]+/[!#-'*+.^-z|~0-9A-Z-]+)(?=[\s;(]|\Z)")
_CHARSET = re.compile(r"""\bcharset\s*=\s*["']?([^\s"';,]+)""", re.I)
_MOST_CHARACTERS = 4096  # of a content type


class Response(NamedTuple):
    """Status, headers by lower-case name (of several of one name the values with commas), and the body as sent.

    And the lines of the head: a comma within a header is not told apart from one between two.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    lines: tuple[bytes, ...] = ()


def parse_response(block: bytes) -> Response | None:
    """The response in a record's block, behind interim ones; None where it does not begin with a status line."""
    interim = _INTERIM.match(block)
    start = interim.end() if interim else 0
    status = _STATUS.match(block, start)
    if status is None:
        return None
    end = _END_OF_HEAD.search(block, start)
    head, body = (block[start : end.start()], block[end.end() :]) if end else (block[start:], b"")
    lines = _LINE_END.split(head)[1:]
    return Response(int(status[1]), headers_of(lines, "latin-1"), body, tuple(lines))


def headers_of(lines: list[bytes], encoding: str) -> dict[str, str]:
    """The headers in the lines of a head; a line beginning with a space goes on with the one before it."""
    pieces, last = dict[str, list[str]](), list[str]()
    for line in lines:
        text = line.decode(encoding, "replace")
        if line.startswith((b" ", b"\t")):
            last += [" ", text.strip()]
            continue
        name, colon, value = text.partition(":")
        last = pieces.setdefault(name.strip().lower(), []) if colon else []
        last += [", " * bool(last), value.strip()]
    return {name: "".join(parts).strip() for name, parts in pieces.items()}


def content_type_of(header: str) -> tuple[str, str | None]:
    """Media type and charset of a Content-Type: the last valid one of several, where one type has one charset.

    Source: the Fetch Standard, 3.7, "extract a MIME type".
    """
    media_type, charset = "", None
    for value in _VALUE.findall(header[:_MOST_CHARACTERS]):
        essence, named = _ESSENCE.match(value), _CHARSET.search(value)
        if essence and essence[1] != "*/*":
            before, media_type = media_type, essence[1].lower()
            charset = named[1] if named else charset if media_type == before else None
    return media_type, charset


def decoded_body(response: Response, max_bytes: int) -> bytes | Refusal:
    """The body without its transfer and content encodings, or why it cannot be decoded."""
    body: bytes | Refusal = response.body
    content, transfer = (response.headers.get(f"{of}-encoding", "").lower() for of in ("content", "transfer"))
    names = [name.strip() for name in f"{content},{transfer}".split(",")]
    if "chunked" in transfer:
        body = _joined_chunks(response.body)
    for coding in reversed([name for name in names if name in _CODINGS]):
        if isinstance(body, Refusal):
            return body
        body = _decompressed(body, coding, max_bytes)
    unknown = [name for name in names if name not in _CODINGS + _NO_CODING]
    if unknown and isinstance(body, bytes) and not _begins_as_text(body):
        return Refusal(Reason.BAD_RECORD, f"its body is in the encoding {unknown[0]!r:.40}, which is not known")
    return body


def _begins_as_text(body: bytes) -> bool:
    """Whether the first bytes can be those of a text, unlike those of any encoding."""
    return body.startswith(_UTF_16) or _CONTROL.search(body, 0, _SNIFFED) is None


def _joined_chunks(body: bytes) -> bytes | Refusal:
    """The chunks of a body joined (RFC 9112, 7.1); a body without chunks as it is.

    The last chunk may be missing, but none may be cut. Many archives keep the header of a body they have joined, and
    such a text may begin like a chunk ("1865"); so lengths have to be true, and lines to end as those of HTTP.
    """
    chunks, at, line_ends = list[bytes](), 0, set[bytes]()
    while match := _CHUNK.match(body, at):
        line_ends.add(match[2])
        start, size = match.end(), int(match[1], 16)
        if size == 0:
            is_end = _TRAILERS.match(body, start) or len(body) - start < sum(map(len, chunks))
            return b"".join(chunks) if is_end else body
        end = _CHUNK_END.match(body, start + size)
        if end is None or start + size > len(body):
            break
        chunks.append(body[start : start + size])
        at = end.end()
    if line_ends != {b"\r\n"} or (not chunks and _is_joined(body)):
        return body
    if chunks and not body[at : at + _SNIFFED].strip(b"0 \r"):
        return b"".join(chunks)
    return Refusal(Reason.BAD_RECORD, f"after {len(chunks)} chunks no whole chunk begins at byte {at} of the body")


def _is_joined(body: bytes) -> bool:
    """Whether a body with a number in its first line, but not the length of a chunk, is a text without chunks.

    A cut chunk is none; nor is one with a false length, if others follow.
    """
    head = _CHUNK.match(body)
    assert head is not None
    rest = body[head.end() :]
    if len(rest) >= int(head[1], 16):
        return not body.endswith(_LAST_CHUNK)
    is_page = rest.lstrip().startswith(b"<") or not _begins_as_text(rest)
    return not is_page and 0 < rest.count(b"\n") == rest.count(b"\r\n")


def _decompressed(body: bytes, coding: str, max_bytes: int) -> bytes | Refusal:
    """The body without one encoding; as it is where it begins as a text."""
    try:
        data = _unpacked(body, coding, max_bytes + 1)
    except (OSError, zlib.error) as error:
        if _begins_as_text(body):
            return body
        return Refusal(Reason.BAD_RECORD, f"its body is damaged, or not in the encoding {coding}: {error}"[:200])
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
        decompressor = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        data = decompressor.decompress(body, most)
        if not decompressor.eof and len(data) < most:
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
