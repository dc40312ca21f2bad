"""A certificate says for which texts a fast encoder gives the reference's ids, and never says too much."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import random
import re
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.arrays import Int32Array
from spark_jobs.tokens import certificate as certificate_module
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.certificate_probes import (
    CodePointBlock,
    boundaries,
    character_probes,
    code_point_blocks,
    name_probes,
    newly_composing,
)
from spark_jobs.tokens.fast.fast_encoder import NO_ENCODER, FastEncoder, encoder_version, reference_version
from spark_jobs.tokens.fast.pre_tokenization import token_bytes
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
from tests.tiers import sampled, tries


class Reference:
    """The reference, in the place of a fast encoder."""

    def __init__(self, file_text: str) -> None:
        self._tokenizer = load_reference(file_text)

    def encode(self, text: str) -> Int32Array:
        """Ids of a text."""
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)


class SplitsAt(Reference):
    """An encoder that takes a character for a class of its own: nothing is ever joined with it."""

    character = "\u21af"

    def encode(self, text: str) -> Int32Array:
        """Ids of the parts between such characters, and theirs."""
        return np.concatenate([super(SplitsAt, self).encode(part) for part in re.split(f"({self.character})", text)])


class WrongAt(Reference):
    """An encoder that gives no ids to one text."""

    text = ""

    def encode(self, text: str) -> Int32Array:
        """Ids, but for one text."""
        return super().encode("" if text == self.text else text)


class PanicException(BaseException):
    """Stands for a panic of Rust, which Python sees as no `Exception`."""


class PanicsAt(Reference):
    """An encoder that panics over one text."""

    def encode(self, text: str) -> Int32Array:
        """Ids, but for one text."""
        if text == "?'s":
            raise PanicException("index out of bounds: the len is 3\nnote: run with a backtrace")
        return super().encode(text)


@cache
def certified(splitting: str) -> Certificate:
    """The certificate of the small tokenizer."""
    return certify(tokenizer_of(splitting))


@cache
def fast(splitting: str) -> FastEncoder:
    """Its fast encoder."""
    return FastEncoder(tokenizer_of(splitting))


pytestmark = needs_fast_encoder


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Tests probe by themselves; where they keep what they find."""
    monkeypatch.setattr(certificate_module, "_FOLDER", tmp_path / "share" / "kept")
    return tmp_path / "share" / "kept"


@pytest.mark.nightly
@pytest.mark.usefixtures("few_blocks")
def test_a_second_tokenizer_of_a_kind_is_probed_by_its_vocabulary(
    nothing_kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is the one that all probes give; a file that is damaged is made anew, a refusal is kept too."""
    first = certify(trained_tokenizer())
    (kept,) = nothing_kept.iterdir()
    probed = certify(tokenizer_of("gpt2"), functools.partial(FastEncoder))
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
    """Each has a fast path, tried on every code point, for the libraries that are installed; few are excluded."""
    found = certified(splitting)
    assert found.refusal is None
    assert found.is_for_this_installation
    assert found.probe_count > 100_000
    assert found.excluded_table().sum() < 10


@pytest.mark.parametrize("splitting", TRIED)
def test_no_other_code_point_differs_beside_any_kind_of_neighbour(splitting: str) -> None:
    """The other way to the same set: each code point alone between random neighbours, blocks and contexts not used."""
    file, excluded = boundaries(json.loads(tokenizer_of(splitting))["pre_tokenizer"]), certified(splitting).excluded
    draw = random.Random(5)
    numbers = [
        number
        for number in itertools.chain(range(0x80, 0xD800), range(0xE000, 0x32000), range(0xE0000, 0xE0200))
        if tries(1) > 1 or draw.random() < 0.1
    ]
    around = ["".join(draw.choices("aAé1?' \n/中\u0301—", k=4)) for _ in numbers]
    texts = [f"{near[:2]}{chr(number)}{near[2:]}" for near, number in zip(around, numbers, strict=True)]
    expected = load_reference(file).encode_batch_fast(texts, add_special_tokens=False)
    encoder = FastEncoder(file)
    differing = [
        number
        for number, right, text in zip(numbers, expected, texts, strict=True)
        if right.ids != encoder.encode(text).tolist()
    ]
    assert [number for number in differing if not any(low <= number <= high for low, high in excluded)] == []


@pytest.mark.parametrize("splitting", TRIED)
def test_texts_without_an_excluded_code_point_have_the_references_ids(splitting: str) -> None:
    """What the certificate promises, on texts that nobody chose: any Unicode, and what splittings treat specially."""
    table = certified(splitting).excluded_table()

    @settings(max_examples=tries(150))
    @given(HARD_TEXT)
    def holds(text: str) -> None:
        if not table[[ord(character) for character in text]].any():
            expected = reference_ids(tokenizer_of(splitting), text)
            assert fast(splitting).encode(text).tolist() == expected

    holds()


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code points up to U+3000 alone, which is much faster."""
    blocks = [block for block in code_point_blocks() if block.last < 0x3000]
    monkeypatch.setattr(certificate_module, "code_point_blocks", lambda: blocks)


@pytest.mark.nightly
@pytest.mark.usefixtures("few_blocks")
def test_a_character_taken_for_something_else_is_excluded() -> None:
    """An encoder that is right but for one symbol is certified without that symbol alone."""
    found = certify(trained_tokenizer(), SplitsAt)
    assert (found.refusal, found.excluded) == (None, ((0x21AF, 0x21AF),))


@pytest.mark.nightly
@pytest.mark.usefixtures("few_blocks")
def test_digits_one_by_one_are_certified() -> None:
    """The third known splitting, which differs from the second in numbers alone."""
    assert certify(tokenizer_of("qwen2")).refusal is None


@pytest.mark.nightly
@pytest.mark.usefixtures("few_blocks")
def test_nfc_is_certified_for_texts_that_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Qwen 2 has it; a character that this Python does not know, and that composes, goes to the reference."""
    file = changed(trained_tokenizer(), normalizer={"type": "NFC"})
    found = certify(file)
    assert (found.refusal, found.excluded) == (None, certify(trained_tokenizer()).excluded)
    known = unicodedata.category
    monkeypatch.setattr(unicodedata, "category", lambda one: "Cn" if one in "\u0323\u1ea1" else known(one))
    newly_composing.forget()
    assert newly_composing() == {0x323, 0x1EA1}
    newly_composing.forget()


@pytest.mark.nightly
@pytest.mark.usefixtures("few_blocks")
def test_the_reference_is_certified_against_itself() -> None:
    """The probes find no difference where there is none."""
    found = certify(trained_tokenizer(), Reference)
    assert (found.refusal, found.excluded) == (None, ())


@sampled()
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    ("text", "what"), [("?'s", "structure"), (" return", "vocabulary"), ("\n<|endoftext|>\n", "vocabulary")]
)
def test_any_other_difference_is_a_refusal(text: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, tokens and names of special tokens allow no exception; the reason names what differed."""
    monkeypatch.setattr(WrongAt, "text", text)
    found = certify(trained_tokenizer(), WrongAt)
    assert found.refusal == f"{what}: ids of {text!r} differ"
    assert found.excluded == ()


def refusal_of(file_text: str) -> str:
    """Why there is no fast path."""
    return certify(file_text).refusal or ""


def test_tokenizers_that_probes_do_not_know_are_refused() -> None:
    """Another splitting, another model, a missing byte: each with its reason."""
    file = trained_tokenizer()
    declared = json.loads(file)
    model = declared["model"]
    lacking = {**model, "vocab": {name: number for name, number in model["vocab"].items() if name != "\u0100"}}
    assert "pre-tokenizer" in refusal_of(changed(file, pre_tokenizer={"type": "Whitespace"}))
    assert "(byte_fallback)" in refusal_of(changed(file, model={**model, "byte_fallback": True}))
    assert "lacks a byte" in refusal_of(changed(file, model=lacking))


def model_with(**parts: object) -> str:
    """The trained tokenizer with other parts of its model."""
    return changed(trained_tokenizer(), model={**json.loads(trained_tokenizer())["model"], **parts})


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"dropout": 0.1, "continuing_subword_prefix": "", "end_of_word_suffix": "", "byte_fallback": None}, ""),
        ({"type": "WordPiece"}, "type"),
        ({"unk_token": "?"}, "unk_token"),
        (
            {"continuing_subword_prefix": "##", "end_of_word_suffix": "_"},
            "continuing_subword_prefix, end_of_word_suffix",
        ),
    ],
)
def test_each_setting_of_a_model_that_is_not_plain_is_named(parts: dict[str, object], named: str) -> None:
    """Settings that are off are plain, however they are written."""
    if named:
        assert refusal_of(model_with(**parts)) == f"its model is no plain byte-level BPE ({named})"
    else:
        assert (
            certificate_module._require_known(model_with(**parts)) == json.loads(trained_tokenizer())["pre_tokenizer"]
        )


def block_of(first: int, beside: str) -> CodePointBlock:
    """Eight code points between two characters."""
    return CodePointBlock(first, first + 7, (f"{beside}{''.join(map(chr, range(first, first + 8)))}{beside}",))


@pytest.fixture
def two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """U+21A8 to U+21AF and U+3041 to U+3048, each in a block of its class, and few other probes."""
    monkeypatch.setattr(
        certificate_module, "code_point_blocks", lambda: [block_of(0x21A8, "??"), block_of(0x3041, "a")]
    )
    monkeypatch.setattr(certificate_module, "structure_probes", lambda _: ["", "a", "?", "a1", " a", "?a?"])
    monkeypatch.setattr(certificate_module, "cased_as_ascii", list)
    monkeypatch.setattr(certificate_module, "can_cut_at_lines", lambda file: False)
    monkeypatch.setattr(certificate_module, "name_probes", lambda names: [])
    monkeypatch.setattr(certificate_module, "_vocabulary_probes", lambda file, excluded: ["one", "two"] * 5)


@pytest.mark.usefixtures("two_blocks")
def test_as_many_code_points_as_may_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that an encoder takes for something else, if one may be; with none allowed there is no fast path."""
    for most, refusal, excluded in ((1, None, ((0x21AF, 0x21AF),)), (0, "the two differ in 1 code points", ())):
        monkeypatch.setattr(certificate_module, "_MOST_EXCLUDED", most)
        found = certify(trained_tokenizer(), SplitsAt)
        assert (found.refusal, found.excluded) == (refusal, excluded)


@pytest.mark.usefixtures("two_blocks")
@pytest.mark.parametrize("batch", [1, 3, 4096])
def test_every_probe_is_counted_whatever_the_batches(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six texts of classes, two blocks, and the texts of the vocabulary, each encoded once by the reference."""
    monkeypatch.setattr(certificate_module, "_BATCH", batch)
    found = certify(trained_tokenizer(), Reference)
    assert (found.refusal, found.probe_count) == (None, 6 + 2 + 10)


@pytest.mark.usefixtures("two_blocks")
def test_a_block_that_differs_is_probed_character_by_character(monkeypatch: pytest.MonkeyPatch) -> None:
    """First in the context that shows most, those that it does not show in all others; so is what has an ASCII case."""
    contexts = len(character_probes("X"))
    found = certify(trained_tokenizer(), SplitsAt)
    assert (found.excluded, found.probe_count) == (((0x21AF, 0x21AF),), 6 + 2 + 8 + 7 * contexts + 10)
    monkeypatch.setattr(certificate_module, "cased_as_ascii", lambda: [0x17F])
    assert certify(trained_tokenizer(), Reference).probe_count == 6 + 2 + 1 + contexts + 10


def test_what_was_probed_is_cached_by_kind_versions_and_code(
    nothing_kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file, another kind, version or code is probed anew; a folder that cannot be written caches nothing."""
    probed: list[certificate_module._Kind] = []
    kinds = [certificate_module._Kind({"type": one}, cut) for one in "ab" for cut in (False, True)]

    def probe(kind: certificate_module._Kind) -> certificate_module._Probed:
        probed.append(kind)
        return certificate_module._Probed(None if kind.is_cut else "why", (7, 9), len(probed))

    first = [certificate_module._cached(kind, probe) for kind in kinds]
    assert probed == kinds and [one.probe_count for one in first] == [1, 2, 3, 4]
    assert [certificate_module._cached(kind, probe) for kind in kinds] == first and probed == kinds
    for name in ("reference_version", "encoder_version", "_code_digest"):
        with monkeypatch.context() as other:
            other.setattr(certificate_module, name, lambda: "another")
            certificate_module._cached(kinds[0], probe)
        assert probed.pop() == kinds[0] and probed == kinds
    assert all(path.suffix == ".json" for path in nothing_kept.iterdir())
    for text in ("", "{", "[]", '{"refusal": null}', '{"refusal": null, "excluded": 5, "probe_count": 1}'):
        for path in nothing_kept.iterdir():
            path.write_text(text)
        assert certificate_module._cached(kinds[1], probe).excluded == (7, 9)
        assert probed.pop() == kinds[1]
    monkeypatch.setattr(certificate_module, "_FOLDER", nothing_kept / "file.json" / "below")
    (nothing_kept / "file.json").write_text("")
    assert certificate_module._cached(kinds[1], probe).excluded == (7, 9)


def test_probes_of_a_vocabulary_leave_out_what_is_excluded() -> None:
    """Each token that is text, and 1,024 rows of 32 of them."""
    declared = json.loads(trained_tokenizer())
    texts = [
        one.decode() for name in declared["model"]["vocab"] if (one := token_bytes(name)) is not None and valid(one)
    ]
    probes = certificate_module._vocabulary_probes(json.dumps(declared), set())
    assert probes[: len(texts)] == texts and len(probes) == len(texts) + 1024
    rows = probes[len(texts) :]
    assert min(map(len, rows)) >= 32 and set("".join(rows)) <= set("".join(texts)) and len(set(rows)) == 1024
    without = certificate_module._vocabulary_probes(json.dumps(declared), {ord("e")})
    assert without and not [one for one in without if "e" in one]


def test_probes_of_names_have_them_whole_cut_and_in_company() -> None:
    """In contexts, two that share characters, rows of several; no names, no probes."""
    probes = name_probes(["<|end|>", "<x>", ">>", ""])
    assert {"<|end|>", "<|end|", "a<x>", "?<x's", "\n<|end|>\n", "<x><x>", " <x> ", "1<x1"} <= set(probes)
    assert {"<|end|>>", "<x>>", ">>>"} <= set(probes)
    assert any("<x>" in one and "<|end|>" in one and ">>" in one for one in probes)
    assert name_probes([]) == []


def valid(data: bytes) -> bool:
    """Whether bytes are text."""
    try:
        return bool(data.decode()) or True
    except UnicodeDecodeError:
        return False


@given(st.lists(st.integers(0, 0x10FFFF), max_size=6, unique=True).map(sorted), st.none() | st.text())
def test_a_certificate_is_what_its_row_says(numbers: list[int], refusal: str | None) -> None:
    """There and back; its table has the first and the last code point of each range, and nothing else.

    One that is refused without probes has none, and is for the installed versions.
    """
    refused = Certificate.refused("sha", "why")
    assert refused == Certificate("sha", reference_version(), encoder_version(), "why", (), 0)
    ranges = certificate_module._ranges(numbers)
    found = Certificate("sha", "reference 1", "encoder 2", refusal, ranges, 12)
    assert Certificate.from_row(found.row()) == found
    assert np.flatnonzero(found.excluded_table()).tolist() == numbers
    assert found.excluded_table().size == 0x110000


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
    assert "pip install fastokens==" in str(found.refusal)
    assert (found.encoder, found.probe_count) == (NO_ENCODER, 0)


def test_a_certificate_is_for_its_versions_alone() -> None:
    """With another version of either library it is not for this installation."""
    installed = Certificate("ab", reference_version(), encoder_version(), None, (), 1)
    assert installed.is_for_this_installation
    assert not dataclasses.replace(installed, reference="tokenizers 0.0").is_for_this_installation
    assert not dataclasses.replace(installed, encoder="another 0.0").is_for_this_installation


@pytest.mark.usefixtures("two_blocks")
def test_a_certificate_names_its_file_its_versions_and_what_is_excluded(caplog: pytest.LogCaptureFixture) -> None:
    """The digest is that of the file as it is given, NFC or not; what composes newly goes to the reference as well."""
    file = changed(trained_tokenizer(), normalizer={"type": "NFC"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate_module, "newly_composing", lambda: frozenset({0x21AF, 0x10}))
        found = certify(file, SplitsAt)
        assert certify(trained_tokenizer(), SplitsAt).excluded == ((0x21AF, 0x21AF),)
    assert found.tokenizer_sha256 == hashlib.sha256(file.encode()).hexdigest()
    assert (found.reference, found.encoder) == (reference_version(), encoder_version())
    assert found.excluded == ((0x10, 0x10), (0x21AF, 0x21AF))


class ProbesAt(Reference):
    """An encoder that differs at the last code point of a block, in a context that is not the first one."""

    def encode(self, text: str) -> Int32Array:
        """No ids of that probe, nor of the block."""
        return super().encode("" if text == "a\u21afa" or len(text) > 8 else text)


@pytest.mark.usefixtures("two_blocks")
def test_a_difference_in_any_context_excludes_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its block differs; the first context shows nothing of it."""
    monkeypatch.setattr(certificate_module, "code_point_blocks", lambda: [block_of(0x21A8, "a"), block_of(0x3041, "a")])
    assert certify(trained_tokenizer(), ProbesAt).excluded == ((0x21AF, 0x21AF),)


@pytest.mark.parametrize("pair", [None, ("a\n", "a")])
def test_cuts_are_refused_where_the_two_sides_are_not_the_whole(pair: tuple[str, str] | None) -> None:
    """A splitting in which a line end is inside of a word; every pair is counted as a probe."""
    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    pre_tokenizer = json.loads(trained_tokenizer())["pre_tokenizer"] if pair is None else whole
    pairs = [("a\n", "a"), ("?\n", "1"), (" a\n", "1")]
    comparison = certificate_module._Comparison(Reference)
    if pair is None:
        comparison.require_equal_pieces(pre_tokenizer, pairs)
    else:
        expected = "cuts: ids of 'a\\n' and 'a' are not those of both together"
        with pytest.raises(certificate_module._RefusedError, match=f"^{re.escape(expected)}$"):
            comparison.require_equal_pieces(pre_tokenizer, pairs)
    assert comparison.probe_count == 3


@pytest.mark.usefixtures("two_blocks")
@pytest.mark.parametrize("is_cut", [False, True])
def test_line_ends_are_probed_where_documents_are_cut_there(is_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a splitting that joins what is on their two sides is refused then, whatever the encoders say."""
    monkeypatch.setattr(certificate_module, "line_ends", lambda _: [("a\n", "a")])
    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    kind = certificate_module._Kind(whole, is_cut)
    found = certificate_module._Comparison(Reference).probed(kind)
    assert (found.refusal is not None) == is_cut and found.excluded == ()
    assert found.refusal is None or found.refusal.startswith("cuts: ids of 'a")


@pytest.mark.parametrize("load", [FastEncoder, Reference])
def test_only_what_the_default_encoder_answered_is_cached(
    load: certificate_module.Loader, nothing_kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal that is cached has its count of probes, and its certificate has it too."""
    probed = certificate_module._Probed("structure: as if", (), 7)
    monkeypatch.setattr(certificate_module._Comparison, "probed", lambda self, kind: probed)
    for _ in range(2):
        found = certify(trained_tokenizer(), load)
        assert (found.refusal, found.probe_count, found.excluded) == ("structure: as if", 7, ())
        assert found.encoder == encoder_version() and found.is_for_this_installation
    assert nothing_kept.exists() == (load is FastEncoder)


def test_a_kind_is_the_same_in_whatever_order_its_file_has_it(nothing_kept: Path) -> None:
    """One cached result, named by 32 hexadecimal digits; no half-written file is left."""
    kinds = [certificate_module._Kind(one, True) for one in ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
    for kind in kinds:
        certificate_module._cached(kind, lambda _: certificate_module._Probed(None, (), 1))
    (kept,) = nothing_kept.iterdir()
    assert re.fullmatch("[0-9a-f]{32}.json", kept.name)


def test_the_code_that_probes_is_part_of_the_key() -> None:
    """Its own module, the probes and the encoders."""
    folder = Path(certificate_module.__file__).parent
    paths = [folder / "certificate.py", folder / "certificate_probes.py", *sorted(folder.glob("fast/*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    assert certificate_module._code_digest() == digest


def test_the_rows_of_a_vocabulary_are_the_same_each_time() -> None:
    """Drawn by a seed."""
    probes = certificate_module._vocabulary_probes(trained_tokenizer(), set())
    count = len(probes) - 1024
    drawn = random.Random(0).choices(probes[:count], k=1024 * 32)
    assert probes[count : count + 1024] == ["".join(drawn[at : at + 32]) for at in range(0, len(drawn), 32)]


def test_a_reason_has_the_beginning_of_a_long_probe() -> None:
    """Eighty characters of the first that differs."""
    comparison = certificate_module._Comparison(WrongAt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WrongAt, "text", "a" * 90)
        with pytest.raises(certificate_module._RefusedError, match=f"^what: ids of '{'a' * 80}' differ$"):
            comparison.require_equal(trained_tokenizer(), ["b", "a" * 90, "c"], "what")


@settings(max_examples=tries(100))
@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_the_same_numbers(numbers: set[int]) -> None:
    """Stretches without a gap, ascending, never touching."""
    ranges = certificate_module._ranges(sorted(numbers))
    assert {number for first, last in ranges for number in range(first, last + 1)} == numbers
    assert all(after[0] > before[1] + 1 for before, after in itertools.pairwise(ranges))
