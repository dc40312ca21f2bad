"""Data versions: an order-independent digest of rows, computed in the pass that writes them.

A row is hashed to 64 bits over all its columns and their null flags; a version is `v1:count:sum:xor` of those hashes.
Sum and xor do not depend on order, files or partitions, and versions add up: that of a table is the sum of those of its
increments. The sum keeps what the xor alone loses (a row that comes twice).

Two traps of Spark's `xxhash64`, measured: it skips nulls, so ('x', null) and (null, 'x') collide unless null flags are
hashed beside the values, and it refuses maps. Nested values are hashed as JSON (maps as sorted entries, times to the
microsecond); lists of required numbers as their size and elements. 0.0 and -0.0 are equal at the top, as in SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.exceptions import TableMismatchError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = {"timestampFormat": f"{_MICROSECONDS}XXX", "timestampNTZFormat": _MICROSECONDS, "timeZone": "UTC"}


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


def row_hash(schema: StructType) -> Column:
    """(rows,) signed 64-bit hash of every row, over the columns of the table's schema in its order."""
    from pyspark.sql import functions as F

    parts: list[Column] = []
    for field in schema.fields:
        column = F.col(f"`{field.name}`")
        parts += [column.isNull(), *_hashable(column, field.dataType)]
    return F.xxhash64(*parts)


def digest_columns(row: Column) -> dict[str, Column]:
    """Aggregates over the row hash that make a version: for `observe` or `agg`.

    The sum is kept in two halves, because a sum of 64-bit hashes overflows under ANSI rules and decimals are slower.
    """
    from pyspark.sql import functions as F

    return {
        "digest_count": F.count(F.lit(1)),
        "digest_xor": F.bit_xor(row),
        "digest_high": F.sum(F.shiftright(row, 32)),
        "digest_low": F.sum(row.bitwiseAND(F.lit(0xFFFFFFFF))),
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


def _hashable(column: Column, kind: DataType) -> list[Column]:
    """Expressions that `xxhash64` takes and that tell every value of `column` apart."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if (
        isinstance(kind, T.ArrayType)
        and isinstance(kind.elementType, T.IntegerType | T.LongType)
        and not kind.containsNull
    ):
        return [F.size(column), column]
    if isinstance(kind, T.ArrayType | T.StructType | T.MapType):
        return [F.to_json(_sorted_maps(column, kind), _JSON)]
    return [column]


def _sorted_maps(column: Column, kind: DataType) -> Column:
    """A nested value with every map in it, however deep, as a list of entries in the order of their keys."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if not _has_map(kind):
        return column
    if isinstance(kind, T.MapType):
        value_type = kind.valueType
        return F.transform(
            F.array_sort(F.map_keys(column)),
            lambda key: F.struct(key.alias("key"), _sorted_maps(F.element_at(column, key), value_type).alias("value")),
        )
    if isinstance(kind, T.ArrayType):
        element_type = kind.elementType
        return F.transform(column, lambda element: _sorted_maps(element, element_type))
    if isinstance(kind, T.StructType):
        parts = [_sorted_maps(column.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
        return F.when(column.isNotNull(), F.struct(*parts))
    return column


def _has_map(kind: DataType) -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, T.MapType) or (isinstance(kind, T.ArrayType) and _has_map(kind.elementType))
