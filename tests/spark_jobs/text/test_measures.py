"""Measures of texts."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spark_jobs.text import measures
from spark_jobs.text.characters import FIRST_SPACELESS, SPACE, SYLLABLE_END, character_classes
from spark_jobs.text.measures import COUNTS, FRACTIONS, generated_markers, markdown_structure, measure

texts = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), max_size=50)
lined = st.text(alphabet="ab1 \t\n\n.é²Ⅷ\u0301\u2028\u200b日", max_size=50)
spaceless = st.text(alphabet="a1 。é²日本カไກកကབ་།한", max_size=50)
ascii_texts = st.text(alphabet="ab1 \t\n\n.\x0b\x1c\x7f", max_size=50)


WORDS = (Fraction(3, 5), Fraction(1, 4), Fraction(1, 5))
"""Words that a letter is taken for: of Han and kana, of Thai and Lao, of Khmer and Burmese."""


def obvious(text: str) -> dict[str, float]:
    """The definitions, character by character and line by line."""

    def ratio(part: float, whole: float) -> float:
        return part / whole if whole else math.nan

    categories = [unicodedata.category(character) for character in text]
    classes = [int(character_classes()[ord(character)]) for character in text]
    spaced = [SPACE if kind == SPACE else min(kind, FIRST_SPACELESS) for kind in classes]
    starts = sum(
        kind not in (SPACE, FIRST_SPACELESS) and (before == SPACE or (before >= SYLLABLE_END and category[0] in "LMN"))
        for before, kind, category in zip([SPACE, *spaced], spaced, categories, strict=False)
    )
    estimated = math.ceil(sum(WORDS[kind - FIRST_SPACELESS] for kind in classes if kind >= FIRST_SPACELESS))
    outside = len(text) - spaced.count(SPACE) - spaced.count(FIRST_SPACELESS)
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    letters = sum(category[0] in "LM" for category in categories)
    digits = categories.count("Nd")
    numbers = sum(category[0] == "N" for category in categories)
    symbols = sum(
        not character.isspace() and category[0] not in "LMN"
        for character, category in zip(text, categories, strict=True)
    )
    filled = [line for line in lines if line]
    sizes = [len(character.encode()) for character in text]
    wide = sum(size > 1 for size in sizes)
    foreign = min(wide / max(len(text) * 0.02, 1e-9), 1.0)
    blanks = max(spaced.count(SPACE) - starts, 0)
    features = (max(letters - wide, 0), digits, symbols, blanks, sizes.count(2), wide - sizes.count(2))
    weights = zip(measures._TOKENS_OF_ENGLISH, measures._TOKENS_OF_OTHERS, strict=True)
    tokens = 0.0
    for count, (english, other) in zip(features, weights, strict=True):
        tokens += count * (english + (other - english) * foreign)
    return {
        "token_estimate": math.ceil(tokens),
        "character_count": len(text),
        "word_count": starts + estimated,
        "line_count": len(lines),
        "max_line_length": max(map(len, lines), default=0),
        "mean_word_length": ratio(outside, starts if starts >= estimated else 0),
        "mean_line_length": ratio(sum(map(len, lines)), len(lines)),
        "alphabetic_fraction": ratio(letters, len(text)),
        "digit_fraction": ratio(digits, len(text)),
        "symbol_fraction": ratio(symbols, len(text)),
        "alphanumeric_fraction": ratio(letters + numbers, len(text)),
        "duplicate_line_fraction": ratio(len(filled) - len(set(filled)), len(filled)),
    }


def check(column: list[str]) -> None:
    """Compare every measure of a column with the obvious one."""
    found = measure(pa.array(column, type=pa.string()))
    expected = [obvious(text) for text in column]
    for name in (*COUNTS, *FRACTIONS):
        np.testing.assert_array_equal(found[name], [one[name] for one in expected], err_msg=name)


@given(st.lists(texts | lined | ascii_texts | spaceless, max_size=10))
def test_every_measure_follows_its_definition(column: list[str]) -> None:
    """A column at once gives what each text alone gives, to the last bit."""
    check(column)


@given(st.lists(lined | ascii_texts | spaceless, max_size=10), st.integers(0, 3))
def test_measures_of_a_slice_are_those_of_its_texts(column: list[str], skipped: int) -> None:
    """What stands before a slice of a larger column does not count, nor does the width of its offsets."""
    whole = pa.array(["# é\n# é"] * skipped + column, pa.large_string())
    found, alone = measure(whole.slice(skipped)), measure(pa.array(column, pa.string()))
    for name in (*COUNTS, *FRACTIONS):
        np.testing.assert_array_equal(found[name], alone[name], err_msg=name)


@given(st.lists(st.lists(st.sampled_from(["", "a", "b" * 8, "b" * 9, "é" * 40]), max_size=300), max_size=4))
def test_lines_that_repeat_are_those_of_a_set(column: list[list[str]]) -> None:
    """Also where a text has more lines than the table has places at first."""
    lines = [[*some, *map(str, range(len(some)))] for some in column]
    found = measure(pa.array(["\n".join(some) for some in lines], pa.string()))["duplicate_line_fraction"]
    filled = [[line for line in some if line] for some in lines]
    expected = [(len(some) - len(set(some))) / len(some) if some else math.nan for some in filled]
    np.testing.assert_array_equal(found, expected)


_MARKUP = re.compile(rb"\n {0,3}(?:(#{1,6})[ \t]+\S|(`{3,}|~{3,}))")
marked_lines = st.text(alphabet="#` ~a\t\n\x0bé", max_size=30) | st.sampled_from(
    ["# a", "```", "~~~~", "   ## b", "    # c"]
)


@given(st.lists(st.lists(marked_lines, max_size=8).map("\n".join), max_size=6))
def test_markdown_is_what_its_pattern_finds(column: list[str]) -> None:
    """Line by line in compiled code, as by a pattern over the whole text."""
    expected = []
    for text in column:
        headings, blocks, fence = 0, 0, b""
        for found in _MARKUP.finditer(b"\n" + text.encode()):
            if not fence:
                headings += found[1] is not None
                fence = found[2] or b""
                blocks += bool(fence)
            elif found[2] is not None and found[2].startswith(fence):
                fence = b""
        expected.append((headings, blocks))
    found_counts = markdown_structure(pa.array(column, pa.string()), ["prose"] * len(column))
    assert list(zip(*found_counts, strict=True)) == expected


def test_measures_of_an_example() -> None:
    """Golden values of a small program."""
    found = measure(pa.array(["x = 1\nx = 1\n\ny = 22"]))
    assert found["word_count"].tolist() == [9]
    assert found["line_count"].tolist() == [4]
    assert found["max_line_length"].tolist() == [6]
    assert found["mean_word_length"].tolist() == [10 / 9]
    assert found["duplicate_line_fraction"].tolist() == [1 / 3]
    assert found["alphanumeric_fraction"].tolist() == [7 / 19]
    assert found["symbol_fraction"].tolist() == [3 / 19]


def test_headings_and_code_blocks_are_those_of_markdown() -> None:
    """Outside of fences, of whatever length; none are looked for in code and data."""
    text = "# One\n##two\n###### Six\n####### seven\n#\n~~~sh\n# comment\n```\n~~~\n"
    text += "   # Three\n    # code\n````\n```\n# x\n````\n```\n# y"
    kinds = ["prose", "markup", "code", "data"]
    found = markdown_structure(pa.array([text] * 4), kinds)
    assert found == ([3, 3, None, None], [3, 3, None, None])
    assert markdown_structure(pa.array(["", "plain"]), ["prose"] * 2) == ([0, 0], [0, 0])


def test_a_heading_takes_no_time_that_grows_faster_than_the_text() -> None:
    """Blanks and signs without end: a million of each."""
    for text in ("#" * 1_000_000, "# " + " " * 1_000_000, "`" * 1_000_000, " " * 1_000_000 + "#"):
        assert markdown_structure(pa.array([text]), ["prose"])[0] == [0]


def test_the_estimate_of_tokens_is_near_gpt2() -> None:
    """English within 15 per cent, others as docs/prepare/texts.md has them."""
    folder = Path(os.environ.get("REAL_DATA_DIR", "../shared/data"))
    if not (folder / "tokenizers" / "gpt2.json").is_file():
        pytest.skip("REAL_DATA_DIR has no tokenizer")
    gpt2 = Tokenizer.from_file(str(folder / "tokenizers" / "gpt2.json"))
    for code, low, high in (
        ("en", 0.9, 1.15),
        ("de", 0.9, 1.05),
        ("ru", 1.0, 1.1),
        ("zh", 0.95, 1.1),
        ("ja", 1.4, 1.6),
    ):
        text = "\n".join((folder / "languages" / f"{code}.txt").read_text(encoding="utf-8").splitlines()[:200])
        ratio = measure(pa.array([text]))["token_estimate"][0] / len(gpt2.encode(text).ids)
        assert low < ratio < high, code


@pytest.mark.parametrize(
    ("text", "words", "mean_length"),
    [
        ("three plain words", 3, 5.0),
        ("人人生而自由", 4, None),  # 6 / (5/3), rounded up
        ("我用 Python 3 写代码。", 5, None),  # five letters are three words
        ("GPT模型 is a model", 6, 2.75),  # GPT, two words of Chinese, is, a, model
        ("ทุกคนเกิดมา", 3, None),  # 11 / 4
        ("한국어 문장은 띄어 쓴다", 4, 2.5),
        ("བོད་སྐད་ཡིན།", 3, 4.0),
        ("。，！", 1, 3.0),
        ("", 0, None),
    ],
)
def test_words_are_counted_by_script(text: str, words: int, mean_length: float | None) -> None:
    """Spaces part words, the tsheg parts syllables, and where neither is written, letters are divided."""
    found = measure(pa.array([text, "other text"]))
    assert (found["word_count"][0], found["mean_word_length"][0]) == (
        words,
        pytest.approx(mean_length or math.nan, nan_ok=True),
    )


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("// Code generated by protoc-gen-go. DO NOT EDIT.\n", "code generated by"),
        ("# license\n# @generated by tool\n", "@generated"),
        ("# AUTO-GENERATED, beware\n", "auto-generated"),
        ("/* Autogenerated */", "autogenerated"),
        ("\n" * 9 + "# do not edit", "do not edit"),
        ("\n" * 10 + "# do not edit", None),
        ("def generate(): pass\n", None),
        ("é " + "x" * 5000 + " do not edit", None),
        ("", None),
    ],
)
def test_markers_of_generated_files_are_found_in_the_head(text: str, marker: str | None) -> None:
    """Any case, in the first ten lines and the first 4,096 bytes."""
    assert generated_markers(pa.array(["", text]), 10) == [None, marker]
