"""Classify every character for the lexers: part of a word, part of a script without spaces, or separator.

Words are made of letters, numbers and marks (L*, N*, M*: without marks Indic words fall apart) and of `_`. Scripts that
put no space between words have a class each, because a sequence of their characters is a sentence: it becomes bigrams.
Lower case is Unicode's simple mapping, one code point for one; U+0130, whose lower case takes two, stays as it is.

The tables come from Python's `unicodedata`, so another version of Python may split texts differently; `tables_digest`
tells such versions apart.
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.arrays import UInt8Array, UInt32Array
from spark_jobs.threads import made_once

SEPARATOR: Final = 0
WORD: Final = 1
FIRST_SCRIPT: Final = 2
"""Classes from here on are scripts without spaces, in the order of SCRIPTS."""

SCRIPTS: Final[tuple[tuple[str, tuple[tuple[int, int], ...]], ...]] = (
    ("Han", ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x302F), (0x3038, 0x303B), (0x3400, 0x4DBF))),
    ("Han", ((0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x16FF0, 0x16FF1), (0x20000, 0x3FFFF))),
    ("kana", ((0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F))),
    ("Thai", ((0x0E00, 0x0E7F),)),
    ("Lao", ((0x0E80, 0x0EFF),)),
    ("Khmer", ((0x1780, 0x17FF),)),
    ("Burmese", ((0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F))),
)
"""Ranges of code points by script, after Unicode's Scripts.txt; characters in them that are no letter, number or mark
are separators."""

_CODE_POINTS: Final = 0x110000
_PLANES: Final = (range(0x40000), range(0xE0000, 0xE1000))  # other planes have no letter: unassigned, or private use
LAST_CASED: Final = 0x1FFFF  # case ends with plane 1


class WordTables(NamedTuple):
    """The tables of characters that the compiled lexers read.

    Attributes:
        classes: (0x110000,) uint8, class by code point: SEPARATOR, WORD, or a script.
        lower: (0x20000,) uint32, the lower case of a code point; characters above have no case.
    """

    classes: UInt8Array
    lower: UInt32Array


@made_once
def word_tables() -> WordTables:
    """Tables of all characters; made once per process."""
    classes = np.zeros(_CODE_POINTS, dtype=np.uint8)
    for planes in _PLANES:
        categories = "".join(map(unicodedata.category, map(chr, planes))).encode("ascii")
        major = np.frombuffer(categories, dtype=np.uint8)[::2]
        classes[planes.start : planes.stop] = (major == ord("L")) | (major == ord("M")) | (major == ord("N"))
    names = list(dict.fromkeys(name for name, _ in SCRIPTS))
    for name, ranges in SCRIPTS:
        for first, last in ranges:
            classes[first : last + 1] *= FIRST_SCRIPT + names.index(name)
    classes[ord("_")] = WORD
    classes.flags.writeable = False
    return WordTables(classes, _lower())


def _lower() -> UInt32Array:
    """(0x20000,) lower case by code point; a character without one, or with one of two code points, maps to itself."""
    points = np.arange(LAST_CASED + 1, dtype=np.uint32)
    # Left out: surrogates are no text, U+0130 becomes two code points, and the form of a sigma depends on its context.
    whole = ((points < 0xD800) | (points > 0xDFFF)) & (points != 0x130) & (points != ord("Σ"))
    text = points[whole].tobytes().decode("utf-32-le").lower()
    lower = points.copy()
    lower[whole] = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    lower[ord("Σ")] = ord("σ")
    lower.flags.writeable = False
    return lower


@cache
def tables_digest() -> str:
    """SHA-256 of both tables, in hex: with equal digests every text is split and lower-cased equally."""
    tables = word_tables()
    return hashlib.sha256(tables.classes.tobytes() + tables.lower.astype("<u4").tobytes()).hexdigest()
