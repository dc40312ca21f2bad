"""Rows of a table at some places, by filters of places: few others pass, and nothing is joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import BoolArray, Int64Array, UInt8Array
from spark_jobs.lake.engine.arrangement import Shared
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.spark_sql import DataFrame, F

_KEPT_ROWS = 8_192  # of the pool that are written together: some 20 MB of bags


def of_places(table: DataFrame, places: Sequence[Int64Array]) -> DataFrame:
    """The rows of a table at some places; on Sail by a filter (few others pass), and without a join."""
    if not sum(map(len, places)):
        return table.where("false")
    if is_embedded(table):
        return passing_any(table, [filter_of_places(places, table)])
    keys = table.sparkSession.createDataFrame(pa.table({"place": np.unique(np.concatenate(places))}))
    return table.join(F.broadcast(keys), "place", "left_semi").select(*table.columns)


def filter_of_places(places: Sequence[Int64Array], table: DataFrame) -> UInt8Array:
    """A filter of places: they may repeat, but are no more than the rows of a table."""
    from spark_jobs.dedup.near.key_filter import filter_bytes, put_keys

    filled = np.zeros(filter_bytes(min(sum(map(len, places)), table.count())), np.uint8)
    for part in places:
        put_keys(part.view(np.uint64), filled)
    return filled


def passing_any(table: DataFrame, filters: Sequence[UInt8Array]) -> DataFrame:
    """The rows of a table with a place in any of some filters."""
    return table.mapInArrow(partial(passing, filters=Shared(table, tuple(filters))), table.schema)


def inside(table: DataFrame, pool: bytes) -> DataFrame:
    """The rows of a table with a place in a filter."""
    return passing_any(table, [np.frombuffer(pool, np.uint8)])


def passing(batches: Iterable[pa.RecordBatch], filters: Shared[tuple[UInt8Array, ...]]) -> Iterator[pa.RecordBatch]:
    """The rows with a place in any of some filters."""
    for batch in batches:
        yield batch.filter(pa.array(_is_inside(batch, filters.value)))


def kept_batches(rows: pa.Table, pool: UInt8Array) -> Iterator[pa.RecordBatch]:
    """The rows of a table in files, with a place in a filter, some at a time."""
    for batch in rows.to_batches(max_chunksize=_KEPT_ROWS):
        yield batch.filter(pa.array(_is_inside(batch, (pool,))))


def _is_inside(batch: pa.RecordBatch, filters: Sequence[UInt8Array]) -> BoolArray:
    from spark_jobs.dedup.near.key_filter import has_keys

    places = batch.column("place").to_numpy().view(np.uint64)
    passes: BoolArray = np.logical_or.reduce([has_keys(places, each) for each in filters])
    return passes
