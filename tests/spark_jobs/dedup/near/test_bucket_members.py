"""Members of buckets become candidates, against loops over pairs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.dedup.near import bucket_members
from spark_jobs.dedup.near.bucket_members import all_members, all_pairs, candidate_batch, with_pair_count
from spark_jobs.dedup.near.key_filter import filter_bytes, put_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Bucket = tuple[list[int], list[int]]
PLACES = np.sort(np.random.default_rng(1).integers(0, 1 << 60, 40)).tolist()  # as hashes, of which a filter takes bits
OLD, NEW = PLACES[:20], PLACES[20:]
BUCKET = st.tuples(
    st.lists(st.sampled_from(NEW), min_size=1, max_size=4, unique=True).map(sorted),
    st.lists(st.sampled_from(OLD), max_size=4, unique=True).map(sorted),
)


def batch_of(buckets: list[Bucket]) -> pa.RecordBatch:
    """Rows (members, earlier), a slice of a longer batch."""
    before = ([7, 8, 9], [1, 2])
    columns = [pa.array([row[at] for row in (before, *buckets)], pa.list_(pa.int64())) for at in range(2)]
    return pa.RecordBatch.from_arrays(columns, names=["members", "earlier"]).slice(1)


def pairs_of(new: list[int], old: list[int]) -> set[tuple[int, int]]:
    """All pairs of a bucket of which one is new."""
    return {pair for pair in itertools.combinations([*old, *new], 2) if pair[1] in new}


@given(st.lists(BUCKET, max_size=5), st.none() | st.sets(st.sampled_from(PLACES)))
def test_candidates_are_all_pairs_with_a_new_member_once_in_a_batch(
    buckets: list[Bucket], pool: set[int] | None
) -> None:
    """Without those of two members that a filter has; whatever other rows the batch was sliced from."""
    inside = None
    if pool is not None:
        filled = np.zeros(filter_bytes(len(pool)), np.uint8)
        put_keys(np.array(sorted(pool), np.uint64), filled)
        inside = filled.tobytes()
    (found,) = all_pairs([batch_of(buckets)], inside)
    rows = list(zip(found["first"].to_pylist(), found["second"].to_pylist(), strict=True))
    expected = set().union(*(pairs_of(*bucket) for bucket in buckets))
    if pool is not None:
        expected = {pair for pair in expected if not set(pair) <= pool}
    assert rows == sorted(expected)


def test_a_batch_of_large_buckets_becomes_batches_of_bounded_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of at most the bound and one bucket more, and all pairs are there; empty and one-sided buckets among them."""
    monkeypatch.setattr(bucket_members, "_BATCH_PAIRS", 100)
    draw = np.random.default_rng(5)
    buckets = [(NEW[: int(draw.integers(1, 20))], OLD[: int(draw.integers(0, 20))]) for _ in range(60)]
    most = max(len(pairs_of(*bucket)) for bucket in buckets)
    made = list(all_pairs([batch_of(buckets)]))
    assert len(made) > 10 and max(batch.num_rows for batch in made) <= 100 + most
    rows = {
        pair for batch in made for pair in zip(*(batch[name].to_pylist() for name in batch.schema.names), strict=True)
    }
    assert rows == set().union(*(pairs_of(*bucket) for bucket in buckets))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_a_candidate_comes_once(pairs: list[tuple[int, int]]) -> None:
    """In the order of both places."""
    first, second = (np.array([pair[at] for pair in pairs], np.int64) for at in range(2))
    found = candidate_batch(first, second)
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == sorted(set(pairs))


@given(st.lists(BUCKET, max_size=5))
def test_members_are_the_new_and_the_earlier_ones(buckets: list[Bucket]) -> None:
    """Each place once in a batch."""
    (found,) = all_members([batch_of(buckets)])
    assert found["place"].to_pylist() == sorted({place for bucket in buckets for part in bucket for place in part})


@pytest.mark.parametrize("size", [0, 3])
def test_the_pair_count_of_a_bucket_is_that_of_its_candidates(spark: SparkSession, size: int) -> None:
    """Also of a bucket with earlier members alone, which makes none."""
    buckets = [(list(range(100, 100 + new)), list(range(size))) for new in range(1, 5)]
    rows = spark.createDataFrame(pa.Table.from_batches([batch_of(buckets)]))
    found = {len(row.members): row.pair_count for row in with_pair_count(rows).collect()}
    assert found == {len(new): len(pairs_of(new, old)) for new, old in buckets}
