"""Types of columns as text, as declarations write them: `long`, `list<struct<rule!: string, value: double>!>`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from pyiceberg import types
from pyiceberg.types import IcebergType

from spark_jobs.exceptions import TableDeclarationError

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_MOST_DIGITS = 38  # Iceberg's most precise decimal
_PRIMITIVES: Mapping[str, IcebergType] = {
    "boolean": types.BooleanType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamptz": types.TimestamptzType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
}


def parse_type(text: str, ids: Iterator[int] | None = None) -> IcebergType:
    """Read an Iceberg type from text, e.g. `list<struct<rule!: string, value: double>!>`.

    Args:
        text: the type.
        ids: gives field ids to its parts; from 1 where it is alone.

    Raises:
        TableDeclarationError: the text is no type.
    """
    ids = ids or itertools.count(1)
    stripped = text.strip()
    if stripped in _PRIMITIVES:
        return _PRIMITIVES[stripped]
    if digits := _DECIMAL.fullmatch(stripped):
        return _decimal(text, *map(int, digits.groups()))
    head, bracket, rest = stripped.partition("<")
    if not bracket or not rest.endswith(">"):
        raise TableDeclarationError(
            f"type {text!r}: not an Iceberg type; write one of {', '.join(_PRIMITIVES)}, "
            "decimal(PRECISION, SCALE), list<..>, map<.., ..>, struct<..>"
        )
    parts = _split(rest[:-1])
    if head == "list" and len(parts) == 1:
        element_id = next(ids)
        inner = parts[0]
        return types.ListType(
            element_id, parse_type(inner.removesuffix("!"), ids), element_required=inner.endswith("!")
        )
    if head == "map" and len(parts) == 2:
        key_id, value_id = next(ids), next(ids)
        key, value = parts
        return types.MapType(
            key_id,
            parse_type(key.removesuffix("!"), ids),
            value_id,
            parse_type(value.removesuffix("!"), ids),
            value_required=value.endswith("!"),
        )
    if head == "struct":
        return types.StructType(*(_struct_field(part, ids) for part in parts))
    raise TableDeclarationError(f"type {text!r}: {head}<..> with {len(parts)} parts is no Iceberg type")


def _decimal(text: str, precision: int, scale: int) -> IcebergType:
    if not 1 <= precision <= _MOST_DIGITS or scale > precision:
        raise TableDeclarationError(
            f"type {text!r}: a decimal has 1 to {_MOST_DIGITS} digits, at most as many of them after the point"
        )
    return types.DecimalType(precision, scale)


def type_text(kind: IcebergType) -> str:
    """A type as `parse_type` reads it, without the ids that a catalogue assigns anew."""
    if isinstance(kind, types.ListType):
        return f"list<{type_text(kind.element_type)}{'!' if kind.element_required else ''}>"
    if isinstance(kind, types.MapType):
        value = f"{type_text(kind.value_type)}{'!' if kind.value_required else ''}"
        return f"map<{type_text(kind.key_type)}, {value}>"
    if isinstance(kind, types.StructType):
        fields = (f"{f.name}{'!' if f.required else ''}: {type_text(f.field_type)}" for f in kind.fields)
        return f"struct<{', '.join(fields)}>"
    return str(kind)


def _struct_field(text: str, ids: Iterator[int]) -> types.NestedField:
    """`name!: type` as a field."""
    name, colon, kind = text.partition(":")
    if not colon:
        raise TableDeclarationError(f"struct field {text!r}: write name: type")
    field_id = next(ids)
    return types.NestedField(
        field_id, name.strip().removesuffix("!"), parse_type(kind, ids), required=name.strip().endswith("!")
    )


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()]
