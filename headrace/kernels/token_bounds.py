"""The characters of a text behind each token, from the offsets of `tokenizers`.

The library is right about most of it: a token with a part of a character has the whole one, and what a normalizer
drops is of no token. Two things are mended. Of characters that a normalizer makes one of it names a single one::

    e + acute accent, NFC é      offsets [0, 1)  ->  [0, 2)  as no text can be cut between the two and give the same

and a token put in by a tokenizer (`▁` before a text) has none: it goes with the character after it. Offsets must not
have passed a post-processor: it may leave the blanks of a token out (`ByteLevel`, `RobertaProcessing`).
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Bounds = NDArray[np.int64]
Normalize = Callable[[str], str]

_FENCE: Final = "0"  # no character joins it, and no blank at it is stripped
_WINDOW: Final = 16  # characters on both sides of a place that may be one


def character_bounds(
    text: str, offsets: Sequence[tuple[int, int]], normalize: Normalize | None = None
) -> tuple[Bounds, Bounds]:
    """Give the characters [start, end) of each token.

    Args:
        text: that was encoded.
        offsets: [start, end) of each token in characters, of a tokenizer without post-processor.
        normalize: the tokenizer's normalizer; None if it has none.

    Returns:
        (T,) starts and (T,) ends.
    """
    bounds = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    starts, ends = bounds[:, 0], bounds[:, 1]
    is_empty = starts >= ends
    starts = np.where(is_empty, np.maximum(np.minimum(starts, len(text) - 1), 0), starts)
    ends = np.where(is_empty, np.minimum(starts + 1, len(text)), ends)
    if normalize is not None and len(bounds) and normalize(text) != text:
        starts, ends = _widened(text, starts, ends, functools.lru_cache(1 << 16)(_Cuts(normalize)))
    return starts, ends


class _Cuts:
    """Says whether a text may be cut at a place before it is normalized."""

    def __init__(self, normalize: Normalize) -> None:
        self._normalize = normalize
        self._before, self._fenced, self._after = normalize(_FENCE * 2).partition(_FENCE * 2)

    def __call__(self, left: str, right: str) -> bool:
        if not self._fenced:  # it changes digits, so there is nothing to compare with
            return True
        return self._alone(left) + self._alone(right) == self._alone(left + right)

    def _alone(self, part: str) -> str:
        """A part of a text, normalized as in the middle of it."""
        normal = self._normalize(f"{_FENCE}{part}{_FENCE}")
        return normal[len(self._before) + 1 : len(normal) - len(self._after) - 1]


def _joins(letter: str) -> bool:
    """Whether a character can become one with those before it: marks, letters of Hangul, and what stands for one."""
    first = unicodedata.normalize("NFKD", letter)[0]
    return unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff"


def _widened(text: str, starts: Bounds, ends: Bounds, may_cut: Callable[[str, str], bool]) -> tuple[Bounds, Bounds]:
    """Move the bounds of tokens outwards to the next places where the text may be cut."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    joins = np.zeros(0x110000, dtype=bool)
    letters = np.flatnonzero(np.bincount(points))
    joins[letters] = [_joins(chr(letter)) for letter in letters.tolist()]
    begun, ended = np.zeros((2, len(text) + 1), dtype=bool)
    begun[starts], ended[ends] = True, True
    doubted = np.append(joins[points], False) | (begun ^ ended)  # where one is alone, the library left something out

    def holds(place: int) -> bool:
        return may_cut(text[max(0, place - _WINDOW) : place], text[place : place + _WINDOW])

    places = [place for place in np.flatnonzero(doubted).tolist() if not holds(place)]
    first, last = np.arange(len(text) + 1), np.arange(len(text) + 1)
    for moved, step, ordered in ((first, -1, places), (last, 1, places[::-1])):
        for place in ordered:
            to = int(moved[place + step])  # which is moved already where it is one of them
            while 0 < to < len(text) and not holds(to):
                to = int(moved[to + step])
            moved[place] = to
    return first[starts], last[ends]
