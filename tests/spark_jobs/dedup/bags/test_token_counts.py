"""Tokens and their counts, against slow references that share no code with the compiled ones."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from spark_jobs.dedup.bags.bags import BagsConfig, Units, _bag_batches
from spark_jobs.dedup.bags.features import (
    STRUCTURE_TOKENS,
    WORD_PAIRS,
    WORD_RUNS,
    WORDS,
    WORDS_AND_STRUCTURE,
    Features,
    kind_salt,
    token_rules,
)
from spark_jobs.dedup.bags.token_counting import lex_text
from spark_jobs.dedup.bags.token_counts import TokenCounts, count_tokens, token_version
from spark_jobs.exceptions import InputError
from spark_jobs.lake.engine.arrangement import Shared
from spark_jobs.lexing.lexers import LEXERS, lexer_of, syntax_tables
from spark_jobs.lexing.machine import KEYWORD, TEXT
from spark_jobs.lexing.word_characters import word_tables
from spark_jobs.text.text_columns import utf8_buffer
from tests.spark_jobs.dedup.near_corpus import numbered_words, words_or_runs
from tests.tiers import tries

G, BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1

SCRIPTS = {
    "han": (
        "[\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
        "\U00016ff0-\U00016ff1\U00020000-\U0003ffff]"
    ),
    "kana": "[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f]",
    "thai": "[\u0e00-\u0e7f]",
    "lao": "[\u0e80-\u0eff]",
    "khmer": "[\u1780-\u17ff]",
    "burmese": "[\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f]",
}
TEXTS = st.text(
    alphabet=st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from("aZ_09 .,'\n\0İΣςßéЖ漢字仮ナ々〇ーกำລາខ្មာ१ाⅣⒶ＿\u200d\u0301\U00020000\U0001e900\U0010ffff"),
    ),
    max_size=80,
)


def is_word(character: str) -> bool:
    """Whether a character is a part of words."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def script(character: str) -> str:
    """The script without spaces of a character of words, or nothing."""
    return next((name for name, pattern in SCRIPTS.items() if re.match(pattern, character)), "")


def prose_tokens(text: str, lower: bool = True) -> list[tuple[str, int, int]]:
    """Tokens of prose with their first and last characters, one character at a time."""
    runs: list[tuple[str, int, int]] = []
    for at, character in enumerate(text):
        kind = script(character) or "word" if is_word(character) else ""
        if kind and runs and runs[-1][0] == kind and runs[-1][2] == at:
            runs[-1] = (kind, runs[-1][1], at + 1)
        elif kind:
            runs.append((kind, at, at + 1))
    found: list[tuple[str, int, int]] = []
    for kind, start, end in runs:
        size = end - start if kind == "word" else min(2, end - start)
        for first in range(start, end - size + 1):
            one = text[first : first + size]
            found.append(
                ("".join(c.lower() if len(c.lower()) == 1 else c for c in one) if lower else one, first, first + size)
            )
    return found


def mixed(h: int) -> int:
    """The finalizer of splitmix64, never 0."""
    z = (h + G) & BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31) or 1


def folded(blocks: list[int]) -> int:
    """The hash over a sequence of 64-bit numbers."""
    h = 0
    for block in blocks:
        h = ((h ^ block) * G) & BITS
        h ^= h >> 32
    return h


def token_hash(token: str, salt: int) -> int:
    """Salted hash of a token's text."""
    data = token.encode()
    return mixed(folded([int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]) ^ salt)


Expected = list[tuple[int, int, int, int]]


def expected(text: str, salt: int, feature: int = WORDS, lower: bool = True) -> Expected:
    """(hash, count, start in bytes, length in bytes) of the distinct features of prose, ascending."""
    tokens = prose_tokens(text, lower)
    size = min(2 if feature == WORD_PAIRS else 1, len(tokens)) or 1
    found = []
    for at in range(len(tokens) - size + 1):
        part = tokens[at : at + size]
        hashes = [token_hash(token, salt) for token, _, _ in part]
        h = mixed(folded(hashes)) if feature == WORD_PAIRS else hashes[0]
        start, stop = (len(text[:place].encode()) for place in part[-1][1:])
        found.append((h, start, stop - start if feature == WORDS else 0))
    spelled = {token_hash(token, salt): token for token, _, _ in tokens} if feature == WORDS else {}
    return summed(with_runs(found, feature == WORD_RUNS, numbered_words(spelled)))


def with_runs(
    words: list[tuple[int, int, int]], few: bool = False, numbered: Mapping[int, bool] | None = None
) -> list[tuple[int, int, int]]:
    """Words (or pairs) with start and length, and from where too few of them differ on runs."""
    return [
        (h, *words[at][1:])
        if isinstance(h, int)
        else (mixed(folded([one or 0 for one in h]) ^ len(h)), words[at][1], 0)
        for at, h in words_or_runs([h for h, _, _ in words], few, numbered)
    ]


def summed(features: list[tuple[int, int, int]]) -> Expected:
    """Features with their counts, ascending."""
    counts = Counter(h for h, _, _ in features)
    places = {h: place for h, *place in reversed(features)}
    return [(h, counts[h], *places[h]) for h in sorted(counts)]


def rows(found: TokenCounts, document: int, first_byte: int) -> Expected:
    """What `expected` gives, of one document."""
    part = slice(found.offsets[document], found.offsets[document + 1])
    starts = (found.starts[part] - first_byte).tolist()
    return list(
        zip(found.hashes[part].tolist(), found.counts[part].tolist(), starts, found.lengths[part].tolist(), strict=True)
    )


def expected_structure(text: bytes, lexer: int, salt: int) -> Expected:
    """The same of the words of code and of every second run of its parts."""
    found = lex_text(np.frombuffer(text, np.uint8), lexer, True, syntax_tables(), word_tables())
    tokens = list(zip(*(column.tolist() for column in found), strict=True))
    words = [(mixed(h ^ salt), start, end - start) for h, start, end, kind in tokens if kind < KEYWORD]
    spelled = {h: text[start : start + size].decode("latin-1") for h, start, size in words}
    features = with_runs(words, numbered=numbered_words(spelled))
    parts = [(h if kind > TEXT else folded([kind + 1]), start) for h, start, _, kind in tokens if kind != TEXT]
    for last in range(STRUCTURE_TOKENS, len(parts) + 1):
        run = parts[last - STRUCTURE_TOKENS : last]
        polynomial = 0
        for part, _ in run:
            polynomial = (polynomial * 0xBF58476D1CE4E5B9 + part) & BITS
        h = mixed(polynomial ^ salt ^ 0x5354525543545552)
        features += [(h, run[-1][1], 0)] if h % 2 == 0 else []
    return summed(features)


def count_all(content: pa.Array, lexer: int = 0, salt: int = 0, feature: int = WORDS) -> list[Expected]:
    """Features of each text of a column."""
    documents = len(content)
    found = count_tokens(
        content,
        np.full(documents, lexer, np.uint8),
        np.full(documents, salt, np.uint64),
        np.full(documents, feature, np.uint8),
    )
    offsets, _ = utf8_buffer(content)
    return [rows(found, document, int(offsets[document])) for document in range(documents)]


@given(st.lists(TEXTS, max_size=6), st.integers(0, BITS), st.sampled_from([pa.string(), pa.large_string()]))
@example(
    ["İstanbul ΣΑΣ K Å", "漢字仮名ABC漢 ไทย๑", "a\0b\0", "...", "", "don’t", "x" * 7 + "é", "x" * 8 + "é"],
    5,
    pa.string(),
)
def test_prose_is_cut_as_the_reference_cuts_it(texts: list[str], salt: int, kind: pa.DataType) -> None:
    """Hash, count, and place of the first occurrence of every token, for any text of any script."""
    assert count_all(pa.array(texts, type=kind), salt=salt) == [expected(text, salt) for text in texts]


@given(st.lists(TEXTS, max_size=4))
def test_generic_words_keep_their_case(texts: list[str]) -> None:
    """The generic lexer is that of prose but for lower case."""
    assert count_all(pa.array(texts, pa.string()), lexer=1) == [expected(text, 0, lower=False) for text in texts]


@given(st.lists(TEXTS, max_size=4))
def test_pairs_are_two_words_in_a_row(texts: list[str]) -> None:
    """A text of one word has that alone, a text without words nothing."""
    found = count_all(pa.array(texts, pa.string()), salt=3, feature=WORD_PAIRS)
    assert found == [expected(text, 3, WORD_PAIRS) for text in texts]


PYTHON = LEXERS.index("Python")
CODE = """
def total(items, rate=3):
    "Sum of the items, weighed."
    result = 0  # in EUR, rounded
    for item in items:
        if item.price > 10 and item.name != 'free':
            result += item.price * rate
    return [result, f"{result:>8} \u00fcber", {'a': 1}]
"""


@given(st.tuples(*[st.integers(0, len(CODE))] * 2), st.integers(0, BITS), st.integers(0, len(LEXERS) - 1))
@example((0, len(CODE)), 5, PYTHON)
def test_structure_is_every_second_run_of_the_parts_of_code(cuts: tuple[int, int], salt: int, lexer: int) -> None:
    """Beside the words, of any piece of code read as any language."""
    text = CODE[min(cuts) : max(cuts)]
    (found,) = count_all(pa.array([text]), lexer, salt, WORDS_AND_STRUCTURE)
    assert found == expected_structure(text.encode(), lexer, salt)


def test_structure_is_counted_in_blocks_without_a_seam() -> None:
    """More tokens than a block, and long comments between them."""
    numbers = np.random.default_rng(8).integers(0, 9, 2000).tolist()
    text = "".join(f"a{number} = b[{number}] {'+ c' * number} # {'漢字' * number}\n" for number in numbers)
    texts = [text, CODE, text[:9000]]
    found = count_all(pa.array(texts), PYTHON, 5, WORDS_AND_STRUCTURE)
    assert found == [expected_structure(one.encode(), PYTHON, 5) for one in texts]


def test_structure_stays_where_names_numbers_strings_and_comments_change() -> None:
    """The renamed program has other words and the same runs, as often."""
    renamed = CODE
    for old, new in (
        ("item", "it"),
        ("result", "x"),
        ("rate", "y"),
        ("10", "7.5"),
        ("free", "any words"),
        ("EUR", "a"),
    ):
        renamed = renamed.replace(old, new)
    column = pa.array([CODE, renamed])
    words = [{h for h, *_ in one} for one in count_all(column, PYTHON, 5)]
    runs = [
        {h: count for h, count, *_ in one if h not in own}
        for one, own in zip(count_all(column, PYTHON, 5, WORDS_AND_STRUCTURE), words, strict=True)
    ]
    assert words[0] != words[1]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 20


def test_features_are_chosen_by_kind() -> None:
    """One name stands for all kinds; code has its structure by default, and no other kind can."""
    kinds, languages = ["code", "prose", "data", "code"], ["Go", None, None, "COBOL"]
    chosen = [
        (Features(), [WORDS_AND_STRUCTURE, WORDS, WORD_RUNS, WORDS_AND_STRUCTURE]),
        (Features.model_validate("word_pairs"), [WORD_PAIRS] * 4),
        (Features(prose="word_pairs", code="words"), [WORDS, WORD_PAIRS, WORD_RUNS, WORDS]),
    ]
    for features, wanted in chosen:
        lexers, salts, found = token_rules(kinds, languages, features)
        assert found.tolist() == wanted
        assert [LEXERS[lexer] for lexer in lexers] == ["Go", "prose", "generic", "generic"]
        assert salts.tolist() == [kind_salt(kind) for kind in kinds]
    with pytest.raises(ValidationError, match=r"prose\n.*'words', 'word_pairs' or 'word_runs'"):
        Features.model_validate("words_and_structure")


@given(st.lists(TEXTS, min_size=2, max_size=8), st.data())
def test_a_slice_counts_as_its_texts_do(texts: list[str], data: st.DataObject) -> None:
    """Offsets of Arrow's slices are honoured, and nothing outside of a slice is read."""
    first = data.draw(st.integers(0, len(texts)))
    last = data.draw(st.integers(first, len(texts)))
    content = pa.array(texts, pa.string()).slice(first, last - first)
    assert count_all(content) == [expected(text, 0) for text in texts[first:last]]


@pytest.mark.nightly
@pytest.mark.parametrize("feature", [WORDS, WORD_PAIRS])
def test_long_texts_are_counted_in_blocks_without_a_seam(feature: int) -> None:
    """More tokens than a block, more distinct ones than slots, a run of Han and a word longer than any block."""
    numbers = np.random.default_rng(7).integers(0, 4000, 9000)
    long = " ".join(f"w{number}é" if number % 7 == 0 else f"Word{number}" for number in numbers.tolist())
    texts = [long, "漢字仮" * 3000, "x" * 70_000, "short text", long[:20_000]]
    assert count_all(pa.array(texts), feature=feature) == [expected(text, 0, feature) for text in texts]


@settings(max_examples=tries(30, 8))
@given(st.lists(st.integers(1, 5), max_size=3), st.integers(1, 12), st.integers(0, 2**32))
def test_a_text_of_few_words_counts_as_runs(lengths: list[int], words: int, seed: int) -> None:
    """From where its words are few for its length on, whatever blocks it is read in, and its neighbours as ever."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(f"w{n}" for n in draw.integers(0, words, 150 * length**2)) for length in lengths]
    texts.append("other words than these, as many as there are in it")
    for feature in (WORDS, WORD_PAIRS, WORD_RUNS):
        assert count_all(pa.array(texts), feature=feature) == [expected(text, 0, feature) for text in texts]


@given(st.lists(st.text(st.sampled_from("ab1.'\"`\\/*#{}$<>=?!:\n @rRfé漢("), max_size=40), max_size=5), st.data())
def test_code_of_any_shape_ends_within_its_text(texts: list[str], data: st.DataObject) -> None:
    """Every lexer on arbitrary text: it ends, its tokens lie in their own text, and neighbours change nothing."""
    lexer, feature = data.draw(st.integers(0, len(LEXERS) - 1)), data.draw(st.integers(WORDS, WORDS_AND_STRUCTURE))
    together = count_all(pa.array(texts, pa.string()), lexer, feature=feature)
    for text, found in zip(texts, together, strict=True):
        assert all(start >= 0 and start + length <= len(text.encode()) for _, _, start, length in found)
        assert all((length > 0) or feature for *_, length in found)
        assert found == sorted(found)
        assert [found] == count_all(pa.array([text]), lexer, feature=feature)


def test_bytes_that_are_no_utf8_are_read_within_their_text() -> None:
    """Arrow does not check on construction: a cut character at the end of a text takes nothing from the next one."""
    data = b"a\xf0\x9f" + b"\x98\x80b" + b"\xe6\xbc" + b"\xf4\x90\x80\x80\xff\xc3"
    offsets = np.array([0, 3, 6, 8, len(data)], dtype=np.int32)
    content = pa.StringArray.from_buffers(4, pa.py_buffer(offsets), pa.py_buffer(data))
    found = count_tokens(content, np.zeros(4, np.uint8), np.zeros(4, np.uint64))
    assert found.offsets.tolist() == [0, 1, 2, 2, 2]
    assert found.hashes.tolist() == [token_hash("a", 0), token_hash("b", 0)]


def test_kinds_share_no_token() -> None:
    """A word of prose and the same identifier have different hashes."""
    kinds = ("code", "prose", "markup", "data")
    found = count_tokens(
        pa.array(["word"] * 4), np.zeros(4, np.uint8), np.array([kind_salt(kind) for kind in kinds], np.uint64)
    )
    assert len(set(found.hashes.tolist())) == 4


def test_a_vocabulary_of_other_features_is_refused() -> None:
    """Its weights are those of other tokens; the message names both and says how to mend it."""
    found = Units(np.zeros(0, np.uint64), np.zeros(0, np.uint8), {}, token_version(Features()))
    config = BagsConfig(features=Features(prose="word_pairs"))
    with pytest.raises(InputError, match=r"prose=word_pairs .*, the vocabulary has .*prose=words .*refreeze"):
        list(_bag_batches(iter([]), Shared(None, found), config))


def test_an_empty_column_has_no_tokens() -> None:
    """No document, one offset."""
    found = count_tokens(pa.array([], pa.string()), np.zeros(0, np.uint8), np.zeros(0, np.uint64))
    assert found.offsets.tolist() == [0]
    assert len(found.hashes) == 0


@pytest.mark.parametrize(
    ("content", "lexers", "salts", "features", "message"),
    [
        (["a", None], 2, 2, 2, "1 of 2 texts are null"),
        (["a"], 2, 1, 1, "2 lexers"),
        (["a"], 1, 0, 1, "0 salts"),
        (["a"], 1, 1, 3, "3 features"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    content: list[str | None], lexers: int, salts: int, features: int, message: str
) -> None:
    """With what is wrong and how to mend it."""
    rules = np.zeros(lexers, np.uint8), np.zeros(salts, np.uint64), np.zeros(features, np.uint8)
    with pytest.raises(InputError, match=message):
        count_tokens(pa.array(content), *rules)


def test_an_unknown_lexer_is_refused() -> None:
    """Codes end with the last lexer."""
    with pytest.raises(InputError, match="is unknown"):
        count_tokens(pa.array(["a"]), np.array([len(LEXERS)], np.uint8), np.zeros(1, np.uint64))


def test_lexers_follow_kind_and_language() -> None:
    """Prose is prose in any language; code has the lexer of its language or the generic one."""
    assert LEXERS[lexer_of("prose", "Python")] == "prose"
    assert LEXERS[lexer_of("code", "Python")] == "Python"
    assert LEXERS[lexer_of("code", "Cuda")] == "C++"
    assert LEXERS[lexer_of("code", "COBOL")] == LEXERS[lexer_of("code", None)] == "generic"
    assert LEXERS[lexer_of("markup", "HTML")] == LEXERS[lexer_of("data", "JSON")] == "generic"


def test_token_version_is_that_of_every_process() -> None:
    """Another process of the same Python says the same."""
    program = "from spark_jobs.dedup.bags.token_counts import *; print(token_version(Features()))"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == token_version(Features())
    assert token_version(Features(prose="word_pairs")) != token_version(Features())


def test_hashes_are_what_they_always_were() -> None:
    """Golden values: where they change, TOKEN_RULES changes too."""
    found = count_tokens(
        pa.array(["Word wörter 漢字"]), np.zeros(1, np.uint8), np.array([kind_salt("prose")], np.uint64)
    )
    assert found.hashes.tolist() == sorted(token_hash(t, kind_salt("prose")) for t in ("word", "wörter", "漢字"))
    assert found.hashes.tolist() == [616593144500098500, 4455600736191604005, 15224733635897821837]
