"""Turn the members of buckets into candidates, batch by batch, for `mapInArrow`.

A member is represented by its `place`, its position by priority (see members); a candidate is two places (first,
second). A bucket lists its earlier members, then its new ones; two earlier ones are never a candidate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from spark_jobs.arrays import Int64Array
from spark_jobs.spark_sql import DataFrame, F

_BATCH_PAIRS = 1 << 20  # of 16 bytes, which are sorted: a batch of 2,048 buckets may have 268 million
CANDIDATES_DDL = "first bigint, second bigint"
DEFAULT_MAX_BUCKET_PAIRS = 131_072
MaxBucketPairs = Annotated[
    int,
    Field(ge=1, description="pairs of a bucket up to which all are compared at once; 131,072 are 512 documents"),
]


def with_pair_count(buckets: DataFrame) -> DataFrame:
    """Add `pair_count`, the number of candidates in a bucket, to rows with members and earlier."""
    fresh, old = F.size("members").cast("long"), F.size("earlier").cast("long")
    return buckets.withColumn("pair_count", fresh * (fresh - 1) / 2 + fresh * old)


def list_offsets(column: pa.ListArray) -> tuple[Int64Array, Int64Array]:
    """Offsets from 0, and the values, of a column of lists of numbers, perhaps a slice of a longer one."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = column.values.to_numpy()[offsets[0] : offsets[-1]]
    return offsets - offsets[0], values


def all_pairs(batches: Iterable[pa.RecordBatch], not_among: bytes | None = None) -> Iterator[pa.RecordBatch]:
    """The candidates of buckets; each pair once in a batch.

    Args:
        batches: rows with the columns members and earlier.
        not_among: a filter of places (`key_filter`); pairs of two places in it are left out.

    Yields:
        Rows of `CANDIDATES_DDL`.
    """
    from spark_jobs.dedup.near.bucket_records import pairs_within
    from spark_jobs.dedup.near.key_filter import has_keys

    for batch in (part for whole in batches for part in _of_few_pairs(whole)):
        new_offsets, new = list_offsets(batch.column("members"))
        earlier_offsets, earlier = list_offsets(batch.column("earlier"))
        everyone = np.diff(new_offsets) + np.diff(earlier_offsets)
        first, second = pairs_within(new_offsets, new, earlier_offsets, earlier, everyone)
        if not_among is not None:
            filled = np.frombuffer(not_among, np.uint8)
            wanted = ~(has_keys(first.view(np.uint64), filled) & has_keys(second.view(np.uint64), filled))
            first, second = first[wanted], second[wanted]
        yield candidate_batch(first, second)


def _of_few_pairs(buckets: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch of buckets with about `_BATCH_PAIRS` pairs each; a bucket is whole."""
    fresh, old = (pc.list_value_length(buckets.column(name)).to_numpy() for name in ("members", "earlier"))
    pairs = np.cumsum(fresh.astype(np.int64) * (fresh - 1) // 2 + fresh.astype(np.int64) * old)
    edges = [0, *(np.flatnonzero(np.diff(pairs // _BATCH_PAIRS)) + 1).tolist(), buckets.num_rows]
    for start, end in itertools.pairwise(edges):
        yield buckets.slice(start, end - start)


def candidate_batch(first: Int64Array, second: Int64Array) -> pa.RecordBatch:
    """Distinct candidates as rows of `CANDIDATES_DDL`."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    other = np.ones(len(first), np.bool_)
    other[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return pa.RecordBatch.from_arrays([pa.array(first[other]), pa.array(second[other])], names=["first", "second"])


def all_members(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows (place) of the members of buckets; each place once in a batch."""
    for batch in batches:
        parts = [list_offsets(batch.column(name))[1] for name in ("members", "earlier")]
        yield pa.RecordBatch.from_arrays([pa.array(np.unique(np.concatenate(parts)))], names=["place"])
