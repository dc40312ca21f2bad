"""What layouts of rows promise: pieces encoded by themselves, characters behind each token."""

from __future__ import annotations

import functools
import itertools

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
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.pieces import with_letters
from tests.tiers import tries

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
        # Decoders such as Llama's take a blank off the start; of a piece that goes on none was put there.
        ahead = [*tokenizer.encode("d", add_special_tokens=False).ids] if low else []
        decoded = tokenizer.decode([*ahead, *row.ids[own].tolist()], skip_special_tokens=False)
        assert decoded.removeprefix("d" if low else "") == wanted


def test_a_whole_text_has_the_ids_of_the_library(encoder: tuple[LayoutEncoder, Tokenizer]) -> None:
    """A layout of all of a text gives the ids of the text, an empty text none."""
    layouts, tokenizer = encoder
    rows = layouts.encode([LaidOut(text, whole(text), text) for text in (*_TEXTS, "")])
    assert [row.ids.tolist() for row in rows] == [
        tokenizer.encode(text, add_special_tokens=False).ids for text in (*_TEXTS, "")
    ]


@pytest.mark.parametrize("kind", ["prepend", "metaspace", "first", "bytes", "sequence"])
@settings(deadline=None, max_examples=tries(60))
@given(text=st.text("ab (\n漢é\u0301", min_size=1, max_size=40), places=st.lists(st.integers(0, 40), max_size=4))
def test_no_blank_is_put_in_front_of_a_piece_that_goes_on(kind: str, text: str, places: list[int]) -> None:
    """Tokenizers such as Llama's put one in front of every text; pieces of a document have it once, at its start."""
    file_text = _prefixing(kind)
    library = Tokenizer.from_str(file_text)
    decode = functools.partial(library.decode, skip_special_tokens=False)
    bounds = sorted({0, *(place for place in places if place < len(text)), len(text)})
    layout = tuple(Span(start, end) for start, end in itertools.pairwise(bounds))
    encoder = LayoutEncoder(file_text, Certificate.refused("ab", "none"), 1 << 18)
    plain, cut = encoder.encode([LaidOut(text, (Span(0, len(text)),), "a"), LaidOut(text, layout, "a")])
    assert plain.ids.tolist() == library.encode(text, add_special_tokens=False).ids
    assert decode(cut.ids.tolist()) == decode(plain.ids.tolist())
    starts, ends = encoder.characters(text, cut)
    assert all(0 <= start <= end <= len(text) for start, end in zip(starts.tolist(), ends.tolist(), strict=True))


@functools.cache
def _prefixing(kind: str) -> str:
    """A tokenizer of bytes that puts a blank in front of texts, by a normalizer or before it cuts them."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=kind != "bytes", unk_token=None))
    specials, alphabet = [f"<0x{byte:02X}>" for byte in range(256)], ["▁"]
    replaced: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*replaced, decoders.Strip(" ", 1, 0)])
    if kind == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder, specials, alphabet = decoders.ByteLevel(), [], pre_tokenizers.ByteLevel.alphabet()
    elif kind == "sequence":
        parts = [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace(prepend_scheme="first")]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    else:
        scheme = "always" if kind == "metaspace" else "first"
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)  # type: ignore[arg-type]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["ab (ab) ab ba\n" * 9], trainer)
    return str(tokenizer.to_str())
