"""Which characters of a text a token is of, from the offsets that `tokenizers` gives.

The library is right about most of it: a token that has a part of a character has the whole one, and what a normalizer
drops is of no token. Two things are mended. Of characters that a normalizer makes one of it names a single one::

    e + acute accent, NFC é      offsets [0, 1)  ->  [0, 2)  as no text can be cut between the two and give the same

and a token that a tokenizer puts in (`▁` before a text) has none: it goes with the character after it. Offsets must not
have passed a post-processor, which may leave the blanks of a token out (`ByteLevel`, `RobertaProcessing`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Bounds = NDArray[np.int64]
Normalize = Callable[[str], str]

_FENCE: Final = "0"  # no character joins it, and no blank at it is stripped
_NEAR: Final = 3  # characters before a place that may be one with those after it: Hangul has three letters to one
_FAR: Final = 16  # the same where the library has left some out


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
        made = self._normalize(f"{_FENCE}{part}{_FENCE}")
        return made[len(self._before) + 1 : len(made) - len(self._after) - 1]


def _widened(text: str, starts: Bounds, ends: Bounds, may_cut: Callable[[str, str], bool]) -> tuple[Bounds, Bounds]:
    """Move the bounds of tokens outwards to the next places where the text may be cut."""
    gaps = {0, len(text), *np.setxor1d(starts, ends).tolist()}

    def holds(place: int) -> bool:
        if place not in gaps and text[place].isascii():
            return True
        near, far = (_FAR, _FAR) if place in gaps else (_NEAR, 1)
        return may_cut(text[max(0, place - near) : place], text[place : place + far])

    def moved(place: int, step: int) -> int:
        if not holds(place):
            gaps.update(range(max(0, place - _FAR), min(len(text), place + _FAR)))
            while 0 < place < len(text) and not holds(place):
                place += step
        return place

    first = {place: moved(place, -1) for place in np.unique(starts).tolist()}
    last = {place: moved(place, 1) for place in np.unique(ends).tolist()}
    return (
        np.array([first[place] for place in starts.tolist()], dtype=np.int64),
        np.array([last[place] for place in ends.tolist()], dtype=np.int64),
    )
