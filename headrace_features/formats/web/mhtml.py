"""Read a page saved by a browser with all its parts (`.mhtml`, `.mht`: RFC 2557, a mail of related parts).

The page is the part named by `start`, else the first page. What its frames show are parts too (`src="cid:.."`, as
Chrome writes them, or their address) and stands where the frame is; of a page of frames alone it is the page.

This module is imported in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import codecs
import email
import email.policy
import re
from email.message import EmailMessage
from html import unescape
from typing import Final
from urllib.parse import urljoin

from headrace_features.formats.web.html import extract_page
from headrace_features.formats.web.xhtml import XmlMarkup, with_mark, xml_markup
from spark_jobs.sources.encodings.page_encoding import DecodedPage, decode_page
from spark_jobs.sources.languages import PAGE_START
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal

_XHTML: Final = "application/xhtml+xml"
_PAGES: Final = ("text/html", _XHTML)
_FRAME = re.compile(r"""<(i?frame)\b([^<>]*?\ssrc\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))[^>]*)>""", re.IGNORECASE)
_FRAMESET = re.compile(r"<frameset\b", re.IGNORECASE)
_HEAD = re.compile(r"<!doctype[^>]*>|<head\b.*?</head\s*>|</?(?:html|body)\b[^>]*>", re.IGNORECASE | re.DOTALL)
_SHADOW = re.compile(r"(<template\b[^>]*?\sshadow)(?=mode=)", re.IGNORECASE)  # Chrome 156 writes the older name
_START = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*")
_PADDING = re.compile(rb"=[ \t]+(?=\r?\n)")  # behind a soft line break, which it is no part of (RFC 2045, 6.7)
_MOST_FRAMES: Final = 1000  # in frames of frames too


def extract_mhtml(data: bytes, extractor: str, ruby: str = "brackets") -> Extracted | Refusal:
    """The main text of a saved page.

    Args:
        data: the file.
        extractor: as of `extract_page`.
        ruby: the same.

    Returns:
        The text with the metadata of a page, its address (`url`) and when it was saved (`fetched`).
    """
    opened = _opened(data)
    if isinstance(opened, Refusal):
        return opened
    saved, page = opened
    mail, markup = saved.mail, saved.with_frames(page.markup, _address(saved.root))
    extracted = extract_page(codecs.BOM_UTF8 + markup.encode("utf-8", "surrogatepass"), extractor, ruby)
    if isinstance(extracted, Refusal):
        return extracted
    url = mail["Snapshot-Content-Location"] or _address(saved.root)
    facts = cleaned_facts({"title": mail["Subject"], "url": url, "fetched": mail["Date"]})
    codec = {"source_encoding": page.encoding, "source_encoding_by": page.named_by}
    return Extracted(extracted.text, {**facts, **extracted.metadata, **codec})


def saved_markup(data: bytes) -> str | Refusal:
    """The markup of a saved page, with that of its frames."""
    opened = _opened(data)
    if isinstance(opened, Refusal):
        return opened
    saved, page = opened
    return saved.with_frames(page.markup, _address(saved.root))


def _opened(data: bytes) -> tuple[_Saved, XmlMarkup] | Refusal:
    """The parts of a file and its page, or why there is none."""
    data = _PADDING.sub(b"=", _START.sub(b"", data, 1))
    mail = email.message_from_bytes(data, _class=EmailMessage, policy=email.policy.default)
    if not mail.keys():
        return Refusal(Reason.CORRUPT_FILE, "no saved page: there is no header in it")
    parts = [part for part in mail.walk() if isinstance(part.get_payload(), str)]
    pages = [part for part in parts if part.get_content_type() in _PAGES]
    pages = pages or [part for part in parts if PAGE_START.match(_body(part))]
    if not pages:
        return Refusal(Reason.EMPTY, "no part of it is a page")
    saved = _Saved(mail, pages)
    page = _page(saved.root)
    return page if isinstance(page, Refusal) else (saved, page)


class _Saved:
    """The pages among the parts of a file, by their ids and addresses."""

    def __init__(self, mail: EmailMessage, pages: list[EmailMessage]) -> None:
        self.mail = mail
        self._by_name = {name: part for part in reversed(pages) for name in (_id(part), _address(part)) if name}
        start = str(mail.get_param("start") or "").strip("<> ")
        self.root = self._by_name.get(f"cid:{start}") or pages[0]
        self._frames_left = _MOST_FRAMES

    def with_frames(self, markup: str, base: str, around: tuple[str, ...] = ()) -> str:
        """The markup of a page with that of its frames in their places.

        Args:
            markup: of the page.
            base: its address.
            around: names of the frames around it.
        """
        frames = list[str]()

        def shown(frame: re.Match[str]) -> str:
            """What stands for a frame: the body of its page, or the frame itself where that is not here."""
            source = unescape(frame[3] or frame[4] or frame[5] or "").strip()
            name = source if source.startswith("cid:") or not base else urljoin(base, source)
            part = self._by_name.get(name)
            self._frames_left -= part is not None
            page = _page(part) if part and self._frames_left >= 0 and name not in (base, *around) else None
            if page is None or isinstance(page, Refusal):
                return frame[0]
            inner = self.with_frames(page.markup, _address(part) if part else "", (*around, name))
            frames.append(f"<div>{_HEAD.sub('', inner)}</div>")
            return frames[-1] + (frame[0] if frame[1].lower() == "iframe" else "")

        whole = _SHADOW.sub(r"\1root", _FRAME.sub(shown, markup))
        return "".join(frames) if _FRAMESET.search(markup) and frames else whole


def _page(part: EmailMessage) -> XmlMarkup | Refusal:
    """The markup of a part, in its own encoding."""
    data, charset = _body(part), part.get_content_charset()
    if part.get_content_type() == _XHTML or (part.get_content_type() not in _PAGES and data.lstrip()[:5] == b"<?xml"):
        return xml_markup(data, charset)
    page = decode_page(with_mark(data), charset)
    return XmlMarkup(*page, None) if isinstance(page, DecodedPage) else page


def _body(part: EmailMessage) -> bytes:
    """The bytes of a part."""
    body = part.get_payload(decode=True)
    return body if isinstance(body, bytes) else b""


def _id(part: EmailMessage) -> str:
    """The address of this one in other parts."""
    content_id = str(part["Content-ID"] or "").strip("<> ")
    return f"cid:{content_id}" if content_id else ""


def _address(part: EmailMessage) -> str:
    """The source address of a part."""
    return "".join(str(part["Content-Location"] or "").split())
