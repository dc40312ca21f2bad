"""Documents in metadata order become units and take slots by prefix rank, whatever the batches and buckets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.packing.plan.affinity import AffinityPlan, choose_plan, plan_shards
from spark_jobs.packing.plan.placement import (
    EMPTY_DOCUMENTS,
    Placer,
    UnitRules,
    count_batches,
    group_starts,
    plan_shard_of,
    take_slots,
    whole_repositories,
)
from spark_jobs.packing.plan.repository_runs import ALONE, EVERY_RUN
from spark_jobs.packing.plan.units import UnitCounts
from spark_jobs.packing.plan.window_order import WindowOrder
from tests.tiers import tries

Document = tuple[int, str | None, int]
BUCKETS = 5

documents_strategy = st.lists(
    st.tuples(st.integers(0, BUCKETS - 1), st.sampled_from([None, "p", "q", "r"]), st.integers(0, 50)), max_size=60
)


def arranged(documents: Sequence[Document]) -> pa.RecordBatch:
    """Documents (bucket, repository, tokens) as Spark sends them, in metadata order."""
    return pa.RecordBatch.from_pydict(
        {
            "bucket": pa.array([b for b, _, _ in documents], pa.int32()),
            "data_file": pa.array(["a.parquet"] * len(documents), pa.string()),
            "data_row": pa.array(range(len(documents)), pa.int64()),
            "doc_id": pa.array([f"{number:03d}" for number in range(len(documents))], pa.string()),
            "repository": pa.array([r for _, r, _ in documents], pa.string()),
            "token_count": pa.array([t for _, _, t in documents], pa.int32()),
            "cuts": pa.array([None] * len(documents), pa.list_(pa.int64())),
        }
    )


def in_order(documents: list[Document]) -> list[Document]:
    """Metadata order: bucket, repository (those without first)."""
    return sorted(documents, key=lambda d: (d[0], d[1] or ""))


def counted(batches: list[pa.RecordBatch], rules: UnitRules) -> dict[tuple[int, int, int], int]:
    """Units by (theta, bucket, length)."""
    rows = [row for batch in count_batches(batches, rules) for row in batch.to_pylist()]
    keys = [(row["theta"], row["bucket"], row["length"]) for row in rows]
    assert len(set(keys)) == len(keys)
    return {key: row["units"] for key, row in zip(keys, rows, strict=True)}


def planned(counts: dict[tuple[int, int, int], int], theta: int, shards: int, window_tokens: int) -> AffinityPlan:
    """The plan under one theta."""
    histograms: dict[tuple[int, int], dict[int, int]] = {}
    for (own_theta, bucket, length), units in counts.items():
        if length:
            histogram = histograms.setdefault((own_theta, plan_shard_of(bucket, shards, BUCKETS)), {})
            histogram[length] = histogram.get(length, 0) + units
    return choose_plan(histograms, (theta,), shards, window_tokens, 0.0)


def placed(batches: list[pa.RecordBatch], placer: Placer) -> list[dict[str, object]]:
    """Placements as rows."""
    return [row for batch in placer.place_batches(batches) for row in batch.to_pylist()]


@settings(max_examples=tries(300))
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


@settings(max_examples=tries(300))
@given(
    documents_strategy,
    st.integers(2, 40),
    st.integers(1, 7),
    st.sampled_from([ALONE, EVERY_RUN, 50, 90]),
    st.integers(1, 3),
    st.integers(0, 1),
)
def test_places_do_not_depend_on_batches(
    documents: list[Document], window_tokens: int, batch_rows: int, theta: int, shards: int, leading: int
) -> None:
    """Buckets in one task or each in its own, in batches of any size: the same counts and places, none taken twice."""
    documents = in_order(documents)
    rows = arranged(documents)
    rules = UnitRules(window_tokens, leading, (theta,))
    counts = counted([rows], rules)
    chosen = planned(counts, theta, shards, window_tokens)
    of_theta = np.array([(b, n, c) for (t, b, n), c in counts.items() if t == theta], dtype=np.int64).reshape(-1, 3)
    unit_counts = UnitCounts(of_theta[:, 0], of_theta[:, 1], of_theta[:, 2])
    order = WindowOrder(base=1000, window_count=chosen.window_count, key=42)
    placer = Placer(rules, plan_shards(chosen, unit_counts, BUCKETS), BUCKETS, order)
    together = placed([rows], placer)
    single: list[dict[str, object]] = []
    single_counts: dict[tuple[int, int, int], int] = {}
    for bucket in range(BUCKETS):
        own = [number for number, (b, _, _) in enumerate(documents) if b == bucket]
        if own:
            part = rows.slice(own[0], len(own))
            pieces = [part.slice(start, batch_rows) for start in range(0, len(own), batch_rows)]
            pieces.insert(1, rows.slice(0, 0))
            single += placed(pieces, placer)
            single_counts |= counted(pieces, rules)
    assert single == together
    assert single_counts == counts
    assert sum(units for (t, _, _), units in counts.items() if t == EMPTY_DOCUMENTS) == sum(
        tokens == 0 for _, _, tokens in documents
    )
    fills: dict[int, int] = {}
    for row in sorted(together, key=lambda r: (r["ordinal"], r["window_start"])):  # type: ignore[arg-type, return-value]
        ordinal = int(str(row["ordinal"]))
        assert row["window_start"] == fills.get(ordinal, 0)
        fills[ordinal] = fills.get(ordinal, 0) + sum(int(row[name]) for name in ("own_tokens", "begins", "ends"))  # type: ignore[call-overload]
    assert sorted(fills) == list(range(1000, 1000 + chosen.window_count))
    assert all(fill <= window_tokens for fill in fills.values())


def test_a_run_stays_adjacent_and_in_order() -> None:
    """Documents of one repository that join lie side by side in one window, in the order of their rank."""
    rows = arranged([(0, "p", 3), (0, "p", 0), (0, "p", 4), (0, "p", 5), (0, "q", 9), (1, "r", 5)])
    rules = UnitRules(16, 0, (EVERY_RUN,))
    chosen = planned(counted([rows], rules), EVERY_RUN, 1, 16)
    assert chosen.window_count == 2
    shards = plan_shards(chosen, UnitCounts(np.array([0, 0, 1]), np.array([10, 15, 6]), np.array([1, 1, 1])), BUCKETS)
    found = placed([rows], Placer(rules, shards, BUCKETS, WindowOrder(0, 2, 1)))
    by_document = {f"{row['data_row']:03d}": (row["ordinal"], row["window_start"]) for row in found}
    window = by_document["000"][0]
    start = int(str(by_document["000"][1]))
    assert by_document["002"] == (window, start + 4)


@settings(max_examples=tries(200, 100))
@given(documents_strategy, st.integers(1, 7))
def test_repositories_come_whole(documents: list[Document], batch_rows: int) -> None:
    """Rows keep their order, and no repository is in two batches; what waits is at most the last repository."""
    rows = arranged(in_order(documents))
    starts = np.flatnonzero(group_starts(rows)) if rows.num_rows else np.zeros(0, np.int64)
    found: list[pa.RecordBatch] = []

    def read() -> Iterator[pa.RecordBatch]:
        for end in range(batch_rows, rows.num_rows + batch_rows, batch_rows):
            waiting = starts[starts < end - batch_rows]
            assert sum(batch.num_rows for batch in found) == (waiting[-1] if waiting.size else 0)
            yield rows.slice(end - batch_rows, batch_rows)
            yield rows.slice(0, 0)

    for batch in whole_repositories(read()):
        found.append(batch)
    assert [row for batch in found for row in batch.to_pylist()] == rows.to_pylist()
    seen: set[tuple[int, str]] = set()
    for batch in found:
        here = {(row["bucket"], row["repository"]) for row in batch.to_pylist() if row["repository"] is not None}
        assert not here & seen
        seen |= here


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([None, "p", "q"]), st.just(1)), max_size=12))
def test_a_group_begins_where_repository_or_bucket_changes(documents: list[Document]) -> None:
    """A document without a repository is a group by itself, also beside others without one."""
    before: list[Document | None] = [None, *documents]
    expected = [
        one[1] is None or last is None or one[:2] != last[:2] for last, one in zip(before, documents, strict=False)
    ]
    assert group_starts(arranged(documents)).tolist() == expected


def test_a_survivor_without_tokens_is_refused_by_name() -> None:
    """A document that is in `ordered` alone would be lost in silence."""
    rows = arranged([(0, "p", 3), (0, "p", 4)]).to_pydict()
    rows["token_count"] = [3, None]
    broken = pa.RecordBatch.from_pydict(rows, schema=arranged([]).schema)
    with pytest.raises(TableMismatchError, match=r"document 001 survived.*materialize tokens again"):
        counted([broken], UnitRules(8))
