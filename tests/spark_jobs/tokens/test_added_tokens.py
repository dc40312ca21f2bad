"""Added tokens are found where the reference finds them, and no tokenizer is certified that gets other ids."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.tokens import certificate as certificate_module
from spark_jobs.tokens.added_tokens import AddedTokens, plain_tokenizer
from spark_jobs.tokens.certificate import certify
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.fast.pre_tokenization import BYTE_NAMES, token_name
from spark_jobs.tokens.hf_tokenizer import load_reference
from tests.spark_jobs.packing.encoders import (
    SPLITTINGS,
    changed,
    needs_fast_encoder,
    reference_ids,
    splitting_parts,
    trained_tokenizer,
)

ALPHABETS = (
    *("ab<> ", "a<>/ \n", "[]/IN ", "12 '\tsa", " \t\n\r", "é\u0301ea b", "Å\u212bA\u030a ", "\u0958\u0915\u093c a"),
    *("가\u1100\u1161ㄱ a", "ابل\u0651 ", "漢字か\u3099が", "\U0001f468\u200d\U0001f469 \u200db", "'sSt\u017fK\u212a"),
)
FLAGS = ("single_word", "lstrip", "rstrip")
NORMALIZERS = (
    {"type": "NFKC"},
    {"type": "NFD"},
    {"type": "Lowercase"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Prepend", "prepend": "b"},
    {
        "type": "Sequence",
        "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"String": "a"}, "content": ""}],
    },
)


class Drawn:
    """A tokenizer that is drawn by a seed, and texts of its alphabet and its names."""

    def __init__(self, seed: int) -> None:
        """Draw alphabet, merges, names, flags, splitting and normalizer."""
        self.draw = draw = random.Random(seed)
        self.alphabet = draw.choice(ALPHABETS) + (draw.choice(ALPHABETS) if draw.random() < 0.3 else "")
        vocabulary = {name: number for number, name in enumerate(BYTE_NAMES)}
        parts = [token_name(bytes([byte])) for character in self.alphabet for byte in character.encode()]
        merges = []
        for _ in range(draw.randint(0, 25)):
            left, right = draw.choice(parts), draw.choice(parts)
            if left + right not in vocabulary and len(left + right) < 12:
                vocabulary[left + right] = len(vocabulary)
                merges.append([left, right])
                parts.append(left + right)
        self.names: list[str] = []
        added = [self._added(parts, number) for number in range(draw.randint(0, 6))]
        self.normalizer = draw.choice((None, None, *({"type": "NFC"},) * 3, *NORMALIZERS))
        declared = json.loads(trained_tokenizer())
        model = {**declared["model"], "vocab": vocabulary, "merges": merges, "ignore_merges": draw.random() < 0.3}
        self.file_text = changed(
            trained_tokenizer(),
            model=model,
            added_tokens=added,
            pre_tokenizer=splitting_parts(draw.choice(SPLITTINGS)),
            normalizer=self.normalizer,
        )

    def _added(self, parts: list[str], number: int) -> dict[str, Any]:
        draw = self.draw
        name = "".join(draw.choice(self.alphabet) for _ in range(draw.randint(1, 5)))
        way = draw.random()
        if way < 0.2 and self.names:
            name = draw.choice(self.names) + draw.choice(("", draw.choice(self.alphabet)))
        elif way < 0.3 and self.names:
            name = draw.choice(self.names)[1:] + draw.choice(("", draw.choice(self.alphabet)))
        elif way < 0.35:
            name = draw.choice((draw.choice(parts), ""))
        elif way > 0.9:
            name = unicodedata.normalize(draw.choice(("NFC", "NFD")), name)
        self.names.append(name)
        takes = 0.25 if draw.random() < 0.3 else 0.0
        flags = {flag: draw.random() < takes for flag in FLAGS}
        return added(name, 1000 + number, special=draw.random() < 0.4, normalized=draw.random() < 0.5, **flags)

    def texts(self, count: int) -> list[str]:
        """Texts of characters and names, in NFC or not."""
        return [self._text() for _ in range(count)]

    def _text(self) -> str:
        draw, kinds = self.draw, (self.alphabet, self.alphabet, self.names or self.alphabet)
        text = "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randint(0, 14)))
        return unicodedata.normalize("NFC", text) if self.normalizer and draw.random() < 0.8 else text


def added(content: str, number: int, **flags: bool) -> dict[str, Any]:
    """An added token of a tokenizer.json."""
    plain = dict.fromkeys((*FLAGS, "special", "normalized"), False)
    return {"id": number, "content": content, **plain, **flags}


def ids_by(reference: Tokenizer, text: str) -> list[int] | None:
    """Ids of a text by the library; None where it panics: where a name takes in white space that begins another one."""
    try:
        return list(reference.encode(text, add_special_tokens=False).ids)
    except BaseException as error:  # a panic in Rust is raised as one that is no `Exception`
        if "bad split" not in str(error):
            raise
        return None


def ids_of(file_text: str, texts: list[str], batch_characters: int) -> list[list[int]] | None:
    """Ids of texts by way of the certificate; None where it is refused."""
    certificate = certify(file_text)
    if certificate.refusal is not None:
        return None
    encoder = DocumentEncoder(file_text, certificate, batch_characters)
    column = DocumentColumn(pa.array(["", *texts], pa.string()), pa.array([str(at) for at in range(len(texts) + 1)]))
    return [ids.tolist() for ids in encoder.encode(column)][1:]


@pytest.fixture
def splittings_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes that need no vocabulary are left out: of the alphabets they exclude one character, which is an s."""
    probed = certificate_module._Probed(None, (0x17F,), 0)
    monkeypatch.setattr(certificate_module, "_cached", lambda kind, probe: probed)


@needs_fast_encoder
@pytest.mark.usefixtures("splittings_are_known")
@pytest.mark.parametrize(
    "seeds",
    [
        range(60),
        *(pytest.param(range(first, first + 497), marks=pytest.mark.nightly) for first in range(60, 10_000, 497)),
    ],
    ids=str,
)
def test_no_random_tokenizer_is_certified_and_wrong(seeds: range) -> None:
    """Whatever their names, flags and normalizer: nearly all are certified, and have the reference's ids for any text.

    The first document of an encoder is empty, so that none of the others is compared while it is encoded.
    """
    refused = 0
    for seed in seeds:
        drawn = Drawn(seed)
        try:
            reference = load_reference(drawn.file_text)
        except InputError as error:
            assert "are one name to its normalizer" in str(error)
            continue
        encoded = {text: ids for text in drawn.texts(12) if (ids := ids_by(reference, text)) is not None}
        texts, expected = list(encoded), list(encoded.values())
        ids = ids_of(drawn.file_text, texts, drawn.draw.choice((1, 8, 1 << 16)))
        assert ids in (expected, None), seed
        refused += ids is None
    assert refused <= len(seeds) / 100


PAIRS = {
    "indents and 'def '": (added("    ", 1), added("def ", 2, normalized=True), "def     x"),
    "</s> and >>": (added("</s>", 1, special=True), added(">>", 2), "a </s>> b >>"),
    "[/INST] and ]]": (added("[/INST]", 1, special=True), added("]]", 2), "a [/INST]] b ]]"),
    "a name in NFD": (added("cafe\u0301", 1, normalized=True), added("x", 2), "the caf\u00e9 by the mill x"),
    "a longer name": (added("<a", 1), added("<a>", 2), "<a><a"),
    "a name further left": (added("a>b", 1), added("b<", 2, special=True), "xa>b<b<"),
    "a name across another": (added("<a>", 1), added("><", 2, special=True, normalized=True), "<a><a>"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_names_that_share_characters_are_found_as_the_reference_finds_them(name: str) -> None:
    """The plain encoder never sees a name that is one token; it gets the texts between, with every rule by itself."""
    first, second, text = PAIRS[name]
    file = changed(trained_tokenizer(), added_tokens=[first, second], normalizer={"type": "NFC"})
    names, plain = AddedTokens(file), plain_tokenizer(file)
    asked: list[str] = []

    def encode(part: str) -> Int32Array:
        asked.append(part)
        return np.array(reference_ids(plain, asked[-1]), dtype=np.int32)

    assert names.normalized(text) == text
    assert names.encode(text, encode).tolist() == reference_ids(file, text)
    assert text not in asked


def test_the_plain_tokenizer_has_no_added_tokens_and_no_normalizer() -> None:
    """The model stays; a sequence of no normalizer is none."""
    for normalizer, known in (({"type": "NFC"},) * 2, ({"type": "Sequence", "normalizers": []}, None), (None, None)):
        file = changed(trained_tokenizer(), normalizer=normalizer)
        plain = json.loads(plain_tokenizer(file))
        assert (plain["added_tokens"], plain["normalizer"]) == ([], None)
        assert plain["model"] == json.loads(file)["model"]
        assert AddedTokens(file).normalizer == known


LEFT = {
    **{flag: [added("<x>", 1, **{flag: True})] for flag in FLAGS},
    "the same name twice": [added("<x>", 1), added("<x>", 2, special=True)],
    "a name that is another's normal form": [added("é<x>", 1), added("e\u0301<x>", 2, normalized=True)],
}


@pytest.mark.parametrize("case", LEFT)
def test_names_with_further_rules_are_left_to_the_reference(case: str) -> None:
    """Documents in which one occurs, and no others."""
    names = AddedTokens(changed(trained_tokenizer(), added_tokens=LEFT[case], normalizer={"type": "NFC"}))
    assert names.normalized(" a é<x>b") is None
    assert names.normalized("< x>é") == "< x>é"


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_of_special_tokens_leave_nothing_to_the_reference(flag: str) -> None:
    """Their names are text, whatever stands around them, beside plain names too."""
    special = added("<s>", 1, special=True, **{flag: True})
    for others in ([], [added("<x>", 2)]):
        assert AddedTokens(changed(trained_tokenizer(), added_tokens=[special, *others])).normalized("a <s> b")


@needs_fast_encoder
@pytest.mark.usefixtures("splittings_are_known")
def test_rules_that_are_not_the_references_refuse_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a later release that finds other names: the reason has the text of which ids differ."""
    file = changed(trained_tokenizer(), added_tokens=[added("<x>", 1), added(">>", 2)])
    assert certify(file).refusal is None

    def ignores(self: AddedTokens, text: str, encode: Callable[[str], Int32Array]) -> Int32Array:
        return encode(text)

    monkeypatch.setattr(AddedTokens, "encode", ignores)
    assert str(certify(file).refusal).startswith("added tokens: ids of '")
