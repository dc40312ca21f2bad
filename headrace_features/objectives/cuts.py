"""Where a text is cut in three: between letters, between lines, around a node of its syntax.

All places are characters of the document's text. A place is never inside of what a reader takes for a letter: marks
stay with their base, parts of an emoji, flags and Hangul syllables together, and so do the two characters of CRLF.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple

import numpy as np

from headrace_features.objectives.layout import Span
from spark_jobs.arrays import Int32Array

_CONTROLS: Final = "\r\n\x00"  # nothing joins them from behind
_JOINER: Final = "\u200d"


class Places(NamedTuple):
    """Where the middle of a span begins and ends, and by which cut."""

    start: int
    end: int
    cut: str


class Draws(NamedTuple):
    """Three random numbers below 2^64."""

    first: int
    second: int
    third: int


def scaled(draw: int, count: int) -> int:
    """A number below `count` for one below 2^64."""
    return draw * count >> 64


def letter_start(text: str, at: int, first: int = 0) -> int:
    """The last place at or before one, from `first` on, at which a letter begins; the end of the text is one too."""
    while first < at < len(text) and _joins(text, at):
        at -= 1
    return at


def _joins(text: str, at: int) -> bool:
    """Whether the character at a place belongs to the letter before it."""
    before, letter = text[at - 1], text[at]
    if before.isascii() and letter.isascii():
        return before == "\r" and letter == "\n"
    if before in _CONTROLS or letter in _CONTROLS:
        return False
    if _JOINER in (letter, before) or unicodedata.category(letter)[0] == "M":
        return True
    if (
        "\U0001f3fb" <= letter <= "\U0001f3ff"
        or letter in "\u200c\uff9e\uff9f"
        or "\U000e0020" <= letter <= "\U000e007f"
    ):
        return True  # tones of skin, a mark of half width, tags of flags
    if _is_flag(letter) and _is_flag(before):
        run = at
        while run > 0 and _is_flag(text[run - 1]):
            run -= 1
        return (at - run) % 2 == 1
    return _joins_hangul(before, letter) or unicodedata.normalize("NFC", before + letter) not in (
        before + letter,
        unicodedata.normalize("NFC", before) + unicodedata.normalize("NFC", letter),
    )


def _is_flag(letter: str) -> bool:
    return "\U0001f1e6" <= letter <= "\U0001f1ff"


def _joins_hangul(before: str, letter: str) -> bool:
    """Whether a vowel or a final consonant of Hangul stands behind a part of a syllable."""
    return "\u1160" <= letter <= "\u11ff" and ("\u1100" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3")


def character_places(text: str, span: Span, draws: Draws) -> Places:
    """Two places of a span, independent and each as likely, as Megatron draws them."""
    places = (span.start + scaled(draw, span.end - span.start + 1) for draw in (draws.first, draws.second))
    start, end = sorted(letter_start(text, place, span.start) for place in places)
    return Places(start, end, "character")


def line_places(text: str, span: Span, draws: Draws) -> Places:
    """Whole lines of a span, one at least; characters of a span that is a line."""
    points = np.frombuffer(text[span.start : span.end].encode("utf-32-le"), np.uint32)
    ends = span.start + 1 + np.flatnonzero(points[:-1] == ord("\n"))
    bounds = [span.start, *ends.tolist(), span.end]
    if not len(ends):
        return character_places(text, span, draws)
    one, other = scaled(draws.first, len(bounds)), scaled(draws.second, len(bounds) - 1)
    start, end = sorted((bounds[one], bounds[other + (other >= one)]))
    return Places(start, end, "line")


def node_places(text: str, span: Span, draws: Draws, nodes: Int32Array) -> Places | None:
    """A node around a random place of a span, of a random kind: the likelier to be hit the larger it is.

    Args:
        text: of the document.
        span: what is cut; nodes that lie in it count, but for one that is all of it.
        draws: the place, the kind, and which node of that kind.
        nodes: (N, 3) kind, first byte and byte behind the last of each.

    Returns:
        None where there is no node.
    """
    first, last = _byte(text, span.start), _byte(text, span.end)
    inside = nodes[(nodes[:, 1] >= first) & (nodes[:, 2] <= last) & (nodes[:, 2] - nodes[:, 1] < last - first)]
    if not len(inside):
        return None
    place = first + scaled(draws.first, last - first)
    around = inside[(inside[:, 1] <= place) & (place < inside[:, 2])]
    if not len(around):  # between the statements of a file: the nodes that begin next, else those that end last
        later = inside[inside[:, 1] > place]
        around = later[later[:, 1] == later[:, 1].min()] if len(later) else inside[inside[:, 2] == inside[:, 2].max()]
    kinds = np.unique(around[:, 0])
    of_kind = around[around[:, 0] == kinds[scaled(draws.second, len(kinds))]]
    of_kind = np.unique(of_kind[:, 1:], axis=0)
    start, end = (_character(text, byte) for byte in of_kind[scaled(draws.third, len(of_kind))].tolist())
    is_split = letter_start(text, start, span.start) != start or letter_start(text, end, span.start) != end
    return None if is_split else Places(start, end, "syntax")


def _byte(text: str, place: int) -> int:
    """Bytes of UTF-8 before a character."""
    return place if text.isascii() else len(text[:place].encode())


def _character(text: str, byte: int) -> int:
    """Characters before a byte of the UTF-8."""
    return byte if text.isascii() else len(text.encode()[:byte].decode())
