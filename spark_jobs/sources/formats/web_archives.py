"""Read the documents of a web archive: pages and texts of WARC files, the texts of WET files (ISO 28500).

    response     what a server answered: HTML and plain text become documents, other kinds of content are refused
    resource     the same without HTTP headers, where its address is one of the web
    conversion   a text that somebody extracted already, as in WET files

Requests, metadata, revisits and the like are about documents and are none. A record that cannot be used is refused, and
the next is read; damage that hides where the next record begins ends the file. fastwarc finds the records. It takes a
record that the file's end cuts, and one without a length, for a short one, so both are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

from spark_jobs.sources.formats.extraction import Extracted
from spark_jobs.sources.formats.http_bodies import decoded_body, parse_response
from spark_jobs.sources.reading.decoding import Decoded, decode
from spark_jobs.sources.reading.records import Record, Refused, Stream
from spark_jobs.sources.refusals import Reason, Refusal, reason_of

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

Extract = Callable[[str, bytes, str | None, bool], Extracted | Refusal]
_PAGES = ("text/html", "application/xhtml+xml")
_TEXTS = ("text/plain",)
_SNIFFED = 1024
_TAG = re.compile(rb"<(?:!doctype|html|head|body|div|p|table|meta|title|script)\b", re.I)
_CHARSET = re.compile(r"""charset\s*=\s*["']?([^\s"';,]+)""", re.I)
_HEADERS = {
    "url": "WARC-Target-URI",
    "fetched": "WARC-Date",
    "digest": "WARC-Payload-Digest",
    "truncated": "WARC-Truncated",
    "refers_to": "WARC-Refers-To",
    "languages": "WARC-Identified-Content-Language",
}


class Archive(Protocol):
    """The decompressed bytes of an archive."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""

    def tell(self) -> int:
        """How many bytes were read."""


class CountedStream:
    """A stream that knows how many bytes were read of it."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._given = stream, 0

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        data = self._stream.read(size)
        self._given += len(data)
        return data

    def tell(self) -> int:
        """How many bytes were read."""
        return self._given


def archive_records(
    archive: Archive, extract: Extract, max_bytes: int, locate: Callable[[int], int | None]
) -> Iterator[Record | Refused]:
    """The documents of an archive, each numbered by the position of its record in the decompressed archive.

    Args:
        archive: the file, decompressed.
        extract: gives the text of a page (`html`) or text (`web_text`) from its bytes, the declared charset, and
            whether it was cut.
        max_bytes: largest record, and largest body when its encodings are undone; larger ones are not held.
        locate: gives the first byte in the file itself for a position, or None where that is not known.
    """
    from fastwarc.warc import ArchiveIterator

    number = 0
    try:
        for record in ArchiveIterator(cast("Any", archive), parse_http=False):
            number = record.stream_pos
            if not (record.headers.get("Content-Length") or "").strip().isdigit():
                detail = f"the record at {number} has no length, so the next one cannot be found"
                yield Refused(None, Refusal(Reason.CORRUPT_ARCHIVE, f"{detail}; the records before it are read"))
                return
            kind = str(record.record_type)
            if kind not in ("response", "conversion") and not (kind == "resource" and _url(record).startswith("http")):
                continue
            if record.content_length > max_bytes:
                detail = f"{record.content_length} bytes; max_document_bytes is {max_bytes}"
                yield Refused(number, Refusal(Reason.TOO_LARGE, detail))
                continue
            block = [bytes(record.reader.read(record.content_length))]
            if len(block[0]) < record.content_length:
                raise OSError(f"{len(block[0])} of the record's {record.content_length} bytes are there")
            found = _document(record, block.pop(), extract, max_bytes)  # nothing else holds it
            if isinstance(found, Refusal):
                yield Refused(number, found)
                continue
            offset = locate(number)
            place = {} if offset is None else {"offset": str(offset)}
            metadata = {**found.metadata, **_archive_facts(record), **place}
            name = (record.record_id or "").strip("<>").removeprefix("urn:uuid:") or metadata.get("url")
            yield Record(number, found.text, name, None, None, None, "prose", metadata, {})
    except (OSError, ValueError) as error:
        detail = f"breaks off in or after the record at {number}: {error}"
        yield Refused(
            None,
            Refusal(
                reason_of(error, Reason.CORRUPT_ARCHIVE), f"{detail.splitlines()[0][:300]}; what is before it is read"
            ),
        )


def _url(record: WarcRecord) -> str:
    """The address that was fetched; wget writes it in angle brackets."""
    return (record.headers.get("WARC-Target-URI") or "").strip().strip("<>")


def _archive_facts(record: WarcRecord) -> dict[str, str]:
    """What the record's own headers say."""
    said = {name: (record.headers.get(header) or "").strip() for name, header in _HEADERS.items()}
    said["url"] = _url(record)
    return {name: value for name, value in said.items() if value}


def _document(record: WarcRecord, block: bytes, extract: Extract, max_bytes: int) -> Extracted | Refusal:
    """The text in a record, or why there is none."""
    content_type, facts = (record.headers.get("Content-Type") or ""), dict[str, str]()
    if str(record.record_type) == "response" and "application/http" in (content_type or "application/http"):
        response = parse_response(block)
        del block
        if response is None:
            return Refusal(Reason.BAD_RECORD, "the response does not begin with a status line of HTTP")
        if not 200 <= response.status < 300:
            return Refusal(Reason.HTTP_ERROR, f"the server answered with status {response.status}")
        found = decoded_body(response, max_bytes)
        if isinstance(found, Refusal):
            return found
        content_type, facts, block = response.headers.get("content-type", ""), {"status": str(response.status)}, found
    cut = bool(record.headers.get("WARC-Truncated"))
    extracted = _text_of(block, content_type, cut, extract)
    if isinstance(extracted, Refusal):
        return extracted
    facts |= {"content_type": content_type} if content_type else {}
    return Extracted(extracted.text, {**extracted.metadata, **facts})


def _text_of(body: bytes, content_type: str, cut: bool, extract: Extract) -> Extracted | Refusal:
    """The text of a page or of a plain text, by its content type; without one, a body with tags is a page."""
    media_type, found = content_type.partition(";")[0].strip().lower(), _CHARSET.search(content_type)
    charset = found and found[1]
    if media_type in _PAGES or (not media_type and _TAG.search(body[:_SNIFFED])):
        return extract("html", body, charset, cut)
    if media_type not in _TEXTS:
        return Refusal(
            Reason.UNKNOWN_FORMAT, f"its content type is {media_type or 'not declared'}, no page and no text"
        )
    if not body.strip():
        return Refusal(Reason.EMPTY, "the text is empty")
    decoded = decode(body)  # as nearly all texts of WET files can be, without the other process
    if isinstance(decoded, Decoded) and b"\x1b" not in body:  # which is in ISO-2022-JP, and else ASCII
        return Extracted(decoded.text, {})
    return extract("web_text", body, charset, cut)
