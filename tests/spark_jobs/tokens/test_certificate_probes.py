"""Vocabularies made to be probed show where texts are split, and tokenizer files are read as the library reads them."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from spark_jobs.tokens import certificate_probes
from spark_jobs.tokens.certificate_probes import (
    ANCHORS,
    boundaries,
    cased_as_ascii,
    character_probes,
    code_point_blocks,
    first_probe,
    line_ends,
    newly_composing,
    representatives,
    structure_probes,
    whole_words,
)
from spark_jobs.tokens.fast.pre_tokenization import (
    BYTE_NAMES,
    UnknownSplittingError,
    atoms,
    ends_words_at_lines,
    token_bytes,
    token_name,
)
from spark_jobs.tokens.hf_tokenizer import load_reference
from tests.spark_jobs.packing.encoders import SPLITTINGS, tokenizer_of
from tests.tiers import sampled, tries

REPRESENTATIVES = "as1?' \n\r\té²\u00a0—"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Tests change what Python knows; no answer of one is another's."""
    newly_composing.forget()
    yield
    newly_composing.forget()


@cache
def revealing(splitting: str, whole: bool) -> Tokenizer:
    """One of the two tokenizers of a splitting."""
    declared = json.loads(tokenizer_of(splitting))["pre_tokenizer"]
    return load_reference(whole_words(declared, structure_probes(REPRESENTATIVES)) if whole else boundaries(declared))


def words(splitting: str, text: str) -> list[str]:
    """Words by the library's own pre-tokenizer, each as its bytes' names."""
    return [word for word, _ in load_reference(tokenizer_of(splitting)).pre_tokenizer.pre_tokenize_str(text)]


@sampled(2)
@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_one_id_is_one_word(splitting: str) -> None:
    """Over any short text of representatives, whole words give as many ids as the pre-tokenizer gives words."""

    @settings(max_examples=tries(150))
    @given(st.text(st.sampled_from(REPRESENTATIVES), max_size=4))
    def holds(text: str) -> None:
        assert revealing(splitting, True).encode(text).tokens == words(splitting, text)

    holds()


@sampled(3)
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


def splitting_of(*steps: dict[str, object]) -> dict[str, object]:
    """A pre-tokenizer of steps, which ends as those of byte-level tokenizers do."""
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [*steps, last]}


def split_by(pattern: str, **parts: object) -> dict[str, object]:
    """A step that splits by a pattern."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **parts}


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_known_splittings_end_words_at_lines(splitting: str) -> None:
    """By the tokenizer's file alone, as the library writes it; of any other it is not known."""
    pre_tokenizer = json.loads(Tokenizer.from_str(tokenizer_of(splitting)).to_str())["pre_tokenizer"]
    assert ends_words_at_lines(pre_tokenizer)
    others = [{**pre_tokenizer, "add_prefix_space": True}] if splitting == "gpt2" else []
    if splitting != "gpt2":
        *splits, last = pre_tokenizer["pretokenizers"]
        others = [
            splitting_of(split_by(r"\w+|\W+")),
            splitting_of(),
            splitting_of(*splits, {"type": "Digits", "individual_digits": True}),
            splitting_of(*({**split, "invert": True} for split in splits)),
            splitting_of(*({**split, "behavior": "Removed"} for split in splits)),
            {"type": "Sequence", "pretokenizers": [*splits, {**last, "use_regex": True}]},
        ]
    assert not [other for other in others if ends_words_at_lines(other)]


def test_atoms_are_the_classes_of_all_patterns() -> None:
    """Of every step, each once; letters of contractions and what only groups or repeats are none."""
    digits = {"type": "Digits", "individual_digits": True}
    assert atoms(splitting_of(digits, split_by(r"(?i:'s|'ll)|[^\r\n\p{L}]?\p{L}++|[%&']{1,3}|\s+(?!\S)|\n"))) == [
        *(r"\p{N}", "'", r"[^\r\n\p{L}]", r"\p{L}", "[%&']", r"\s", r"\S", r"\n"),
    ]


UNKNOWN = (
    *(
        "hello",
        r"(?<=a)\s",
        r"(?<!')s",
        r"(?>a)",
        r"\b",
        r"\p{N}{1,20}",
        r"\p{N}{4}",
        r"[\p{Han}&&[^a]]",
        "[[:alpha:]]",
    ),
    *(r"(s)\1", r"\K", r"^\s", "é", "A", r"\x41", r"(?x: )", r"\s{2,}x"),
)


@pytest.mark.parametrize("pattern", UNKNOWN)
def test_a_pattern_that_asks_for_more_than_classes_is_refused(pattern: str) -> None:
    """Words, what stands before, many repetitions, groups: the message has the part."""
    with pytest.raises(UnknownSplittingError, match=r"^its pattern has ['\"].+['\"], which the probes do not know$"):
        atoms(splitting_of(split_by(pattern)))


def test_a_step_that_is_not_known_is_refused() -> None:
    """So is one that leaves text out, one that adds a space, and bytes that become letters twice or never."""
    space = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}
    refused = [
        *({}, {"type": "Whitespace"}, space, splitting_of({"type": "Metaspace"}), splitting_of(split_by("a"), space)),
        *(splitting_of(split_by(r"\s", behavior="Removed")), {"type": "Sequence", "pretokenizers": []}),
        {"type": "Sequence", "pretokenizers": [split_by(r"\s")]},
    ]
    for pre_tokenizer in refused:
        with pytest.raises(UnknownSplittingError):
            atoms(pre_tokenizer)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_there_is_a_representative_of_each_class(splitting: str) -> None:
    """No two code points beyond ASCII that are split differently beside all representatives have none between them."""
    pre_tokenizer = json.loads(tokenizer_of(splitting))["pre_tokenizer"]
    characters = representatives(pre_tokenizer)
    assert set(REPRESENTATIVES) <= set(characters) and len(characters) <= 18
    expected = {"o200k": "AÉ中\u0301/", "tekken": "AÉ中\u0301/", "qwen3.5": "\u0301", "deepseek": "中\u0301\u200b\x00"}
    assert set(characters) - set(REPRESENTATIVES) == set(expected.get(splitting, ""))


def test_other_cases_of_ascii_are_found() -> None:
    """The long s, the sign of kelvin and ligatures; no letter of another script."""
    assert {0x17F, 0x212A, 0xFB06} <= set(cased_as_ascii()) and len(cased_as_ascii()) < 30


def test_cuts_lie_between_visible_characters() -> None:
    """Every pair of line ends joins to a text that is cut after a line feed, with no white space on either side."""
    pairs = line_ends(REPRESENTATIVES + "/")
    assert len(pairs) > 5000
    assert all(left[-1] == "\n" and not left[-2].isspace() and not right[0].isspace() for left, right in pairs)


@pytest.mark.parametrize(("characters", "longest"), [(REPRESENTATIVES, 4), (REPRESENTATIVES + "bcdefgh", 3)])
def test_probes_of_structure_are_all_ways_that_classes_follow_one_another(characters: str, longest: int) -> None:
    """Up to four representatives, three of many; each ASCII character in each context; 2,000 of seven. None twice."""
    probes = structure_probes(characters)
    assert len(set(probes)) == len(probes)
    ways = {"".join(way) for length in range(longest + 1) for way in itertools.product(characters, repeat=length)}
    contexts = {probe for number in range(128) for probe in character_probes(chr(number))}
    others = set(probes) - ways - contexts
    assert len(probes) == len(ways | contexts) + len(others) and len(others) > 1900
    assert all(len(other) == 7 and set(other) <= set(characters) for other in others)
    assert {"aza", "5's 0", "?\x7f's 0"} <= contexts


def test_a_character_is_put_into_every_context() -> None:
    """The first one is among them."""
    probes = character_probes("\u00e9")
    assert len(probes) == len(set(probes)) == 31
    assert first_probe("\u00e9") == "?\u00e9's 0" in probes
    assert {"\u00e9", "a\u00e9a", "??\u00e9??", "\u00e9\u00e9", "a'\u00e9ea", "A\u00e9A"} <= set(probes)


def test_every_code_point_beyond_ascii_is_in_one_block() -> None:
    """None is left out but surrogates, which no text holds, and none is probed twice; a block is of one category."""
    blocks = list(code_point_blocks())
    numbers = list(itertools.chain.from_iterable(range(block.first, block.last + 1) for block in blocks))
    assert numbers == [number for number in range(128, 0x110000) if not 0xD800 <= number < 0xE000]
    assert max(block.last - block.first + 1 for block in blocks) == 64
    for block in blocks:
        inside = "".join(map(chr, range(block.first, block.last + 1)))
        categories = {unicodedata.category(character) for character in inside}
        sides = "a?" if categories <= {"Cn", "Co"} else "aA1?中"
        assert len(categories) == 1
        assert block.texts == tuple(f"{side}{inside}{side}" for side in (2 * "?" if s == "?" else s for s in sides))


PLAIN = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def test_tokens_of_whole_words_are_bytes_and_substrings_alone() -> None:
    """Of each probe all substrings, none empty; no merges, so a word that is a token becomes it."""
    model = json.loads(whole_words(PLAIN, ["a1?", "1\u00e9", ""]))["model"]
    parts = {"a1", "1?", "a1?", "1\u00e9", "\u00e9"}
    assert set(model["vocab"]) == {*BYTE_NAMES, *(token_name(part.encode()) for part in parts)}
    assert (model["merges"], model["ignore_merges"]) == ([], True)
    assert sorted(model["vocab"].values()) == list(range(len(model["vocab"])))
    assert json.loads(whole_words(PLAIN, ["a"]))["pre_tokenizer"] == PLAIN


def test_merges_of_boundaries_are_those_that_text_can_have() -> None:
    """The last byte of a character with the first of the next: of all characters beyond ASCII, and of the anchors."""
    model = json.loads(boundaries(PLAIN))["model"]
    encoded = [chr(number).encode() for number in range(128, 0x110000) if not 0xD800 <= number < 0xE000]
    first, last = {one[0] for one in encoded}, {one[-1] for one in encoded}
    anchors = set(ANCHORS)
    pairs = {*itertools.product(last | anchors, first | anchors)}
    assert {tuple(merge) for merge in model["merges"]} == {
        (BYTE_NAMES[left], BYTE_NAMES[right]) for left, right in pairs
    }
    assert len(model["merges"]) == len(pairs) and model["ignore_merges"] is False
    assert list(model["vocab"]) == [*BYTE_NAMES, *(left + right for left, right in model["merges"])]
    assert list(model["vocab"].values()) == list(range(len(model["vocab"])))


def test_a_tokenizer_made_to_be_probed_is_a_plain_one() -> None:
    """Nothing is added, normalized or truncated; ids lead back to the text."""
    declared = json.loads(boundaries(PLAIN))
    assert declared["added_tokens"] == [] and declared["decoder"] == PLAIN
    parts = ("truncation", "padding", "normalizer", "post_processor")
    assert [declared[part] for part in parts] == [None] * 4
    off = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback")
    assert [declared["model"][part] or None for part in off] == [None] * 6
    tokenizer = Tokenizer.from_str(boundaries(PLAIN))
    text = " a\u00e9\u65e51?\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_line_ends_are_all_pairs_of_two_characters() -> None:
    """One or two before, the last of them visible, one or two after, the first of them visible and no slash."""
    ways = {"".join(way) for length in (1, 2) for way in itertools.product(REPRESENTATIVES + "/", repeat=length)}
    before = {way + "\n" for way in ways if not way[-1].isspace()}
    after = {way for way in ways if not way[0].isspace() and way[0] != "/"}
    pairs = line_ends(REPRESENTATIVES + "/")
    assert set(pairs) == {*itertools.product(before, after)} and len(pairs) == len(before) * len(after)


@pytest.fixture
def nothing_known() -> Iterator[None]:
    """What was found of this Python is forgotten, before and after."""
    newly_composing.forget()
    yield
    newly_composing.forget()


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("unknown", [set[int](), {0x80, 0x323, 0x340}, {0x10FFFF}, {0x1E4EC, 0x300}])
def test_what_python_does_not_know_and_the_library_composes_is_found(
    unknown: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks and composed characters; not those that never compose, nor those that Python knows."""
    monkeypatch.setattr(unicodedata, "category", lambda one: "Cn" if ord(one) in unknown else "Lo")
    composing = {0x323, 0x340, 0x300}
    assert newly_composing() == unknown & composing | (unknown & {0x1E4EC} if composes("\U0001e4ec") else set())


@pytest.mark.usefixtures("nothing_known")
def test_every_unknown_character_beyond_ascii_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """From U+0080 to the last one of Unicode, in blocks of which each is asked for if it changes."""
    ends = {0x80, 0x1080, 0x10FFFF}
    known = {"\u0334", *map(chr, range(0xD800, 0x10FFF0))}
    monkeypatch.setattr(unicodedata, "category", lambda one: "Lo" if one in known else "Cn")
    changes = {chr(one) for one in ends}
    monkeypatch.setattr(certificate_probes, "_parted", lambda text: text + "x" if changes.intersection(text) else None)
    assert newly_composing() == ends


def composes(character: str) -> bool:
    """Whether the library moves or changes a character between a letter and an overlay mark."""
    text = f"a{character}\u0334"
    return bool(normalizers.NFD().normalize_str(text) != text)
