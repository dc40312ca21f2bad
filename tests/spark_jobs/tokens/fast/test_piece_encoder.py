"""Pieces of words have the ids of the words, in every script, and in a memory that stays as it is."""

from __future__ import annotations

import itertools
import json
import random
import sys
import unicodedata
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from spark_jobs.tokens.fast import piece_encoder, piece_tables
from spark_jobs.tokens.fast.fast_encoder import FastEncoder, load_pieces
from spark_jobs.tokens.fast.piece_encoder import PieceEncoder
from spark_jobs.tokens.fast.piece_merging import LONGEST_PIECE
from spark_jobs.tokens.fast.pre_tokenization import token_name
from spark_jobs.tokens.fast.word_ends import LETTER, NUMBER, SPACE, character_classes
from spark_jobs.tokens.hf_tokenizer import load_reference, train_byte_pairs
from tests.spark_jobs.packing.encoders import HARD_TEXT, changed, needs_fast_encoder, tokenizer_of
from tests.tiers import tries

SCRIPTS = ("电影院在哪里", "かなカナ", "한국어가나다", "привет", "السلام", "नमस्ते", "ภาษาไทย", "ΑΩδέ", "🙂🚀", "abcé")
SPLITTINGS = ("gpt2", "llama3", "qwen2")

MANY_SCRIPTS = st.text(
    st.one_of(st.sampled_from("".join(SCRIPTS) + " \n'1、。"), st.characters(codec="utf-8")), max_size=80
)
"""Few characters of each script, which the tokenizers below know in many combinations, and any others."""


def texts_of_all_scripts() -> list[str]:
    """Words drawn from each alphabet, so that many pairs of characters become tokens and as many do not."""
    draw = random.Random(0)
    words = ["".join(draw.choices(script, k=draw.randint(1, 9))) for script in SCRIPTS for _ in range(400)]
    return [" ".join(draw.choices(words, k=30)) for _ in range(300)]


def letters_in_any_order(count: int) -> str:
    """One word, of characters that tokens join and of some that they do not."""
    return "".join(random.Random(2).choices(SCRIPTS[0] + SCRIPTS[1] + "中文字", k=count))


@cache
def tokenizer(splitting: str, **parts: bool) -> str:
    """A tokenizer trained on all scripts; some of its tokens begin or end inside a character."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = sorted(ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=2500, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(texts_of_all_scripts(), trainer)
    declared = json.loads(tokenizer_of(splitting))
    model = json.loads(trained.to_str())["model"]
    return json.dumps({**declared, "added_tokens": [], "model": {**model, **parts}})


@cache
def encoder(splitting: str) -> PieceEncoder:
    """Its encoder, which keeps what it has seen from one example to the next."""
    return PieceEncoder(tokenizer(splitting))


def ids(made: PieceEncoder, text: str) -> list[int] | None:
    """Ids of a text."""
    found = made.encode(text.encode())
    return None if found is None else found.tolist()


@lru_cache(maxsize=4)
def reference(file: str) -> Tokenizer:
    """The reference of a tokenizer."""
    return load_reference(file)


def reference_ids(file: str, text: str) -> list[int]:
    """Ids by the reference, on the whole text at once."""
    return list(reference(file).encode(text, add_special_tokens=False).ids)


def are_old(text: str) -> bool:
    """Whether all characters were in Unicode 3.2, so that no edition of its tables takes them for unknown ones."""
    return all(unicodedata.ucd_3_2_0.category(character) != "Cn" for character in text)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_any_text_has_the_references_ids(splitting: str) -> None:
    """Known characters side by side, others between them, white space and contractions: none moves a token."""

    @settings(max_examples=tries(400))
    @given(st.one_of(MANY_SCRIPTS, HARD_TEXT).filter(are_old))
    def holds(text: str) -> None:
        assert ids(encoder(splitting), text) == reference_ids(tokenizer(splitting), text)

    holds()


def test_tokens_that_begin_inside_a_character_are_merged_across_it() -> None:
    """Merges of the last byte of one character with the next one, ranked first, in words of every two characters."""
    declared = json.loads(tokenizer("gpt2"))
    torn = [
        (token_name("影".encode()[-1:]), token_name("院".encode()[:1])),
        (token_name("и".encode()[-1:]), token_name("в".encode()[:1])),
    ]
    names = ["".join(pair) for pair in torn]
    vocabulary = {**declared["model"]["vocab"]}
    for name in names:
        vocabulary.setdefault(name, len(vocabulary))
    merges = [list(pair) for pair in torn] + [m for m in declared["model"]["merges"] if tuple(m) not in torn]
    file = changed(tokenizer("gpt2"), model={**declared["model"], "vocab": vocabulary, "merges": merges})
    made = PieceEncoder(file)
    letters = "".join(script[:4] for script in SCRIPTS)
    for left, right in itertools.product(letters, repeat=2):
        text = f"{left}{right}影院{right} {left}ив{right}"
        assert ids(made, text) == reference_ids(file, text)


def test_merges_in_any_order_have_the_references_ids() -> None:
    """A merge that ranks before those that make its parts: characters are begun as bytes then."""
    declared = json.loads(tokenizer("gpt2"))
    merges = declared["model"]["merges"]
    random.Random(1).shuffle(merges)
    file = changed(tokenizer("gpt2"), model={**declared["model"], "merges": merges})
    made = PieceEncoder(file)
    for text in texts_of_all_scripts()[:60]:
        assert ids(made, text) == reference_ids(file, text)


def test_words_that_are_tokens_need_no_merges_where_the_tokenizer_says_so() -> None:
    """`ignore_merges`: the word is its token, the same bytes inside a longer word are not."""
    declared = json.loads(tokenizer("llama3"))
    vocabulary = {**declared["model"]["vocab"]}
    extra = ["电", "里里里", "при вет", "哪" * 12]
    for word in extra:
        vocabulary.setdefault(token_name(word.encode()), len(vocabulary))
    texts = [context.replace("X", word) for word in extra for context in ("X", "X。X", " X", "Xа", "在X在", "X\nX哪")]
    for ignores in (True, False):
        model = {**declared["model"], "vocab": vocabulary, "ignore_merges": ignores}
        file = changed(tokenizer("llama3"), model=model)
        made = PieceEncoder(file)
        found = [ids(made, text) for text in (*texts, *reversed(texts))]
        expected = [reference_ids(file, text) for text in (*texts, *reversed(texts))]
        assert [(a, b) for a, b in zip(found, expected, strict=True) if a is not None and a != b] == []
        assert ignores or None not in found


@needs_fast_encoder
def test_a_megabyte_without_a_space_has_the_references_ids() -> None:
    """Characters in any order are cut into pieces; one repeated without end is given up, and the library encodes it."""
    file = tokenizer("gpt2")
    letters = letters_in_any_order(330_000)
    assert ids(PieceEncoder(file), letters) == reference_ids(file, letters)
    joined = "里" * LONGEST_PIECE
    assert PieceEncoder(file).encode(joined.encode()) is None
    mixed = letters[:2000] + joined
    assert FastEncoder(file).encode(mixed.encode()).tolist() == reference_ids(file, mixed)


def test_a_long_text_is_encoded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a block of ids ends, inside a word as well, the next one goes on."""
    text = "".join(texts_of_all_scripts())[:20_000] + letters_in_any_order(3000)
    expected = reference_ids(tokenizer("llama3"), text)
    for block in (1, 7, 1000):
        monkeypatch.setattr(piece_encoder, "_BLOCK", block)
        assert ids(encoder("llama3"), text) == expected


def test_what_is_remembered_stays_in_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for four words and pieces ids are the same: the newest takes the place of an older one."""
    monkeypatch.setattr(piece_tables, "_KEPT", 4)
    made = PieceEncoder(tokenizer("gpt2"))
    for text in texts_of_all_scripts()[:40]:
        assert ids(made, text) == reference_ids(tokenizer("gpt2"), text)


def test_unknown_tokenizers_are_left_to_the_library() -> None:
    """An added token that is not special stands for itself wherever it is; more ids than a pair has bits for."""
    added = Tokenizer.from_str(tokenizer("gpt2"))
    added.add_tokens([AddedToken("电影", special=False)])
    declared = json.loads(tokenizer("gpt2"))
    large = {**declared["model"]["vocab"], "zzzz": piece_tables.MOST_IDS}
    assert load_pieces(added.to_str()) is None
    assert load_pieces(changed(tokenizer("gpt2"), model={**declared["model"], "vocab": large})) is None


@needs_fast_encoder
def test_long_stretches_beyond_ascii_take_pieces_and_others_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chinese with some Latin does; words with spaces, English with one Chinese sentence and an empty text do not."""
    made = FastEncoder(tokenizer("gpt2"))
    took: list[str] = []
    monkeypatch.setattr(made._pieces, "encode", lambda data: took.append("pieces") or np.zeros(0, np.int32))
    monkeypatch.setattr(made._library, "encode", lambda data: took.append("library") or np.zeros(0, np.int32))
    chinese = "电影院在哪里，我们明天去看。"
    for text in (chinese, f"2026 {chinese} (API 12)", f"an English text of a film, {chinese}" * 9):
        made.encode(text.encode())
    for text in (SCRIPTS[3] + " в кино", "가나 다한국 어나다", "abc", "", "voilà", f"{'plain words ' * 9}{chinese}"):
        made.encode(text.encode())
    assert took == ["pieces"] * 3 + ["library"] * 6


@pytest.mark.nightly
def test_all_languages_have_the_references_ids(real_data: Path) -> None:
    """Sentences in 75 languages, with GPT-2's vocabulary and with one of their own of 32,768."""
    texts = ["\n".join(path.read_text().splitlines()[::8]) for path in sorted(real_data.glob("languages/??.txt"))]
    assert len(texts) == 75
    own = changed(train_byte_pairs(texts, 32768, 1), pre_tokenizer=json.loads(tokenizer("llama3"))["pre_tokenizer"])
    for file in ((real_data / "tokenizers" / "gpt2.json").read_text(), own):
        made = PieceEncoder(file)
        for text in texts:
            assert ids(made, text) == reference_ids(file, text)


def test_no_letter_lies_beyond_the_planes_that_are_looked_at() -> None:
    """The table of classes reads the names of a quarter of all code points; the others are of no class."""
    classes = character_classes()
    named = {"L": LETTER, "N": NUMBER, "Z": SPACE}
    odd = [n for n in range(0x40000, sys.maxunicode + 1, 7) if unicodedata.category(chr(n))[0] in named]
    assert len(classes) == sys.maxunicode + 1 and not odd and not classes[0x40000:].any()
