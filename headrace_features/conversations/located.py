"""Find the parts of a conversation in its rendering, and what the template left out."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from headrace_features.conversations.parts import (
    CALL_ARGUMENT,
    MOVED,
    REASONING,
    REASONING_BEFORE_LAST,
    TOOL_DEFINITION,
    TOOL_NAME,
    TextPart,
    definition_texts,
    is_name,
    plain_constants,
)
from headrace_features.conversations.skeleton import Skeleton


class Place(NamedTuple):
    """A part in a text: its message, kind, and [start, end) in characters."""

    message: int
    kind: str
    start: int
    end: int


class Lost(NamedTuple):
    """A part which is not in the text, or out of its order: its message, and its kind as `allow` names it."""

    message: int
    kind: str


class PartChoice(NamedTuple):
    """For all conversations of a shape: part and place of each located part, and what is lost of each."""

    places: list[tuple[int, int]]
    lost: list[Lost]


def chosen(
    skeleton: Skeleton, messages: list[dict[str, Any]], tools: list[dict[str, Any]], parts: Sequence[TextPart]
) -> PartChoice:
    """Choose a place of the skeleton for each part, in the order of messages."""
    places_of, first_of = defaultdict[int, list[int]](list), dict[str, int]()
    for number, of_part in enumerate(skeleton.places):
        places_of[of_part.part].append(number)
    places, lost, after, used = list[tuple[int, int]](), list[Lost](), 0, set[int]()
    for of_message in _by_message(parts):
        furthest = after
        for number in of_message:
            part = parts[number]
            wanted = first_of.setdefault(part.text, number) if is_name(part.kind) else number
            free = [place for place in places_of[wanted] if place not in used]
            if part.kind == TOOL_NAME or not part.text.strip():
                continue
            place = next((place for place in free if place >= after), free[0] if free else None)
            if place is None:
                lost.append(Lost(part.message, _kind_of(part, messages)))
                continue
            used.add(place)
            places.append((number, place))
            if place < after:
                lost.append(Lost(part.message, MOVED))
            furthest = max(furthest, place + 1)
        after = furthest
    return PartChoice(places, lost + _lost_constants(skeleton.bare, messages, tools))


def searched(
    text: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    parts: Sequence[TextPart],
    fixed: Sequence[tuple[int, int]] = (),
) -> tuple[list[Place], list[Lost]]:
    """Search the parts in a text, in the order of messages; each place is of one part.

    Args:
        text: the rendering.
        messages: of the conversation.
        tools: of it.
        parts: of it.
        fixed: headers and control tokens of the template; no part is in one of them.
    """
    places, lost, after, used = list[Place](), list[Lost](), 0, list[tuple[int, int]]()
    for of_message in _by_message(parts):
        furthest = after
        for number in of_message:
            part = parts[number]
            if part.kind == TOOL_NAME or not part.text.strip():
                continue
            span = _free_span(text, part.text, after, used, fixed) or _free_span(text, part.text, 0, used, fixed)
            if span is None:
                lost.append(Lost(part.message, _kind_of(part, messages)))
                continue
            used.append(span)
            places.append(Place(part.message, part.kind, *span))
            if span[0] < after:
                lost.append(Lost(part.message, MOVED))
            furthest = max(furthest, span[1])
        after = furthest
    return places, lost + _lost_constants(text, messages, tools)


def _by_message(parts: Sequence[TextPart]) -> Iterator[list[int]]:
    """The numbers of the parts of each message that has any."""
    numbers = defaultdict[int, list[int]](list)
    for number, part in enumerate(parts):
        numbers[part.message].append(number)
    return iter(numbers.values())


def _free_span(
    text: str, part: str, after: int, used: Sequence[tuple[int, int]], fixed: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """The first place of a part at or behind `after`, its ends trimmed, that is neither of another part nor fixed."""
    wanted = part.strip()
    for form in dict.fromkeys((wanted, json.dumps(wanted, ensure_ascii=False)[1:-1], json.dumps(wanted)[1:-1])):
        start = text.find(form, after)
        while start >= 0:
            end = start + len(form)
            is_free = all(end <= low or high <= start for low, high in used)
            # a part with a name of the template in it (`<think>`) is around it
            if is_free and all(end <= low or high <= start or start < low < high < end for low, high in fixed):
                return start, end
            start = text.find(form, start + 1)
    return None


def _kind_of(part: TextPart, messages: list[dict[str, Any]]) -> str:
    is_before = any(message["role"] == "user" for message in messages[part.message :])
    return REASONING_BEFORE_LAST if part.kind == REASONING and is_before else part.kind


def _lost_constants(text: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[Lost]:
    """Keys and numbers of arguments, and texts of definitions, that are nowhere in a text."""
    lost = [Lost(-1, TOOL_DEFINITION) for wanted in definition_texts(tools) if not _is_in(text, (wanted.strip(),))]
    for number, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            constants = plain_constants(call["function"].get("arguments"))
            lost += [Lost(number, CALL_ARGUMENT) for forms in constants if not _is_in(text, forms)]
    return lost


def _is_in(text: str, forms: Sequence[str]) -> bool:
    return any(form in text or json.dumps(form, ensure_ascii=False)[1:-1] in text for form in forms)
