"""Vocabularies made to be probed show where texts are split, and tokenizer files are read as the library reads them."""

from __future__ import annotations

import itertools
import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from spark_jobs.tokens.certificate_probes import (
    REPRESENTATIVES,
    boundaries,
    character_probes,
    code_point_blocks,
    first_probe,
    line_ends,
    structure_probes,
    whole_words,
)
from spark_jobs.tokens.fast.pre_tokenization import (
    BYTE_NAMES,
    SPLIT_PATTERNS,
    splitting_name,
    token_bytes,
    token_name,
)
from spark_jobs.tokens.hf_tokenizer import load_reference
from tests.spark_jobs.packing.encoders import SPLITTINGS, changed, tokenizer_of, trained_tokenizer
from tests.tiers import tries


@cache
def revealing(splitting: str, whole: bool) -> Tokenizer:
    """One of the two tokenizers of a splitting."""
    declared = json.loads(tokenizer_of(splitting))["pre_tokenizer"]
    return load_reference(whole_words(declared, structure_probes()) if whole else boundaries(declared))


def words(splitting: str, text: str) -> list[str]:
    """Words by the library's own pre-tokenizer, each as its bytes' names."""
    return [word for word, _ in load_reference(tokenizer_of(splitting)).pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_one_id_is_one_word(splitting: str) -> None:
    """Over any short text of representatives, whole words give as many ids as the pre-tokenizer gives words."""

    @settings(max_examples=tries(150))
    @given(st.text(st.sampled_from(REPRESENTATIVES), max_size=4))
    def holds(text: str) -> None:
        assert revealing(splitting, True).encode(text).tokens == words(splitting, text)

    holds()


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_what_is_not_joined_was_split(splitting: str) -> None:
    """Of characters beyond ASCII each border inside a word joins two bytes, and no border between words does."""

    @settings(max_examples=tries(150))
    @given(st.text(st.characters(min_codepoint=128, codec="utf-8"), max_size=8))
    def holds(text: str) -> None:
        inside = len(text) - len(words(splitting, text))
        assert len(revealing(splitting, False).encode(text).ids) == len(text.encode()) - inside

    holds()


def test_bytes_have_the_librarys_names() -> None:
    """The table is that of the library, and names lead back to bytes."""
    assert sorted(BYTE_NAMES) == sorted(pre_tokenizers.ByteLevel.alphabet())
    every = bytes(range(256))
    assert token_bytes(token_name(every)) == every
    (word,) = words("gpt2", "é")
    assert word == token_name("é".encode())
    assert token_bytes("<日>") is None


@pytest.mark.parametrize("splitting", ["gpt2", *SPLIT_PATTERNS])
def test_known_splittings_are_recognised(splitting: str) -> None:
    """By the tokenizer's file alone, as the library writes it."""
    file = Tokenizer.from_str(tokenizer_of(splitting)).to_str()
    assert splitting_name(json.loads(file)) == splitting


def test_other_splittings_are_not_taken_for_known_ones() -> None:
    """Another pattern, another behaviour, a step more, a normalizer, a prefix space: each is another splitting."""
    declared = json.loads(tokenizer_of("llama3"))
    split, byte_level = declared["pre_tokenizer"]["pretokenizers"]
    others = [
        [{**split, "pattern": {"Regex": r"\w+|\W+"}}, byte_level],
        [{**split, "behavior": "Removed"}, byte_level],
        [{**split, "invert": True}, byte_level],
        [split, byte_level, byte_level],
        [split, {**byte_level, "use_regex": True}],
        [byte_level],
    ]
    for parts in others:
        assert splitting_name({"pre_tokenizer": {"type": "Sequence", "pretokenizers": parts}}) is None
    assert splitting_name({**declared, "normalizer": {"type": "NFC"}}) is None
    gpt2 = json.loads(trained_tokenizer())["pre_tokenizer"]
    assert (
        splitting_name(json.loads(changed(trained_tokenizer(), pre_tokenizer={**gpt2, "add_prefix_space": True})))
        is None
    )


def test_cuts_lie_between_visible_characters() -> None:
    """Every pair of line ends joins to a text that is cut after a line feed, with no white space on either side."""
    pairs = line_ends()
    assert len(pairs) > 5000
    assert all(left[-1] == "\n" and not left[-2].isspace() and not right[0].isspace() for left, right in pairs)


def test_probes_of_structure_are_all_ways_that_classes_follow_one_another() -> None:
    """Up to four representatives, and each ASCII character in each context; none twice."""
    probes = structure_probes()
    assert len(set(probes)) == len(probes)
    ways = {"".join(way) for length in range(5) for way in itertools.product(REPRESENTATIVES, repeat=length)}
    others = set(probes) - ways
    assert len(probes) == len(ways) + len(others)
    assert {one for number in range(128) for one in character_probes(chr(number))} <= set(probes)
    assert {"aza", "5's 0", "?\x7f's 0"} <= others
    assert not [one for one in others if any(ord(character) >= 128 for character in one)]


def test_a_character_is_put_into_every_context() -> None:
    """The first one is among them."""
    probes = character_probes("\u00e9")
    assert len(probes) == len(set(probes)) == 23
    assert first_probe("\u00e9") == "?\u00e9's 0" in probes
    assert {"\u00e9", "a\u00e9a", "??\u00e9??", "\u00e9\u00e9", "a'\u00e9ea"} <= set(probes)


@pytest.mark.parametrize(
    ("number", "beside"), [(0xE9, "a"), (0x660, "1"), (0x2028, "??"), (0x21AF, "??"), (0x378, "??")]
)
def test_a_block_stands_between_characters_of_its_class(number: int, beside: str) -> None:
    """Letters, numbers, others; at most 64 of one class, of which each border joins two bytes where nothing splits."""
    (block,) = (one for one in code_point_blocks() if one.first <= number <= one.last)
    inside = "".join(map(chr, range(block.first, block.last + 1)))
    assert block.text == beside + inside + beside
    assert 1 <= len(inside) <= 64
    assert block.unsplit_length == len(block.text.encode()) - len(inside) - 1
    assert max(one.last - one.first + 1 for one in code_point_blocks()) == 64
