"""Rows of a conversation: one, one for each turn, or whole turns in as many rows as do not fit into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from headrace_features.conversations.encoding import EncodedRow
from headrace_features.conversations.messages.conversation import Conversation
from spark_jobs.arrays import BoolArray, Int32Array

_REASONING: Final = "reasoning_content"


class ConversationRows(NamedTuple):
    """Tokens of a document: of its rows, one behind the other.

    Attributes:
        ids: (T,); each row but the last has its end token.
        trainable: (T + 1,), the last of the end token that packing writes.
        row_starts: where each row but the first begins.
    """

    ids: Int32Array
    trainable: BoolArray
    row_starts: list[int]


def prefixes(conversation: Conversation) -> Iterator[Conversation]:
    """A conversation up to the end of each of the assistant's turns."""
    roles = [message["role"] for message in conversation.messages] + ["user"]
    for at, (role, following) in enumerate(pairwise(roles), start=1):
        if role == "assistant" and following not in ("assistant", "tool"):
            yield Conversation(conversation.messages[:at], conversation.tools)


def with_thinking(conversation: Conversation, thinking: str) -> Conversation:
    """A conversation with the reasoning of `all` its turns, of those behind the `last` question, or of `none`."""
    questions = [number for number, message in enumerate(conversation.messages) if message["role"] == "user"]
    first = {"all": 0, "last": max(questions, default=0)}.get(thinking, len(conversation.messages))
    messages = [
        message if number >= first else {key: value for key, value in message.items() if key != _REASONING}
        for number, message in enumerate(conversation.messages)
    ]
    return conversation._replace(messages=messages) if first else conversation


def joined(rows: Sequence[EncodedRow], end_id: int, max_tokens: int, repeat_head: bool) -> ConversationRows:
    """The rows of a document as one list of tokens; rows without a trained token are left out.

    Args:
        rows: of its prefixes, or the one of all.
        end_id: of the token that ends a document. A row ending with it already has it once.
        max_tokens: longest row, its end token counted.
        repeat_head: whether each part of a longer row begins with what stands before the first question.
    """
    ids, masks, starts = list[Int32Array](), list[BoolArray](), [0]
    for piece in (piece for row in rows for piece in _pieces(_ended(row, end_id), max_tokens, repeat_head)):
        if piece.trainable.any():
            ids.append(piece.ids)
            masks.append(piece.trainable)
            starts.append(starts[-1] + len(piece.ids))
    if not ids:
        return ConversationRows(np.zeros(0, np.int32), np.zeros(1, np.bool_), [])
    return ConversationRows(np.concatenate(ids)[:-1], np.concatenate(masks), starts[1:-1])


def _ended(row: EncodedRow, end_id: int) -> EncodedRow:
    """A row with the end token of documents behind it, once; a loss is taken on it where one is before it."""
    if len(row.ids) and row.ids[-1] == end_id:
        return row
    mask = np.append(row.trainable, row.trainable[-1:] if len(row.ids) else False)
    return row._replace(ids=np.append(row.ids, np.int32(end_id)), trainable=mask)


def _pieces(row: EncodedRow, max_tokens: int, repeat_head: bool) -> Iterator[EncodedRow]:
    """A row, or its turns in as few rows as hold them; a turn longer than that is left for packing to cut."""
    if len(row.ids) <= max_tokens:
        yield row
        return
    head = row.head if repeat_head and row.head < max_tokens // 2 else 0
    bounds = [0, *(turn for turn in row.turns if 0 < turn < len(row.ids)), len(row.ids)]
    at = 0
    while at + 1 < len(bounds):
        repeated = head if at else 0
        room = max_tokens - 1 - repeated  # for the end token, and what is repeated
        stop = max((stop for stop in bounds[at + 1 :] if stop - bounds[at] <= room), default=bounds[at + 1])
        own = slice(bounds[at], stop)
        ends = [] if stop == len(row.ids) else [row.ids[-1]]
        yield EncodedRow(
            np.concatenate([row.ids[:repeated], row.ids[own], np.array(ends, np.int32)]),
            np.concatenate([np.zeros(repeated, np.bool_), row.trainable[own], np.zeros(len(ends), np.bool_)]),
            [],
            0,
            0,
        )
        at = bounds.index(stop)
