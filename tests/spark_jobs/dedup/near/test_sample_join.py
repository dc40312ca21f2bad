"""What is similar to a sample of documents, against all pairs compared by Python's integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from spark_jobs.dedup.bags.bag_arrays import Bags
from spark_jobs.dedup.near.sample_join import sample_index, similar_to_sample
from tests.spark_jobs.dedup.made_bags import at_the_bound
from tests.spark_jobs.dedup.near.test_prefix_join import THRESHOLDS, as_bags, documents_of, similarity
from tests.tiers import sampled


@sampled(6)
@pytest.mark.parametrize("seed", range(20))
def test_every_document_finds_all_sampled_ones_that_it_is_like(seed: int) -> None:
    """With the exact similarity, at the lowest threshold at which both are compared, and nothing else."""
    draw = np.random.default_rng(seed)
    rows = documents_of(draw)
    picked = list(range(seed % 5, len(rows), 5))
    groups = draw.integers(1, 8, len(rows)).astype(np.int32)
    index = sample_index(as_bags([rows[one] for one in picked]), groups[picked], THRESHOLDS)
    found = similar_to_sample(as_bags(rows), groups, index, THRESHOLDS)
    pairs = {
        (document, picked[sampled]): Fraction(shared, united)
        for document, sampled, shared, united in zip(*(column.tolist() for column in found), strict=True)
    }
    truth = {(one, other): similarity(rows[one], rows[other]) for one in range(len(rows)) for other in picked}

    def reaches(one: int, other: int, j: Fraction) -> bool:
        common = int(groups[one] & groups[other])
        return bool(common) and j >= THRESHOLDS[(common & -common).bit_length() - 1]

    assert pairs == {pair: j for pair, j in truth.items() if reaches(*pair, j)}


@pytest.mark.parametrize("threshold", [Fraction(1, 2), Fraction(7, 10), Fraction(4, 5), Fraction(9, 10), Fraction(1)])
def test_a_pair_at_its_threshold_is_found_and_one_unit_of_weight_less_is_not(threshold: Fraction) -> None:
    """Each left neighbour alone in the sample, and all of them together."""
    rows, reaching = at_the_bound(threshold)
    once, least = np.ones(1, np.int32), (threshold,)
    alone = set()
    for left in range(0, len(rows), 2):
        index = sample_index(as_bags([rows[left]]), once, least)
        if similar_to_sample(as_bags([rows[left + 1]]), once, index, least).rows.size:
            alone.add((left, left + 1))
    assert alone == reaching
    lefts, rights = rows[::2], rows[1::2]
    each = np.ones(len(lefts), np.int32)
    found = similar_to_sample(as_bags(rights), each, sample_index(as_bags(lefts), each, least), least)
    expected = {
        (r, s) for r, one in enumerate(rights) for s, other in enumerate(lefts) if similarity(one, other) >= threshold
    }
    assert set(zip(found.rows.tolist(), found.sampled.tolist(), strict=True)) == expected


@pytest.mark.nightly
def test_words_that_occur_evenly_are_summed_for_all_at_once() -> None:
    """Where nearly all of the sample are candidates their sums are those of comparing one by one."""
    draw = np.random.default_rng(5)
    tokens = np.sort(draw.integers(1, 2**63, 90)).tolist()
    rows = [{int(tokens[one]): (20, 1 + one % 3) for one in draw.choice(90, 60, replace=False)} for _ in range(200)]
    bags, groups = as_bags(rows), np.ones(200, np.int32)
    least = (Fraction(1, 2),)
    found = similar_to_sample(bags, groups, sample_index(bags, groups, least), least)
    truth = {(one, other): similarity(rows[one], rows[other]) for one in range(200) for other in range(200)}
    pairs = zip(*(column.tolist() for column in found), strict=True)
    assert {(one, other): Fraction(*j) for one, other, *j in pairs} == {k: j for k, j in truth.items() if 2 * j >= 1}


def test_an_empty_sample_finds_nothing() -> None:
    """No kept document was sampled, so nobody is like one."""
    rows = documents_of(np.random.default_rng(1))
    nobody = Bags(np.zeros(1, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros(0, np.uint8))
    index = sample_index(nobody, np.zeros(0, np.int32), THRESHOLDS)
    assert not similar_to_sample(as_bags(rows), np.ones(len(rows), np.int32), index, THRESHOLDS).rows.size
