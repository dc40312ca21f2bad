"""Tell hyphens of a line end from those of a word.

    exam-      well-      COVID-      e-        A typesetter breaks no word with a hyphen or a digit, none before a
    ple        known      19          mail      capital or after its first letter; so the last two are the words' own.

Else the text decides, with the stop list covering most of it: a hyphen belongs to the word if the word is there with
one, or if it is not there without one and both parts are words of four letters or more. All others go. What is wrong
then: words there once only, of parts that are words too (data-base), and compounds of rare words.

Lists: justext, 500 frequent words of each of 100 languages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, reduce
from importlib.util import find_spec
from pathlib import Path

MARK = "\x02"
"""Stands for a hyphen, and the line end behind it, in a text."""
_WORD = re.compile(rf"[^\W\d_]+(?:-[^\W\d_]+)*(?!\w|{MARK})")
_AROUND = re.compile(rf"([^\s{MARK}]*)((?:{MARK}[^\W_]*)+)")
_QUOTES = "([{\"'“‘«„¿¡"
_PART_LETTERS = 4
_MOST_BREAKS = 8
_BROKEN = re.compile(rf"[^\W\d_]([-\u2010\xad{MARK}])\s*$")
_BEGUN = re.compile(r"\s*([^\W\d_]+[^\s]*)")
_NUMBER = re.compile(r"\d+|^[ivxlc]+$")
_RUNNING = 2  # pages that have a line at their edge


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """The words of a file, in small letters, and the frequent ones of its language."""
    text_words = frozenset(word.lower() for text in texts for word in _WORD.findall(text))
    return text_words | max(_stop_lists(), key=lambda words: len(words & text_words), default=frozenset())


def join_lines(text: str, words: frozenset[str]) -> str:
    """The text with each mark replaced by a hyphen or by nothing."""
    return _AROUND.sub(lambda match: _whole(match[1], match[2].split(MARK)[1:], words), text)


def join_pages(pages: list[str]) -> list[str]:
    """Texts of pages, where a word broken by the end of a page stands whole, with a mark, at the end of that page.

    A page ends in a broken word where its last line ends in a hyphen and the next page begins with a small letter.
    Numbers of pages, and lines at the same end of other pages, are no part of what is read on.
    """
    pages = list(pages)
    edges = [_edges(page) for page in pages]
    repeated = Counter(line for tops, bottoms in edges for line in {*tops, *bottoms})
    number = 0  # of the page that ends in a word, or none
    for following in range(1, len(pages)):
        if pages[number].strip() and pages[following].strip():
            pages[number], pages[following] = _joined_pages(pages[number], pages[following], repeated)
        if pages[following].strip() or not pages[number].strip():
            number = following
    return pages


def _joined_pages(page: str, behind: str, repeated: Counter[str]) -> tuple[str, str]:
    """A page and the next one, a word broken by the end of the first one whole on that one.

    Args:
        page: the text of a page.
        behind: the text of the next one.
        repeated: how many pages have each line at an edge.
    """
    lines, further = page.split("\n"), behind.split("\n")
    last = _running(lines, range(len(lines) - 1, -1, -1), repeated)
    first = _running(further, range(len(further)), repeated)
    broken, rest = _BROKEN.search(lines[last]), _BEGUN.match(further[first])
    if broken is None or rest is None:
        return page, behind
    if not (rest[1][0].islower() or (rest[1].isupper() and lines[last].split()[-1].isupper())):
        return page, behind
    lines[last] = f"{lines[last][: broken.start(1)]}{MARK}{rest[1]}"
    further[first] = further[first][rest.end() :].lstrip(" ")
    return "\n".join(lines), "\n".join(further[:first] + further[first + (not further[first]) :])


def _edges(page: str) -> tuple[set[str], set[str]]:
    """The first two and the last two lines of a page, numbers left out, to tell running titles by."""
    lines = [_NUMBER.sub("#", line.strip()) for line in page.split("\n") if line.strip()]
    return set(lines[:2]), set(lines[-2:])


def _running(lines: list[str], order: Iterable[int], repeated: Counter[str]) -> int:
    """The first line, in this order, other than a number of a page or a title running over pages."""
    line = 0
    for line in order:
        key = _NUMBER.sub("#", lines[line].strip())
        if key and key.strip(" -–|.#") and repeated[key] < _RUNNING:
            return line
    return line


def _whole(before: str, parts: list[str], words: frozenset[str]) -> str:
    """A word broken once or more often, whole; what has more breaks than a word can is none."""
    if len(parts) > _MOST_BREAKS:
        return "-".join([before, *parts])
    whole = "".join([before.lstrip(_QUOTES), *parts]).lower()
    if whole in words and whole.isalpha():
        return "".join([before, *parts])
    return reduce(lambda joined, part: _joined(joined, part, words), parts, before)


def _joined(before: str, after: str, words: frozenset[str]) -> str:
    """Two parts of a word, the first with what stands before it, with a hyphen between them or with nothing."""
    left, right = before.lstrip(_QUOTES).lower(), after.lower()
    is_broken = left.isalpha() and len(left) > 1 and right.isalpha()
    is_cased = (before.isupper() and after.isupper()) or (after == right and not before.isupper())
    if not (is_broken and is_cased):
        return f"{before}-{after}"
    are_words = min(len(left), len(right)) >= _PART_LETTERS and left in words and right in words
    keeps = f"{left}-{right}" in words or (left + right not in words and are_words)
    return f"{before}-{after}" if keeps else before + after


@cache
def _stop_lists() -> tuple[frozenset[str], ...]:
    """The stop lists of all languages, in the order of their names, read without importing justext and all it needs."""
    spec = find_spec("justext")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'justext'")
    files = sorted(Path(spec.origin).with_name("stoplists").glob("*.txt"))
    return tuple(frozenset(file.read_text("utf-8").lower().splitlines()) for file in files)
