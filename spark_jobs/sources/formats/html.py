"""Extract the main text of an HTML page, and what the page says about itself.

The text is that of main_text.py. The facts are read from the page by resiliparse, whatever extracts its text.

This module is imported where pages are parsed, in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree
from resiliparse.parse.html.exception import HTMLParserException

from spark_jobs.sources.encodings.page_encoding import decode_page
from spark_jobs.sources.formats.main_text import text_by_both, text_by_resiliparse, text_by_trafilatura
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal

_FALLBACK = re.compile(r"<no(?:frames|embed)\b", re.IGNORECASE)
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
        extractor: resiliparse, trafilatura or both.
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
    markup, shown = _shown(page.text, tree)
    visible_count, link_density = _visible(shown)
    packages = ("resiliparse", "trafilatura") if extractor == "both" else (extractor,)
    if extractor == "both":
        text = text_by_both(markup, shown, visible_count, link_density)
    else:
        text = text_by_trafilatura(markup) if extractor == "trafilatura" else text_by_resiliparse(shown)
    if not text:
        return Refusal(Reason.EMPTY, "the page has no main text")
    facts = {
        **_facts(tree),
        "link_density": f"{link_density:.3f}",
        "source_encoding": page.encoding,
        "source_encoding_by": page.named_by,
        EXTRACTED_BY: " and ".join(f"{package} {_version(package)}" for package in packages),
    }
    return Extracted(text, facts)


def extract_text(data: bytes, charset: str | None, cut: bool) -> Extracted | Refusal:
    """The text of a plain text from the web, which need not be in UTF-8; arguments as of `extract_page`."""
    decoded = decode_page(data, charset, cut)
    if isinstance(decoded, Refusal):
        return decoded
    codec = {"source_encoding": decoded.encoding, "source_encoding_by": decoded.named_by}
    return Extracted(decoded.text, {**codec, EXTRACTED_BY: f"resiliparse {_version('resiliparse')}"})


def _shown(markup: str, tree: HTMLTree) -> tuple[str, HTMLTree]:
    """A page without its fallbacks for old browsers, `<noframes>` and `<noembed>`, which parsers take for text.

    Of a page of frames, which shows no other text, `<noframes>` is the page.
    """
    if not _FALLBACK.search(markup) or tree.document is None:
        return markup, tree
    frames, embedded = (tree.document.get_elements_by_tag_name(name) for name in ("noframes", "noembed"))
    instead = "\n".join(node.text or "" for node in frames)
    if not (frames or embedded):
        return markup, tree
    for node in [*frames, *embedded]:
        node.decompose()
    if instead.strip() and not extract_plain_text(tree).strip():
        return instead, HTMLTree.parse(instead)
    return tree.document.html, tree


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


def _visible(tree: HTMLTree) -> tuple[int, float]:
    """How many characters of the page are visible, white space aside, and the fraction of them that stand in links."""
    texts = (extract_plain_text(tree, preserve_formatting=False, skip_elements=skipped) for skipped in ([], ["a"]))
    every, outside = (len("".join(text.split())) for text in texts)
    return every, max(0.0, 1 - outside / every) if every else 0.0


@cache
def _version(package: str) -> str:
    """The version of an installed package."""
    return version(package)
