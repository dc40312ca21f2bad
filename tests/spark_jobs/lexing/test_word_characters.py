"""What every character is to a tokenizer."""

from __future__ import annotations

import sys
import unicodedata

from spark_jobs.lexing.word_characters import FIRST_SCRIPT, LAST_CASED, SEPARATOR, WORD, word_tables


def test_words_are_letters_numbers_marks_and_the_underscore() -> None:
    """All of Unicode, one by one; the planes that are not looked at have no letters."""
    classes = word_tables().classes
    expected = [unicodedata.category(chr(point))[0] in "LMN" or point == 95 for point in range(sys.maxunicode + 1)]
    assert (classes != SEPARATOR).tolist() == expected


def test_scripts_without_spaces_have_classes_of_their_own() -> None:
    """Characters are of their script by name, and nothing else is; what names do not tell is left out."""
    classes = word_tables().classes
    words = ("CJK UNIFIED", "HIRAGANA LETTER", "KATAKANA LETTER", "THAI", "LAO", "KHMER", "MYANMAR")
    named = {point: unicodedata.name(chr(point), "") for point in range(0x40000) if classes[point] != SEPARATOR}
    scripts = {word: {int(classes[point]) for point, name in named.items() if name.startswith(word)} for word in words}
    assert all(len(found) == 1 and min(found) >= FIRST_SCRIPT for found in scripts.values())
    assert scripts["HIRAGANA LETTER"] == scripts["KATAKANA LETTER"]
    assert len(set.union(*scripts.values())) == 6
    for alphabet in ("LATIN", "CYRILLIC", "DEVANAGARI", "HANGUL SYLLABLE", "ETHIOPIC", "TIBETAN"):
        assert {int(classes[point]) for point, name in named.items() if name.startswith(alphabet + " ")} == {WORD}


def test_lower_case_is_one_character_for_one() -> None:
    """`str.lower` of every character alone, but where that takes two; above the table nothing has case."""
    lower = word_tables().lower
    for point in range(sys.maxunicode + 1):
        small = chr(point).lower()
        if point > LAST_CASED:
            assert small == chr(point)
        else:
            assert lower[point] == (ord(small) if len(small) == 1 else point)
