"""A loss on spans: tokens that get one are those of a brute-force alignment of bytes, in all forms of tokenizers."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from blender_service.tables.text_table import TextEncoder
from spark_jobs.tokens.token_bytes import encoded_bounds
from tests.tiers import sampled, tries

Normalize = Callable[[str], str]
SPECIALS = ["<|endoftext|>", "<|im_start|>"]
LETTERS = (
    "a", "b", "e", "h", "l", "o", "y", "w", " ", " ", "  ", "\n", "\n\n", "\t", "é", "e\u0301", "e\u0323\u0301",
    "\u0301", "ﬁ", "İ", "①", "語", "\u1112\u1161\u11ab", "한", "🦜", "A", "ẞ", "  y = 1\n", "\u200d", "\x00", "▁", "Ġ",
    "<|im_start|>", "\u3000", "\ufeff", "\u00a0", "\u0344", "か", "\u3099",
    "ｶ", "\uff9e", "\u1112", "\u1161", "가", "\u0915", "\u093c",
)  # fmt: skip
WORDS = ["hello world  how\n\nare you é 語 ﬁ\n  y = 1\n        return x\n" * 20]


class Form(NamedTuple):
    """A form of tokenizers, and what it does to a text before it is cut: `before` it, then `normalize`."""

    tokenizer: Tokenizer
    normalize: Normalize = str
    before: str = ""


def byte_level(normalizer: object = None, post: object = None, first: object = None, blank: bool = False) -> Tokenizer:
    """A byte-level BPE of 320 tokens."""
    made = Tokenizer(models.BPE())
    levels = [pre_tokenizers.ByteLevel(add_prefix_space=blank)]
    made.pre_tokenizer = pre_tokenizers.Sequence([*([first] if first else []), *levels])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(WORDS, trainer)
    if normalizer:
        made.normalizer = normalizer
    if post:
        made.post_processor = post
    return made


def sentence_piece(kind: str, normalizer: object = None) -> Tokenizer:
    """A BPE over `▁` with a byte for what it does not know."""
    names = ["<unk>", *SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *"▁helowrd\n"]
    merges = [("▁", "h"), ("l", "l"), ("▁", "▁"), ("▁h", "e"), ("ll", "o")]
    vocabulary = {name: number for number, name in enumerate([*names, *map("".join, merges)])}
    made = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if kind == "normalizer":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind, split=False)
        if normalizer:
            made.normalizer = normalizer
    made.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    return made


def spelled(tokenizer: Tokenizer, token: int) -> bytes:
    """The bytes that a token stands for, in the text that was cut."""
    name = tokenizer.id_to_token(token)
    if re.fullmatch("<0x[0-9A-F]{2}>", name):
        return bytes([int(name[3:5], 16)])
    if "ByteLevel" not in str(tokenizer.pre_tokenizer):
        return name.encode()
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    named = {chr(byte): byte for byte in shown}
    named |= {chr(256 + at): byte for at, byte in enumerate(one for one in range(256) if one not in shown)}
    return bytes(named[letter] for letter in name)


def aligned(form: Form, text: str) -> list[tuple[int, int]]:
    """Characters [start, end) of each token, found without any offset of the library.

    Of all places that a text may be cut at before it is normalized without another result, they are the last one
    before the token and the first one after it.
    """
    reference = Tokenizer.from_str(form.tokenizer.to_str())
    reference.encode_special_tokens = True
    pieces = [spelled(reference, token) for token in reference.encode(text, add_special_tokens=False).ids]
    before = len(form.before.encode()) if text else 0
    whole = form.normalize(text)
    assert b"".join(pieces)[before:] == whole.encode(), "the truth is one"
    cuts = [
        (len(form.normalize(text[:at]).encode()) + before, at)
        for at in range(len(text) + 1)
        if form.normalize(text[:at]) + form.normalize(text[at:]) == whole
    ]
    bounds = []
    for start, end in zip(accumulate(map(len, [b"", *pieces])), accumulate(map(len, pieces)), strict=False):
        first = max((at for place, at in cuts if place <= start), default=0)
        last = min(at for place, at in cuts if place >= end)
        bounds.append((first, last) if first < last else (first, first + 1))  # the blank that was put before a text
    return bounds


def of(normalizer: normalizers.Normalizer) -> Form:
    """A byte-level tokenizer with a normalizer."""
    return Form(byte_level(normalizer), normalizer.normalize_str)


def blanks_as_bars(text: str) -> str:
    """The text that tokenizers of the kind of SentencePiece cut."""
    return text.replace(" ", "▁")


TRIMS = processors.ByteLevel(trim_offsets=True)
TEMPLATE = processors.TemplateProcessing(single=f"{SPECIALS[0]} $A", special_tokens=[(SPECIALS[0], 0)])
FORMS: dict[str, Callable[[], Form]] = {
    "plain": lambda: Form(byte_level()),
    "trims": lambda: Form(byte_level(post=TRIMS)),
    "trims not": lambda: Form(byte_level(post=processors.ByteLevel(trim_offsets=False))),
    "template, trims": lambda: Form(byte_level(post=processors.Sequence([TRIMS, TEMPLATE]))),
    "roberta": lambda: Form(byte_level(post=processors.RobertaProcessing((SPECIALS[0], 0), (SPECIALS[1], 1)))),
    "blank before": lambda: Form(byte_level(post=TRIMS, blank=True), before=" "),
    "words split": lambda: Form(byte_level(post=TRIMS, first=pre_tokenizers.Split(Regex(r"\s+|\w+"), "isolated"))),
    "blanks removed": lambda: Form(
        byte_level(post=TRIMS, first=pre_tokenizers.Split(" ", "removed")), lambda text: text.replace(" ", "")
    ),
    "NFC": lambda: of(normalizers.NFC()),
    "NFD": lambda: of(normalizers.NFD()),
    "NFKC": lambda: of(normalizers.NFKC()),
    "NFKD": lambda: of(normalizers.NFKD()),
    "lower case": lambda: of(normalizers.Lowercase()),
    "accents": lambda: of(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()])),
    "NFKC, lower case": lambda: of(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
    "longer": lambda: of(normalizers.Replace("e", "hello")),
    "shorter": lambda: of(normalizers.Replace("  y", "w")),
    "one blank": lambda: of(normalizers.Replace(Regex(" +"), " ")),
    "no blank": lambda: of(normalizers.Replace(" ", "")),
    "bars first": lambda: Form(sentence_piece("first"), blanks_as_bars, "▁"),
    "bars always": lambda: Form(sentence_piece("always"), blanks_as_bars, "▁"),
    "bars never": lambda: Form(sentence_piece("never"), blanks_as_bars),
    "bars by normalizer": lambda: Form(sentence_piece("normalizer"), blanks_as_bars, "▁"),
    "bars, NFKC": lambda: Form(
        sentence_piece("never", normalizers.NFKC()), lambda text: blanks_as_bars(normalizers.NFKC().normalize_str(text))
    ),
}


@sampled(5)
@pytest.mark.parametrize("name", FORMS)
def test_a_loss_is_taken_on_the_bytes_of_spans(name: str) -> None:
    """Blanks, line ends and parts of characters among them; doc show has the same bounds of tokens."""
    form = FORMS[name]()
    random = np.random.default_rng(7)
    encoder, file = TextEncoder(form.tokenizer.to_str(), 0), form.tokenizer.to_str()
    wrong = places = 0
    for _ in range(tries(600, 20)):
        text = "".join(random.choice(LETTERS, random.integers(0, 14)))
        if form.before == "▁" and (text.startswith((" ", "▁")) or not text):
            text = f"h{text}"  # such a text gets no bar of its own in some schemes
        if form.before == " " and text.startswith(tuple(" \t\n\u3000\u00a0")):
            text = f"h{text}"
        bounds = aligned(form, text)
        cuts = random.integers(0, len(text) + 1, (random.integers(0, 4), 2)).tolist()
        spans = [{"start": min(cut), "end": max(cut)} for cut in cuts]
        mask = encoder.encode_trainable([text], [spans])[1].tolist()
        truth = [any(span["start"] <= a and b <= span["end"] for span in spans) for a, b in bounds]
        wrong += mask != [*truth, any(span["end"] >= len(text) for span in spans)]
        ids = encoder.encode([text]).ids[:-1]
        starts, ends = encoded_bounds(file, text, ids)
        in_bytes = [(len(text[:a].encode()), len(text[:b].encode())) for a, b in bounds]
        wrong += [*zip(starts.tolist(), ends.tolist(), strict=True)] != in_bytes
        places += len(bounds)
    assert places > 100
    assert not wrong
