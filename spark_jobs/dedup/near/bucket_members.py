"""Members of buckets: which pairs of them become candidates, batch by batch of lists.

A candidate is two places (first, second); a bucket's members in order are its earlier ones and then its new ones, and
two earlier ones are never a candidate. What works on members is a function of batches, for `mapInArrow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CANDIDATES_DDL = "first bigint, second bigint"
DEFAULT_MAX_BUCKET_PAIRS = 131_072
MaxBucketPairs = Annotated[
    int,
    Field(ge=1, description="pairs of a bucket up to which all are compared at once; 131,072 are 512 documents"),
]


def with_pair_count(buckets: DataFrame) -> DataFrame:
    """Add `pair_count`, the candidates that all pairs of a bucket would be, to rows with members and earlier."""
    from pyspark.sql import functions as F

    fresh, old = F.size("members").cast("long"), F.size("earlier").cast("long")
    return buckets.withColumn("pair_count", fresh * (fresh - 1) / 2 + fresh * old)


def list_offsets(column: pa.ListArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and values of a column of lists of numbers, its own part of them alone."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = column.values.to_numpy()[offsets[0] : offsets[-1]]
    return offsets - offsets[0], values


def all_pairs(batches: Iterable[pa.RecordBatch], not_among: bytes | None = None) -> Iterator[pa.RecordBatch]:
    """All pairs of the members of buckets, each once a batch.

    Args:
        batches: rows with the columns members and earlier.
        not_among: a filter of places (`key_filter`); pairs of which both places pass are left out.

    Yields:
        Rows of `CANDIDATES_DDL`.
    """
    from spark_jobs.dedup.near.bucket_records import pairs_within
    from spark_jobs.dedup.near.key_filter import has_keys

    for batch in batches:
        new_offsets, new = list_offsets(batch.column("members"))
        earlier_offsets, earlier = list_offsets(batch.column("earlier"))
        everyone = np.diff(new_offsets) + np.diff(earlier_offsets)
        first, second = pairs_within(new_offsets, new, earlier_offsets, earlier, everyone)
        if not_among is not None:
            filled = np.frombuffer(not_among, np.uint8)
            wanted = ~(has_keys(first.view(np.uint64), filled) & has_keys(second.view(np.uint64), filled))
            first, second = first[wanted], second[wanted]
        yield candidate_batch(first, second)


def candidate_batch(first: NDArray[np.int64], second: NDArray[np.int64]) -> pa.RecordBatch:
    """Candidates as rows of `CANDIDATES_DDL`, each once."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    other = np.ones(len(first), np.bool_)
    other[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return pa.RecordBatch.from_arrays([pa.array(first[other]), pa.array(second[other])], names=["first", "second"])


def all_members(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places in a batch of buckets, each once."""
    for batch in batches:
        parts = [list_offsets(batch.column(name))[1] for name in ("members", "earlier")]
        yield pa.RecordBatch.from_arrays([pa.array(np.unique(np.concatenate(parts)))], names=["place"])
