"""Data versions: an order-independent digest of rows, computed in the pass that writes them.

A row is hashed to 64 bits over all its columns and their null flags; a version is `v1:count:sum:xor` of those hashes.
Sum and xor do not depend on order, files or partitions, and versions add up: that of a table is the sum of those of its
increments. The sum keeps what the xor alone loses (a row that comes twice).

Two traps of Spark's `xxhash64`, measured: it skips nulls, so ('x', null) and (null, 'x') collide unless null flags are
hashed beside the values, and it refuses maps. Nested values are hashed as JSON (maps as sorted entries, times to the
microsecond); lists of required numbers as their size and elements. 0.0 and -0.0 are equal at the top, as in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.spark_sql import Column, DataFrame, F

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


_MICROSECONDS = r"yyyy-MM-dd\'T\'HH:mm:ss.SSSSSS"
_JSON = f"map('timestampFormat', '{_MICROSECONDS}XXX', 'timestampNTZFormat', '{_MICROSECONDS}', 'timeZone', 'UTC')"


@dataclass(frozen=True)
class DataVersion:
    """Digest of a set of rows.

    Attributes:
        count: rows.
        sum: sum of the signed 64-bit row hashes.
        xor: xor of the same.
    """

    count: int = 0
    sum: int = 0
    xor: int = 0

    def __add__(self, other: DataVersion) -> DataVersion:
        """The version of both sets of rows together."""
        return DataVersion(self.count + other.count, self.sum + other.sum, self.xor ^ other.xor)

    def __str__(self) -> str:
        """`v1:count:sum:xor`, the xor as 16 hex digits."""
        return f"v1:{self.count}:{self.sum}:{self.xor & (2**64 - 1):016x}"

    @classmethod
    def of_hashes(cls, hashes: npt.NDArray[np.int64]) -> DataVersion:
        """The version of rows with these (N,) signed hashes."""
        # In two halves, because a sum of 64-bit hashes overflows.
        total = (int((hashes >> 32).sum()) << 32) + int((hashes & 0xFFFFFFFF).sum())
        return cls(len(hashes), total, int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0)

    @classmethod
    def parse(cls, text: str) -> DataVersion:
        """Read what `str` wrote.

        Raises:
            TableMismatchError: the text is no data version of this form.
        """
        parts = text.split(":")
        if len(parts) != 4 or parts[0] != "v1":
            raise TableMismatchError(f"data version {text!r}: expected v1:count:sum:xor")
        try:
            count, total, xor = int(parts[1]), int(parts[2]), int(parts[3], 16)
        except ValueError as error:
            raise TableMismatchError(f"data version {text!r}: expected v1:count:sum:xor") from error
        return cls(count, total, xor - 2**64 if xor >= 2**63 else xor)


def row_hash(schema: StructType) -> str:
    """SQL of the (rows,) signed 64-bit hash of every row, over the columns of the table's schema in its order.

    SQL, because an expression of text is one call of the JVM, one of Columns a dozen for each column of the table.
    """
    parts = [f"{name} IS NULL, {_hashable(name, field.dataType)}" for name, field in _quoted(schema)]
    return f"xxhash64({', '.join(parts)})"


def digest_columns(row: str) -> dict[str, Column]:
    """Aggregates over the row hash that make a version: for `observe` or `agg`.

    The sum is kept in two halves, because a sum of 64-bit hashes overflows under ANSI rules and decimals are slower.
    """
    return {
        "digest_count": F.expr("count(1)"),
        "digest_xor": F.expr(f"bit_xor({row})"),
        "digest_high": F.expr(f"sum(shiftright({row}, 32))"),
        "digest_low": F.expr(f"sum({row} & {0xFFFFFFFF}L)"),
    }


def version_of(values: dict[str, int | None]) -> DataVersion:
    """The version that the aggregates of `digest_columns` make; over no rows they are null and count as 0."""
    high, low = values["digest_high"] or 0, values["digest_low"] or 0
    return DataVersion(values["digest_count"] or 0, (high << 32) + low, values["digest_xor"] or 0)


def digest(frame: DataFrame) -> DataVersion:
    """Data version of rows read from a table, in a Spark job of its own."""
    columns = digest_columns(row_hash(frame.schema))
    row = frame.agg(*(column.alias(name) for name, column in columns.items())).first()
    return version_of(row.asDict() if row is not None else dict.fromkeys(columns))


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
