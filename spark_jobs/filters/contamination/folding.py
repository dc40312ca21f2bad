r"""Fold texts to the compared letters, and to words, whatever their case, spelling, spacing or line breaks.

Every code point has a *fold*: its compatibility decomposition (NFKD), case folded, without combining marks, digits of
any script as 0 to 9. What is no letter, number or mark folds to a space, what is invisible (format characters) to
nothing. A letter of a script without spaces between words (Han, kana, Thai, Lao, Khmer, Burmese) is a word of its own,
so its fold stands between spaces. A backslash takes an n, r or t after it along, so JSON's `\n` is a line break.
Markup between words folds to a space: tags, a footnote's number in brackets or `<sup>` behind a word, entities for
punctuation; raised digits fold to nothing. Items fold the same way, so `x[1]` and `x[2]` are one there:

    text    Re-wrapped:\n  ½ CAFÉ 東京        words    re wrapped 1 2 cafe 東 京
                                            letters  rewrapped12cafe東京

The fold of a text is that of its code points one after another, so all of Unicode's normal forms of a text fold alike.
Accents go with the other marks: `café` and `cafe` are one word. *Letters* are the fold without its spaces; items are
found by letters, so it does not matter where spaces, hyphens and line breaks stand.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.arrays import Int32Array, Int64Array, UInt8Array
from spark_jobs.lexing.word_characters import SCRIPTS
from spark_jobs.text.characters import SPACELESS_WORD_LENGTHS
from spark_jobs.threads import made_once

WORD: Final = 60
"""Weight of a word between spaces; a letter of a script without spaces has 60 / the mean length of a word there."""
_PLANES: Final = (range(0x20000), range(0xE0000, 0xE1000))  # Han fills planes 2 and 3
_IDEOGRAPHS: Final = range(0x20000, 0x40000)
_IGNORED: Final = frozenset(
    [0x034F, 0x0640, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)]
) | frozenset(range(0xE0100, 0xE01F0))
"""Letters and marks that are invisible or only stretch a line: variation selectors, fillers, the Arabic tatweel."""
MOST_TAG: Final = 300
"""Characters of a tag behind its first letter; a longer one is compared as text."""
MOST_RAISED: Final = 12
"""Characters between `<sup>` and its end that are taken for a footnote's mark."""
_MARKUP: Final = re.compile(
    rf"\\[nrt]?|<sup>[^<>\n]{{0,{MOST_RAISED}}}</sup>|</?[A-Za-z][^<>\n]{{0,{MOST_TAG}}}>|&[A-Za-z]{{2,8}};"
    r"|&#[0-9A-Fa-fx]{2,6};|(?<=[^ \t\r\n(\[{=])\[[0-9]{1,3}\]"
)


class FoldTables(NamedTuple):
    """The folds of all code points, for compiled code.

    Attributes:
        quick: (256,) the fold of an ASCII byte, 32 for a space; 1 for those that may begin an escape or markup, 0 for
            bytes of longer code points.
        starts: (0x110001,) where the fold of a code point begins in `pool`; it ends where the next begins.
        pool: the folds in UTF-8.
    """

    quick: UInt8Array
    starts: Int32Array
    pool: UInt8Array


def folded_words(text: str) -> list[str]:
    """The words of a text; what the compiled fold must agree with."""
    folds = _folds()
    return "".join(folds.get(character, " ") for character in _MARKUP.sub(" ", text)).split()


@made_once
def fold_tables() -> FoldTables:
    """Tables of all code points; about half a second once per process."""
    folds = [b" "] * 0x110000
    for character, fold in _folds().items():
        folds[ord(character)] = fold.encode()
    starts = np.zeros(0x110001, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, folds), dtype=np.int32, count=0x110000), out=starts[1:])
    pool = np.frombuffer(b"".join(folds), dtype=np.uint8)
    quick = np.zeros(256, dtype=np.uint8)
    quick[:128] = [fold[0] for fold in folds[:128]]
    quick[[ord(character) for character in "\\<&["]] = 1
    return FoldTables(quick, starts, pool)


def word_weights(first_points: Int64Array) -> Int64Array:
    """(W,) weight of words, in sixtieths of a word between spaces, by their first code point."""
    return _weights()[np.minimum(first_points, 0x3FFFF)]


@made_once
def _weights() -> Int64Array:
    weights = np.full(0x40000, WORD, dtype=np.int64)
    lengths = {name: length for names, length in SPACELESS_WORD_LENGTHS for name in names}
    for name, spans in SCRIPTS:
        for first, last in spans:
            weights[first : last + 1] = round(WORD / lengths[name])
    return weights


@made_once
def _folds() -> dict[str, str]:
    """The fold of every character with one other than a space."""
    plain = {chr(point): f" {chr(point)} " for point in _IDEOGRAPHS if unicodedata.category(chr(point)) == "Lo"}
    mapped = {}
    for points in _PLANES:
        for character in map(chr, points):
            if unicodedata.category(character) in ("Cn", "Co", "Cs"):
                continue
            fold = _fold(character)
            if fold != " ":
                mapped[character] = fold
    compatible = {character: _fold(character) for character in plain if unicodedata.decomposition(character)}
    return plain | compatible | mapped


def _fold(character: str) -> str:
    if unicodedata.decomposition(character).startswith("<super>") and character.isdigit():
        return ""
    decomposed = unicodedata.normalize("NFKD", character)
    folded = unicodedata.normalize("NFKD", decomposed.casefold())
    return "".join(map(_fold_of_part, folded))


def _fold_of_part(part: str) -> str:
    """The fold of a character without further decomposition."""
    category = unicodedata.category(part)
    if unicodedata.combining(part) or category in ("Cf", "Me") or ord(part) in _IGNORED:
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(part))
    if category[0] not in "LNM":
        return " "
    return f" {part} " if ord(part) < 0x40000 and _weights()[ord(part)] != WORD else part
