"""How a row of tokens is laid out over the text of its document, and its encoding piece by piece.

    a = 1; b = 2     PSM with the middle " b"  ->  <pre> [0, 6) <suf> [8, 12) <mid> [6, 8)

A piece is a sentinel (an id), a header (a text of its own) or a range of characters of the document. Each is encoded by
itself, so tokens know the characters behind them wherever their piece stands: masks are laid over tokens afterwards,
and change no layout. Names of sentinels in documents and headers are letters, never the sentinel.
"""

from __future__ import annotations

import functools
import hashlib
import json
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.kernels.token_bounds import character_bounds
from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.tokens.certificate import Certificate
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.hf_tokenizer import NFC, load_reference, normalizer_of
from spark_jobs.tokens.pieces import without_prefix
from spark_jobs.tokens.token_bytes import token_byte_lengths

NO_CHARACTER = -1  # in place of the first character of a token of a sentinel or a header


class Sentinel(NamedTuple):
    """A token that is no text, such as the one before a prefix."""

    token: int


class Header(NamedTuple):
    """A text in front of a document that is no part of it."""

    text: str


class Span(NamedTuple):
    """Characters [start, end) of the document's text."""

    start: int
    end: int


Piece = Sentinel | Header | Span
Layout = tuple[Piece, ...]


class LaidOut(NamedTuple):
    """A row to be encoded.

    Attributes:
        text: the whole text of its document.
        layout: pieces of the row in their order.
        doc_id: chooses, by its hash, which documents both encoders encode.
    """

    text: str
    layout: Layout
    doc_id: str


class EncodedLayout(NamedTuple):
    """The tokens of a row.

    Attributes:
        ids: (T,).
        layout: (P pieces) of the row.
        counts: (P,) tokens of each piece.
    """

    ids: Int32Array
    layout: Layout
    counts: Int64Array

    def pieces(self) -> Int64Array:
        """(T,) the number of each token's piece."""
        return np.repeat(np.arange(len(self.layout)), self.counts)


def whole(text: str) -> Layout:
    """The layout of a text as it is."""
    return (Span(0, len(text)),)


class LayoutEncoder:
    """Encodes rows of pieces, for one thread at a time."""

    def __init__(self, file_text: str, certificate: Certificate, batch_characters: int) -> None:
        """Prepare a tokenizer.

        Args:
            file_text: of its tokenizer.json (`with_letters`).
            certificate: for this very file.
            batch_characters: most characters encoded at once by the reference.
        """
        self._file = file_text
        self._encoder = DocumentEncoder(file_text, certificate, batch_characters)
        going_on = without_prefix(file_text)
        self._inner = self  # for pieces that do not begin a text
        if going_on != file_text:
            sha256 = hashlib.sha256(going_on.encode()).hexdigest()
            refused = Certificate.refused(sha256, "it puts a blank in front of texts, but not in front of their pieces")
            self._inner = LayoutEncoder(going_on, refused, batch_characters)

    @functools.cached_property
    def _lengths(self) -> Int64Array | None:
        """Bytes of each token, where its pieces of text lie one behind the other."""
        declared = json.loads(self._file)
        if self._is_nfc:  # changes no text that is in NFC, and others go another way
            declared["normalizer"] = None
        return token_byte_lengths(json.dumps(declared))

    @functools.cached_property
    def _is_nfc(self) -> bool:
        return normalizer_of(json.loads(self._file)) == NFC

    def encode(self, rows: Sequence[LaidOut]) -> list[EncodedLayout]:
        """Encode rows, each piece by itself.

        Raises:
            InputError: the two encoders differ.
        """
        pieces = [(_text_of(row.text, piece), row.doc_id, self._of(piece)) for row in rows for piece in row.layout]
        texts = [piece for piece in pieces if piece[0]]
        by_encoder = {
            encoder: iter(encoder._encode([(text, doc_id) for text, doc_id, of in texts if of is encoder]))
            for encoder in {self, self._inner}
        }
        encoded = (next(by_encoder[encoder]) for *_, encoder in texts)
        done = []
        for row in rows:
            parts = [
                np.array([piece.token], np.int32)
                if isinstance(piece, Sentinel)
                else (next(encoded) if _text_of(row.text, piece) else np.zeros(0, np.int32))
                for piece in row.layout
            ]
            counts = np.array([*map(len, parts)], np.int64)
            done.append(EncodedLayout(np.concatenate([np.zeros(0, np.int32), *parts]), row.layout, counts))
        return done

    def _of(self, piece: Piece) -> LayoutEncoder:
        """The encoder of a piece: this one where it begins a text."""
        return self._inner if isinstance(piece, Span) and piece.start else self

    def _encode(self, texts: Sequence[tuple[str, str]]) -> list[Int32Array]:
        """Ids of texts, each with its document's id."""
        column = DocumentColumn(
            pa.array([text for text, _ in texts], pa.large_string()), pa.array([d for _, d in texts], pa.string())
        )
        return list(self._encoder.encode(column))

    def characters(self, text: str, row: EncodedLayout) -> tuple[Int64Array, Int64Array]:
        """Characters [start, end) of each token, in its document or, for a header's, in the header.

        A token for a part of a character has the whole one.

        Returns:
            (T,) starts and (T,) ends; both `NO_CHARACTER` for a sentinel. Which tokens are a header's says `pieces`.
        """
        starts, ends = np.full(len(row.ids), NO_CHARACTER, np.int64), np.full(len(row.ids), NO_CHARACTER, np.int64)
        at = 0
        for piece, count in zip(row.layout, row.counts.tolist(), strict=True):
            if count and not isinstance(piece, Sentinel):
                of_piece = slice(at, at + count)
                first = piece.start if isinstance(piece, Span) else 0
                low, high = self._of(piece)._bounds(_text_of(text, piece), row.ids[of_piece])
                starts[of_piece], ends[of_piece] = low + first, high + first
            at += count
        return starts, ends

    def _bounds(self, text: str, ids: Int32Array) -> tuple[Int64Array, Int64Array]:
        if self._lengths is not None and (not self._is_nfc or unicodedata.is_normalized("NFC", text)):
            ends = np.cumsum(self._lengths[ids])
            starts = ends - self._lengths[ids]
            bytes_before = _bytes_before(text)
            if len(ids) and ends[-1] == bytes_before[-1]:  # else its pieces leave blanks out
                first = np.searchsorted(bytes_before, starts, side="right") - 1
                return first, np.searchsorted(bytes_before, ends, side="left")
        reference = self._reference
        encoding = reference.encode(text, add_special_tokens=False)
        normalizer = reference.normalizer
        return character_bounds(text, encoding.offsets, normalizer and normalizer.normalize_str)

    @functools.cached_property
    def _reference(self) -> Any:
        return load_reference(self._file)


def _text_of(text: str, piece: Piece) -> str:
    """The text that a piece is encoded from; empty for a sentinel."""
    if isinstance(piece, Span):
        return text[piece.start : piece.end]
    return piece.text if isinstance(piece, Header) else ""


def _bytes_before(text: str) -> Int64Array:
    """(C + 1,) bytes of a text's UTF-8 before each character."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    widths = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])
