"""Data versions of the form `v1` in earlier lakes: made again to judge their tables, never written.

The hash was Spark's `xxhash64` over all columns in their order, computed by the engine, with a flag beside each column
that says whether it is null. Nested values were hashed as the engine's JSON of them, and engines write numbers and
times differently in JSON (1.0E-5 and 0.00001): so a table with nested values is judged by the engine that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_jobs.lake.ledger.data_version import FORMER, DataVersion
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_MICROSECONDS = r"yyyy-MM-dd\'T\'HH:mm:ss.SSSSSS"
_JSON = f"map('timestampFormat', '{_MICROSECONDS}XXX', 'timestampNTZFormat', '{_MICROSECONDS}', 'timeZone', 'UTC')"


def former_digests(frame: DataFrame, by_increment: bool) -> dict[str, DataVersion]:
    """Versions of rows by their column `increment`, or of all at the place "", as this engine computes them."""
    row = (
        f"xxhash64({', '.join(f'{name} IS NULL, {_hashable(name, f.dataType)}' for name, f in _quoted(frame.schema))})"
    )
    # In two halves, because a sum of 64-bit hashes overflows under ANSI rules.
    sums = {
        "rows": "count(1)",
        "xor": f"bit_xor({row})",
        "high": f"sum(shiftright({row}, 32))",
        "low": f"sum({row} & {0xFFFFFFFF}L)",
    }
    grouped = frame.groupBy("increment") if by_increment else frame.groupBy()
    return {
        str(row["increment"]) if by_increment else "": DataVersion(
            row["rows"], ((row["high"] or 0) << 32) + (row["low"] or 0), row["xor"] or 0, FORMER
        )
        for row in grouped.agg(*(F.expr(text).alias(name) for name, text in sums.items())).collect()
    }


def is_of_engine(frame: DataFrame) -> bool:
    """Whether the version of some rows depends on its engine."""
    return any(_hashable(name, field.dataType).startswith("to_json") for name, field in _quoted(frame.schema))


def _quoted(schema: StructType) -> Iterator[tuple[str, StructField]]:
    """The fields of a schema, each with its name as SQL."""
    for field in schema.fields:
        yield f"`{field.name.replace('`', '``')}`", field


def _hashable(value: str, kind: DataType) -> str:
    """SQL of what `xxhash64` takes and what tells every value of `value` apart."""
    from pyspark.sql import types as T

    if (
        isinstance(kind, T.ArrayType)
        and isinstance(kind.elementType, T.IntegerType | T.LongType)
        and not kind.containsNull
    ):
        return f"size({value}), {value}"
    if isinstance(kind, T.ArrayType | T.StructType | T.MapType):
        return f"to_json({_sorted_maps(value, kind)}, {_JSON})"
    return value


def _sorted_maps(value: str, kind: DataType, depth: int = 0) -> str:
    """SQL of a nested value with every map in it, however deep, as a list of entries in the order of their keys."""
    from pyspark.sql import types as T

    if not _has_map(kind):
        return value
    inner = f"x{depth}"
    if isinstance(kind, T.MapType):
        of_key = _sorted_maps(f"element_at({value}, {inner})", kind.valueType, depth + 1)
        return f"transform(array_sort(map_keys({value})), {inner} -> named_struct('key', {inner}, 'value', {of_key}))"
    if isinstance(kind, T.ArrayType):
        return f"transform({value}, {inner} -> {_sorted_maps(inner, kind.elementType, depth + 1)})"
    if isinstance(kind, T.StructType):
        parts = [
            f"'{field.name}', {_sorted_maps(f'{value}.{name}', field.dataType, depth)}" for name, field in _quoted(kind)
        ]
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(parts)}) END"
    return value


def _has_map(kind: DataType) -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, T.MapType) or (isinstance(kind, T.ArrayType) and _has_map(kind.elementType))
