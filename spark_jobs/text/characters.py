"""Classify every character for the measures of texts: tables with one byte per code point.

Classes come from the general categories of the Unicode version that this Python carries (3.11: 14.0, 3.12: 15.0,
3.13: 15.1). Categories of assigned characters hardly ever change; characters that are newer than the interpreter have
the category Cn, so executors of one cluster must run one Python version.
"""

from __future__ import annotations

import unicodedata
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.lexing.word_characters import SCRIPTS
from spark_jobs.threads import made_once

OTHER: Final = 0
"""Punctuation, symbols, controls, private use, unassigned: P*, S*, C* that are no white space."""
ALPHABETIC: Final = 1
"""Letters and marks (L*, M*) of scripts with spaces between words: the vowel signs of Indic are marks."""
DECIMAL: Final = 2
"""Decimal digits (Nd)."""
NUMERIC: Final = 3
"""Other numbers (Nl, No), such as Roman numerals and fractions."""
SPACE: Final = 4
"""White space as `str.isspace` has it."""
SYLLABLE_END: Final = 5
"""The tsheg, which Tibetan puts between syllables as others put spaces between words."""
COUNTED, NUMBER, SIGN, POINT, MARK, GAP, INVISIBLE = range(7)
"""Classes of `comparison_classes`: characters that always count, numbers with their units (N*, Sc, `%`, degrees), marks
that count beside a number (Pd, / and *) or before one (decimal points), other punctuation, white space and controls
(Z*, Cc), and format characters (Cf)."""
FIRST_SPACELESS: Final = 6
"""Classes from here on are letters and marks of scripts without spaces between words, in the order of the table."""
SPACELESS_WORD_LENGTHS: Final = (
    (("Han", "kana"), 5 / 3),
    (("Thai", "Lao"), 4.0),
    (("Khmer", "Burmese"), 5.0),
)
"""Scripts, and the mean number of characters of a word in them.

Source: the dictionaries of ICU 78 (`Intl.Segmenter`) find words of 1.56 letters in the Chinese, 1.72 in the Japanese
and 4.23 in the Thai sentences of the Leipzig corpora; 4.2 (Lao), 6.0 (Khmer) and 5.1 (Burmese) in the first article of
the Universal Declaration of Human Rights. Corpora of Chinese segmented by hand have 1.5 to 1.7 characters a word
(Emerson 2005, "The Second International Chinese Word Segmentation Bakeoff").
"""


@made_once
def character_classes() -> npt.NDArray[np.uint8]:
    """Class of every code point, one of the constants above; about 0.2 s once per process.

    Returns:
        (0x110000,) class by code point.
    """
    major, minor = _categories().T
    classes = np.full(len(major), OTHER, dtype=np.uint8)
    is_letter = (major == ord("L")) | (major == ord("M"))
    classes[is_letter] = ALPHABETIC
    for index, (names, _) in enumerate(SPACELESS_WORD_LENGTHS):
        for first, last in (span for name, spans in SCRIPTS if name in names for span in spans):
            classes[first : last + 1][is_letter[first : last + 1]] = FIRST_SPACELESS + index
    classes[[0x0F0B, 0x0F0C]] = SYLLABLE_END
    classes[major == ord("N")] = NUMERIC
    classes[(major == ord("N")) & (minor == ord("d"))] = DECIMAL
    for point in np.flatnonzero((major == ord("Z")) | (major == ord("C")) & (minor == ord("c"))):
        if chr(point).isspace():
            classes[point] = SPACE
    classes.flags.writeable = False
    return classes


@made_once
def comparison_classes(count: int = 0x110000) -> npt.NDArray[np.uint8]:
    """Class of the first code points for the comparison of texts by their letters, one of COUNTED to INVISIBLE.

    Private use (Co) and unassigned (Cn) code points are content that this Unicode version cannot name: they count.

    Returns:
        (count,) class by code point.
    """
    major, minor = _categories(count).T
    classes = np.full(len(major), COUNTED, dtype=np.uint8)
    classes[major == ord("N")] = NUMBER
    classes[(major == ord("Z")) | (major == ord("C")) & (minor == ord("c"))] = GAP
    classes[major == ord("P")] = MARK
    classes[(major == ord("P")) & (minor == ord("d"))] = SIGN
    classes[(major == ord("S")) & (minor == ord("c"))] = NUMBER
    for kind, characters in (
        (SIGN, "*/\N{FULLWIDTH SOLIDUS}\N{FULLWIDTH ASTERISK}"),
        (POINT, ".,\N{ARABIC DECIMAL SEPARATOR}\N{FULLWIDTH FULL STOP}\N{FULLWIDTH COMMA}"),
        (NUMBER, "%\N{ARABIC PERCENT SIGN}\N{FULLWIDTH PERCENT SIGN}\N{SMALL PERCENT SIGN}‰‱°′″‴"),
    ):
        classes[[point for point in map(ord, characters) if point < count]] = kind
    classes[(major == ord("C")) & (minor == ord("f"))] = INVISIBLE
    classes.flags.writeable = False
    return classes


@made_once
def _categories(count: int = 0x110000) -> npt.NDArray[np.uint8]:
    """(count, 2) the two letters of each code point's general category, as ASCII."""
    names = "".join(map(unicodedata.category, map(chr, range(count))))
    return np.frombuffer(names.encode("ascii"), dtype=np.uint8).reshape(-1, 2)


def code_points(utf8: bytes | memoryview) -> npt.NDArray[np.uint32]:
    """Code points of a text.

    Args:
        utf8: the text in valid UTF-8.

    Returns:
        (C,) code points.
    """
    return np.frombuffer(str(utf8, "utf-8").encode("utf-32-le"), dtype=np.uint32)
