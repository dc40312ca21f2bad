"""Texts with decimal digits of any script, as texts with digits (and wide letters) of ASCII, and the way back.

    tel ٠١٢  (bytes 74 65 6c 20 d9a0 d9a1 d9a2)     tel 012     places in it: 0 1 2 3 4 6 8, end 10

Unicode has some seventy sets of ten digits (general category Nd). Rules know those of ASCII alone, so a text with
others is scanned in that form, with the wide letters of `ＴＥＬ：０３` in theirs; marks only for the direction of
what stands beside them are left out of it.
"""

from __future__ import annotations

import string
import sys
import unicodedata
from typing import Final

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import BoolArray, Int64Array, UInt8Array
from spark_jobs.threads import made_once

_LEFT_OUT: Final = 0xFE
_NOTHING: Final = 0xFF
_DIRECTIONS: Final = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_FIRST: Final = 0x660  # the first digit beyond ASCII
_DIGIT_END: Final = 58
_WIDE: Final = 0xFEE0  # from a letter of ASCII to its wide form


@made_once
def _values() -> UInt8Array:
    """(0x110000,) bytes of ASCII for digits and wide letters, `_LEFT_OUT` for marks of direction, else `_NOTHING`."""
    values = np.full(sys.maxunicode + 1, _NOTHING, np.uint8)
    for point in range(_FIRST, sys.maxunicode + 1):
        value = unicodedata.decimal(chr(point), None)
        if value is not None:
            values[point] = ord("0") + value
    for letter in string.ascii_letters:
        values[ord(letter) + _WIDE] = ord(letter)
    values[list(_DIRECTIONS)] = _LEFT_OUT
    return values


@made_once
def _pairs() -> BoolArray:
    """(0x10000,) whether one of `_values` begins with two bytes: few do, so most characters cost one look."""
    pairs = np.zeros(1 << 16, np.bool_)
    for point in np.flatnonzero(_values() != _NOTHING).tolist():
        first, second, *_ = chr(point).encode()
        pairs[first << 8 | second] = True
    return pairs


@inner
def _value_at(data: UInt8Array, i: int, end: int, values: UInt8Array) -> int:
    """That of the character at i, where it is whole."""
    value: int = values[code_point(data, i)] if i + width(data[i]) <= end else _NOTHING
    return value


@compiled
def _has_other_digits(
    data: UInt8Array, offsets: Int64Array, values: UInt8Array, pairs: BoolArray, has_digits: BoolArray
) -> None:
    for text in range(offsets.size - 1):
        i, end = offsets[text], offsets[text + 1]
        while i < end - 1:
            lead = np.int64(data[i])
            # Of the bytes before D9 none begins a digit, and those that go on with a character begin nothing.
            if lead >= 0xD9 and pairs[lead << 8 | data[i + 1]] and _value_at(data, i, end, values) < _DIGIT_END:
                has_digits[text] = True
                break
            i += 1


@compiled
def _fold(data: UInt8Array, values: UInt8Array, pairs: BoolArray, out: UInt8Array, places: Int64Array) -> int:
    """Write a text with digits of ASCII to `out`, and for each byte its place in the text; gives their number."""
    count, i, end = 0, 0, data.size
    while i < end:
        lead = np.int64(data[i])
        value = _NOTHING
        if lead >= 0xD8 and i + 1 < end and pairs[lead << 8 | data[i + 1]]:
            value = _value_at(data, i, end, values)
        if value != _LEFT_OUT:
            out[count], places[count] = lead if value == _NOTHING else value, i
            count += 1
        i += 1 if value == _NOTHING else width(data[i])
    places[count] = end
    return count


def has_other_digits(data: UInt8Array, offsets: Int64Array) -> BoolArray:
    """(D,) whether each text has a decimal digit outside ASCII.

    Args:
        data: (B,) bytes of the texts.
        offsets: (D + 1,) where each begins, and the end of the last.
    """
    has_digits = np.zeros(len(offsets) - 1, np.bool_)
    _has_other_digits(data, offsets.astype(np.int64), _values(), _pairs(), has_digits)
    return has_digits


def with_ascii_digits(data: UInt8Array) -> tuple[UInt8Array, Int64Array]:
    """A text with digits of ASCII, (F,) bytes, and (F + 1,) the place of each byte in the text, its end at last."""
    out, places = np.empty(len(data), np.uint8), np.empty(len(data) + 1, np.int64)
    count = _fold(data, _values(), _pairs(), out, places)
    return out[:count], places[: count + 1]
