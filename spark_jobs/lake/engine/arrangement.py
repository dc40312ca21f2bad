"""Which rows a Python function gets together, and in which order.

A function over batches of rows often needs more than the rows: a repository's files all in one call, windows in their
order. An engine may drop a sort that stands in front of a Python function, or deal the rows anew between two of them,
as Sail does. So a step does not sort and repartition by itself, it says what its function needs:

    grouped(files, ["repository"], ["path"]).map(order, ddl)

    repository  path        first call of `order`    a x.py, a y.py, c z.py
    a           y.py        second call              b x.py
    c           z.py
    b           x.py
    a           x.py

A call may get several groups, one after another; which ones come together is the engine's choice, so rows must not
depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.spark_sql import Column, DataFrame


@dataclass(frozen=True)
class Arranged:
    """Rows that wait for a Python function.

    Attributes:
        frame: the rows; each of its partitions is what one call gets, in order.
    """

    frame: DataFrame

    def select(self, *columns: str) -> Arranged:
        """The same rows with fewer columns: those of the order need not be among them."""
        return replace(self, frame=self.frame.select(*columns))

    def kept(self) -> Arranged:
        """The same, for more than one function: the rows are computed once. `release` gives the space back."""
        return replace(self, frame=self.frame.persist())

    def release(self) -> None:
        """Give back the space of rows that were kept."""
        self.frame.unpersist()

    def map(
        self, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str | pa.Schema
    ) -> ArrowRows:
        """What a function makes of the rows.

        Args:
            function: from the batches of one call, in order, to batches of the schema.
            schema: of its rows, as Arrow's or in Spark's DDL.
        """
        return ArrowRows(self.frame, function, schema if isinstance(schema, str) else _ddl(schema))


def grouped(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str] = (), most_calls: int | None = None
) -> Arranged:
    """Whole groups of rows, for a function that must see all rows of a group in one call.

    Args:
        frame: the rows.
        keys: columns in which the rows of a group are equal; a null is equal to a null. Without keys all rows are one
            group.
        order: columns by which the rows of a group follow one another, ascending, nulls first.
        most_calls: where the groups are few, no more calls than this.
    """
    if not keys:
        together = frame.repartition(1)
    elif most_calls is None:
        together = frame.repartition(*keys)
    else:
        together = frame.repartition(most_calls, *keys)
    return Arranged(_sorted(together, (*keys, *order)))


def dealt(frame: DataFrame, count: int, number: Column, order: Sequence[str] = ()) -> Arranged:
    """Rows dealt to a known number of calls.

    Args:
        frame: the rows.
        count: how many calls there are; one that gets no rows may be left out.
        number: int, of the call that a row goes to, from 0 to `count` - 1.
        order: columns by which the rows of a call follow one another, ascending, nulls first.
    """
    return Arranged(_sorted(frame.repartitionById(count, number), order))


def _ddl(schema: pa.Schema) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in from_arrow_schema(schema))


def _sorted(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    return frame.sortWithinPartitions(*columns) if columns else frame
