"""Folding: words and letters of texts, whatever form they stand in."""

from __future__ import annotations

import itertools
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.filters.contamination.folded_document import fold_items
from spark_jobs.filters.contamination.folding import fold_tables, folded_words
from spark_jobs.text.text_columns import utf8_arrays

TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aB é\u0301ガ東กİß½ﷺ한-\\nrt\u200d\ufe0f."))
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Re-wrapped:\\n\\tTHE caf\u00e9", ["re", "wrapped", "the", "cafe"]),
        ("ex\u00adam\u200bple ﬁne ﷺ", ["example", "fine", "صلى", "الله", "عليه", "وسلم"]),
        ("１２ ½ ٣ xⅣ", ["12", "1", "2", "3", "xiv"]),
        ("東京タワーa b", ["東", "京", "タ", "ワ", "ー", "a", "b"]),
        ("ไทย한국", ["ไ", "ท", "ย", *[unicodedata.normalize("NFD", "한국")]]),
        ("İSTANBUL Straße ΣΊΣΥΦΟΣ", ["istanbul", "strasse", "σισυφοσ"]),
        ("snake_case\0x", ["snake", "case", "x"]),
        ("eggs[3] a[12], b =[3] [4] x [1234]", ["eggs", "a", "b", "3", "4", "x", "1234"]),
        (
            "<p class='q'>one</p> t<sup>12</sup>wo&nbsp;&#8217;s 3 < 4 <5> <sup>\n</sup>",
            ["one", "t", "wo", "s", "3", "4", "5"],
        ),
        ("a &toolonganame; b & c &#x2019; d", ["a", "toolonganame", "b", "c", "d"]),
        ("x\u00b2 eggs\u2079", ["x", "eggs"]),
        ("", []),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    """What separates words, what is left out, and what is the same letter."""
    assert folded_words(text) == words


MARKS = st.lists(
    st.one_of(
        st.sampled_from(
            ["<sup>", "</sup>", "<b>", "</", "<a href='x'", ">", "<", "&", "&#39;", "&#x", "&nbsp;", ";", "["]
        ),
        st.sampled_from(["[12]", "[1", "]", "(", " ", "\n", "\\n", "a", "bé", "1", "x" * 310, "é" * 299, "=", "²"]),
    ),
    max_size=14,
).map("".join)


@given(st.lists(MARKS, max_size=4))
def test_markup_is_folded_by_both_alike(texts: list[str]) -> None:
    """Whole, half, nested and too long, at the beginning and the end of texts that stand one after another."""
    test_compiled_fold_is_the_plain_one.hypothesis.inner_test(texts)  # type: ignore[attr-defined]


@given(TEXTS)
def test_all_normal_forms_fold_alike(text: str) -> None:
    """The fold is that of every normal form, so how a text was encoded does not matter.

    But for what a compatibility form makes markup or a plain digit of: wide angles and raised digits.
    """
    text = "".join(
        one for one in text if not unicodedata.decomposition(one).startswith(("<super>", "<wide>", "<small>"))
    )
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert folded_words(unicodedata.normalize(form, text)) == folded_words(text)


@given(st.lists(TEXTS, max_size=4))
def test_compiled_fold_is_the_plain_one(texts: list[str]) -> None:
    """The kernel finds the same words as `folded_words`."""
    letters, starts, text_words = fold_items(*utf8_arrays(pa.array(texts, type=pa.string())), fold_tables())
    words = [bytes(letters[a:b]).decode() for a, b in itertools.pairwise(starts)]
    assert [words[a:b] for a, b in itertools.pairwise(text_words)] == [*map(folded_words, texts)]
