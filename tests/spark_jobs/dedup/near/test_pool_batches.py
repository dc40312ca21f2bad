"""Comparing batches of kept documents with all others, against the greedy kept set of all pairs."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.dedup.bags.bag_arrays import binary_column
from spark_jobs.dedup.near import pool_batches
from spark_jobs.dedup.near.pool_batches import FinishedBatches, leading, pivots_of, similar_to_pivots
from tests.spark_jobs.dedup.made_bags import at_the_bound
from tests.spark_jobs.dedup.near.test_prefix_join import THRESHOLDS, Weights, as_bags, documents_of, similarity
from tests.tiers import sampled, tries


def pool_of(rows: list[Weights], old: int) -> pa.Table:
    """Documents as the pool of large buckets has them, of which the first came in an earlier increment."""
    bags, count = as_bags(rows), len(rows)
    columns = {"token_hashes": bags.hashes, "units": bags.units, "levels": bags.levels}
    return pa.table(
        {
            "dataset": ["d"] * count,
            "doc_id": [f"{number:05}" for number in range(count)],
            "increment": pa.array([0] * old + [1] * (count - old), pa.int32()),
            "place": pa.array(np.random.default_rng(3).permutation(count)),
            "kind": ["prose"] * count,
            "earlier": [True] * old + [False] * (count - old),
            "token_count": np.diff(bags.offsets),
            **{name: binary_column(values, bags.offsets) for name, values in columns.items()},
        }
    )


def greedy(pairs: dict[tuple[int, int], Fraction], order: list[int], threshold: Fraction) -> set[int]:
    """Documents kept one after another, the first of the order first."""
    kept: set[int] = set()
    for one in order:
        if all(pairs.get((min(one, other), max(one, other)), Fraction(0)) < threshold for other in kept):
            kept.add(one)
    return kept


def forms(draw: np.random.Generator, count: int, choices: int) -> list[Weights]:
    """Forms of 20 labels and 12 fields, each filled with one of a few words."""
    labels = dict.fromkeys(range(1, 21), (1, 4))
    filled = draw.integers(0, choices, (count, 12))
    return [labels | {1000 + 100 * field + int(v): (9, 1) for field, v in enumerate(row)} for row in filled]


@sampled()
@pytest.mark.parametrize("seed", range(6))
def test_the_kept_are_those_of_all_pairs_one_after_another(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each threshold, in small batches; two documents of an earlier increment are never compared."""
    monkeypatch.setattr(pool_batches, "BATCH_DOCUMENTS", 7)
    draw = np.random.default_rng(seed)
    rows = documents_of(draw) if seed % 2 else forms(draw, 150, 2 + seed)
    old = 30 * (seed % 3)
    pool = pool_of(rows, old)
    truth = {
        (one, other): similarity(rows[one], rows[other])
        for one, other in itertools.combinations(range(len(rows)), 2)
        if other >= old
    }
    order = np.lexsort((pool.column("place").to_numpy(), pool.column("increment").to_numpy())).tolist()
    found: dict[tuple[int, int], Fraction] = {}
    done, batches = FinishedBatches(), 0
    while True:
        kept = [greedy(found, order, threshold) for threshold in THRESHOLDS]
        groups = [sum((row in one) << group for group, one in enumerate(kept)) for row in range(len(rows))]
        with_groups = pool.append_column("groups", pa.array(groups, pa.int32()))
        kept_pool = with_groups.filter(pa.array(np.array(groups) != 0))
        places = done.next_batch(kept_pool)
        if not len(places):
            break
        batch = kept_pool.filter(pa.array(np.isin(kept_pool.column("place").to_numpy(), places)))
        batch = leading(batch.sort_by([("earlier", "descending"), ("place", "ascending")]), THRESHOLDS)
        done.add(batch)
        batches += 1
        for part in similar_to_pivots(kept_pool.to_batches(), pivots_of(batch, THRESHOLDS), THRESHOLDS, 1):
            for pair in part.to_pylist():
                left, right = int(pair["left_doc_id"]), int(pair["right_doc_id"])
                assert order.index(left) < order.index(right)
                found[min(left, right), max(left, right)] = Fraction(pair["shared_weight"], pair["united_weight"])
    assert batches > 1
    assert found.items() <= truth.items()
    for threshold, one in zip(THRESHOLDS, kept, strict=True):
        assert one == greedy(truth, order, threshold)


@pytest.mark.parametrize("seed", range(4))
def test_the_leading_documents_are_those_that_no_better_one_of_the_batch_removes(seed: int) -> None:
    """At one threshold or more, of those at which they are compared; by all pairs, one after another."""
    draw = np.random.default_rng(seed)
    rows = documents_of(draw)
    groups = draw.integers(1, 8, len(rows)).tolist()
    batch = pool_of(rows, 0).append_column("groups", pa.array(groups, pa.int32()))
    expected = [0] * len(rows)
    for group, threshold in enumerate(THRESHOLDS):
        kept: list[int] = []
        for one in (row for row in range(len(rows)) if groups[row] >> group & 1):
            if all(similarity(rows[one], rows[other]) < threshold for other in kept):
                kept.append(one)
                expected[one] |= 1 << group
    assert 0 in expected
    led = leading(batch, THRESHOLDS).column("doc_id").to_pylist()
    assert led == [f"{one:05}" for one in range(len(rows)) if expected[one]]


def test_pairs_at_a_threshold_remove_within_a_batch() -> None:
    """J equal to the threshold is enough, and one unit of weight less is not."""
    for threshold in (Fraction(1, 2), Fraction(4, 5), Fraction(1)):
        rows, reaching = at_the_bound(threshold)
        for left in range(0, len(rows), 2):
            both = pool_of(rows[left : left + 2], 0).append_column("groups", pa.array([1, 1], pa.int32()))
            assert leading(both, (threshold,)).num_rows == 2 - ((left, left + 1) in reaching)


KEPT = st.dictionaries(st.integers(0, 11), st.tuples(st.integers(1, 7), st.booleans(), st.integers(1, 4)), max_size=12)


@settings(max_examples=tries(1000, 200))
@given(st.lists(st.tuples(KEPT, st.integers(0, 12)), max_size=5), st.integers(1, 4), st.integers(1, 9))
def test_a_batch_has_the_first_documents_that_were_in_none(
    steps: list[tuple[dict[int, tuple[int, bool, int]], int]], documents: int, tokens: int
) -> None:
    """At any of their present thresholds; earlier ones first, then by place; as many tokens as fit, and one at least.

    What was removed meanwhile is asked for again once it is kept again, at the thresholds where it was.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pool_batches, "BATCH_DOCUMENTS", documents)
        patched.setattr(pool_batches, "BATCH_TOKENS", tokens)
        done, compared = FinishedBatches(), dict[int, int]()
        for kept, taken in steps:
            table = pa.table(
                {
                    "place": pa.array(list(kept), pa.int64()),
                    "groups": pa.array([groups for groups, *_ in kept.values()], pa.int32()),
                    "earlier": pa.array([earlier for _, earlier, _ in kept.values()], pa.bool_()),
                    "token_count": pa.array([count for *_, count in kept.values()], pa.int64()),
                }
            )
            compared = {place: groups & kept[place][0] for place, groups in compared.items() if place in kept}
            waiting = [place for place, (groups, *_) in kept.items() if groups & ~compared.get(place, 0)]
            waiting = sorted(waiting, key=lambda place: (not kept[place][1], place))[:documents]
            while len(waiting) > 1 and sum(kept[place][2] for place in waiting) > tokens:
                waiting.pop()
            assert done.next_batch(table).tolist() == waiting
            led = waiting[:taken]
            done.add(
                pa.table(
                    {"place": pa.array(led, pa.int64()), "groups": pa.array([kept[one][0] for one in led], pa.int32())}
                )
            )
            compared |= {place: kept[place][0] for place in led}
