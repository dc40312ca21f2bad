"""Extract the main text of an HTML page, and what the page says about itself.

The text is that of main_text.py. The facts are read from the page by resiliparse, whatever extracts its text.

This module is imported where pages are parsed, in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from resiliparse.parse.html import HTMLTree
from resiliparse.parse.html.exception import HTMLParserException

from headrace_features.formats.web.main_text import (
    article_blocks,
    blocks_by_resiliparse,
    blocks_by_trafilatura,
    text_of,
)
from headrace_features.formats.web.page_blocks import Block, page_blocks
from spark_jobs.sources.encodings.page_encoding import decode_page
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal

_FRAMES = re.compile(r"<noframes\b", re.IGNORECASE)
_TAG = re.compile(r"<[a-zA-Z!?/]")
_HEAD_DATES = (
    'meta[property="article:published_time"], meta[itemprop="datePublished"], meta[name="date"], '
    'meta[name="dc.date"], meta[name="DC.date.issued"]'
)
_BODY_DATES = 'time[itemprop="datePublished"], time[pubdate]'


def extract_page(
    data: bytes, extractor: str, ruby: str = "brackets", charset: str | None = None, cut: bool = False
) -> Extracted | Refusal:
    """The main text of a page.

    Args:
        data: bytes of the page.
        extractor: resiliparse, trafilatura or both.
        ruby: whether readings of East Asian words stand in `brackets` behind them; `omit` leaves them out.
        charset: encoding declared by the server.
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
    shown = _shown(page.text, tree)
    if shown.document is None:
        return Refusal(Reason.EMPTY, "the page has no main text")
    markup, title, page_facts = shown.document.html, tree.title or "", _facts(tree)
    del tree, shown  # of a large page they hold hundreds of megabytes
    readings = ruby == "brackets"
    blocks = page_blocks(markup, readings)
    visible_count, link_count = (
        (sum(counts) for counts in zip(*map(_visible, blocks), strict=True)) if blocks else (0, 0)
    )
    packages = ("resiliparse", "trafilatura") if extractor == "both" else (extractor,)
    text = text_of(*_article(extractor, markup, blocks, title, readings)) if blocks else ""
    if not text:
        return Refusal(Reason.EMPTY, "the page has no main text")
    facts = {
        **page_facts,
        "link_density": f"{min(1.0, link_count / visible_count):.3f}",
        "source_encoding": page.encoding,
        "source_encoding_by": page.named_by,
        EXTRACTED_BY: " and ".join(f"{package} {_version(package)}" for package in packages),
    }
    return Extracted(text, facts)


def extract_text(data: bytes, charset: str | None, cut: bool) -> Extracted | Refusal:
    """The text of a plain text from the web, not always in UTF-8; arguments as of `extract_page`."""
    decoded = decode_page(data, charset, cut)
    if isinstance(decoded, Refusal):
        return decoded
    codec = {"source_encoding": decoded.encoding, "source_encoding_by": decoded.named_by}
    return Extracted(decoded.text, {**codec, EXTRACTED_BY: f"resiliparse {_version('resiliparse')}"})


def _article(
    extractor: str, markup: str, blocks: list[Block], title: str, readings: bool
) -> tuple[list[Block], NDArray[np.bool_]]:
    """Blocks of a page, and those of its article."""
    if extractor == "resiliparse":
        taken = blocks_by_resiliparse(markup, readings)
        return taken, np.ones(len(taken), np.bool_)
    if extractor == "trafilatura":
        return blocks, blocks_by_trafilatura(markup, blocks)
    return blocks, article_blocks(markup, blocks, title)


def _shown(markup: str, tree: HTMLTree) -> HTMLTree:
    """A page, or what `<noframes>` holds of a page of frames without other text."""
    if not _FRAMES.search(markup) or tree.document is None:
        return tree
    instead = "\n".join(node.text or "" for node in tree.document.get_elements_by_tag_name("noframes"))
    return HTMLTree.parse(instead) if instead.strip() and not page_blocks(tree.document.html) else tree


def _facts(tree: HTMLTree) -> dict[str, str]:
    """Title, declared language and date of publication, as far as the page has them."""
    root = tree.document.query_selector("html") if tree.document else None
    in_head = tree.head.query_selector(_HEAD_DATES) if tree.head else None
    in_body = tree.body.query_selector(_BODY_DATES) if tree.body and in_head is None else None
    values = {
        "title": tree.title,
        "language": root.get_attribute("lang") or root.get_attribute("xml:lang") if root else None,
        "published": in_head.get_attribute("content") if in_head else in_body and in_body.get_attribute("datetime"),
    }
    return cleaned_facts(values)


def _visible(block: Block) -> tuple[int, int]:
    """How many characters of a block are visible, white space aside, and how many of them stand in links."""
    return len("".join(block.text.split())), block.link_count


@cache
def _version(package: str) -> str:
    """The version of an installed package."""
    return version(package)
