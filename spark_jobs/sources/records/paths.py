"""Values inside of a record by a path of names with dots between them: `doc.text`.

A name with dots in itself wins over a path: `{"doc.text": "a", "doc": {"text": "b"}}` has `a` at `doc.text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

ABSENT: Final = object()
"""Stands for a value that is not there, where null is a value."""
_SHOWN_DEPTH = 4


def heads(path: str) -> Iterator[tuple[str, str]]:
    """Every way to cut a path in two at a dot, the shortest first part first."""
    return ((path[:place], path[place + 1 :]) for place, letter in enumerate(path) if letter == ".")


def value_at(value: Any, path: str, absent: Any = None) -> Any:
    """The value at a path, `absent` where there is none; below null there is null."""
    if not path or value is None:
        return value
    if not isinstance(value, dict):
        return absent
    if path in value:
        return value[path]
    for head, rest in heads(path):
        if head in value and (inner := value_at(value[head], rest, ABSENT)) is not ABSENT:
            return inner
    return absent


def values_at(fields: Mapping[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    """The values of those columns, each a name or a path, that a record has."""
    values = ((name, value_at(fields, name, ABSENT)) for name in columns)
    return {name: value for name, value in values if value is not ABSENT}


def nested_names(fields: Mapping[str, Any], depth: int = _SHOWN_DEPTH) -> Iterator[str]:
    """Names of a record, those of its objects as paths behind each of them."""
    for name, value in fields.items():
        yield name
        if isinstance(value, dict) and depth > 1:
            yield from (f"{name}.{inner}" for inner in nested_names(value, depth - 1))
