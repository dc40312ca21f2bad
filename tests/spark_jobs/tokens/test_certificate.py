"""A certificate says for which texts a fast encoder gives the reference's ids, and never says too much."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers

from spark_jobs.arrays import Int32Array
from spark_jobs.tokens import certificate as certificate_module
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.certificate_probes import code_point_blocks, newly_composing
from spark_jobs.tokens.fast.fast_encoder import NO_ENCODER, LibraryEncoder, encoder_version, load_pieces
from spark_jobs.tokens.fast.piece_encoder import PieceEncoder
from spark_jobs.tokens.hf_tokenizer import load_reference
from tests.spark_jobs.packing.encoders import (
    HARD_TEXT,
    SPLITTINGS,
    changed,
    needs_fast_encoder,
    reference_ids,
    tokenizer_of,
    trained_tokenizer,
)
from tests.tiers import tries


class Reference:
    """The reference, in the place of a fast encoder."""

    def __init__(self, file_text: str) -> None:
        self._tokenizer = load_reference(file_text)

    def encode(self, data: bytes) -> Int32Array:
        """Ids of a document."""
        return np.array(self._tokenizer.encode(data.decode(), add_special_tokens=False).ids, dtype=np.int32)


class SplitsAt(Reference):
    """An encoder that takes a character for a class of its own: nothing is ever joined with it."""

    character = "\u21af"

    def encode(self, data: bytes) -> Int32Array:
        """Ids of the parts between such characters, and theirs."""
        parts = re.split(f"({self.character})", data.decode())
        return np.concatenate([super(SplitsAt, self).encode(part.encode()) for part in parts])


class WrongAt(LibraryEncoder):
    """A fast encoder that gives no ids to one text."""

    text = b""

    def encode(self, data: bytes) -> Int32Array:
        """Ids, but for one text."""
        return super().encode(b"" if data == self.text else data)


class PanicException(BaseException):
    """Stands for a panic of Rust, which Python sees as no `Exception`."""


class PanicsAt(Reference):
    """An encoder that panics over one text."""

    text = b"?'s"

    def encode(self, data: bytes) -> Int32Array:
        """Ids, but for one text."""
        if data == self.text:
            raise PanicException("index out of bounds: the len is 3\nnote: run with a backtrace")
        return super().encode(data)


@cache
def certified(splitting: str) -> Certificate:
    """The certificate of the small tokenizer."""
    return certify(tokenizer_of(splitting))


@cache
def fast(splitting: str) -> tuple[LibraryEncoder, PieceEncoder]:
    """Its fast encoders."""
    return LibraryEncoder(tokenizer_of(splitting)), PieceEncoder(tokenizer_of(splitting))


pytestmark = needs_fast_encoder


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Tests probe by themselves; where they keep what they find."""
    monkeypatch.setattr(certificate_module, "_FOLDER", tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.nightly
@pytest.mark.usefixtures("few_blocks")
def test_a_second_tokenizer_of_a_kind_is_probed_by_its_vocabulary(
    nothing_kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is the one that all probes give; a file that is damaged is made anew, a refusal is kept too."""
    first = certify(trained_tokenizer())
    (kept,) = nothing_kept.iterdir()
    probed = certify(tokenizer_of("gpt2"), LibraryEncoder, load_pieces)
    with monkeypatch.context() as without:
        without.delattr(certificate_module, "structure_probes")
        assert certify(tokenizer_of("gpt2")) == probed
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"refusal": "structure: as if"}))
        assert certify(trained_tokenizer()).refusal == "structure: as if"
    kept.write_text('{"refusal": null')
    assert certify(trained_tokenizer()) == first


# Every code point is tried for each.
TRIED = [pytest.param(name, marks=[] if name == "gpt2" else pytest.mark.nightly) for name in SPLITTINGS]


@pytest.mark.parametrize("splitting", TRIED)
def test_known_splittings_are_certified(splitting: str) -> None:
    """Each has a fast path, tried on every code point, for the libraries that are installed."""
    found = certified(splitting)
    assert found.refusal is None
    assert found.is_for_this_installation
    assert found.probe_count > 100_000


def test_every_code_point_beyond_ascii_is_in_one_block() -> None:
    """None is left out but surrogates, which no text holds, and none is probed twice."""
    blocks = list(code_point_blocks())
    numbers = list(itertools.chain.from_iterable(range(block.first, block.last + 1) for block in blocks))
    assert numbers == [number for number in range(128, 0x110000) if not 0xD800 <= number < 0xE000]
    assert all(one.text.strip("a1?") == "".join(map(chr, range(one.first, one.last + 1))) for one in blocks)


@pytest.mark.parametrize("splitting", TRIED)
def test_excluded_code_points_are_those_that_a_known_context_tells_apart(splitting: str) -> None:
    """Before 's, which is a word after letters and numbers alone, one of them differs at these characters alone.

    The other way to the same set: the real vocabulary and one context, for every code point that Unicode may have
    assigned since (others would take minutes); the probes of the certificate are not used.
    """
    tokenizer, encoders = load_reference(tokenizer_of(splitting)), fast(splitting)
    table = certified(splitting).excluded_table()
    near = np.convolve(table, np.ones(201, dtype=np.int64), "same") > 0
    numbers = [
        number
        for number in np.flatnonzero(near).tolist()
        if not 0xD800 <= number < 0xE000 and unicodedata.category(chr(number)) in ("Cn", "Lo", "Lu", "Ll", "Nd", "So")
    ]
    texts = [f"?{chr(number)}'s 0" for number in numbers]
    expected = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    differing = {
        number
        for number, text, ids in zip(numbers, texts, expected, strict=True)
        if any(ids.ids != np.asarray(encoder.encode(text.encode())).tolist() for encoder in encoders)
    }
    assert differing == set(np.flatnonzero(table).tolist())


@pytest.mark.parametrize("splitting", TRIED)
def test_texts_without_an_excluded_code_point_have_the_references_ids(splitting: str) -> None:
    """What the certificate promises, on texts that nobody chose: any Unicode, and what splittings treat specially."""
    table = certified(splitting).excluded_table()

    @settings(max_examples=tries(150))
    @given(HARD_TEXT)
    def holds(text: str) -> None:
        if not table[[ord(character) for character in text]].any():
            expected = reference_ids(tokenizer_of(splitting), text)
            assert all(np.array_equal(encoder.encode(text.encode()), expected) for encoder in fast(splitting))

    holds()


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code points up to U+3000 alone, which is much faster."""
    blocks = [block for block in code_point_blocks() if block.last < 0x3000]
    monkeypatch.setattr(certificate_module, "code_point_blocks", lambda: blocks)


@pytest.mark.nightly
@pytest.mark.usefixtures("few_blocks")
def test_a_character_taken_for_something_else_is_excluded() -> None:
    """An encoder that is right but for one symbol is certified without that symbol alone, as is one beside it."""
    for encoders in ((SplitsAt,), (Reference, SplitsAt)):
        found = certify(trained_tokenizer(), *encoders)
        assert (found.refusal, found.excluded) == (None, ((0x21AF, 0x21AF),))


@pytest.mark.usefixtures("few_blocks")
def test_digits_one_by_one_are_certified() -> None:
    """The third known splitting, which differs from the second in numbers alone."""
    assert certify(tokenizer_of("qwen2")).refusal is None


@pytest.mark.usefixtures("few_blocks")
def test_nfc_is_certified_for_texts_that_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Qwen 2 has it; a character that this Python does not know, and that composes, goes to the reference."""
    file = changed(trained_tokenizer(), normalizer={"type": "NFC"})
    found = certify(file)
    assert (found.refusal, found.excluded) == (None, certify(trained_tokenizer()).excluded)
    known = unicodedata.category
    monkeypatch.setattr(unicodedata, "category", lambda one: "Cn" if one in "\u0323\u1ea1" else known(one))
    assert newly_composing() == {0x323, 0x1EA1}


@pytest.mark.usefixtures("few_blocks")
def test_the_reference_is_certified_against_itself() -> None:
    """The probes find no difference where there is none."""
    assert certify(trained_tokenizer(), Reference).excluded == ()


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    ("text", "what"), [("?'s", "structure"), (" return", "vocabulary"), ("\n<|endoftext|>\n", "vocabulary")]
)
def test_any_other_difference_is_a_refusal(text: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, tokens and names of special tokens allow no exception; the reason names what differed."""
    monkeypatch.setattr(WrongAt, "text", text.encode())
    found = certify(trained_tokenizer(), WrongAt)
    assert found.refusal == f"{what}: ids of {text!r} differ"
    assert found.excluded == ()


def refusal_of(file_text: str) -> str:
    """Why there is no fast path."""
    return certify(file_text).refusal or ""


def test_tokenizers_that_probes_do_not_know_are_refused() -> None:
    """A normalizer, another splitting, another model, a missing byte, a greedy added token: each with its reason."""
    file = trained_tokenizer()
    declared = json.loads(file)
    with_normalizer = Tokenizer.from_str(file)
    with_normalizer.normalizer = normalizers.Lowercase()
    greedy = Tokenizer.from_str(file)
    greedy.add_tokens([AddedToken("<think>", lstrip=True)])
    model = declared["model"]
    lacking = {**model, "vocab": {name: number for name, number in model["vocab"].items() if name != "\u0100"}}
    assert "normalizer" in refusal_of(with_normalizer.to_str())
    assert "pre-tokenizer" in refusal_of(changed(file, pre_tokenizer={"type": "Whitespace"}))
    assert "(byte_fallback)" in refusal_of(changed(file, model={**model, "byte_fallback": True}))
    assert "lacks a byte" in refusal_of(changed(file, model=lacking))
    assert "'<think>'" in refusal_of(greedy.to_str())


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (PanicException("called `unwrap()` on a `None` value\nnote"), "called `unwrap()` on a `None` value"),
        (PanicException(), "PanicException"),
        (RuntimeError("unknown model"), "unknown model"),
    ],
)
def test_an_encoder_that_does_not_load_a_tokenizer_is_no_fast_path(raised: BaseException, said: str) -> None:
    """Whatever it raises, a panic as well, the certificate refuses with its first line."""

    def load(file_text: str) -> Reference:
        raise raised

    assert certify(trained_tokenizer(), load).refusal == f"the fast encoder does not load it: {said}"


def test_an_encoder_that_panics_over_a_text_is_no_fast_path() -> None:
    """The same for a panic while it encodes a probe."""
    found = certify(trained_tokenizer(), PanicsAt)
    assert found.refusal == "the fast encoder fails on a probe: index out of bounds: the len is 3"
    assert found.excluded == ()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_process_is_not_taken_for_a_fault(stop: type[BaseException]) -> None:
    """An interrupt goes through."""

    def load(file_text: str) -> Reference:
        raise stop

    with pytest.raises(stop):
        certify(trained_tokenizer(), load)


def test_without_a_fast_encoder_there_is_no_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says how to install one; nothing was probed."""
    monkeypatch.setattr(certificate_module, "encoder_version", lambda: NO_ENCODER)
    found = certify(trained_tokenizer())
    assert "pip install headrace[fast]" in str(found.refusal)
    assert (found.encoder, found.probe_count) == (NO_ENCODER, 0)


def test_a_certificate_is_for_its_versions_alone() -> None:
    """With another version of either library it is not for this installation."""
    found = Certificate("ab", "tokenizers 0.0", encoder_version(), None, (), 1)
    assert not found.is_for_this_installation
    assert not Certificate("ab", certified("gpt2").reference, "gigatoken 0.0", None, (), 1).is_for_this_installation


@settings(max_examples=tries(100))
@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_the_same_numbers(numbers: set[int]) -> None:
    """Stretches without a gap, ascending, never touching."""
    ranges = certificate_module._ranges(sorted(numbers))
    assert {number for first, last in ranges for number in range(first, last + 1)} == numbers
    assert all(after[0] > before[1] + 1 for before, after in itertools.pairwise(ranges))
