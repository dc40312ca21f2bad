"""Token ids of rendered conversations, and where a loss is taken on them.

Names of control tokens have their ids where the template wrote them, and are letters in messages. A text is cut at the
template's control tokens, as the library cuts it, and what is between is encoded by the certified fast encoder. Where
a tokenizer has none, or its tokens take blanks of their neighbours, the library encodes the whole text, in which the
template's control tokens have names of their own (`open_text_tokenizer`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.kernels.token_bounds import character_bounds
from headrace.kernels.tokenizer_file import open_text_tokenizer
from headrace_features.conversations.exceptions import TemplateRefusedError
from headrace_features.conversations.masks import Span
from headrace_features.conversations.rendering import Rendered
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array
from spark_jobs.threads import made_once
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.token_bytes import token_byte_lengths

_HIDDEN: Final = "\U0010fffe"  # before the name of a control token (`open_text_tokenizer`)
_BATCH_CHARACTERS: Final = 1 << 18
certificate_of = made_once(most=4)(certify)


class EncodedRow(NamedTuple):
    """Tokens of a rendered conversation.

    Attributes:
        ids: (T,).
        trainable: (T,) whether a loss is taken.
        turns: tokens before the end of each of the assistant's turns.
        head: tokens before the first question.
        crossing: tokens with a part inside of a trained text and a part outside.
    """

    ids: Int32Array
    trainable: BoolArray
    turns: list[int]
    head: int
    crossing: int


def added_tokens(file_text: str) -> dict[str, bool]:
    """The added tokens of a tokenizer.json, each with whether it is special."""
    return {token["content"]: bool(token["special"]) for token in json.loads(file_text).get("added_tokens") or []}


class ConversationEncoder:
    """Encodes rendered conversations; for one thread at a time."""

    def __init__(self, file_text: str, control_names: frozenset[str], overlaps: bool) -> None:
        """Prepare a tokenizer.

        Args:
            file_text: of its tokenizer.json.
            control_names: that the template may write.
            overlaps: whether a token with a part in a trained text is trained, as transformers has it for blocks of a
                template; else one that is all in it.
        """
        declared = json.loads(file_text)
        tokens = declared.get("added_tokens") or []
        for token in tokens:
            token["special"] = token["special"] or token["content"] in control_names
        self._file, self._overlaps = json.dumps(declared), overlaps
        self._ids = {token["content"]: int(token["id"]) for token in tokens if token["content"] in control_names}
        self._lengths = token_byte_lengths(file_text)
        is_plain = not any(token["lstrip"] or token["rstrip"] or token["single_word"] for token in tokens)
        certificate: Certificate | None = certificate_of(self._file) if self._lengths is not None and is_plain else None
        self._fast = (
            DocumentEncoder(self._file, certificate, _BATCH_CHARACTERS)
            if certificate is not None and certificate.refusal is None
            else None
        )

    @functools.cached_property
    def _library(self) -> Any:
        tokenizer = open_text_tokenizer(self._file)
        tokenizer.encode_special_tokens = False
        tokenizer.post_processor = None
        return tokenizer

    def encode(self, rows: Sequence[Rendered]) -> list[EncodedRow]:
        """Encode conversations.

        Raises:
            TemplateRefusedError: a control token's name in a message has no letters of this tokenizer.
        """
        return self._by_segments(rows) if self._fast is not None else [self._whole(row) for row in rows]

    def _by_segments(self, rows: Sequence[Rendered]) -> list[EncodedRow]:
        assert self._fast is not None and self._lengths is not None
        segments, pieces = dict[str, int](), list[list[int]]()
        for row in rows:
            text, begin, of_row = row.text, 0, list[int]()
            for start, end in row.controls:
                if begin < start:
                    of_row.append(segments.setdefault(text[begin:start], len(segments)))
                of_row.append(-1 - self._ids[text[start:end]])
                begin = end
            if begin < len(text):
                of_row.append(segments.setdefault(text[begin:], len(segments)))
            pieces.append(of_row)
        column = pa.array(segments, pa.string())
        encoded = list(self._fast.encode(DocumentColumn(column, column)))  # by its text one in 1,000 is checked
        controls = np.arange(len(self._lengths), dtype=np.int32)
        joined = [
            np.concatenate(
                [encoded[piece] if piece >= 0 else controls[-1 - piece : -piece] for piece in of_row] or [controls[:0]]
            )
            for of_row in pieces
        ]
        return [
            self._row(row, ids, *_byte_bounds(row, ids, self._lengths)) for row, ids in zip(rows, joined, strict=True)
        ]

    def _whole(self, row: Rendered) -> EncodedRow:
        """By the library, with hidden names for control tokens."""
        if _HIDDEN in row.text:
            raise TemplateRefusedError("it has the character U+10FFFE, which no text has; remove it")
        pieces, inserted, begin = list[str](), list[int](), 0
        for start, end in row.controls:
            hidden = self._library.token_to_id(_HIDDEN + row.text[start:end]) is not None
            pieces += (row.text[begin:start], _HIDDEN * hidden, row.text[start:end])
            inserted += [start] * hidden
            begin = end
        text = "".join([*pieces, row.text[begin:]])
        encoding = self._library.encode(text, add_special_tokens=False)
        normalizer = self._library.normalizer
        starts, ends = character_bounds(text, encoding.offsets, normalizer and normalizer.normalize_str)
        places = np.array(inserted) + np.arange(len(inserted))  # of the hidden characters
        starts = starts - np.searchsorted(places, starts, side="left")
        ends = ends - np.searchsorted(places, ends, side="left")
        ids = np.array(encoding.ids, np.int32)
        written = [self._ids[row.text[start:end]] for start, end in row.controls]
        if row.has_quotes and sorted(ids[np.isin(ids, list(self._ids.values()))].tolist()) != sorted(written):
            raise TemplateRefusedError(
                "a message has the name of a control token, and this tokenizer has no letters for it"
            )
        return self._row(row, ids, starts, ends, [*row.trained], [*row.turns], row.head)

    def _row(
        self,
        row: Rendered,
        ids: Int32Array,
        starts: Int64Array,
        ends: Int64Array,
        spans: list[Span],
        turns: list[int],
        head: int,
    ) -> EncodedRow:
        """The row of ids with [start, end) of each, in the unit of the spans, turns and head."""
        *turns, head = np.searchsorted(starts, [*turns, head]).tolist()
        if not spans:
            return EncodedRow(ids, np.zeros(len(ids), np.bool_), turns, head, 0)
        bounds = np.array(spans, np.int64)
        nearest = np.minimum(np.searchsorted(bounds[:, 1], starts, side="right"), len(bounds) - 1)
        low, high = bounds[nearest, 0], bounds[nearest, 1]
        touches = (ends > low) & (starts < high)
        inside = (starts >= low) & (ends <= high) & touches
        crossing = int((touches & ~inside).sum())
        trainable = touches if self._overlaps else inside
        return EncodedRow(ids, trainable, turns, head, crossing)


def _byte_bounds(row: Rendered, ids: Int32Array, lengths: Int64Array) -> tuple[Any, ...]:
    """[start, end) of each token in bytes of the text, and the row's places in bytes too."""
    ends = np.cumsum(lengths[ids])
    starts = ends - lengths[ids]
    if row.text.isascii():
        return starts, ends, [*row.trained], [*row.turns], row.head
    points = sorted({place for span in row.trained for place in span} | {*row.turns, row.head, 0})
    at, total = {0: 0}, 0
    for before, place in pairwise(points):
        total += len(row.text[before:place].encode())
        at[place] = total
    return (
        starts,
        ends,
        [(at[start], at[end]) for start, end in row.trained],
        [at[turn] for turn in row.turns],
        at[row.head],
    )
