"""A conversation in canonical form, its plain text, and edits of that text led back into its messages.

The plain text has, message by message, reasoning, content, names and arguments of calls; a worked example:

    user "Rain in Oslo?"                              Rain in Oslo?
    assistant calls weather {"city": "Oslo"}          weather ⏎⏎ {"city": "Oslo"}
    tool "yes"                                        yes
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias

from headrace_features.conversations.messages.values import parsed_json
from spark_jobs.text.normalization import NO_EDITS, Edits, compose
from spark_jobs.text.text_columns import edits_of

SEPARATOR: Final = "\n\n"
"""Stands between parts of a plain text."""
Message: TypeAlias = dict[str, Any]


class Conversation(NamedTuple):
    """Canonical messages, and definitions of tools, none where the row has none."""

    messages: list[Message]
    tools: list[dict[str, Any]]


class Part(NamedTuple):
    """What stands at characters [start, end) of a plain text.

    Attributes:
        message: its index, from 0.
        field: content, reasoning_content, tool_calls.0.function.name or tool_calls.0.function.arguments.
        start: first character.
        end: character after the last.
    """

    message: int
    field: str
    start: int
    end: int


def to_json(conversation: Conversation) -> tuple[str, str | None]:
    """Messages, and definitions of tools where there are any, as one stable JSON each."""
    messages, tools = conversation
    return json.dumps(messages, ensure_ascii=False), json.dumps(tools, ensure_ascii=False) if tools else None


def from_json(messages: str, tools: str | None) -> Conversation:
    """The conversation that `to_json` wrote."""
    return Conversation(json.loads(messages), json.loads(tools) if tools else [])


def plain_text(conversation: Conversation) -> tuple[str, list[Part]]:
    """The text of a conversation without names of roles, and where each part of a message is in it."""
    texts, parts, at = list[str](), list[Part](), 0
    for index, message in enumerate(conversation.messages):
        for field, text in _texts(message):
            if text:
                texts.append(text)
                parts.append(Part(index, field, at, at + len(text)))
                at += len(text) + len(SEPARATOR)
    return SEPARATOR.join(texts), parts


def with_text(conversation: Conversation, text: str, *rounds: Edits | Sequence[Mapping[str, Any]]) -> Conversation:
    """Lead edits of the plain text back into the messages; what is cut is empty there, and no message goes.

    The replacement of an edit across several parts belongs to the first that it touches; one of a separator alone
    changes nothing. In arguments, a replacement that leaves no JSON is quoted ({"phone": <PHONE_1>}); where that does
    not help either, the arguments are their text as a string of JSON.

    Args:
        conversation: as it landed.
        text: what the edits made of its plain text.
        rounds: edits from the plain text to `text`, several where one was made of what another left: `edits` of a row
            of `texts`, then those of `cut_texts`.

    Raises:
        ValueError: the edits are not of this text.
    """
    edits = reduce(compose, (of if isinstance(of, Edits) else edits_of(of) for of in rounds), NO_EDITS)
    plain, parts = plain_text(conversation)
    source, edited = plain.encode(), text.encode()
    grown = int((edits.replacement_length - (edits.end - edits.start)).sum())
    if len(source) + grown != len(edited) or (len(edits) and int(edits.end[-1]) > len(source)):
        raise ValueError(
            f"{len(edits)} edits lead from {len(source)} bytes to {len(source) + grown}, not {len(edited)}"
        )
    if not len(edits):
        return conversation
    columns = (edits.start, edits.end, edits.text_start, edits.replacement_length)
    spans = list(zip(*(column.tolist() for column in columns), strict=True))
    messages: list[Message] = json.loads(json.dumps(conversation.messages))
    at, first, last = 0, 0, -1
    for part in parts:
        start = at
        at = end = start + len(plain[part.start : part.end].encode())
        at += len(SEPARATOR)
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        pieces, place, index = list[tuple[bytes, bool]](), start, first
        while index < len(spans) and spans[index][0] < end:
            edit_start, edit_end, text_start, length = spans[index]
            pieces.append((source[place : max(place, edit_start)], False))
            if index > last:
                pieces.append((edited[text_start : text_start + length], True))
            last, place, index = max(last, index), min(edit_end, end), index + 1
        if pieces:
            pieces.append((source[place:end], False))
            _put(messages[part.message], part.field, [(piece.decode(), new) for piece, new in pieces])
    return Conversation(messages, conversation.tools)


def _put(message: Message, field: str, pieces: Sequence[tuple[str, bool]]) -> None:
    """Set a field of a message from pieces of the old and, marked, of the new text."""
    text, path = "".join(piece for piece, _ in pieces), field.split(".")
    if path[-1] == "arguments" and not _is_object(text):
        quoted = "".join(json.dumps(piece, ensure_ascii=False) if new and piece else piece for piece, new in pieces)
        text = quoted if _is_object(quoted) else json.dumps(text, ensure_ascii=False)
    if len(path) == 1:
        message[field] = text
    else:
        message["tool_calls"][int(path[1])]["function"][path[-1]] = text


def _is_object(text: str) -> bool:
    try:
        return isinstance(parsed_json(text), dict)
    except (ValueError, RecursionError):
        return False


def _texts(message: Message) -> list[tuple[str, str]]:
    """Fields of a message with text, in the order of the plain text."""
    texts = [(field, message.get(field, "")) for field in ("reasoning_content", "content")]
    for index, call in enumerate(message.get("tool_calls", ())):
        texts += [(f"tool_calls.{index}.function.{name}", call["function"][name]) for name in ("name", "arguments")]
    return texts
