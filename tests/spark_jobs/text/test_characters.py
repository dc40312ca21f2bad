"""Classes of characters."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.text.characters import (
    ALPHABETIC,
    DECIMAL,
    NUMERIC,
    OTHER,
    SPACE,
    ascii_classes,
    character_classes,
    code_points,
    without_letters,
)


def obvious(character: str) -> int:
    """Class of one character."""
    category = unicodedata.category(character)
    if character.isspace():
        return SPACE
    if category[0] in "LM":
        return ALPHABETIC
    if category[0] == "N":
        return DECIMAL if category == "Nd" else NUMERIC
    return OTHER


def test_every_character_has_its_class() -> None:
    """All of Unicode, one by one."""
    assert character_classes().tolist() == [obvious(chr(point)) for point in range(sys.maxunicode + 1)]


def test_ascii_classes_begin_the_table() -> None:
    """The small table says what the large one says."""
    np.testing.assert_array_equal(ascii_classes(), character_classes()[:128])


def test_every_character_left_out_of_letters_is_known_by_its_category() -> None:
    """Z*, P*, Cc and Cf, no other."""
    categories = [unicodedata.category(chr(point)) for point in range(sys.maxunicode + 1)]
    expected = [category[0] in "ZP" or category in ("Cc", "Cf") for category in categories]
    assert without_letters().tolist() == expected


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_code_points_are_those_of_the_text(text: str) -> None:
    """One number per character."""
    assert code_points(text.encode()).tolist() == [ord(character) for character in text]
