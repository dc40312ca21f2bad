"""What the kernels of this folder ask of a character, one bit a question, in one table over all code points.

Three bodies of rules ask: Python's own (`str.isalpha`, `isspace`, `splitlines`), datatrove's two sets of punctuation,
and the classes of spaCy's English tokenizer, which say where a word loses a prefix or a suffix or is cut inside. The
latter two are written down here as ranges of code points, in hexadecimal; `docs/prepare/filters_heuristics.md` names
the versions that they were compared with.
"""

from __future__ import annotations

import unicodedata
from typing import Final

import numpy as np

from spark_jobs.arrays import UInt32Array
from spark_jobs.text.characters import FIRST_SPACELESS, SPACELESS_WORD_LENGTHS, character_classes
from spark_jobs.text.characters import SPACE as IS_SPACE
from spark_jobs.threads import made_once

ALPHA, UPPER, SPACE, BREAK = 1, 2, 4, 8
"""`str.isalpha`; an upper or title case letter; `str.isspace`; what `str.splitlines` breaks a line at."""
CONTENT, TERMINAL, SENTENCE_END, PUNCTUATION = 16, 32, 64, 128
"""None of datatrove's punctuation; ends a line (FineWeb) or a sentence (spaCy); of a category P*."""
PREFIX, SUFFIX, INFIX, DOT_FOLLOWS = 256, 512, 1024, 2048
"""Cut off before a word, after it, perhaps inside it; a dot after this character is a word of its own."""
LETTER, LOWER_CASE, UPPER_CASE, DIGIT = 1 << 12, 1 << 13, 1 << 14, 1 << 15
"""Letters as spaCy has them (of scripts without case both lower and upper), and 0 to 9."""
QUOTE, ICON, CURRENCY, UNIT_END = 1 << 16, 1 << 17, 1 << 18, 1 << 19
SPECIAL: Final = 1 << 20
"""In a run of characters between white space: the run may be more than one word."""
SPACELESS_SHIFT: Final = 21
"""From this bit on the number of a script without spaces between words, counted from 1, in two bits."""
SPACELESS: Final = 3 << SPACELESS_SHIFT

_TERMINAL: Final = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D6 "
    "17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049 "
    "2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB "
    "FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 "
    "111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 "
    "1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 "
    "16B37-16B38 16B44 16E98 1BC9F 1DA88"
)
_TERMINAL_BUT_NO_SENTENCE_END: Final = (
    "61D-61E 837 839 83D-83E 17D4-17D6 17D9-17DA 1B7D-1B7E 2E53-2E54 10F55-10F59 10F86-10F89 11944 11946 11EF7-11EF8 "
    "11F43-11F44 16E98"
)
_NO_CONTENT: Final = (
    "0-8 B-1F 21-2F 3A-40 5B-60 7B-9F AB B4 BB 2013-2014 2019 201C-201E 2026 2236 2501 25BA 3001-3002 3008-300D "
    "3010-3011 FF01 FF05 FF08-FF09 FF0C FF0E FF11 FF1A-FF1B FF1F FF5E"
)
_MARKS: Final = (
    "2026 2C 3A 3B 21 3F BF 61F A1 28 29 5B 5D 7B 7D 3C 3E 5F 23 2A 26 3002 FF1F FF01 FF0C 3001 FF1B FF1A FF5E B7 964 "
    "60C 6D4 61B 66A"
)
_QUOTES: Final = (
    "27 22 201D 201C 60 2018 B4 2019 201A 201E BB AB 300C-300F FF08 FF09 3014 3015 3010 3011 300A 300B 3008 3009 2329 "
    "232A 27E6 27E7"
)
_CURRENCIES: Final = "24 A3 20AC A5 E3F FDFC 20A0-20BF"
_LATIN_GREEK_CYRILLIC: Final = (
    "41-5A 61-7A C0-D6 D8-F6 F8-24F 250-2AF 386 388-38A 38C 38E-38F 391-3A9 3AC-3AF 3B1-3C9 3CC-3CE 400-401 403-40A "
    "40C-40D 410-451 453-45A 45C-45D 490-491 496-497 4A2-4A3 4AE-4AF 4BA-4BB 4D8-4D9 4E8-4E9 1D00-1D25 1D6B-1D77 "
    "1D79-1D9A 1E00-1EFF 2C60-2C7F A722-A76F A771-A787 A78B-A78E A790-A7B9 A7FA AB30-AB5A AB60-AB64 FF21-FF3A FF41-FF5A"
)
_WITHOUT_CASE: Final = (
    "591-5F4 620-64A 66E-6D5 6E5-6FF 750-77F 8A0-8BD 900-9FF B80-CFF D80-DFF 1100-137F 2E80-2FDF 2FF0-30FF 31C0-31EF "
    "3200-4DBF 4E00-9FFF AC00-D7AF F900-FAFF FB1D-FBB1 FBD3-FD3D FD50-FDC7 FDF0-FDFB FE30-FE4F FE70-FEFC 1EE00-1EEBB "
    "1F200-1F2FF 20000-2A6DF 2A700-2EBEF 2F800-2FA1F"
)


@made_once
def character_flags() -> UInt32Array:
    """Flags of every code point, the bits above; about 0.3 s once per process.

    Returns:
        (0x110000,) flags by code point.
    """
    categories = "".join(map(unicodedata.category, map(chr, range(0x110000)))).encode("ascii")
    major, minor = np.frombuffer(categories, dtype=np.uint8).reshape(-1, 2).T
    classes = character_classes()
    letter, cased = major == ord("L"), _in(_LATIN_GREEK_CYRILLIC)
    caseless, dot, quote = _in(_WITHOUT_CASE), _in("2E"), _in(_QUOTES)
    lower = caseless | cased & letter & (minor == ord("l"))
    upper = caseless | cased & letter & (minor == ord("u"))
    icon = (major == ord("S")) & (minor == ord("o")) & ~_in("F1A-F1F")
    mark, digit, currency = _in(_MARKS), _in("30-39"), _in(_CURRENCIES)
    infix = icon | _in("2A-2F 3A 3C-3E 5E 7E 2013 2014 2026")
    special = mark | quote | icon | currency | infix | _in("25 2B A7 2013 2014 B0 B2 B3")
    named = {
        ALPHA: letter,
        UPPER: letter & ((minor == ord("u")) | (minor == ord("t"))),
        SPACE: classes == IS_SPACE,
        BREAK: _in("A-D 1C-1E 85 2028-2029"),
        CONTENT: ~(_in(_NO_CONTENT) | _in(_TERMINAL)),
        TERMINAL: _in(_TERMINAL),
        SENTENCE_END: _in(_TERMINAL) & ~_in(_TERMINAL_BUT_NO_SENTENCE_END),
        PUNCTUATION: major == ord("P"),
        PREFIX: mark | quote | icon | currency | _in("A7 25 3D 2013 2014"),
        SUFFIX: mark | quote | icon | _in("2013 2014"),
        INFIX: infix,
        DOT_FOLLOWS: digit | lower | mark | quote | _in("25 2B 2D B2 28 29 3A 3F 7C"),
        LETTER: cased & letter | caseless,
        LOWER_CASE: lower,
        UPPER_CASE: upper,
        DIGIT: digit,
        QUOTE: quote,
        ICON: icon,
        CURRENCY: currency,
        UNIT_END: _in("25 B2 B3") | np.isin(np.arange(len(major)), [ord(c) for c in "mandtzsgbBhTGMKмгсчаБб"]),
        SPECIAL: special | dot,
    }
    flags = np.zeros(len(major), dtype=np.uint32)
    for bit, holds in named.items():
        flags[holds] |= np.uint32(bit)
    for index in range(len(SPACELESS_WORD_LENGTHS)):
        flags[classes == FIRST_SPACELESS + index] |= np.uint32(index + 1 << SPACELESS_SHIFT)
    flags.flags.writeable = False
    return flags


def _in(ranges: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(0x110000,) whether a code point is in the ranges."""
    is_inside = np.zeros(0x110000, dtype=bool)
    for span in ranges.split():
        first, _, last = span.partition("-")
        is_inside[int(first, 16) : int(last or first, 16) + 1] = True
    return is_inside
