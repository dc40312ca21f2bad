"""What layouts of rows promise: pieces encoded by themselves, characters behind each token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from headrace_features.objectives.layout import (
    NO_CHARACTER,
    Header,
    LaidOut,
    LayoutEncoder,
    Sentinel,
    Span,
    whole,
)
from spark_jobs.tokens.certificate import certify
from spark_jobs.tokens.pieces import with_letters

_TEXTS = ("def area(width):\n    return width * 2\n", "für die Größe, 長さ 🙂\r\nint x;", "e\u0301 und noch ein Satz")
_SENTINEL = "<|fim_prefix|>"


def _tokenizer(kind: str) -> str:
    """A small tokenizer: bytes, bytes behind NFC, or pieces with a blank in front as Llama's."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=kind == "pieces", unk_token=None))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = ["<end>"]
    if kind == "pieces":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        alphabet, specials = ["▁"], ["<end>", *(f"<0x{byte:02X}>" for byte in range(256))]
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        tokenizer.normalizer = normalizers.NFC() if kind == "nfc" else None
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_TEXTS * 3, trainer)
    tokenizer.add_tokens([_SENTINEL])
    return str(tokenizer.to_str())


@pytest.fixture(scope="module", params=["bytes", "nfc", "pieces"])
def encoder(request: pytest.FixtureRequest) -> tuple[LayoutEncoder, Tokenizer]:
    """An encoder, and the library's tokenizer."""
    file_text = _tokenizer(request.param)
    number = Tokenizer.from_str(file_text).token_to_id(_SENTINEL)
    file_text = with_letters(file_text, [number])
    return LayoutEncoder(file_text, certify(file_text), 1 << 18), Tokenizer.from_str(file_text)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_tokens_of_pieces_say_their_characters(encoder: tuple[LayoutEncoder, Tokenizer], data: st.DataObject) -> None:
    """Pieces decode to their texts, and each token lies in the characters of its piece, all of which are covered."""
    layouts, tokenizer = encoder
    number = tokenizer.token_to_id(_SENTINEL)
    text = data.draw(st.sampled_from(_TEXTS)) + data.draw(st.sampled_from(["", _SENTINEL, "x" * 40]))
    first, second = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    layout = (
        Header("// a\u0308 go\n"),
        Sentinel(number),
        Span(second, len(text)),
        Sentinel(number),
        Span(0, first),
        Span(first, second),
    )
    (row,) = layouts.encode([LaidOut(text, layout, "d")])
    starts, ends = layouts.characters(text, row)
    pieces = row.pieces()
    assert len(row.ids) == int(row.counts.sum()) and (row.ids == number).sum() == 2
    for at, piece in enumerate(layout):
        own = pieces == at
        if isinstance(piece, Sentinel):
            assert row.ids[own].tolist() == [number] and set(starts[own]) | set(ends[own]) == {NO_CHARACTER}
            continue
        low, high = piece if isinstance(piece, Span) else (0, len(piece.text))
        covered = sorted({c for a, b in zip(starts[own], ends[own], strict=True) for c in range(a, b)})
        assert covered == list(range(low, high))
        assert (np.diff(starts[own]) >= 0).all()
        wanted = piece.text if isinstance(piece, Header) else text[low:high]
        normalizer = tokenizer.normalizer if isinstance(tokenizer.normalizer, normalizers.NFC) else None
        wanted = normalizer.normalize_str(wanted) if normalizer else wanted
        assert tokenizer.decode(row.ids[own].tolist(), skip_special_tokens=False) == wanted


def test_a_whole_text_has_the_ids_of_the_library(encoder: tuple[LayoutEncoder, Tokenizer]) -> None:
    """A layout of all of a text gives the ids of the text, an empty text none."""
    layouts, tokenizer = encoder
    rows = layouts.encode([LaidOut(text, whole(text), text) for text in (*_TEXTS, "")])
    assert [row.ids.tolist() for row in rows] == [
        tokenizer.encode(text, add_special_tokens=False).ids for text in (*_TEXTS, "")
    ]
