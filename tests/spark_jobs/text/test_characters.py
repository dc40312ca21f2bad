"""Classes of characters."""

from __future__ import annotations

import sys
import unicodedata

from spark_jobs.text.characters import (
    ALPHABETIC,
    COUNTED,
    DECIMAL,
    FIRST_SPACELESS,
    GAP,
    INVISIBLE,
    MARK,
    NUMBER,
    NUMERIC,
    OTHER,
    POINT,
    SIGN,
    SPACE,
    SPACELESS_WORD_LENGTHS,
    SYLLABLE_END,
    character_classes,
    comparison_classes,
)

BLOCKS = [
    (0x2E80, 0x2FDF, "Han"),
    (0x3005, 0x3007, "Han"),
    (0x3021, 0x302F, "Han"),
    (0x3038, 0x303B, "Han"),
    (0x3041, 0x30FF, "Han"),  # kana
    (0x31F0, 0x31FF, "Han"),
    (0x3400, 0x4DBF, "Han"),
    (0x4E00, 0x9FFF, "Han"),
    (0xF900, 0xFAFF, "Han"),
    (0xFF66, 0xFF9F, "Han"),
    (0x16FF0, 0x16FF1, "Han"),
    (0x1AFF0, 0x1B16F, "Han"),
    (0x20000, 0x3FFFF, "Han"),
    (0x0E00, 0x0EFF, "Thai"),  # and Lao
    (0x1000, 0x109F, "Khmer"),  # Burmese
    (0x1780, 0x17FF, "Khmer"),
    (0xA9E0, 0xA9FF, "Khmer"),
    (0xAA60, 0xAA7F, "Khmer"),
]


def obvious(character: str) -> int:
    """Class of one character."""
    category = unicodedata.category(character)
    if character.isspace():
        return SPACE
    if character in "\u0f0b\u0f0c":
        return SYLLABLE_END
    if category[0] in "LM":
        scripts = [place for place, (names, _) in enumerate(SPACELESS_WORD_LENGTHS) if names[0] == script(character)]
        return FIRST_SPACELESS + scripts[0] if scripts else ALPHABETIC
    if category[0] == "N":
        return DECIMAL if category == "Nd" else NUMERIC
    return OTHER


def script(character: str) -> str | None:
    """First script of the class that a letter or mark belongs to, by the blocks of Unicode; None for all others."""
    for first, last, name in BLOCKS:
        if first <= ord(character) <= last:
            return name
    return None


def test_every_character_has_its_class() -> None:
    """All of Unicode, one by one."""
    assert character_classes().tolist() == [obvious(chr(point)) for point in range(sys.maxunicode + 1)]


def test_every_character_has_its_class_of_comparison() -> None:
    """By its category, but for the marks of numbers."""
    named = dict.fromkeys("*/\uff0f\uff0a", SIGN) | dict.fromkeys(".,\u066b\uff0e\uff0c", POINT)
    named |= dict.fromkeys("%\u066a\uff05\ufe6a‰‱°′″‴", NUMBER)
    by_category = {"Sc": NUMBER, "Pd": SIGN, "Cc": GAP, "Cf": INVISIBLE}
    by_major = {"N": NUMBER, "Z": GAP, "P": MARK}
    expected = []
    for character in map(chr, range(sys.maxunicode + 1)):
        category = unicodedata.category(character)
        of = by_category.get(category, by_major.get(category[0], COUNTED))
        expected.append(named.get(character, of))
    assert comparison_classes().tolist() == expected
