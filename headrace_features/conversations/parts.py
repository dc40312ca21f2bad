"""Texts of a conversation, which a rendering has to hold: one list of parts, and messages with other texts for them.

    user "hi", assistant reasoning "easy" and "ho"  ->  (0, user, hi) (1, reasoning, easy) (1, assistant, ho)

A part is found again after each replacement: `replaced` visits the same texts in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

REASONING: Final = "reasoning"
CALL_NAME, CALL_ARGUMENT, TOOL_ANSWER, TOOL_DEFINITION = "call_name", "call_argument", "tool_answer", "tool_definition"
TOOL_NAME: Final = "tool_name"  # of an answer: templates may leave it out, as the call before has it
MOVED: Final = "moved"
REASONING_BEFORE_LAST: Final = "reasoning_before_last"
KINDS: Final = (
    *("system", "developer", "user", "assistant", REASONING, REASONING_BEFORE_LAST),
    *(CALL_NAME, CALL_ARGUMENT, TOOL_ANSWER, TOOL_DEFINITION, MOVED),
)
"""Kinds of text that a template may leave out; `moved` is a text out of its order."""

_NAMES: Final = (CALL_NAME, TOOL_NAME)


Span = tuple[int, int]


class TextPart(NamedTuple):
    """A text of a message: the message's number from 0, its kind, and the text."""

    message: int
    kind: str
    text: str


Take = Callable[[int, str, str], str]


def replaced(messages: list[dict[str, Any]], take: Take) -> list[dict[str, Any]]:
    """Messages with the text of each part as `take(message, kind, text)` gives it."""
    return [_replaced_message(number, message, take) for number, message in enumerate(messages)]


def _replaced_message(number: int, message: dict[str, Any], take: Take) -> dict[str, Any]:
    changed = message.copy()
    role = message["role"]
    if isinstance(reasoning := message.get("reasoning_content"), str):
        changed["reasoning_content"] = take(number, REASONING, reasoning)
    kind = TOOL_ANSWER if role == "tool" else role
    if isinstance(content := message.get("content"), str):
        changed["content"] = take(number, kind, content)
    elif content is not None:  # as templates of pictures take it
        changed["content"] = [part | {"text": take(number, kind, part["text"])} for part in content]
    if isinstance(name := message.get("name"), str):
        changed["name"] = take(number, TOOL_NAME, name)
    if calls := message.get("tool_calls"):
        changed["tool_calls"] = [
            call
            | {
                "function": {
                    **call["function"],
                    "name": take(number, CALL_NAME, call["function"]["name"]),
                    "arguments": _replaced_value(number, call["function"].get("arguments"), take),
                }
            }
            for call in calls
        ]
    return changed


def _replaced_value(number: int, value: Any, take: Take) -> Any:
    if isinstance(value, str):
        return take(number, CALL_ARGUMENT, value)
    if isinstance(value, dict):
        return {key: _replaced_value(number, inner, take) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced_value(number, inner, take) for inner in value]
    return value


def text_parts(messages: list[dict[str, Any]]) -> list[TextPart]:
    """The parts of messages, in the order in which `replaced` visits them."""
    parts = list[TextPart]()

    def note(number: int, kind: str, text: str) -> str:
        parts.append(TextPart(number, kind, text))
        return text

    replaced(messages, note)
    return parts


def is_name(kind: str) -> bool:
    """Whether parts of a kind name a function; equal ones name the same."""
    return kind in _NAMES


def plain_constants(value: Any) -> Iterator[tuple[str, ...]]:
    """Keys, numbers and truth values in the arguments of a call, each in the forms in which templates write it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (key, json.dumps(key, ensure_ascii=False)[1:-1])
            yield from plain_constants(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from plain_constants(inner)
    elif not isinstance(value, str):
        yield (json.dumps(value), str(value))


def definition_texts(tools: list[dict[str, Any]]) -> Iterator[str]:
    """Names, descriptions and names of parameters in definitions of tools."""
    for tool in tools:
        function = tool.get("function", tool)
        yield from (function[key] for key in ("name", "description") if isinstance(function.get(key), str))
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        yield from properties if isinstance(properties, dict) else ()
