"""Read the documents of a web archive: pages and texts of WARC files, the texts of WET files (ISO 28500).

    response     what a server answered: HTML and plain text become documents, other kinds of content are refused
    resource     the same without HTTP headers, where its address is one of the web
    conversion   a text extracted already, as in WET files

A site's robots.txt and its like in the archive hold for its pages behind them (crawlers ask first), headers and words
of a page for that page: what they do not let be taken is refused (`rights: {ask: site}`).

Requests, metadata, revisits and the like are about documents and are none. An unusable record is refused, and
the next is read; damage without a findable record behind it ends the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from headrace_features.formats.warc_records import WarcRecord, warc_records
from spark_jobs.sources.config.permissions import Site, site_maker
from spark_jobs.sources.encodings.decoding import Decoded, decode
from spark_jobs.sources.opening.compression import codec_of, decompressed
from spark_jobs.sources.opening.gzip_members import GzipMembers
from spark_jobs.sources.opening.http_bodies import content_type_of, decoded_body, parse_response
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record, RecordFile, Refused
from spark_jobs.sources.refusals import Reason, Refusal

Extract = Callable[[str, bytes, str | None, bool], Extracted | Refusal]
_KINDS = ("warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation")
_DOCUMENTS = ("response", "resource", "conversion")
_PAGES = {"text/html": "html", "application/xhtml+xml": "xhtml"}
_TEXTS = ("text/plain",)
_SNIFFED = 1024
_TAG = re.compile(rb"<(?:!doctype|html|head|body|div|p|table|meta|title|script)\b", re.I)
_HEADERS = {
    "url": "warc-target-uri",
    "fetched": "warc-date",
    "digest": "warc-payload-digest",
    "truncated": "warc-truncated",
    "refers_to": "warc-refers-to",
    "languages": "warc-identified-content-language",
}


def read_archive(file: RecordFile) -> Iterator[Record | Refused]:
    """Documents of a file, decompressed by its first bytes: names of archives are often wrong."""
    codec, make = codec_of(file.raw), site_maker(file.source)
    sites = None if make is None else _Sites(make)
    if codec == "gzip":
        members = GzipMembers(file.raw)
        return archive_records(members, file.extract, file.max_bytes, members.member_start, sites)
    if codec is None:
        return archive_records(file.raw, file.extract, file.max_bytes, lambda position: position, sites)
    plain = decompressed(file.raw, codec, file.source.archives)
    return archive_records(plain, file.extract, file.max_bytes, lambda _: None, sites)


class _Sites:
    """What the sites in an archive said so far, by scheme, host and port; a site that said nothing has no place."""

    def __init__(self, make: Callable[[], Site]) -> None:
        self._make, self._page = make, make()
        self._sites = dict[str, Site]()

    def hear(self, url: str, status: int, body: bytes, at: str) -> None:
        """Take the answer of a record, if it is one of a site's own files."""
        origin, file = _origin_and_file(url)
        if file in self._page.files(origin):
            self._sites.setdefault(origin, self._make()).hear(file, status, body, at)

    def refusal(self, url: str, lines: Sequence[bytes], body: bytes) -> Refusal | None:
        """Why a page may not be taken, by the lines of its headers too; a site's own files may be."""
        origin, file = _origin_and_file(url)
        if file in self._page.files(origin):
            return None
        refusal = self._sites[origin].refusal(url) if origin in self._sites else None
        pairs = (line.decode("latin-1").partition(":") for line in lines)
        headers = [(name.strip(), value.strip()) for name, _, value in pairs]
        return refusal or self._page.page_refusal(url, headers, body)


def _origin_and_file(url: str) -> tuple[str, str]:
    """Scheme, host and port of an address, and the address without query; empty where it is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    origin = f"{parts.scheme.lower()}://{parts.netloc.lower()}"
    return origin, origin + parts.path


def archive_records(
    archive: Stream, extract: Extract, max_bytes: int, locate: Callable[[int], int | None], sites: _Sites | None = None
) -> Iterator[Record | Refused]:
    """The documents of an archive, each numbered by the position of its record in the decompressed archive.

    Args:
        archive: the file, decompressed.
        extract: gives the text of a page (`html`, `xhtml`) or text (`web_text`) from its bytes, the declared charset,
            and whether it was cut.
        max_bytes: largest record, and largest body when its encodings are undone; larger ones are not held.
        locate: gives the first byte in the file itself for a position, or None where that is not known.
        sites: keeps what sites say; None where they are not asked.
    """
    for record in warc_records(archive, max_bytes):
        if isinstance(record, Refused):
            yield record
            continue
        kind, number = record.headers.get("warc-type", "").lower(), record.start
        if kind not in _KINDS:
            yield Refused(number, Refusal(Reason.BAD_RECORD, f"WARC-Type is {kind!r:.40}, which no record has"))
        elif kind == "continuation" or (kind in _DOCUMENTS and "warc-segment-number" in record.headers):
            yield Refused(number, Refusal(Reason.BAD_RECORD, "a segment of a record; segments are not joined"))
        elif kind in ("response", "conversion") or (kind == "resource" and _url(record).lower().startswith("http")):
            extracted = _document(record, kind, extract, max_bytes, sites)
            yield (
                Refused(number, extracted)
                if isinstance(extracted, Refusal)
                else _record(record, extracted, locate(number))
            )


def _record(record: WarcRecord, extracted: Extracted, offset: int | None) -> Record:
    """The record of a document, with what its archive says of it."""
    place = {} if offset is None else {"offset": str(offset)}
    metadata = {**extracted.metadata, **_archive_facts(record), **place}
    name = record.headers.get("warc-record-id", "").strip("<>").removeprefix("urn:uuid:") or metadata.get("url")
    return Record(record.start, extracted.text, name, None, None, None, "prose", metadata, {})


def _url(record: WarcRecord) -> str:
    """The fetched address; wget writes it in angle brackets."""
    return record.headers.get("warc-target-uri", "").strip("<>")


def _archive_facts(record: WarcRecord) -> dict[str, str]:
    """Metadata from the headers of the record."""
    values = {name: record.headers.get(header, "") for name, header in _HEADERS.items()}
    values["url"] = _url(record)
    return {name: value for name, value in values.items() if value}


def _document(
    record: WarcRecord, kind: str, extract: Extract, max_bytes: int, sites: _Sites | None
) -> Extracted | Refusal:
    """The text in a record, or why there is none."""
    if not record.block:
        length = record.headers["content-length"]
        return Refusal(Reason.TOO_LARGE, f"{length} bytes; max_document_bytes is {max_bytes}")
    block = record.block.pop()  # nothing else holds it
    content_type, facts = record.headers.get("content-type", ""), dict[str, str]()
    lines: Sequence[bytes] = (b"Content-Type: " + content_type.encode(),)
    if kind == "response" and "application/http" in (content_type.lower() or "application/http"):
        response = parse_response(block)
        del block
        if response is None:
            return Refusal(Reason.BAD_RECORD, "the response does not begin with a status line of HTTP")
        is_page = 200 <= response.status < 300
        body = decoded_body(response, max_bytes) if is_page else b""
        if sites is not None and not isinstance(body, Refusal):
            sites.hear(_url(record), response.status, body, record.headers.get("warc-date", ""))
        if not is_page:
            return Refusal(Reason.HTTP_ERROR, f"the server answered with status {response.status}")
        if isinstance(body, Refusal):
            return body
        lines = response.lines
        content_type, facts, block = response.headers.get("content-type", ""), {"status": str(response.status)}, body
    if sites is not None and (refusal := sites.refusal(_url(record), lines, block)):
        return refusal
    cut = "warc-truncated" in record.headers
    extracted = _text_of(block, content_type, cut, extract)
    if isinstance(extracted, Refusal):
        return extracted
    facts |= {"content_type": content_type} if content_type else {}
    return Extracted(extracted.text, {**extracted.metadata, **facts})


def _text_of(body: bytes, content_type: str, cut: bool, extract: Extract) -> Extracted | Refusal:
    """The text of a page or of a plain text, by its content type; without one, a body with tags is a page."""
    media_type, charset = content_type_of(content_type)
    if media_type in _PAGES or (not media_type and _TAG.search(body[:_SNIFFED])):
        return extract(_PAGES.get(media_type, "html"), body, charset, cut)
    if media_type not in _TEXTS:
        return Refusal(
            Reason.UNKNOWN_FORMAT, f"its content type is {content_type or 'not declared'}, no page and no text"
        )
    if not body.strip():
        return Refusal(Reason.EMPTY, "the text is empty")
    decoded = decode(body)  # as nearly all texts of WET files can be, without the other process
    if isinstance(decoded, Decoded) and b"\x1b" not in body:  # which is in ISO-2022-JP, and else ASCII
        return Extracted(decoded.text, {})
    return extract("web_text", body, charset, cut)
