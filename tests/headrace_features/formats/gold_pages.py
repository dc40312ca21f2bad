"""How near extracted texts are to gold texts: F1 of the words, as often as they occur.

Words are runs of letters and digits in lower case, and every letter of scripts without spaces between words. This is
the measure of Bevendorff et al. 2023, "An Empirical Comparison of Web Content Extraction Algorithms", without order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_INLINE = "a abbr b bdi bdo cite code em font i mark q s small span strong sub sup u wbr"
_NO_SPACE_AROUND = frozenset(_INLINE.split())


class GoldPage(NamedTuple):
    """A page, and the text that people took for its article."""

    name: str
    html: bytes
    text: str


class _Text(HTMLParser):
    """Collects the text of clean markup."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def handle_data(self, data: str) -> None:
        """Text between tags."""
        self.pieces.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Words do not go on across blocks."""
        if tag not in _NO_SPACE_AROUND:
            self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        """Nor at their end."""
        if tag not in _NO_SPACE_AROUND:
            self.pieces.append(" ")


def gold_pages(folder: Path) -> Iterator[GoldPage]:
    """The pages of a folder in which each has one with `source.html` and `expected.html`."""
    for source in sorted(folder.glob("*/source.html")):
        parser = _Text()
        parser.feed(source.with_name("expected.html").read_text("utf-8"))
        yield GoldPage(source.parent.name, source.read_bytes(), "".join(parser.pieces))


def token_scores(text: str, gold: str) -> tuple[float, float, float]:
    """Precision, recall and F1 of the words of a text; 1 where both have none."""
    found, wanted = (Counter(_WORD.findall(each.lower())) for each in (text, gold))
    if not found or not wanted:
        both = float(not found and not wanted)
        return both, both, both
    shared = (found & wanted).total()
    precision, recall = shared / found.total(), shared / wanted.total()
    return precision, recall, 2 * precision * recall / (precision + recall) if shared else 0.0


def mean_scores(texts: Sequence[str], pages: Sequence[GoldPage]) -> tuple[float, float, float]:
    """Mean precision, recall and F1 over pages."""
    scores = [token_scores(text, page.text) for text, page in zip(texts, pages, strict=True)]
    return tuple(sum(column) / len(scores) for column in zip(*scores, strict=True))  # type: ignore[return-value]


def mean_token_f1(texts: Sequence[str], pages: Sequence[GoldPage]) -> float:
    """Mean F1 over pages."""
    return mean_scores(texts, pages)[2]
