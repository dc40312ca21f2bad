"""The main text of a page: what people would call its article, without menus, teasers and readers' comments.

A library or a network chooses the page's blocks of the article; the text of a kept block is read from the page
itself, all of it, in order (page_blocks.py).

    resiliparse   rules by names and classes of elements; often takes what stands before and behind an article too
    trafilatura   six times slower; takes little else, and loses lists, code, and paragraphs said twice
    both          a network over the blocks (article_network.py), and trafilatura where that is unsure

docs/start/performance.md compares them with gold pages. This module needs the extra `ingest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import DOMNode, HTMLTree, NodeType

from headrace_features.formats.web.article_network import article_odds, network_weights
from headrace_features.formats.web.block_features import block_features
from headrace_features.formats.web.markup import TOKEN_FIELDS, tokens
from headrace_features.formats.web.page_blocks import CELL, LINE, Block, blocks_of_tokens, page_blocks
from headrace_features.formats.web.roles import BESIDE

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_RUN = 3  # words in a row by which a text is found again
_MOST_VISIBLE, _MOST_CHARACTERS = 200_000, 4 << 20  # trafilatura takes many seconds for larger pages
_KEPT_ODDS = -0.2  # of the odds from -1 to .5 the best of pages that were left out
_SURE_F1 = 0.85  # below it the network is unsure: one page in thirty
_SAID_ODDS = 2.0  # what trafilatura's word is worth then
_SMALL_WORDS, _NO_LINKS = 300, 0.1  # so small a page, with so few characters in links, has no menus to leave out
_GROUP_SHARE = 0.7  # items of a list and cells of a row belong together so much
_GAP_WORDS, _GAP_ODDS = 10, -3.0  # a short block between two that are kept is kept, unless it is surely none
_FIRST_MARK = 0xF0000  # private letters, one for each text of a page
_MARK_COUNT = 0x1FFFC
_LIST_DEPTH = 3  # resiliparse takes every `ul` so near to the body for a menu
_MENU_NODES = 1000
_MARKS = re.compile("[\U000f0000-\U0010fffd]")

Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]


def text_of(blocks: Sequence[Block], kept: Flags) -> str:
    """The text of the kept blocks."""
    parts, group = [], -1
    for block, is_kept in zip(blocks, kept, strict=True):
        if is_kept:
            lead = LINE if block.lead == CELL and block.group != group else block.lead
            parts += [lead or LINE, block.text]
            group = block.group
    return "".join(parts).strip("\n")


def whole_text(tree: HTMLTree, readings: bool = True) -> str:
    """All text of a page, its menus too; for mails, books and parts of other files, as these have none."""
    blocks = page_blocks(tree.document.html, readings) if tree.document else []
    return text_of(blocks, np.ones(len(blocks), np.bool_))


def article_blocks(page: str, blocks: Sequence[Block], title: str) -> Flags:
    """The blocks of the article, by the network, and by trafilatura too where that is unsure.

    Args:
        page: the page's markup.
        blocks: of the page, at least one.
        title: what the page calls itself.
    """
    features, words = block_features(blocks, title)
    odds = _grouped(article_odds(features, words, network_weights()), words, blocks)
    is_large = sum(len(block.text) for block in blocks) > _MOST_VISIBLE or len(page) > _MOST_CHARACTERS
    if _expected_f1(odds, words) < _SURE_F1 and not is_large:
        odds = odds + _SAID_ODDS * (2 * shared_fractions(blocks, text_by_trafilatura(page, fast=True)) - 1)
    kept = odds > _KEPT_ODDS
    is_small = words.sum() <= _SMALL_WORDS
    if is_small and sum(block.link_count for block in blocks) <= _NO_LINKS * sum(len(block.text) for block in blocks):
        kept |= [not block.roles & BESIDE and 2 * block.link_count < len(block.text) for block in blocks]
    if not kept.any():
        kept = odds >= odds.max() - 1
    return _without_gaps(kept, odds, words)


def blocks_by_trafilatura(page: str, blocks: Sequence[Block]) -> Flags:
    """The blocks taken by trafilatura."""
    return shared_fractions(blocks, text_by_trafilatura(page)) >= 0.5


def text_by_trafilatura(page: str, fast: bool = False) -> str:
    """The main text by trafilatura, without readers' comments; `fast` leaves out its comparison with other methods."""
    import trafilatura

    return (trafilatura.extract(page, include_comments=False, fast=fast) or "").strip()


def blocks_by_resiliparse(markup: str, readings: bool) -> list[Block]:
    """The blocks taken by resiliparse, without descriptions of pictures and readers' comments.

    Each text of the page gets a private letter of its own, and the letters coming out tell its texts.
    """
    fields = tokens(markup)
    marked, formulas, depth = [], set(), 0
    for place in range(0, len(fields), TOKEN_FIELDS):
        text = fields[place] or ""
        number = place // TOKEN_FIELDS
        if text.strip() and number < _MARK_COUNT:
            text = _MARKS.sub("", text) + chr(_FIRST_MARK + number)
        marked.append(text)
        if depth:
            formulas.add(number)
        if place + 2 < len(fields) and fields[place + 2] is not None:
            depth += (fields[place + 2] == "math") * (-1 if fields[place + 1] else 1)
            marked.append(f"<{fields[place + 1] or ''}{fields[place + 2]}{fields[place + 3] or ''}>")
    tree = HTMLTree.parse("".join(marked))
    _keep_lists(tree)
    text = extract_plain_text(tree, main_content=True, alt_texts=False, comments=False)
    taken = {ord(mark) - _FIRST_MARK for mark in _MARKS.findall(text)}
    for place in range(0, len(fields), TOKEN_FIELDS):
        number = place // TOKEN_FIELDS
        if number < _MARK_COUNT and number not in taken and number not in formulas:
            fields[place] = ""
    return blocks_of_tokens(fields, readings)


def _grouped(odds: Doubles, words: NDArray[np.float32], blocks: Sequence[Block]) -> Doubles:
    """Odds in which items of one list, and cells of one row, have much of their mean."""
    groups, keys = np.unique([block.group for block in blocks], return_inverse=True)
    weights = words + 1.0
    means = np.bincount(keys, odds * weights) / np.bincount(keys, weights)
    shares = np.where(groups < 0, 0.0, _GROUP_SHARE)[keys]
    return np.round((1 - shares) * odds + shares * means[keys], 6)


def _expected_f1(odds: Doubles, words: NDArray[np.float32]) -> float:
    """The F1 of the kept words, if the odds are right."""
    chances = 1 / (1 + np.exp(-odds))
    kept = odds > _KEPT_ODDS
    shared = (chances * words)[kept].sum()
    return float(2 * shared / (words[kept].sum() + (chances * words).sum()))


def _without_gaps(kept: Flags, odds: Doubles, words: NDArray[np.float32]) -> Flags:
    """What is kept, and the few words between two blocks that are."""
    places = np.flatnonzero(kept)
    kept = kept.copy()
    for before, behind in pairwise(places):
        gap = slice(before + 1, behind)
        if behind > before + 1 and words[gap].sum() <= _GAP_WORDS and odds[gap].min() > _GAP_ODDS:
            kept[gap] = True
    return kept


def shared_fractions(blocks: Sequence[Block], article: str) -> Doubles:
    """(N,) the fraction of each block's words in the article, in runs of three."""
    article_words = _words(article)
    runs = (
        set(zip(article_words, article_words[1:], article_words[2:], strict=False))
        if len(article_words) >= _RUN
        else set()
    )
    words, owners = [], []
    for number, block in enumerate(blocks):
        block_words = _words(block.text)
        words += block_words
        owners += [number] * len(block_words)
    taken = np.zeros(len(words))
    for place in range(len(words) - _RUN + 1):
        if (words[place], words[place + 1], words[place + 2]) in runs:
            taken[place : place + _RUN] = 1
    places = np.array(owners, np.int64)
    counts = np.bincount(places, minlength=len(blocks))
    return np.bincount(places, taken, minlength=len(blocks)) / np.maximum(1, counts)


def _words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, and every letter of scripts without spaces between words."""
    return _WORD.findall(text.lower())


def _keep_lists(tree: HTMLTree) -> None:
    """Put lists near the body deeper, but for menus, because resiliparse would leave them out."""
    for node in [node for node in _near_lists(tree.body, 1) if not _is_menu(node)]:
        parent = node.parent
        assert parent is not None  # it was walked to from there
        outer = inner = cast("DOMNode", tree.create_element("div"))
        for _ in range(_LIST_DEPTH - 1):
            deeper = cast("DOMNode", tree.create_element("div"))
            inner.append_child(deeper)
            inner = deeper
        parent.replace_child(outer, node)
        inner.append_child(node)


def _near_lists(parent: DOMNode | None, depth: int) -> Iterator[DOMNode]:
    """The lists at most so deep below the body. They are walked to: resiliparse's search for a tag takes far longer."""
    node = parent.first_child if parent else None
    while node is not None:
        if node.tag == "ul":
            yield node
        elif depth < _LIST_DEPTH:
            yield from _near_lists(node, depth + 1)
        node = node.next


def _is_menu(node: DOMNode) -> bool:
    """Whether most of the text of a list, as far as it is looked at, stands in links."""
    linked_count = count = 0
    left: list[tuple[DOMNode | None, bool]] = [(node.first_child, False)]
    for _ in range(_MENU_NODES):
        inner, is_linked = left.pop() if left else (None, False)
        if inner is not None:
            left.append((inner.next, is_linked))
            left.append((inner.first_child, is_linked or inner.tag == "a"))
            size = len("".join((inner.value or "").split())) if inner.type == NodeType.TEXT else 0
            count, linked_count = count + size, linked_count + size * is_linked
    return 2 * linked_count >= count
