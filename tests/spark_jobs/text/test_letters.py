"""The letters of a text."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.text.text_columns import letters, letters_sha256

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.text(
    alphabet="aB1 \n.-+=ΣσςİIıßẞé\u0301\u200b\ue000\u0378「」", max_size=40
)


def obvious(text: str) -> str:
    """The definition, character by character."""
    kept = []
    for character in "".join(c.lower() for c in text).replace("ς", "σ"):
        category = unicodedata.category(character)
        if category[0] not in "ZP" and category not in ("Cc", "Cf"):
            kept.append(character)
    return "".join(kept)


@given(texts)
def test_letters_follow_their_definition(text: str) -> None:
    """The quick way gives what the definition says."""
    assert letters(text.encode()).decode() == obvious(text)


@given(texts, texts)
def test_letters_of_a_whole_are_those_of_its_parts(left: str, right: str) -> None:
    """No character's fate depends on its neighbours."""
    assert letters((left + right).encode()) == letters(left.encode()) + letters(right.encode())


@given(texts)
def test_letters_ignore_case_and_space(text: str) -> None:
    """Lower-casing, or white space and punctuation at any place, changes nothing."""
    spread = " \n".join(text) + ".,"
    assert letters(spread.encode()) == letters(text.encode())
    assert letters(text.lower().encode()) == letters(text.encode())


@given(texts, st.integers(1, 40))
def test_texts_with_few_letters_have_no_hash(text: str, min_letters: int) -> None:
    """Null below `min_letters` characters, else SHA-256 of the letters."""
    kept = obvious(text)
    expected = hashlib.sha256(kept.encode()).hexdigest() if len(kept) >= min_letters else None
    assert letters_sha256(text.encode(), min_letters) == expected


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Hello, World!\n", b"helloworld"),
        ("a + b = c_d", b"a+b=cd"),
        ("x$y^z|~`<>", b"x$y^z|~`<>"),
        ("ΟΔΟΣ ΟΔΟΣ", "οδοσοδοσ".encode()),
        ("Ünï\u00a0cö\u00addé", "ünïcödé".encode()),
        ("\ue000\u0378", "\ue000\u0378".encode()),
    ],
)
def test_letters_of_examples(text: str, kept: bytes) -> None:
    """Golden values: symbols, private use and unassigned characters stay; soft hyphens and no-break spaces go."""
    assert letters(text.encode()) == kept
