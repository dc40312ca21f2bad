"""Columns of a Parquet file by name or path (`doc.text`): fields of structs, keys of maps, values in columns of JSON.

A path becomes steps, each the name of a field; the last is a key where what is above is a map or JSON. Only what a path
leads to is read, so a column beside it may be of a type unknown to Arrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.formats.variants import is_variant
from spark_jobs.sources.records.paths import heads, value_at
from spark_jobs.sources.records.plain_values import exact_number


def all_names(schema: pa.Schema, more: Iterable[str] = ()) -> list[str]:
    """Names of columns as often as they are there, then the fields of structs as paths, and further paths, each once.

    Args:
        schema: of the file.
        more: paths with a target: keys of maps and of JSON.
    """
    paths = (name for field in schema for name in _below(field))
    return [*schema.names, *dict.fromkeys(name for name in (*paths, *more) if name not in schema.names)]


def _below(field: pa.Field) -> Iterator[str]:
    if pa.types.is_struct(field.type) and not is_variant(field.type):
        for inner in field.type:
            yield from (f"{field.name}.{name}" for name in (inner.name, *_below(inner)))


def steps_to(fields: Iterable[pa.Field], path: str) -> list[str] | None:
    """The names on the way to a path, a column's whole name as one; None where there is nothing."""
    kinds = {field.name: field.type for field in fields}
    if path in kinds:
        return [path]
    for head, rest in heads(path):
        kind = kinds.get(head)
        if kind is not None and pa.types.is_struct(kind) and not is_variant(kind):
            if (below := steps_to(list(kind), rest)) is not None:
                return [head, *below]
        elif kind is not None and _has_keys(kind):
            return [head, rest]
    return None


def type_at(fields: Iterable[pa.Field], steps: Sequence[str]) -> pa.DataType:
    """The type of what steps lead to; a value in JSON may be a text until it is read."""
    kind = pa.struct(list(fields))
    for step in steps:
        if not pa.types.is_struct(kind) or is_variant(kind):
            return kind.item_type if pa.types.is_map(kind) else pa.string()
        kind = kind.field(step).type
    return kind


def stored_path(fields: Iterable[pa.Field], steps: Sequence[str]) -> str:
    """The path in the file of what has to be read for steps: without a key of a map or of JSON."""
    above = type_at(fields, steps[:-1]) if len(steps) > 1 else None
    return ".".join(steps[:-1] if above is not None and _has_keys(above) else steps)


def column_at(batch: pa.RecordBatch, steps: Sequence[str]) -> pa.Array | JsonValues | InVariant:
    """The column at the end of steps; below null there is null. Values in JSON come as columns of JSON."""
    column = batch.column(steps[0])
    for step in steps[1:]:
        kind = column.type
        if is_variant(kind):
            return InVariant(column, step)
        if pa.types.is_struct(kind):
            column = pc.struct_field(column, [kind.get_field_index(step)])
        elif pa.types.is_map(kind):
            column = pc.map_lookup(column, pa.scalar(step, kind.key_type), "first")
        else:
            texts = column.storage.to_pylist()
            values = [None if text is None else value_at(_loaded(text), step) for text in texts]
            return JsonValues(list(map(_json, values)))
    return column


class JsonValues:
    """Values of any type, as JSON: what `plain_column` gives for nested ones."""

    def __init__(self, texts: list[str | None]) -> None:
        self.texts = pa.array(texts, pa.large_string())


class InVariant(NamedTuple):
    """A column of VARIANT, and the path of a value inside of it."""

    column: pa.StructArray
    path: str

    def values(self, texts: Iterable[str | None], no_form: str) -> list[str | None]:
        """The values at the path as JSON, of the column as JSON; where that has no form, they have none."""
        values = [text if text is None or text.startswith(no_form) else _loaded(text) for text in texts]
        return [
            value if isinstance(value, str) and value.startswith(no_form) else _json(value_at(value, self.path))
            for value in values
        ]


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _loaded(text: str) -> Any:
    """The value of a text in JSON; nothing where it is none, as the column's type promises that it is."""
    try:
        return json.loads(text, parse_float=exact_number)
    except (ValueError, RecursionError):
        return None


def _has_keys(kind: pa.DataType) -> bool:
    """Whether what is left of a path is a key of a column's values."""
    is_map = pa.types.is_map(kind) and kind.key_type in (pa.string(), pa.large_string())
    return is_map or isinstance(kind, pa.JsonType) or is_variant(kind)
