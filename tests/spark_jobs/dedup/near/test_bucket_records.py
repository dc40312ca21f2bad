"""Records of buckets: scattered, grouped and turned into candidates."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.dedup.near import key_filter
from spark_jobs.dedup.near.bucket_records import group_by_key, pairs_within, scatter
from spark_jobs.dedup.near.key_filter import filter_bytes, has_keys, put_keys

Record = tuple[int, int, bool]
RECORDS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.booleans()), max_size=40, unique=True)


def grouped(records: list[Record]) -> dict[int, tuple[list[int], list[int]]]:
    """Brute force: new and earlier places by key, of keys with two members and one of them new."""
    found = {}
    for key in {key for key, *_ in records}:
        new = sorted(place for k, place, earlier in records if k == key and not earlier)
        old = sorted(place for k, place, earlier in records if k == key and earlier)
        if new and len(new) + len(old) >= 2:
            found[key] = (new, old)
    return found


@given(RECORDS)
def test_runs_are_the_groups_with_two_members_one_of_them_new(records: list[Record]) -> None:
    """Whatever the order of records."""
    columns = list(zip(*records, strict=True)) or [(), (), ()]
    made = group_by_key(np.array(columns[0], np.uint64), np.array(columns[1], np.int64), np.array(columns[2], np.bool_))
    found = {
        int(key): (
            made.new[made.new_offsets[at] : made.new_offsets[at + 1]].tolist(),
            made.earlier[made.earlier_offsets[at] : made.earlier_offsets[at + 1]].tolist(),
        )
        for at, key in enumerate(made.keys)
    }
    assert found == grouped(records)


def test_keys_that_occur_once_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 of them hardly one in five is, and of those that come again all are in their buckets."""
    draw = np.random.default_rng(3)
    single = draw.integers(0, 1 << 63, 100_000).astype(np.uint64)
    keys = np.concatenate([single, single[:500]])
    sorted_counts = list[int]()
    argsort = np.argsort

    def watched(values: np.ndarray, **options: str) -> np.ndarray:
        sorted_counts.append(len(values))
        return argsort(values, **options)

    monkeypatch.setattr(np, "argsort", watched)
    found = group_by_key(keys, np.arange(len(keys)), np.zeros(len(keys), np.bool_))
    assert sorted(found.keys.tolist()) == sorted(single[:500].tolist())
    assert 1_000 <= sorted_counts[0] < 30_000


@pytest.mark.parametrize("pivots", [0, 1, 2, 5, 100])
def test_candidates_are_the_pivots_with_all_that_come_after_them(pivots: int) -> None:
    """Earlier members come first, and two of them are never compared; enough pivots are all pairs."""
    draw = np.random.default_rng(pivots)
    buckets = [(draw.integers(0, 5), draw.integers(1, 6)) for _ in range(20)]
    old_offsets = np.concatenate([[0], np.cumsum([old for old, _ in buckets])]).astype(np.int64)
    new_offsets = np.concatenate([[0], np.cumsum([new for _, new in buckets])]).astype(np.int64)
    old, new = np.arange(old_offsets[-1]), 1000 + np.arange(new_offsets[-1])
    counts = np.full(len(buckets), pivots, np.int64)
    first, second = pairs_within(new_offsets, new, old_offsets, old, counts)
    expected = []
    for at in range(len(buckets)):
        order = [*old[old_offsets[at] : old_offsets[at + 1]], *new[new_offsets[at] : new_offsets[at + 1]]]
        for a, b in itertools.combinations(range(len(order)), 2):
            if a < pivots and order[b] >= 1000:
                expected.append((order[a], order[b]))
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize("partitions", [1, 3, 64])
def test_scattered_records_are_all_there_and_equal_keys_together(partitions: int) -> None:
    """Every record once; a key is in one partition alone."""
    draw = np.random.default_rng(7)
    keys = draw.integers(0, 2**64, 500, dtype=np.uint64).repeat(3)
    places = np.arange(keys.size)
    offsets, scattered, moved = scatter(keys, places, partitions)
    assert offsets[0] == 0 and offsets[-1] == keys.size
    assert (keys[moved] == scattered).all() and sorted(moved.tolist()) == places.tolist()
    where = np.repeat(np.arange(partitions), np.diff(offsets))
    assert len({(int(key), int(part)) for key, part in zip(scattered, where, strict=True)}) == 500


def test_a_filter_lets_every_key_pass_that_was_put_in_and_few_others() -> None:
    """No key is ever held back; of a hundred thousand others fewer than 3 in 1,000 pass."""
    draw = np.random.default_rng(9)
    keys = draw.integers(0, 2**64, 20_000, dtype=np.uint64)
    filled = np.zeros(filter_bytes(keys.size), np.uint8)
    put_keys(keys, filled)
    assert has_keys(keys, filled).all()
    assert has_keys(draw.integers(0, 2**64, 100_000, dtype=np.uint64), filled).mean() < 0.003


def test_a_filter_of_any_number_of_keys_takes_128_mb_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 67 million keys its size stays and more others pass, as many as it says; no key is ever held back."""
    assert filter_bytes(10**12) == 1 << 27
    monkeypatch.setattr(key_filter, "_MOST_BITS", 1 << 16)
    draw = np.random.default_rng(10)
    keys = draw.integers(0, 2**64, 20_000, dtype=np.uint64)
    filled = np.zeros(filter_bytes(keys.size), np.uint8)
    put_keys(keys, filled)
    assert filled.size == 1 << 13 and has_keys(keys, filled).all()
    passing = has_keys(draw.integers(0, 2**64, 100_000, dtype=np.uint64), filled).mean()
    assert abs(passing - key_filter.passing_share(keys.size)) < 0.02


@pytest.mark.parametrize("filtered", [False, True])
def test_each_kind_meets_in_bands_of_its_own(filtered: bool) -> None:
    """Two equal documents of a kind share a bucket of each of its bands; equal ones of two kinds share none."""
    from functools import partial

    from spark_jobs.dedup.near.bucket_keys import all_keys
    from spark_jobs.dedup.near.buckets import band_records, bucket_lists
    from spark_jobs.dedup.near.key_filter import fill
    from spark_jobs.dedup.sketches.bands import solve_bands

    schemes = {kind: solve_bands(np.array([9, 1]), 100, at, 0.999) for kind, at in (("code", 0.5), ("prose", 0.8))}
    assert schemes["code"].bands != schemes["prose"].bands
    columns = {
        "kind": ["code", "prose", "code", "prose"],
        "place": pa.array([1, 2, 3, 4], pa.int64()),
        "signature": pa.array([bytes(range(256))] * 4, pa.binary()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    filled = None
    if filtered:
        filled = next(fill(iter([batch]), partial(all_keys, schemes=schemes), filter_bytes(64)))["filled"][0].as_py()
    records = band_records(iter([batch]), schemes, 1, earlier=False, filled=filled)
    members = [tuple(row["members"]) for block in bucket_lists(records) for row in block.to_pylist()]
    assert members.count((1, 3)) == schemes["code"].bands and members.count((2, 4)) == schemes["prose"].bands
    assert len(members) == schemes["code"].bands + schemes["prose"].bands
