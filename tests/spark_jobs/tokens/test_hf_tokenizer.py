"""Tokenizers: trained the same everywhere, read with care, applied exactly."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from spark_jobs.exceptions import InputError
from spark_jobs.tokens.hf_tokenizer import (
    ExactEncoder,
    can_cut_at_lines,
    cut_at_lines,
    cut_before_spaces,
    read_facts,
    train_byte_pairs,
)
from tests.tiers import tries

ROOT = Path(__file__).parents[3]
SOURCES = [path.read_text() for path in sorted((ROOT / "spark_jobs").rglob("*.py"))]
TRAIN = """
import hashlib, pathlib, random, sys
from spark_jobs.tokens.hf_tokenizer import train_byte_pairs
texts = [path.read_text() for path in sorted(pathlib.Path("spark_jobs").rglob("*.py"))]
random.Random(int(sys.argv[1])).shuffle(texts)
print(hashlib.sha256(train_byte_pairs(texts, 2000, 2).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def trained() -> str:
    """A small tokenizer of this repository's own sources."""
    return train_byte_pairs(SOURCES, 2000, 2)


def changed(file_text: str, **parts: object) -> str:
    """A tokenizer file with other parts."""
    return json.dumps({**json.loads(file_text), **parts})


@pytest.mark.nightly
def test_training_gives_one_file_for_any_order_and_threads() -> None:
    """Processes with other thread settings and other orders of documents train the same bytes."""
    digests = set()
    for seed, settings_ in enumerate(
        ({"RAYON_NUM_THREADS": "1"}, {"RAYON_NUM_THREADS": "4"}, {"TOKENIZERS_PARALLELISM": "0"})
    ):
        command = [sys.executable, "-c", TRAIN, str(seed)]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **settings_}, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_trained_file_has_the_two_specials_and_all_bytes(trained: str) -> None:
    """The specials are ids 0 and 1, every byte has an id, and the size is the one asked for."""
    facts = read_facts(trained)
    assert facts.special_tokens == {"<|endoftext|>": 0, "<|padding|>": 1}
    assert (facts.end_of_document_id, facts.padding_id, facts.vocabulary_size) == (0, 1, 2000)
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(Tokenizer.from_str(trained).get_vocab())


@settings(max_examples=tries(200))
@given(st.lists(st.text(max_size=40), max_size=5))
def test_ids_decode_to_the_text(trained_once: str, texts: list[str]) -> None:
    """Any text comes back from its ids, the empty one from none."""
    tokenizer = Tokenizer.from_str(trained_once)
    for text, ids in zip(texts, ExactEncoder(trained_once).encode(texts, 1000), strict=True):
        assert tokenizer.decode(ids.tolist(), skip_special_tokens=False) == text
        assert len(ids) or not text


@pytest.fixture(scope="session")
def trained_once() -> str:
    """The same for property tests, which want fixtures of a wider scope."""
    return train_byte_pairs(SOURCES, 2000, 2)


def test_special_token_text_stays_text(trained: str) -> None:
    """A document that quotes a special token holds its characters, not its id."""
    (ids,) = ExactEncoder(trained).encode(["a <|endoftext|> b<|padding|>"], 1000)
    assert not {0, 1} & set(ids.tolist())
    assert Tokenizer.from_str(trained).decode(ids.tolist()) == "a <|endoftext|> b<|padding|>"


TRICKY = st.text(st.sampled_from("ab1 \n\n\n'st\t\r\u00a0\u0085\u2028\u200b\x1c\x0b.,é漢🙂_"), max_size=300)


@settings(max_examples=tries(500))
@given(texts=st.lists(TRICKY, max_size=4), batch_characters=st.integers(1, 100))
def test_cutting_long_documents_changes_no_id(trained_once: str, texts: list[str], batch_characters: int) -> None:
    """However small the batches, ids are those of the whole text at once."""
    tokenizer = Tokenizer.from_str(trained_once)
    tokenizer.encode_special_tokens = True
    found = [ids.tolist() for ids in ExactEncoder(trained_once).encode(texts, batch_characters)]
    assert found == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


@settings(max_examples=tries(200))
@given(TRICKY, st.integers(1, 50))
def test_pieces_join_to_the_text_and_end_in_line_feeds(text: str, target: int) -> None:
    """Nothing is lost; each cut lies after a lone line feed, and pieces are not shorter than asked for."""
    pieces = cut_at_lines(text, target)
    assert "".join(pieces) == text
    for piece, following in itertools.pairwise(pieces):
        assert len(piece) >= target
        assert piece[-1] == "\n"
        assert not piece[-2].isspace()
        assert not following[0].isspace()


@given(st.text(st.sampled_from("ab'sé1 中,\n\t\r\u00a0\x1c\u3000"), max_size=80), st.integers(1, 12))
def test_words_of_pieces_cut_before_spaces_are_those_of_the_text(text: str, most: int) -> None:
    """No piece is too long, and words differ only at the end of a piece that had no place to cut, where one is two."""
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    pieces = list(cut_before_spaces(text, most))
    assert "".join(pieces) == text and all(len(piece) <= most for piece in pieces)
    place, safe = 0, []
    for piece, following in itertools.pairwise([*pieces, ""]):
        place += len(piece)
        if following[:1] in " \t\n\r" and not piece[-1:].isspace():
            safe.append(place)
    ends = {end for _, (_, end) in words.pre_tokenize_str(text)}
    assert not [place for place in safe if place < len(text) and place not in ends]


def test_training_on_pieces_gives_the_file_of_the_whole_text() -> None:
    """Where there is white space to cut before, pieces and the whole make the same tokenizer."""
    whole = "\n".join(SOURCES[:10])
    pieces = list(cut_before_spaces(whole, 500))
    assert len(pieces) > 50
    assert train_byte_pairs(pieces, 400, 2) == train_byte_pairs([whole], 400, 2)


@pytest.mark.nightly
def test_real_sources_are_cut_into_many_pieces_with_equal_ids(trained: str) -> None:
    """A long document of real code is encoded in bounded batches."""
    text = "".join(SOURCES)
    assert len(cut_at_lines(text, 1000)) > 20
    (ids,) = ExactEncoder(trained).encode([text], 4000)
    tokenizer = Tokenizer.from_str(trained)
    tokenizer.encode_special_tokens = True
    assert ids.tolist() == tokenizer.encode(text).ids


def test_cutting_is_off_where_it_is_not_proven(trained: str) -> None:
    """A prefix space, a normalizer, another pre-tokenizer or an added token that is no special one: encode whole."""
    assert can_cut_at_lines(trained)
    byte_level = json.loads(trained)["pre_tokenizer"]
    assert not can_cut_at_lines(changed(trained, pre_tokenizer={**byte_level, "add_prefix_space": True}))
    assert not can_cut_at_lines(changed(trained, pre_tokenizer={**byte_level, "use_regex": False}))
    assert not can_cut_at_lines(changed(trained, pre_tokenizer={"type": "Whitespace"}))
    assert not can_cut_at_lines(changed(trained, pre_tokenizer=None))
    assert not can_cut_at_lines(changed(trained, normalizer={"type": "NFC"}))
    tokenizer = Tokenizer.from_str(trained)
    tokenizer.add_tokens([AddedToken("a\nb")])
    assert not can_cut_at_lines(tokenizer.to_str())


def test_uncuttable_tokenizer_encodes_long_documents_whole(trained: str) -> None:
    """With a normalizer the ids still are the library's."""
    tokenizer = Tokenizer.from_str(trained)
    tokenizer.normalizer = normalizers.Lowercase()
    (ids,) = ExactEncoder(tokenizer.to_str()).encode(["Ab\ncd\n" * 50], 10)
    assert ids.tolist() == tokenizer.encode("Ab\ncd\n" * 50).ids


def test_truncation_padding_and_template_of_a_file_are_off(trained: str) -> None:
    """Ids are the text's alone, whatever the file would add or take away."""
    tokenizer = Tokenizer.from_str(trained)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=50, pad_id=1)
    texts = ["def f(x): return x + 1", ""]
    found = [ids.tolist() for ids in ExactEncoder(tokenizer.to_str()).encode(texts, 1000)]
    assert found == [ids.tolist() for ids in ExactEncoder(trained).encode(texts, 1000)]


def word_tokenizer(*specials: str) -> str:
    """A tokenizer file with these special tokens and a gap before the last id."""
    vocabulary = {"a": 0, "b": 9, **{name: number for number, name in enumerate(specials, start=1)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    tokenizer.add_special_tokens(list(specials))
    return str(tokenizer.to_str())


def test_specials_of_a_given_file_are_found_by_common_names() -> None:
    """Known names are found, the size counts gaps, and padding falls back to the end of document."""
    facts = read_facts(word_tokenizer("</s>", "<pad>"))
    assert (facts.end_of_document_id, facts.padding_id, facts.vocabulary_size) == (1, 2, 10)
    assert facts.special_tokens == {"</s>": 1, "<pad>": 2}
    assert read_facts(word_tokenizer("</s>")).padding_id == 1


def test_specials_of_a_given_file_can_be_named() -> None:
    """Names in the config win over the known ones."""
    facts = read_facts(word_tokenizer("</s>", "<over>", "<fill>"), "<over>", "<fill>")
    assert (facts.end_of_document_id, facts.padding_id) == (2, 3)


def test_a_file_without_end_of_document_is_refused() -> None:
    """Neither a known name nor the one named: an error that says which setting mends it."""
    with pytest.raises(InputError, match="name its end-of-document token in end_of_document"):
        read_facts(word_tokenizer("<sep>"))
    with pytest.raises(InputError, match="end_of_document names '<eod>', which the file does not have"):
        read_facts(word_tokenizer("</s>"), "<eod>")
    with pytest.raises(InputError, match="padding names '<fill>'"):
        read_facts(word_tokenizer("</s>"), None, "<fill>")


def test_a_file_that_is_no_tokenizer_is_refused() -> None:
    """Any other JSON is an error in one line."""
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        read_facts('{"version": 1}')
