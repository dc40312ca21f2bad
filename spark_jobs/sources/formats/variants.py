"""Values of Parquet's VARIANT: their values in JSON, also where they are shredded.

A VARIANT is a group of `metadata` (the names of all fields), `value` (bytes beginning with their type) and, where its
writer shredded it, `typed_value`: what is of that type stands there in a column of Parquet, the rest in `value`.

    typed_value    the value                                  a list             its items, each a group of both again
    a struct       fields, each a group of both again; `value` has the fields without a column

Moments and UUIDs become texts as those of other columns do, bytes base64. Numbers beyond a double become texts.
Source: VariantEncoding.md and VariantShredding.md of apache/parquet-format, version 1.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import math
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_jobs.sources.records.plain_values import exact_number

Flat = Callable[[pa.Array], list[Any]]
_BINARY: Final = (pa.binary(), pa.large_binary(), pa.binary_view())
_NUMBERS: Final = {3: "<b", 4: "<h", 5: "<i", 6: "<q", 7: "<d", 14: "<f"}
_DECIMALS: Final = {8: 4, 9: 8, 10: 16}
_MOMENTS: Final = {12: ("us", "Z"), 13: ("us", ""), 18: ("ns", "Z"), 19: ("ns", "")}
_NULL, _TRUE, _FALSE, _DATE, _BYTES, _TEXT, _TIME, _UUID = 0, 1, 2, 11, 15, 16, 17, 20
_ABSENT: Final = object()


def is_variant(kind: pa.DataType) -> bool:
    """Whether a type is that of a VARIANT, shown by Arrow as the struct behind it."""
    if not pa.types.is_struct(kind):
        return False
    kinds = {field.name: field.type for field in kind}
    names = set(kinds)
    is_group = names <= {"metadata", "value", "typed_value"} and "metadata" in names and len(names) > 1
    binary = [kinds[name] for name in ("metadata", "value") if name in kinds]
    return is_group and kind.num_fields == len(names) and all(inner in _BINARY for inner in binary)


def variant_values(column: pa.StructArray, flat: Flat) -> list[Any]:
    """Values of a column.

    Args:
        column: of a type accepted by `is_variant`.
        flat: gives the values of a flat column.

    Raises:
        ValueError: bytes are no VARIANT.
        RecursionError: values are nested too deeply.
    """
    names = [field.name for field in column.type]
    parts = dict(zip(names, column.flatten(), strict=True))
    dictionaries = [None if data is None else _names(data) for data in parts.pop("metadata").to_pylist()]
    valid = column.is_valid().to_pylist()
    values = _group(parts, [name if there else [] for name, there in zip(dictionaries, valid, strict=True)], flat)
    return [None if value is _ABSENT or not there else value for value, there in zip(values, valid, strict=True)]


def _group(parts: Mapping[str, pa.Array], names: Sequence[list[str] | None], flat: Flat) -> list[Any]:
    """Values of a group of `value` and `typed_value`, a row each; _ABSENT where both are null."""
    binary = parts["value"].to_pylist() if "value" in parts else [None] * len(names)
    values = [_ABSENT if data is None else _Bytes(data, of).value(0)[0] for data, of in zip(binary, names, strict=True)]
    if "typed_value" not in parts:
        return values
    typed = _typed(parts["typed_value"], names, flat)
    return [_both(value, shredded) for value, shredded in zip(values, typed, strict=True)]


def _both(value: Any, shredded: Any) -> Any:
    """A value with some fields possibly shredded."""
    if shredded is _ABSENT or value is _ABSENT:
        return value if shredded is _ABSENT else shredded
    if not (isinstance(value, dict) and isinstance(shredded, dict)) or value.keys() & shredded.keys():
        raise ValueError("a VARIANT has two values at one place")
    return dict(sorted({**value, **shredded}.items()))


def _typed(column: pa.Array, names: Sequence[list[str] | None], flat: Flat) -> list[Any]:
    """Values of a column `typed_value`; _ABSENT where it is null."""
    kind, valid = column.type, column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        fields = {
            field.name: _group(_parts(part), names, flat) for field, part in zip(kind, column.flatten(), strict=True)
        }
        rows = [
            {name: values[row] for name, values in sorted(fields.items()) if values[row] is not _ABSENT}
            for row in range(len(column))
        ]
        return [row if there else _ABSENT for row, there in zip(rows, valid, strict=True)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = [length or 0 for length in column.value_lengths().to_pylist()]
        of_items = [of for of, length in zip(names, lengths, strict=True) for _ in range(length)]
        items = iter(_group(_parts(column.flatten()), of_items, flat))
        rows_ = [[None if (item := next(items)) is _ABSENT else item for _ in range(length)] for length in lengths]
        return [row if there else _ABSENT for row, there in zip(rows_, valid, strict=True)]
    return [value if there else _ABSENT for value, there in zip(_flat(column, flat), valid, strict=True)]


def _parts(column: pa.Array) -> dict[str, pa.Array]:
    """The columns of a shredded group.

    Raises:
        ValueError: it is none.
    """
    if not pa.types.is_struct(column.type) or not {field.name for field in column.type} <= {"value", "typed_value"}:
        raise ValueError(f"a shredded VARIANT has {column.type} where a value should be")
    return dict(zip((field.name for field in column.type), column.flatten(), strict=True))


def _flat(column: pa.Array, flat: Flat) -> list[Any]:
    """Values of a shredded flat column."""
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        return [None if value is None else _decimal(value) for value in column.to_pylist()]
    if types.is_floating(kind):
        return [None if value is None else _float(value) for value in flat(column)]
    if types.is_fixed_size_binary(kind):
        return [None if value is None else str(uuid.UUID(bytes=value)) for value in column.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return [None if value is None else _base64(value) for value in column.to_pylist()]
    return flat(column)


class _Bytes:
    """Bytes of a `value`, in which every byte begins no more than one value, so no value costs more than its bytes."""

    def __init__(self, data: bytes, names: list[str] | None) -> None:
        self._data, self._names, self._left = data, names, len(data)

    def value(self, at: int) -> tuple[Any, int]:
        """The value at a byte, and where it ends.

        Raises:
            ValueError: there is none.
        """
        self._left -= 1
        if self._left < 0:
            raise ValueError("values of a VARIANT share bytes")
        head = self._taken(at, 1)[0]
        basic, more = head & 3, head >> 2
        if basic == 0:
            return self._primitive(more, at + 1)
        if basic == 1:
            return self._taken(at + 1, more).decode(), at + 1 + more
        return self._object(more, at + 1) if basic == 2 else self._array(more, at + 1)

    def _taken(self, at: int, size: int) -> bytes:
        """Some of the bytes.

        Raises:
            ValueError: they are not there.
        """
        if at + size > len(self._data):
            raise ValueError("a VARIANT ends inside of a value")
        return self._data[at : at + size]

    def _numbers(self, at: int, size: int, count: int) -> list[int]:
        """Unsigned numbers of some bytes each."""
        data = self._taken(at, size * count)
        return [int.from_bytes(data[place : place + size], "little") for place in range(0, size * count, size)]

    def _object(self, more: int, at: int) -> tuple[dict[str, Any], int]:
        """An object: how many fields, their names by number, where their values begin, the values."""
        width, id_width, is_large = (more & 3) + 1, (more >> 2 & 3) + 1, more >> 4 & 1
        (count,) = self._numbers(at, 4 if is_large else 1, 1)
        at += 4 if is_large else 1
        ids = self._numbers(at, id_width, count)
        *starts, size = self._numbers(at + id_width * count, width, count + 1)
        begin = at + id_width * count + width * (count + 1)
        if self._names is None or any(number >= len(self._names) for number in ids):
            raise ValueError("a field of a VARIANT has no name")
        members = {self._names[number]: self.value(begin + start)[0] for number, start in zip(ids, starts, strict=True)}
        return members, begin + size

    def _array(self, more: int, at: int) -> tuple[list[Any], int]:
        """An array: how many items, where they begin, the items."""
        width, is_large = (more & 3) + 1, more >> 2 & 1
        (count,) = self._numbers(at, 4 if is_large else 1, 1)
        at += 4 if is_large else 1
        *starts, size = self._numbers(at, width, count + 1)
        begin = at + width * (count + 1)
        return [self.value(begin + start)[0] for start in starts], begin + size

    def _primitive(self, kind: int, at: int) -> tuple[Any, int]:
        """A value without others in it."""
        if kind in (_NULL, _TRUE, _FALSE):
            return {_NULL: None, _TRUE: True, _FALSE: False}[kind], at
        if form := _NUMBERS.get(kind):
            (number,) = struct.unpack(form, self._taken(at, size := struct.calcsize(form)))
            number = float(str(np.float32(number))) if form == "<f" else number
            return _float(number) if isinstance(number, float) else number, at + size
        if size := _DECIMALS.get(kind, 0):
            unscaled = int.from_bytes(self._taken(at + 1, size), "little", signed=True)
            with decimal.localcontext(prec=60):
                return _decimal(decimal.Decimal(unscaled).scaleb(-self._taken(at, 1)[0])), at + 1 + size
        if kind in (_BYTES, _TEXT):
            (size,) = self._numbers(at, 4, 1)
            data = self._taken(at + 4, size)
            return data.decode() if kind == _TEXT else _base64(data), at + 4 + size
        if kind == _UUID:
            return str(uuid.UUID(bytes=self._taken(at, 16))), at + 16
        return self._moment(kind, at)

    def _moment(self, kind: int, at: int) -> tuple[str, int]:
        """A date, a time or a timestamp."""
        size = 4 if kind == _DATE else 8
        count = int.from_bytes(self._taken(at, size), "little", signed=True)
        if kind == _DATE:
            return str(np.datetime64(count, "D")), at + size
        if kind == _TIME:
            if not 0 <= count < datetime.timedelta(days=1) // datetime.timedelta(microseconds=1):
                raise ValueError("a time of a VARIANT is none of a day")
            return _short(str(np.datetime64(count, "us")).partition("T")[2]), at + size
        if kind not in _MOMENTS:
            raise ValueError(f"a VARIANT has a value of type {kind}, which is unknown")
        unit, zone = _MOMENTS[kind]
        return _short(str(np.datetime64(count, unit))) + zone, at + size  # type: ignore[call-overload]


def _names(data: bytes) -> list[str]:
    """The names of fields in a `metadata`.

    Raises:
        ValueError: it is none.
    """
    head, size = data[:1], ((data[0] >> 6) + 1 if data else 1)
    if not head or head[0] & 15 != 1:
        raise ValueError("the metadata of a VARIANT has no version 1")
    of = _Bytes(data, None)
    (count,) = of._numbers(1, size, 1)
    ends = of._numbers(1 + size, size, count + 1)
    begin = 1 + size * (count + 2)
    if begin + max(ends) > len(data):
        raise ValueError("the metadata of a VARIANT ends inside of a name")
    return [data[begin + start : begin + end].decode() for start, end in itertools.pairwise(ends)]


def _float(number: float) -> float | str:
    """A number; JSON has finite ones alone, so the others are texts as Spark writes them."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _decimal(number: decimal.Decimal) -> float | int | str:
    """A decimal as a number, without zeros at the end, or as its text where no double holds it."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return exact_number(text) if "." in text else int(text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _short(text: str) -> str:
    """A moment without zeros at the end of its fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text
