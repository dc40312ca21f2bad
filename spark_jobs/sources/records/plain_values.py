"""Values as texts, those without a form in JSON too: of metadata, ids and facts."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Final

_EXACT_DIGITS: Final = 15
"""Digits up to which a double gives any decimal number back."""


class WrittenNumber(str):
    """A number no double holds exactly, as it was written."""

    __slots__ = ()


def exact_number(literal: str) -> float | WrittenNumber:
    """A number of JSON with a point or an exponent, for the parser's `parse_float`: never infinite, never rounded."""
    number = float(literal)
    if len(literal) <= _EXACT_DIGITS + 1 and "e" not in literal and "E" not in literal:
        return number
    digits = literal.lower().partition("e")[0].strip("-0.")
    is_exact = bool(number) == bool(digits) and math.isfinite(number)
    if is_exact and (not number or decimal.Decimal(repr(number)) == decimal.Decimal(literal)):
        return number
    return WrittenNumber(literal)


def value_text(value: object) -> str | None:
    """A value as text: strings as they are, bool, numbers, lists and mappings as JSON, all else by `plain_text`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | list | tuple | dict | set):
        return json.dumps(value, ensure_ascii=False, default=_json_value)
    return plain_text(value)


def _json_value(value: object) -> object:
    """A value without a form in JSON, in one: sets, known to YAML alone, as lists in one order."""
    return sorted(value, key=str) if isinstance(value, set) else plain_text(value)


def plain_text(value: object) -> str:
    """A value without a form in JSON, without quotes: 12.50, 2026-01-31, 2026-01-31T12:00:00, seconds."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.timedelta):
        return str(value.total_seconds())
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)
