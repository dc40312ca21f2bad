"""Values of messages: texts, lists, JSON text, and what is wrong with others, in a line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from spark_jobs.sources.records.plain_values import WrittenNumber, exact_number, value_text
from spark_jobs.sources.refusals import first_line


class BadMessages(ValueError):  # noqa: N818 - the row's fault, a reason of `arrivals`
    """A row is no conversation: which message (from 1), what, and how to mend it, in one line."""


def listed(value: object, what: str, typed: bool, one: bool = False) -> tuple[list[Any], bool]:
    """A list, given as its JSON too, and whether its keys have types; with `one` an object is a list of it.

    Raises:
        BadMessages: it is none.
    """
    if isinstance(value, str | bytes):
        try:
            value, typed = parsed_json(value if isinstance(value, str) else value.decode()), False
        except (ValueError, RecursionError) as error:
            raise BadMessages(f"{what}: no JSON: {first_line(error)}; write it with json.dumps") from None
    value = [value] if one and isinstance(value, dict) else value
    if not isinstance(value, list):
        raise BadMessages(f"{what}: {type_of(value)}, not a list{' or an object' if one else ''}")
    return value, typed


def parsed_json(text: str) -> Any:
    """The value of a JSON text; NaN is none."""
    return json.loads(text, parse_float=exact_number, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def text_of(value: object, what: str) -> str:
    """A text with LF line ends.

    Raises:
        BadMessages: it is none.
    """
    if not isinstance(value, str) or isinstance(value, WrittenNumber):
        raise BadMessages(f"{what} is {type_of(value)}, not text")
    return value.replace("\r\n", "\n").replace("\r", "\n") if "\r" in value else value


def json_of(value: Any, what: str, typed: bool, path: str = "") -> str:
    """The JSON of a value, numbers as they were written.

    Raises:
        BadMessages: there is none, or a null of a typed column in it may be a value or nothing.
    """
    if value is None and typed:
        mend = "write JSON text there (json.dumps), and null stays null"
        raise BadMessages(
            f"{what}: null at {path.strip('.') or 'its place'} of a typed column may stand for no key at all; {mend}"
        )
    if isinstance(value, dict):
        pairs = ((str(key), inner) for key, inner in value.items())
        inner = (
            f"{json.dumps(key, ensure_ascii=False)}: {json_of(of, what, typed, f'{path}.{key}')}" for key, of in pairs
        )
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(json_of(inner, what, typed, path) for inner in value)}]"
    if isinstance(value, WrittenNumber):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadMessages(f"{what}: {value} is no JSON")
    is_json = value is None or isinstance(value, bool | int | float | str)
    return json.dumps(value if is_json else value_text(value), ensure_ascii=False)


def kept_keys(row: Mapping[Any, Any]) -> dict[str, Any]:
    """An object without its null keys."""
    return {str(key): value for key, value in row.items() if value is not None}


def kept(value: Any) -> Any:
    """A value of a key that is kept as it is, without null keys at any level."""
    if isinstance(value, dict):
        return {key: kept(inner) for key, inner in kept_keys(value).items()}
    if isinstance(value, list | tuple):
        return [kept(inner) for inner in value]
    if isinstance(value, WrittenNumber):
        return float(value)
    return value if value is None or isinstance(value, bool | int | float | str) else value_text(value)


def type_of(value: object) -> str:
    """What a value is, for a message."""
    kinds: list[tuple[str, Any]] = [("an object", dict), ("a list", list), ("a number", WrittenNumber), ("a text", str)]
    kinds += [("true or false", bool), ("a number", (int, float)), ("null", type(None))]
    return next((name for name, of in kinds if isinstance(value, of)), "no JSON")
