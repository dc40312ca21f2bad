"""Comparing batches of kept documents with all others, against the greedy kept set of all pairs."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.dedup.bags.bag_arrays import binary_column
from spark_jobs.dedup.near import pool_batches
from spark_jobs.dedup.near.pool_batches import Done, leading, pivots_of, similar_to_pivots
from tests.spark_jobs.dedup.near.test_prefix_join import THRESHOLDS, Weights, as_bags, documents_of, similarity


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
    done, batches = Done(), 0
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
