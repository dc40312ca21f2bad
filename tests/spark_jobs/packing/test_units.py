"""Documents become units, and units take slots by prefix rank, whatever the batches and buckets."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.packing.histogram_plan import plan_slots
from spark_jobs.packing.placement import Placer, take_slots
from spark_jobs.packing.units import UnitCounts, count_units, cut_documents


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=30), st.integers(2, 12))
def test_documents_are_cut_into_the_fewest_pieces(token_counts: list[int], window_tokens: int) -> None:
    """Units cover a document's tokens and its end once, in ceil(n / L) pieces; an empty document has none."""
    units = cut_documents(np.array(token_counts, dtype=np.int64), window_tokens)
    for document, tokens in enumerate(token_counts):
        rows = np.flatnonzero(units.document == document)
        expected = -(-(tokens + 1) // window_tokens) if tokens else 0
        assert len(rows) == expected
        start = 0
        for row in rows:
            assert units.document_start[row] == start
            assert 1 <= units.length[row] <= window_tokens
            start += int(units.length[row])
        assert start == (tokens + 1 if tokens else 0)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_slots_are_taken_in_order(lengths: list[int], cuts: list[int]) -> None:
    """Taking slots batch by batch equals a loop over single units."""
    next_slots = np.arange(10, dtype=np.int64) * 100
    expected = []
    counters = next_slots.copy()
    for length in lengths:
        expected.append(int(counters[length]))
        counters[length] += 1
    bounds = sorted({0, len(lengths), *(min(cut, len(lengths)) for cut in cuts)})
    found: list[int] = []
    for start, end in itertools.pairwise(bounds):
        found += take_slots(np.array(lengths[start:end], dtype=np.int64), next_slots).tolist()
    assert found == expected
    assert np.array_equal(next_slots, counters)


def units_counted(documents: list[tuple[int, int]], window_tokens: int) -> dict[tuple[int, int], int]:
    """Units per (bucket, length) by cutting every document: the reference."""
    counts: dict[tuple[int, int], int] = {}
    for bucket, tokens in documents:
        for length in cut_documents(np.array([tokens]), window_tokens).length.tolist():
            counts[bucket, length] = counts.get((bucket, length), 0) + 1
    return counts


def counted(documents: list[tuple[int, int]], window_tokens: int) -> UnitCounts:
    """Units as the step counts them, from what Spark's aggregate gives for these documents."""
    groups: dict[tuple[int, int], list[int]] = {}
    for bucket, tokens in documents:
        full = tokens // window_tokens
        group = groups.setdefault((bucket, tokens + 1 - full * window_tokens), [0, 0])
        group[0] += tokens > 0
        group[1] += full
    rows = np.array([(*key, *value) for key, value in groups.items()], dtype=np.int64).reshape(-1, 4)
    return count_units(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], window_tokens)


documents_strategy = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=60)


@settings(max_examples=300, deadline=None)
@given(documents_strategy, st.integers(2, 12))
def test_units_are_counted_from_tails_and_full_pieces(documents: list[tuple[int, int]], window_tokens: int) -> None:
    """Counting by (bucket, tail) gives what cutting every document gives."""
    counts = counted(documents, window_tokens)
    found = dict(
        zip(zip(counts.bucket.tolist(), counts.length.tolist(), strict=True), counts.count.tolist(), strict=True)
    )
    assert found == units_counted(documents, window_tokens)


@settings(max_examples=300, deadline=None)
@given(documents_strategy, st.integers(2, 12), st.integers(1, 7), st.randoms(use_true_random=False))
def test_places_do_not_depend_on_batches(
    documents: list[tuple[int, int]], window_tokens: int, batch_rows: int, random: object
) -> None:
    """Buckets handled by one task or each by its own, in batches of any size: the same places, none taken twice."""
    documents = sorted((d for d in documents if d[1]), key=lambda d: d[0])
    counts = counted(documents, window_tokens)
    plan = plan_slots(counts.histogram(), window_tokens)
    placer = Placer(plan, counts.ranks(*plan.first_slots(), 5), base=1000, key=42)
    rows = pa.RecordBatch.from_pydict(
        {
            "bucket": pa.array([b for b, _ in documents], pa.int32()),
            "increment": pa.array([2] * len(documents), pa.int32()),
            "shard": pa.array([0] * len(documents), pa.int32()),
            "doc_id": [f"{number:03d}" for number in range(len(documents))],
            "token_count": pa.array([t for _, t in documents], pa.int32()),
        }
    )
    together = [row for batch in placer.place_batches([rows]) for row in batch.to_pylist()]
    single = []
    for bucket in range(5):
        own = [number for number, (b, _) in enumerate(documents) if b == bucket]
        if own:
            part = rows.slice(own[0], len(own))
            pieces = [part.slice(start, batch_rows) for start in range(0, len(own), batch_rows)]
            single += [row for batch in placer.place_batches(pieces) for row in batch.to_pylist()]
    assert single == together
    fills: dict[int, int] = {}
    for row in sorted(together, key=lambda r: (r["ordinal"], r["window_start"])):
        assert row["window_start"] == fills.get(row["ordinal"], 0)
        fills[row["ordinal"]] = row["window_start"] + row["own_tokens"] + row["ends"]
    assert sorted(fills) == list(range(1000, 1000 + plan.window_count))
    assert all(fill <= window_tokens for fill in fills.values())


def test_the_example_of_an_end_alone() -> None:
    """A document of exactly L tokens: one full piece, and its end of document alone."""
    units = cut_documents(np.array([4]), 4)
    assert units.length.tolist() == [4, 1]
    assert units.document_start.tolist() == [0, 4]


@pytest.mark.parametrize("window_tokens", [4])
def test_no_documents_make_no_units(window_tokens: int) -> None:
    """Nothing in, nothing out."""
    assert len(cut_documents(np.zeros(0, dtype=np.int64), window_tokens).length) == 0
    assert counted([], window_tokens).histogram() == {}
