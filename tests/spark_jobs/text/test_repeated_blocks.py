"""Repeated blocks: against the definition, planted in ten languages and in code, and edits that lead back to bytes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.text.characters import FIRST_SPACELESS, SPACE, SPACELESS_WORD_LENGTHS, character_classes
from spark_jobs.text.normalization import source_positions
from spark_jobs.text.repeated_blocks import repeated_blocks
from spark_jobs.text.text_columns import edits_of, normalized, without_repeats

Word = tuple[int, int, int]  # first character, character after the last, weight in sixtieths


def words_of(text: str) -> list[Word]:
    """The words of a text by the module's definition, in plain Python."""
    classes, words, start = character_classes(), list[Word](), -1
    for at, letter in enumerate(f"{text} "):
        kind = int(classes[ord(letter)])
        spaceless = kind >= FIRST_SPACELESS
        if start >= 0 and (kind == SPACE or spaceless):
            words.append((start, at, 60))
            start = -1
        if spaceless:
            words.append((at, at + 1, round(60 / SPACELESS_WORD_LENGTHS[kind - FIRST_SPACELESS][1])))
        elif kind != SPACE and start < 0:
            start = at
    return words


def marked_by_definition(text: str, least: int, keep: int) -> list[bool]:
    """Which words stand in a window with `keep` earlier places that overlap neither it nor one another."""
    words = words_of(text)
    windows = []
    for first in range(len(words)):
        last, weight = first, 0
        while last < len(words) and weight < least * 60:
            weight += words[last][2]
            last += 1
        windows.append(
            (last, tuple(text[start:end] for start, end, _ in words[first:last])) if weight >= least * 60 else None
        )
    marked = [False] * len(words)
    for at, window in enumerate(windows):
        places, until = 0, 0
        for earlier in range(at):
            end = 0 if window is None else window[0] - at + earlier
            if window is not None and windows[earlier] == (end, window[1]) and until <= earlier and end <= at:
                places, until = places + 1, end
        if window is not None and places >= keep:
            marked[at : window[0]] = [True] * (window[0] - at)
    return marked


def cut(text: str, least: int = 30, keep: int = 1, is_code: bool = False) -> str:
    """The text without its repeats."""
    content, edits = normalized(pa.array([text]))
    return str(without_repeats(content, edits, np.array([is_code]), least, keep)[0][0])


small = st.lists(st.sampled_from(["a", "b", "語", "か", "ก", " ", "\n", "aa", "  "]), max_size=60).map("".join)


@given(small, st.integers(1, 4), st.integers(1, 3))
def test_words_are_repeated_as_the_definition_says(text: str, least: int, keep: int) -> None:
    """Small alphabets, so that repeats nest, overlap and touch; scripts with and without spaces."""
    blocks = repeated_blocks(pa.array([text]), least, keep)
    marked = marked_by_definition(text, least, keep)
    words = words_of(text)
    spans = list(zip(blocks.starts.tolist(), blocks.ends.tolist(), strict=True))
    inside = [
        any(start <= len(text[:first].encode()) and len(text[:last].encode()) <= end for start, end in spans)
        for first, last, _ in words
    ]
    # A letter of a script without spaces stays between two words that would else be one.
    stays = [at for at in range(1, len(words) - 1) if not inside[at] and marked[at]]
    assert all(inside[at] == marked[at] for at in range(len(words)) if at not in stays)
    for at in stays:
        assert words[at][2] < 60 == words[at + 1][2] and not marked[at + 1] and words[at][1] == words[at + 1][0]
    assert (np.isnan(blocks.shares[0]) and not words) or blocks.shares[0] == pytest.approx(np.mean(marked))
    assert len(words_of(cut(text, least, keep))) >= len(words) - sum(marked)  # none was joined with another and lost


LANGUAGES = {
    "en": "the quick brown fox jumps over lazy dogs while seven wizards brew potions",
    "de": "über sieben Brücken müssen wir gehen und manchmal schließt sich der Kreis",
    "fr": "où naît l'été les élèves répètent leurs leçons près du château",
    "ru": "съешь же ещё этих мягких французских булок да выпей чаю",
    "el": "ξεσκεπάζω την ψυχοφθόρα βδελυγμία και τα λοιπά",
    "ar": "صف خلق خود كمثل الشمس إذ بزغت يحظى الضجيع بها",
    "hi": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "zh": "天地玄黃宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏閏餘成歲律呂調陽",
    "ja": "いろはにほへとちりぬるをわかよたれそつねならむうゐのおくやま",
    "th": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่ากว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "code": "def f(x):\n    return x + 1\n\nclass A:\n    y = {'k': [1, 2]}\n",
}


def draw_text(random: np.random.Generator, language: str, words: int) -> str:
    """Words of a language in random order, a number behind each, so that no window comes twice by chance."""
    sample = LANGUAGES[language]
    parts = re.findall(r"\S+", sample) if " " in sample else list(sample)
    blank = " " if " " in sample else ""
    drawn = []
    for at in range(words):
        number = f"q{int(random.integers(1 << 60)):x}"
        drawn += [parts[int(random.integers(len(parts)))], blank, number, "\n" if at % 7 == 6 else blank]
    return "".join(drawn)


def numbers(text: str) -> list[str]:
    """The numbers in a drawn text."""
    return re.findall(r"q[0-9a-f]+", text)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("words", "times"), [(30, 2), (31, 50), (200, 10), (2000, 3)])
def test_planted_repeats_go_and_nothing_else(language: str, words: int, times: int) -> None:
    """Moved apart by unique text, and one of them nested in a longer block that comes twice."""
    random = np.random.default_rng(words + len(language))
    block = draw_text(random, language, words)
    unique = [draw_text(random, language, int(random.integers(1, 60))) for _ in range(times + 2)]
    nest = f"{unique[-1]}\n{block}\n{unique[-2]}\n"
    text = "\n".join([nest, *(f"{unique[number]}\n{block}" for number in range(times)), nest])
    left = Counter(numbers(cut(text, is_code=language == "code")))
    assert left.keys() == set(numbers(text))
    assert {left[number] for number in numbers(block)} == {1}
    assert {left[number] for part in unique[:times] for number in numbers(part)} == {1}
    longer = unique[-1] if words_in(unique[-1]) + words >= 30 else block
    assert {left[number] for number in numbers(longer)} == {1}


def words_in(text: str) -> float:
    """How many words a text has, as weights have them."""
    return sum(weight for _, _, weight in words_of(text)) / 60


def test_what_stands_keep_times_stays_so_often() -> None:
    """The first places."""
    random = np.random.default_rng(3)
    block = draw_text(random, "en", 40)
    text = "".join(f"{block}\nalone{number}\n" for number in range(6))
    for keep in (1, 2, 5, 6):
        assert Counter(numbers(cut(text, keep=keep)))[numbers(block)[0]] == keep
        assert all(f"alone{number}\n" in cut(text, keep=keep) for number in range(6))


def test_lines_are_cut_whole_and_indentation_stays() -> None:
    """Python that was listed twice is still Python."""
    body = "\n".join(f"    total_{number} = total_{number} * {number} + offset" for number in range(12))
    text = f"def first(offset):\n{body}\n    return 1\n\ndef second(offset):\n{body}\n    return 2\n"
    left = cut(text, is_code=True)
    assert left == f"def first(offset):\n{body}\n    return 1\n\ndef second(offset):\n    return 2\n"
    compile(left, "listed", "exec")


@given(
    st.lists(
        st.sampled_from(["a b c ", "e\u0301 f ", "か", "\u3099", "x\r\n", "語 ", "\n", "d e f g "]), max_size=40
    ).map("".join),
    st.integers(1, 3),
)
def test_edits_lead_back_to_the_bytes(source: str, least: int) -> None:
    """Each byte of the text that stands outside of a replacement is the byte of the source where edits lead."""
    content, edits = normalized(pa.array([source]))
    text, edits = without_repeats(content, edits, np.array([least == 2]), least, 1)
    rows: list[Any] = edits.to_pylist()[0]
    found, old, new = edits_of(rows), source.encode(), str(text[0]).encode()
    at = source_positions(found, np.arange(len(new)))
    replaced = np.zeros(len(new), np.bool_)
    for start, length in zip(found.text_start.tolist(), found.replacement_length.tolist(), strict=True):
        replaced[start : start + length] = True
    assert all(old[at[place]] == new[place] for place in range(len(new)) if not replaced[place])
    assert len(new) == len(old) + sum(row["replacement_length"] - (row["end"] - row["start"]) for row in rows)


def test_collisions_cannot_cut() -> None:
    """Texts without any repeat of 30 words keep every byte, however large."""
    random = np.random.default_rng(9)
    text = " ".join(map(str, random.permutation(200_000)))
    assert cut(text) == text
    assert repeated_blocks(pa.array([text, "", " \n "])).shares[0] == 0
