"""Token ids of rendered conversations, and where a loss is taken on them.

Names of control tokens have their ids where the template wrote them, and are letters in messages. A text is cut at the
template's control tokens, as the library cuts it, and what is between is encoded by the certified fast encoder. Where
a tokenizer has none, or its tokens take blanks of their neighbours, the library encodes the whole text, in which the
template's control tokens have names of their own (`open_text_tokenizer`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.kernels.token_bounds import character_bounds
from headrace.kernels.tokenizer_file import open_text_tokenizer
from headrace_features.conversations.parts import Span
from headrace_features.conversations.shapes import Rendered
from headrace_features.conversations.templates import TemplateRefusedError
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

    def encode_each(self, rows: Sequence[Rendered]) -> Iterator[EncodedRow | TemplateRefusedError]:
        """Encode conversations; of one that is refused the error, and the others all the same."""
        try:
            yield from self.encode(rows)
        except TemplateRefusedError:
            for row in rows:
                try:
                    yield from self.encode([row])
                except TemplateRefusedError as error:
                    yield error

    def _by_segments(self, rows: Sequence[Rendered]) -> list[EncodedRow]:
        assert self._fast is not None and self._lengths is not None
        segments, numbers = dict[str, int](), {name: -1 - number for number, name in enumerate(self._ids)}
        pieces, counts = list[int](), list[int]()
        for row in rows:
            text, begin, before = row.text, 0, len(pieces)
            for start, end in row.controls:
                if begin < start:
                    pieces.append(segments.setdefault(text[begin:start], len(segments)))
                pieces.append(numbers[text[start:end]])
                begin = end
            if begin < len(text):
                pieces.append(segments.setdefault(text[begin:], len(segments)))
            counts.append(len(pieces) - before)
        column = pa.array(segments, pa.string())
        encoded = list(self._fast.encode(DocumentColumn(column, column)))  # by its text one in 1,000 is checked
        sizes = np.array([*map(len, encoded), *[1] * len(self._ids)], np.int64)
        starts = np.cumsum(sizes) - sizes
        flat = np.concatenate([*encoded, np.array([*reversed(self._ids.values())], np.int32)])
        chosen = np.array(pieces, np.int64)  # a control token is counted from the end
        lengths = sizes[chosen]
        ends = np.cumsum(lengths)
        ids = flat[np.repeat(starts[chosen] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)]
        of_rows = np.concatenate([[0], ends])[np.cumsum([0, *counts])]
        return self._rows(rows, ids, np.diff(of_rows))

    def _rows(self, rows: Sequence[Rendered], ids: Int32Array, counts: Int64Array) -> list[EncodedRow]:
        """The rows of ids that lie one behind the other, `counts` of each; all places in bytes of all texts."""
        assert self._lengths is not None
        lengths = self._lengths[ids]
        ends = np.cumsum(lengths)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        bases = np.concatenate([[0], ends])[bounds]
        spans, turns, sizes = list[Span](), list[int](), list[int]()
        for row, base in zip(rows, bases.tolist(), strict=False):
            trained, of_row = (row.trained, [*row.turns, row.head]) if row.text.isascii() else _in_bytes(row)
            spans += [(start + base, end + base) for start, end in trained]
            turns += [turn + base for turn in of_row]
            sizes.append(len(of_row))
        trainable, crosses = _trained(ends - lengths, ends, spans, self._overlaps)
        at = np.searchsorted(ends - lengths, turns).tolist()
        crossing = np.concatenate([[0], np.cumsum(crosses)])[bounds]
        encoded, first = list[EncodedRow](), 0
        for number, size in enumerate(sizes):
            low, high = int(bounds[number]), int(bounds[number + 1])
            *ended, head = (turn - low for turn in at[first : first + size])
            crossed = int(crossing[number + 1] - crossing[number])
            encoded.append(EncodedRow(ids[low:high], trainable[low:high], ended, head, crossed))
            first += size
        return encoded

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
        is_control = np.isin(ids, written)
        if int(is_control.sum()) != len(written):
            raise TemplateRefusedError(
                "the tokenizer does not cut its text at the control tokens of the template (single_word); declare "
                "them without"
            )
        if not self._overlaps:  # one that takes blanks of its neighbours (rstrip) is where the template wrote it
            starts[is_control], ends[is_control] = np.array(row.controls).reshape(-1, 2).T
        trainable, crosses = _trained(starts, ends, row.trained, self._overlaps)
        *turns, head = np.searchsorted(starts, [*row.turns, row.head]).tolist()
        return EncodedRow(ids, trainable, turns, head, int(crosses.sum()))


def _trained(
    starts: Int64Array, ends: Int64Array, spans: Sequence[Span], overlaps: bool
) -> tuple[BoolArray, BoolArray]:
    """(T,) whether tokens at [start, end) are trained, and (T,) whether they cross the edge of a span."""
    if not spans:
        return np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.bool_)
    bounds = np.array(spans, np.int64)
    nearest = np.minimum(np.searchsorted(bounds[:, 1], starts, side="right"), len(bounds) - 1)
    low, high = bounds[nearest, 0], bounds[nearest, 1]
    touches = (ends > low) & (starts < high)
    inside = (starts >= low) & (ends <= high) & touches
    return touches if overlaps else inside, touches & ~inside


def _in_bytes(row: Rendered) -> tuple[list[Span], list[int]]:
    """The trained spans of a row, and its turns and head, in bytes of its text."""
    at, total = {0: 0}, 0
    for before, place in pairwise(
        sorted({place for span in row.trained for place in span} | {*row.turns, row.head, 0})
    ):
        total += len(row.text[before:place].encode())
        at[place] = total
    return [(at[start], at[end]) for start, end in row.trained], [at[turn] for turn in (*row.turns, row.head)]
