"""Which rows a Python function gets together, and in which order.

A function over batches of rows often needs more than the rows: a repository's files all in one call, windows in their
order. An engine may drop a sort in front of a Python function, or deal the rows anew between two of them,
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

import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.lake.engine.embedded import (
    dealt_by_hash,
    is_embedded,
    parallelism,
    persist_in_files,
    release_files,
)
from spark_jobs.lake.engine.sorted_rows import in_order
from spark_jobs.lake.engine.spooled_rows import read_parts, spooled_by_part
from spark_jobs.spark_sql import Column, DataFrame

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Value = TypeVar("Value")
_shared: weakref.WeakValueDictionary[str, Shared[Any]] = weakref.WeakValueDictionary()


class Shared(Generic[Value]):
    """A large value, read and never changed by Python functions.

    On Spark it is pickled with its function. On Sail all calls get the value itself: its functions run in
    this process, and Sail refuses a query of more than 128 MB, pickled functions included.
    """

    def __init__(self, of: DataFrame | None, value: Value) -> None:
        """Share a value with the functions of a frame; None where they are called without one."""
        self.value = value
        self._key = uuid.uuid4().hex if of is not None and is_embedded(of) else ""
        if self._key:
            _shared[self._key] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """What is pickled: on Sail only the key of the value."""
        return (_find, (self._key,)) if self._key else (Shared, (None, self.value))


def _find(key: str) -> Shared[Any]:
    return _shared[key]


@dataclass(frozen=True)
class Arranged:
    """Rows waiting for a Python function.

    Attributes:
        frame: the rows.
        deal: deals them to the calls; None where the frame's partitions are the calls, their rows in order.
        order: columns of the sort still due for the rows of a call.
        columns: what the function gets; None for all.
        spooled: whether the frame says where the rows of each call lie on disk (`dealt_in_turn`).
    """

    frame: DataFrame
    deal: Callable[[DataFrame], DataFrame] | None = None
    order: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    spooled: bool = False

    def select(self, *columns: str) -> Arranged:
        """The same rows with fewer columns: those of the order need not be among them."""
        if self.deal is None:
            return replace(self, frame=self.frame.select(*columns))
        return replace(self, columns=columns)

    def persist(self) -> Arranged:
        """The same rows, computed once for several functions; release them by `release(arranged.frame)`."""
        return replace(self, frame=persist(self.frame))

    def map(self, function: Function, schema: str | pa.Schema) -> ArrowRows:
        """What a function makes of the rows.

        Args:
            function: from the batches of one call, in order, to batches of the schema.
            schema: of its rows, as Arrow's or in Spark's DDL.
        """
        ddl = schema if isinstance(schema, str) else _ddl(schema)
        if self.spooled:
            return ArrowRows(self.frame, function, ddl, read_parts)
        if self.deal is None:
            return ArrowRows(self.frame, function, ddl)
        arrange = partial(in_order, order=self.order, columns=self.columns)
        return ArrowRows(self.deal(self.frame), lambda batches: function(arrange(batches)), ddl)


def grouped(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str] = (), most_calls: int | None = None
) -> Arranged:
    """Whole groups of rows: a function sees all rows of a group in one call.

    Args:
        frame: the rows.
        keys: columns, equal in the rows of a group; a null is equal to a null. Without keys all rows are one
            group.
        order: columns of the order within a group, ascending, nulls first.
        most_calls: where the groups are few, no more calls than this.
    """

    def deal(rows: DataFrame) -> DataFrame:
        if not keys:
            return rows.repartition(1)
        return rows.repartition(*keys) if most_calls is None else rows.repartition(most_calls, *keys)

    return _arranged(frame, deal, (*keys, *order))


def dealt(frame: DataFrame, count: int, number: Column, order: Sequence[str] = ()) -> Arranged:
    """Rows dealt to a known number of calls.

    Args:
        frame: the rows.
        count: how many calls there are; one without rows may be left out.
        number: int, of a row's call, from 0 to `count` - 1.
        order: columns of the order within a call, ascending, nulls first.
    """
    if is_embedded(frame):
        return _arranged(frame, lambda rows: dealt_by_hash(rows, count, number), tuple(order))
    return _arranged(frame, lambda rows: rows.repartitionById(count, number), tuple(order))


def dealt_in_turn(frame: DataFrame, count: int, number: Column) -> Arranged:
    """As `dealt`, of many rows: no more calls than there are cores hold theirs at a time.

    Sail would begin all calls at once. So its rows go to disk by call, now; release them by `release(arranged.frame)`.
    """
    if is_embedded(frame) and count > parallelism():
        return Arranged(spooled_by_part(frame, count, number), spooled=True)
    return dealt(frame, count, number)


def persist(frame: DataFrame) -> DataFrame:
    """The rows of a frame, computed once for several readers and held until `release`."""
    return persist_in_files(frame) if is_embedded(frame) else frame.persist()


def release(frame: DataFrame) -> None:
    """Free the rows kept by `persist`."""
    if is_embedded(frame):
        release_files(frame)
    else:
        frame.unpersist()


def _arranged(frame: DataFrame, deal: Callable[[DataFrame], DataFrame], order: tuple[str, ...]) -> Arranged:
    """On Spark the rows are dealt and sorted at once; Sail would drop the sort, so there Python sorts them."""
    if is_embedded(frame):
        return Arranged(frame, deal, order)
    together = deal(frame)
    return Arranged(together.sortWithinPartitions(*order) if order else together)


def _ddl(schema: pa.Schema) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in from_arrow_schema(schema))
