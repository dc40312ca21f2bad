"""The script of every letter, by its ISO 15924 code.

Python's `unicodedata` has no property Script, but the name of a letter begins with its script: CYRILLIC SMALL LETTER A.
"""

from __future__ import annotations

import unicodedata
from typing import Final

import numpy as np

from spark_jobs.arrays import UInt8Array
from spark_jobs.threads import made_once

NO_LETTER, LATIN, HAN, KANA = 0, 1, 2, 3
SCRIPTS: Final = (
    *("Zzzz", "Latn", "Hani", "Jpan", "Zyyy"),  # no letter, the three that the kernel names, other scripts
    *("Arab", "Armn", "Beng", "Cans", "Cher", "Copt", "Cyrl", "Deva", "Ethi", "Geor", "Grek", "Gujr", "Guru", "Hang"),
    *("Hebr", "Java", "Khmr", "Knda", "Laoo", "Mlym", "Mong", "Mymr", "Orya", "Sinh", "Syrc", "Taml", "Telu", "Thaa"),
    *("Thai", "Tibt", "Tfng", "Yiii"),
)
"""ISO 15924 by class. Kana makes Jpan, which is Han, hiragana and katakana together; Han alone is Hani."""

_OTHER: Final = SCRIPTS.index("Zyyy")
_FIRST_WORDS: Final = (
    *("ARABIC", "ARMENIAN", "BENGALI", "CANADIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "DEVANAGARI", "ETHIOPIC"),
    *("GEORGIAN", "GREEK", "GUJARATI", "GURMUKHI", "HANGUL", "HEBREW", "JAVANESE", "KHMER", "KANNADA", "LAO"),
    *("MALAYALAM", "MONGOLIAN", "MYANMAR", "ORIYA", "SINHALA", "SYRIAC", "TAMIL", "TELUGU", "THAANA", "THAI"),
    *("TIBETAN", "TIFINAGH", "YI"),
)
_NAMES: Final = dict(zip(_FIRST_WORDS, SCRIPTS[_OTHER + 1 :], strict=True)) | {
    "LATIN": "Latn",
    "CJK": "Hani",
    "HIRAGANA": "Jpan",
    "KATAKANA": "Jpan",
}


@made_once
def script_classes() -> UInt8Array:
    """Number of the script of every letter and mark, 0 for all other code points; about 0.3 s once per process.

    Returns:
        (0x110000,) indices into `SCRIPTS`; marks of no script (COMBINING ..) have 0.
    """
    classes = np.zeros(0x110000, dtype=np.uint8)
    classes[0x20000:0x40000] = HAN  # planes 2 and 3 have nothing else
    for point in range(0x20000):
        character = chr(point)
        if unicodedata.category(character)[0] in "LM":
            words = unicodedata.name(character, "").split(" ", 2)
            word = words[1] if words[0] in ("FULLWIDTH", "HALFWIDTH") else words[0]
            if word not in ("COMBINING", "VARIATION", "MODIFIER", ""):
                classes[point] = SCRIPTS.index(_NAMES.get(word, "Zyyy"))
    classes.flags.writeable = False
    return classes
