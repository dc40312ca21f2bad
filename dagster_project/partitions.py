"""Convert a user's partitions (static, dynamic, time-window) to conditions on rows, for Spark and for PyIceberg.

A static or dynamic partition is the rows whose partition column holds the key. A time-window partition over a date or a
time is the rows from its start up to its end: on the clock of the partitions' time zone for `date` and `timestamp`, at
those moments for `timestamptz`. Over any other column the key itself is compared.
"""

from __future__ import annotations

from datetime import UTC

import dagster as dg
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table as IcebergTable

from spark_jobs.lake.declare.column_types import type_text
from spark_jobs.lake.declare.tables import Table, partition_column
from spark_jobs.lake.ledger.materialization import TableSlice

# Spark's names of the types that a window can be compared with; its own `timestamp` has a zone.
_WINDOWED = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


def place_of(table: Table, partitions: dg.PartitionsDefinition[str], key: str) -> TableSlice:
    """The rows of a partition as the place of a materialization."""
    return TableSlice(key, _predicate(*_column(table), partitions, key), rows_of(table, partitions, key))


def predicate_of(table: IcebergTable, partitions: dg.PartitionsDefinition[str], key: str) -> str:
    """The rows of an existing table that a partition consists of, as a condition in SQL."""
    schema = table.schema()
    column = schema.find_field(table.spec().fields[0].source_id)
    return _predicate(column.name, type_text(column.field_type), partitions, key)


def _predicate(column: str, kind: str, partitions: dg.PartitionsDefinition[str], key: str) -> str:
    window = _window(kind, partitions, key)
    if window is None:
        literal = key.replace("\\", "\\\\").replace("'", "\\'")
        return f"{column} = '{literal}'"
    start, end = (f"cast('{moment}' AS {_WINDOWED[kind]})" for moment in window)
    return f"{column} >= {start} AND {column} < {end}"


def rows_of(table: Table, partitions: dg.PartitionsDefinition[str], key: str) -> BooleanExpression:
    """The rows of a partition as a condition for PyIceberg."""
    column, kind = _column(table)
    window = _window(kind, partitions, key)
    if window is None:
        return EqualTo(column, key)
    return And(GreaterThanOrEqual(column, window[0]), LessThan(column, window[1]))


def _column(table: Table) -> tuple[str, str]:
    """The partitions' column and its type."""
    name = partition_column(table.partition[0])
    return name, next(column.type for column in table.all_columns if column.name == name)


def _window(kind: str, partitions: dg.PartitionsDefinition[str], key: str) -> tuple[str, str] | None:
    """Start and end of a time-window partition, as ISO text of the column's type; None where the key is compared."""
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition) or kind not in _WINDOWED:
        return None
    window = partitions.time_window_for_partition_key(key)
    if kind == "timestamptz":
        return window.start.astimezone(UTC).isoformat(), window.end.astimezone(UTC).isoformat()
    pattern = "%Y-%m-%d" if kind == "date" else "%Y-%m-%dT%H:%M:%S"
    return window.start.strftime(pattern), window.end.strftime(pattern)
