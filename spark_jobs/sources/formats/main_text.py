"""The main text of a page: what people would call its article, without menus, teasers and readers' comments.

    resiliparse   fast; keeps nearly all of an article, and often takes what stands before and behind it too
    trafilatura   six times slower; takes little else, and loses lists, code, and paragraphs that are said twice
    both          resiliparse's lines, from the first to the last of those that trafilatura takes too

So trafilatura only says where the article begins and ends. It is not asked where there is nothing beside the article,
and believed alone where much of its text is not in resiliparse's: that one has lost the article then.
docs/ingest.md compares the three with gold pages. This module needs the extra `ingest`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import cast

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import DOMNode, HTMLTree, NodeType

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_MARK = re.compile(r"^\s*\d{1,3}[.)]\s")
_RUN = 3  # words in a row by which a line is found again; a line of fewer is found by none
_MOST_VISIBLE, _MOST_CHARACTERS = 200_000, 4 << 20  # trafilatura takes many seconds for larger pages
_NO_LINKS = 0.1  # a page with fewer of its characters in links has no menus
_WHOLE = 0.9
_LOST = 0.25
_SURE_CHARACTERS = 250
_FAR_MORE = 3
_LIST_DEPTH = 3  # resiliparse takes every `ul` so near to the body for a menu
_MENU_NODES = 1000


def text_by_resiliparse(tree: HTMLTree) -> str:
    """The main text by resiliparse, without descriptions of pictures and readers' comments."""
    _keep_lists(tree)
    return extract_plain_text(tree, main_content=True, alt_texts=False, comments=False).strip()


def text_by_trafilatura(page: str, fast: bool = False) -> str:
    """The main text by trafilatura, without readers' comments; `fast` leaves out its comparison with other methods."""
    import trafilatura

    return (trafilatura.extract(page, include_comments=False, fast=fast) or "").strip()


def text_by_both(page: str, tree: HTMLTree, visible_count: int, link_density: float) -> str:
    """The lines of resiliparse's text from the first to the last that trafilatura takes too.

    Args:
        page: the page's markup.
        tree: the same, parsed.
        visible_count: its characters that are seen, white space aside.
        link_density: the fraction of them that stands in links.
    """
    text = text_by_resiliparse(tree)
    is_whole = len("".join(text.split())) >= _WHOLE * visible_count
    is_large = visible_count > _MOST_VISIBLE or len(page) > _MOST_CHARACTERS
    if is_large or (is_whole and link_density <= _NO_LINKS):
        return text
    return article_lines(text, text_by_trafilatura(page, fast=True))


def article_lines(text: str, article: str) -> str:
    """The lines of a text from the first to the last that the article has too; if one of them is empty, the other.

    The article itself where a quarter of its words are not in the text, unless it is far longer: that is no article.
    """
    if not article or (len(text) >= _SURE_CHARACTERS and len(article) > _FAR_MORE * len(text)):
        return text
    words = _words(article)
    lost = Counter(words) - Counter(_words(text))
    if lost.total() > _LOST * len(words):
        return article
    known, lines = set(_runs(words)), text.splitlines()
    shared = [number for number, line in enumerate(lines) if _is_among(line, known)]
    return "\n".join(lines[shared[0] : shared[-1] + 1]).strip() if shared else article


def _is_among(line: str, known: set[tuple[str, ...]]) -> bool:
    """Whether all runs of a line, the number of a list's item aside, are known."""
    runs = _runs(_words(_MARK.sub("", line)))
    return bool(runs) and known.issuperset(runs)


def _words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, and every letter of scripts without spaces between words."""
    return _WORD.findall(text.lower())


def _runs(words: list[str]) -> list[tuple[str, ...]]:
    """All runs of three words."""
    return list(zip(*(words[start:] for start in range(_RUN)), strict=False))


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
