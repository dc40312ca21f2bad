r"""Find where the words of a text end: the known splittings (`pre_tokenization`) as compiled loops over UTF-8.

    gpt2            's 't 're 've 'm 'll 'd | ` ?` letters | ` ?` numbers | ` ?` others | white space
    llama3, qwen2   the same in any case | [^\r\n]? letters | 1 to 3 numbers, or 1 | ` ?` others [\r\n]* | white space

White space before a visible character leaves its last character to the next word ("a  b" -> a, " ", " b"). In the
second form a word of white space ends after its last line end, if it has one.

Classes of characters are those of this Python's tables. They need not be the reference's, since a certificate finds the
differences. Imported by workers only: numba takes half a second to load.
"""

from __future__ import annotations

import sys
import unicodedata
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from headrace.kernels.compiling import compiled
from headrace.kernels.utf8 import Integer, code_point, width
from spark_jobs.arrays import UInt8Array
from spark_jobs.threads import made_once

OTHER: Final = 0
LETTER: Final = 1
NUMBER: Final = 2
SPACE: Final = 3
_CLASSES: Final = {"L": LETTER, "N": NUMBER, "Z": SPACE}
_OTHER_SPACES: Final = "\t\n\v\f\r\x85"

MOST_NUMBERS: Final = {"gpt2": 0, "llama3": 3, "qwen2": 1}
"""Most digits of a word of numbers, by the name of the splitting; 0 means no limit and GPT-2's rules."""


@made_once
def character_classes() -> UInt8Array:
    """(0x110000,) class of every code point; none beyond U+3FFFF is a letter, a number or a space."""
    numbers = range(0x40000)
    found = np.zeros(sys.maxunicode + 1, np.uint8)
    found[: len(numbers)] = [_CLASSES.get(unicodedata.category(chr(n))[0], OTHER) for n in numbers]
    found[[ord(space) for space in _OTHER_SPACES]] = SPACE
    return found


@compiled(_nrt=False)
def has_any(data: UInt8Array, wanted: npt.NDArray[np.bool_]) -> bool:
    """Whether a text has any of the wanted code points, which are beyond ASCII.

    Args:
        data: (B,) the text as valid UTF-8.
        wanted: (0x110000,) whether each code point is wanted.
    """
    at = 0
    while at < len(data):
        if data[at] >= 0x80 and wanted[code_point(data, at)]:
            return True
        at += width(data[at])
    return False


@njit(_nrt=False)
def _class_at(data: UInt8Array, at: int, classes: UInt8Array) -> Integer:
    """Class of the character that begins at byte `at`; -1 at the end of the text."""
    return np.int64(classes[code_point(data, at)]) if at < len(data) else -1


@njit(_nrt=False)
def _run_end(data: UInt8Array, at: int, classes: UInt8Array, wanted: int, most: int) -> Integer:
    """Byte after the run of at most `most` characters of class `wanted` that begins at byte `at`."""
    while most > 0 and at < len(data) and classes[code_point(data, at)] == wanted:
        at += width(data[at])
        most -= 1
    return at


@njit(_nrt=False)
def _contraction_end(data: UInt8Array, at: int, any_case: bool) -> Integer:
    """Byte after a contraction ('s 't 're 've 'm 'll 'd) that begins at byte `at`; `at` where none does."""
    if data[at] != 0x27 or at + 1 == len(data):
        return at
    case = 0x20 if any_case else 0
    first = data[at + 1] | case
    if first in (0x73, 0x74, 0x6D, 0x64):  # s t m d
        return at + 2
    second = data[at + 2] | case if at + 2 < len(data) else 0
    if (first in (0x72, 0x76) and second == 0x65) or (first == 0x6C and second == 0x6C):  # re ve ll
        return at + 3
    return at


@compiled(_nrt=False)
def word_end(data: UInt8Array, at: int, classes: UInt8Array, most_numbers: int) -> Integer:
    """Byte after the word that begins at byte `at`.

    Args:
        data: (B,) a text as valid UTF-8.
        at: first byte of the word, before the end of the text.
        classes: (0x110000,) class of every code point.
        most_numbers: see `MOST_NUMBERS`.
    """
    is_gpt2 = most_numbers == 0
    end = _contraction_end(data, at, not is_gpt2)
    if end > at:
        return end
    first = data[at]
    after = at + width(first)
    kind = _class_at(data, at, classes)
    is_line_end = first in (0x0A, 0x0D)
    if kind == LETTER:
        return _run_end(data, after, classes, LETTER, len(data))
    if not is_gpt2 and kind != NUMBER and not is_line_end and _class_at(data, after, classes) == LETTER:
        return _run_end(data, after, classes, LETTER, len(data))
    if not is_gpt2 and kind == NUMBER:
        return _run_end(data, at, classes, NUMBER, most_numbers)
    visible = at
    if first == 0x20:
        visible = after
        kind = _class_at(data, after, classes)
    if kind == OTHER or (is_gpt2 and kind in (LETTER, NUMBER)):
        end = _run_end(data, visible, classes, kind, len(data))
        while not is_gpt2 and end < len(data) and data[end] in (0x0A, 0x0D):
            end += 1
        return end
    return _space_end(data, at, classes, is_gpt2)


@njit(_nrt=False)
def _space_end(data: UInt8Array, at: int, classes: UInt8Array, is_gpt2: bool) -> Integer:
    """Byte after the word of white space that begins at byte `at`."""
    end = at
    last = at
    line_end = at
    while end < len(data) and classes[code_point(data, end)] == SPACE:
        last = end
        end += width(data[end])
        if data[last] in (0x0A, 0x0D):
            line_end = end
    if not is_gpt2 and line_end > at:
        return line_end
    return end if end == len(data) or last == at else last
