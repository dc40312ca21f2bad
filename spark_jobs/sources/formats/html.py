"""Extract the main text of an HTML page, and what the page says about itself.

The text is that of resiliparse (main content, no navigation) or of trafilatura. Both leave out what is not prose of
the page; docs/ingest.md compares them with gold pages. The facts are read from the page by resiliparse in both cases.

This module is imported where pages are parsed, in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree
from resiliparse.parse.html.exception import HTMLParserException

from spark_jobs.sources.formats.extraction import Extracted, cleaned_facts
from spark_jobs.sources.formats.page_encoding import decode_page
from spark_jobs.sources.reading.languages import EXTRACTED_BY
from spark_jobs.sources.refusals import Reason, Refusal

_TAG = re.compile(r"<[a-zA-Z!?/]")
_HEAD_DATES = (
    'meta[property="article:published_time"], meta[itemprop="datePublished"], meta[name="date"], '
    'meta[name="dc.date"], meta[name="DC.date.issued"]'
)
_BODY_DATES = 'time[itemprop="datePublished"], time[pubdate]'


def extract_page(data: bytes, extractor: str, charset: str | None = None, cut: bool = False) -> Extracted | Refusal:
    """The main text of a page.

    Args:
        data: bytes of the page.
        extractor: resiliparse or trafilatura.
        charset: encoding that the server declared.
        cut: whether a crawler stopped inside of the page.

    Returns:
        The text with the page's metadata, or why there is none.
    """
    if not data.strip():
        return Refusal(Reason.EMPTY, "the page is empty")
    page = decode_page(data, charset, cut)
    if isinstance(page, Refusal):
        return page
    if not _TAG.search(page.text):
        return Refusal(Reason.CORRUPT_FILE, "not HTML: there is no tag in it")
    try:
        tree = HTMLTree.parse(page.text)
    except HTMLParserException as error:  # every text is HTML; so the memory ended
        raise MemoryError from error
    by_trafilatura = extractor == "trafilatura"
    text = (_trafilatura(page.text) if by_trafilatura else _resiliparse(tree)).strip()
    if not text:
        return Refusal(Reason.EMPTY, "the page has no main text")
    facts = {
        **_facts(tree),
        "link_density": f"{_link_density(tree):.3f}",
        "source_encoding": page.encoding,
        "source_encoding_by": page.named_by,
        EXTRACTED_BY: f"{extractor} {_version(extractor)}",
    }
    return Extracted(text, facts)


def extract_text(data: bytes, charset: str | None, cut: bool) -> Extracted | Refusal:
    """The text of a plain text from the web, which need not be in UTF-8; arguments as of `extract_page`."""
    decoded = decode_page(data, charset, cut)
    if isinstance(decoded, Refusal):
        return decoded
    codec = {"source_encoding": decoded.encoding, "source_encoding_by": decoded.named_by}
    return Extracted(decoded.text, {**codec, EXTRACTED_BY: f"resiliparse {_version('resiliparse')}"})


def _resiliparse(tree: HTMLTree) -> str:
    """The text that resiliparse takes for the main content, without descriptions of pictures and readers' comments."""
    return extract_plain_text(tree, main_content=True, alt_texts=False, comments=False)


def _trafilatura(page: str) -> str:
    """The text that trafilatura extracts, without comments of readers."""
    import trafilatura

    return trafilatura.extract(page, include_comments=False) or ""


def _facts(tree: HTMLTree) -> dict[str, str]:
    """Title, declared language and date of publication, as far as the page has them."""
    root = tree.document.query_selector("html") if tree.document else None
    in_head = tree.head.query_selector(_HEAD_DATES) if tree.head else None
    in_body = tree.body.query_selector(_BODY_DATES) if tree.body and in_head is None else None
    said = {
        "title": tree.title,
        "language": root.get_attribute("lang") or root.get_attribute("xml:lang") if root else None,
        "published": in_head.get_attribute("content") if in_head else in_body and in_body.get_attribute("datetime"),
    }
    return cleaned_facts(said)


def _link_density(tree: HTMLTree) -> float:
    """The fraction of the page's visible characters, white space aside, that stand in links."""
    every = _ink(extract_plain_text(tree, preserve_formatting=False))
    outside = _ink(extract_plain_text(tree, preserve_formatting=False, skip_elements=["a"]))
    return max(0.0, 1 - outside / every) if every else 0.0


def _ink(text: str) -> int:
    """The number of characters that are no white space."""
    return len("".join(text.split()))


@cache
def _version(package: str) -> str:
    """The version of an installed package."""
    return version(package)
