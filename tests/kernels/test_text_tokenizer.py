"""Tokenizers for texts whose own words are never control tokens, whatever the tokenizer's model."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from headrace.kernels.tokenizer_file import open_text_tokenizer

CONTROLS = ["<s>", "</s>", "[CLS]", "<|end|>"]
LETTERS = sorted(set("".join(CONTROLS) + "ab"))


def tokenizers() -> Iterator[tuple[str, Tokenizer]]:
    """One of each model whose vocabulary has the names of its controls as pieces."""
    pieces = ["<unk>", *CONTROLS, *LETTERS, "ab"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    yield "unigram", Tokenizer(models.Unigram([(piece, -float(len(piece) == 1)) for piece in pieces], unk_id=0))
    words = ids | {f"##{letter}": len(ids) + number for number, letter in enumerate(LETTERS)}
    yield "word_piece", Tokenizer(models.WordPiece(words, unk_token="<unk>"))
    yield "word_level", Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    yield "bpe", Tokenizer(models.BPE(ids, [("a", "b")], unk_token="<unk>"))
    whole = models.BPE(ids, [("a", "b")], unk_token="<unk>", ignore_merges=True)
    yield "bpe_of_whole_words", Tokenizer(whole)
    merged, merges = dict(ids), [("a", "b")]
    for name in CONTROLS:
        for end in range(2, len(name) + 1):
            merged.setdefault(name[:end], len(merged))
            merges.append((name[: end - 1], name[end - 1]))
    yield "bpe_merged", Tokenizer(models.BPE(merged, list(dict.fromkeys(merges)), unk_token="<unk>"))


@pytest.mark.parametrize(
    ("kind", "tokenizer"), [*tokenizers()], ids=lambda value: value if isinstance(value, str) else ""
)
def test_no_text_has_a_control_and_other_texts_keep_their_ids(kind: str, tokenizer: Tokenizer) -> None:
    """Names alone, inside of words and side by side; a text without one has the ids of the file's tokenizer."""
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", *CONTROLS])
    opened = open_text_tokenizer(tokenizer.to_str())
    controls = {tokenizer.token_to_id(name) for name in CONTROLS}
    draw = random.Random(kind)
    for _ in range(300):
        parts = draw.choices([*CONTROLS, *LETTERS, "ab", " "], k=draw.randrange(1, 8))
        ids = opened.encode("".join(parts), add_special_tokens=False).ids
        assert not controls & set(ids), parts
        plain = "".join(part for part in parts if part not in CONTROLS and part not in ("<", "["))
        assert (
            opened.encode(plain, add_special_tokens=False).ids == tokenizer.encode(plain, add_special_tokens=False).ids
        )
