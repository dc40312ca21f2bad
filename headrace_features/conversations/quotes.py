"""Marks around names of control tokens in messages, and what stands between them in a rendering."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from headrace_features.conversations.parts import Span

_QUOTES: Final = ("\ue010", "\ue011")
MARKED: Final = re.compile(f"{_QUOTES[0]}|{_QUOTES[1]}")


def marked_value(value: Any, names: re.Pattern[str]) -> Any:
    """A value with marks around the names in its texts, keys too."""
    if isinstance(value, str):
        return names.sub(f"{_QUOTES[0]}\\g<0>{_QUOTES[1]}", value)
    if isinstance(value, dict):
        return {marked_value(key, names): marked_value(inner, names) for key, inner in value.items()}
    return [marked_value(inner, names) for inner in value] if isinstance(value, list) else value


def marked_constants(message: dict[str, Any], marked: Any) -> dict[str, Any]:
    """A message with marks in what is no part of it: keys of arguments, ids, other fields."""
    parts = {"role", "content", "reasoning_content", "name", "tool_calls"}
    changed = {key: value if key in parts else marked(value) for key, value in message.items()}
    if "tool_calls" in message:
        changed["tool_calls"] = [
            call
            | {"function": call["function"] | {"arguments": _keys_marked(call["function"].get("arguments"), marked)}}
            for call in message["tool_calls"]
        ]
    return changed


def _keys_marked(value: Any, marked: Any) -> Any:
    if isinstance(value, dict):
        return {marked(key): _keys_marked(inner, marked) for key, inner in value.items()}
    return [_keys_marked(inner, marked) for inner in value] if isinstance(value, list) else value


def names_of(messages: Any, names: re.Pattern[str]) -> set[str]:
    """The names in the texts of a value, keys too."""
    if isinstance(messages, str):
        return set(names.findall(messages))
    inner = [*messages, *messages.values()] if isinstance(messages, dict) else messages
    return set().union(*(names_of(of, names) for of in inner)) if isinstance(messages, dict | list) else set()


def quoted_spans(written: str, names: set[str]) -> list[Span] | None:
    """[start, end) of what stands between marks, in the text without them; None where that is anything but a name."""
    forms = {form for name in names for form in (name, json.dumps(name, ensure_ascii=False)[1:-1])}
    spans, opened = list[Span](), None
    for removed, match in enumerate(MARKED.finditer(written)):
        if (match[0] == _QUOTES[0]) != (opened is None):
            return None
        if opened is None:
            opened = match.end()
        elif written[opened : match.start()] in forms:
            spans.append((opened - removed, match.start() - removed))
            opened = None
        else:
            return None
    return spans if opened is None else None
