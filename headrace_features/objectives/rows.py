"""Rows of a document: one, or as many as its windows, each laid out by its own choice and of at most their length.

Tokens are counted as they are written: pieces are encoded by themselves and may have a token more than the text
between them had, and sentinels count. A row that is too long ends at an earlier letter, and the next begins there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headrace_features.objectives.cuts import letter_start
from headrace_features.objectives.fim import WHOLE, RowLayout
from headrace_features.objectives.layout import EncodedLayout, LaidOut, LayoutEncoder, Piece, Sentinel, Span, whole
from spark_jobs.arrays import Int32Array, Int64Array

_SENTINELS = 4  # of a row that is cut in three, its end token among them
LayOut = Callable[[int, Span], RowLayout]
"""Lays out the characters of a row, by its number."""


class TokenRow(NamedTuple):
    """A row: how it is laid out, and its tokens without the end token."""

    laid: RowLayout
    encoded: EncodedLayout


class DocumentTokens(NamedTuple):
    """The tokens of a document.

    Attributes:
        ids: (T,) of its rows one behind the other, those with an end token but for the last, whose packing writes it.
        row_starts: where each row but the first begins.
        encoded: the same as one row, end tokens among its pieces.
        laid: of each row.
    """

    ids: Int32Array
    row_starts: list[int]
    encoded: EncodedLayout
    laid: list[RowLayout]


def fits(row: TokenRow, max_tokens: int) -> bool:
    """Whether a row that ends its document has at most so many tokens, the end token counted."""
    return len(row.encoded.ids) < max_tokens


def divided(text: str, doc_id: str, lay_out: LayOut, encoder: LayoutEncoder, max_tokens: int) -> Iterator[TokenRow]:
    """Divide a document into rows of at most `max_tokens`, their end tokens counted, as full as letters allow.

    Args:
        text: of the document.
        doc_id: of it.
        lay_out: lays out its rows.
        encoder: of the tokenizer.
        max_tokens: of a row.
    """
    (plain,) = encoder.encode([LaidOut(text, whole(text), doc_id)])
    starts, _ = encoder.characters(text, plain)
    begin, number = 0, 0
    while begin < len(text):
        row = _fitting(text, doc_id, begin, starts, functools.partial(lay_out, number), encoder, max_tokens)
        yield row
        begin, number = _end_of(row), number + 1


def _fitting(
    text: str,
    doc_id: str,
    begin: int,
    starts: Int64Array,
    lay_out: Callable[[Span], RowLayout],
    encoder: LayoutEncoder,
    max_tokens: int,
) -> TokenRow:
    """The longest row from a place on; a letter of more tokens is a row by itself, cut by packing."""
    first, room = int(np.searchsorted(starts, begin)), max_tokens
    while True:
        end = len(text) if first + room >= len(starts) else letter_start(text, int(starts[first + room]), begin)
        end = end if end > begin else _letter_end(text, begin)
        laid = lay_out(Span(begin, end))
        if laid.form != WHOLE and room == max_tokens and end < len(text):
            room -= _SENTINELS  # at least: a try is spared
            continue
        (encoded,) = encoder.encode([LaidOut(text, laid.layout, doc_id)])
        row = TokenRow(laid, encoded)
        excess = len(encoded.ids) + has_end(laid, end == len(text)) - max_tokens
        if excess <= 0 or room == 1:
            return row
        room = max(room - excess, 1)


def has_end(laid: RowLayout, is_last: bool) -> bool:
    """Whether an end token follows: after a middle, where models stop to fill in, and at the end of a document."""
    return is_last or laid.form != WHOLE


def _letter_end(text: str, begin: int) -> int:
    end = begin + 1
    while end < len(text) and letter_start(text, end, begin) != end:
        end += 1
    return end


def _end_of(row: TokenRow) -> int:
    """Where the characters of a row end."""
    return max(piece.end for piece in row.laid.layout if isinstance(piece, Span))


def joined(rows: Sequence[TokenRow], end_id: int) -> DocumentTokens:
    """The rows of a document as one list of tokens.

    Args:
        rows: of it.
        end_id: of the token that ends a document.
    """
    ids, sizes, layout, counts = list[Int32Array](), list[int](), list[Piece](), list[int]()
    for number, row in enumerate(rows, start=1):
        ids.append(row.encoded.ids)
        sizes.append(len(row.encoded.ids))
        layout += row.encoded.layout
        counts += row.encoded.counts.tolist()
        if number < len(rows) and has_end(row.laid, False):
            ids.append(np.array([end_id], np.int32))
            sizes[-1] += 1
            layout.append(Sentinel(end_id))
            counts.append(1)
    every = np.concatenate([np.zeros(0, np.int32), *ids])
    encoded = EncodedLayout(every, tuple(layout), np.array(counts, np.int64))
    return DocumentTokens(every, np.cumsum(sizes[:-1], dtype=np.int64).tolist(), encoded, [row.laid for row in rows])
