"""Similarities are exact; what is dropped early is known."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.dedup.sketches.similarity import agreement_counts, background_counts, least_agreement, overlaps
from spark_jobs.exceptions import InputError
from tests.spark_jobs.dedup.made_bags import Bag, bags_of, jaccard, random_bag, random_pair, real_bags
from tests.tiers import tries

# Few tokens, so that bags share some, at both ends of the range of hashes too.
tokens = st.integers(0, 12) | st.sampled_from([2**63, 2**64 - 2, 2**64 - 1])
bags = st.dictionaries(tokens, st.tuples(st.integers(1, 255), st.integers(1, 255)), max_size=12)


def brute_counts(made: list[Bag], bin_count: int) -> list[int]:
    """The background pair by pair."""
    counts = [0] * (bin_count + 1)
    for row, bag in enumerate(made):
        for other in made[:row]:
            counts[math.floor(jaccard(bag, other) * bin_count)] += 1
    return counts


@settings(max_examples=tries(300))
@given(st.lists(st.tuples(bags, bags), max_size=9))
def test_overlaps_are_sums_of_minima_and_maxima(pairs: list[tuple[Bag, Bag]]) -> None:
    """Any number of rows of any sizes, empty bags among them: the two sums, so J as an exact fraction."""
    shared, united = overlaps(bags_of([pair[0] for pair in pairs]), bags_of([pair[1] for pair in pairs]))
    assert len(shared) == len(united) == len(pairs)
    for row, pair in enumerate(pairs):
        found = Fraction(int(shared[row]), int(united[row])) if united[row] else Fraction(0)
        assert found == jaccard(*pair)
        assert united[row] == sum(
            max(math.prod(bag.get(token, (0, 0))) for bag in pair) for token in pair[0].keys() | pair[1].keys()
        )


def test_overlaps_of_rows_of_very_different_sizes() -> None:
    """Long rows beside short ones, on either side and in either half of the rows."""
    rng = np.random.default_rng(1)
    pairs = [
        random_pair(rng, share, size) for share, size in zip(rng.random(41), rng.integers(1, 400, 41), strict=True)
    ]
    pairs += [({}, random_bag(rng, 900)), (random_bag(rng, 900), {}), ({}, {}), *pairs[:3], ({5: (1, 1)}, {5: (2, 1)})]
    shared, united = overlaps(bags_of([pair[0] for pair in pairs]), bags_of([pair[1] for pair in pairs]))
    for row, pair in enumerate(pairs):
        assert shared[row] == jaccard(*pair) * int(united[row])


def test_overlaps_want_a_right_bag_for_each_left_one() -> None:
    """Sides of different lengths are an error, not a read beyond the end."""
    with pytest.raises(InputError, match="2 bags against 1"):
        overlaps(bags_of([{}, {}]), bags_of([{}]))


@settings(max_examples=tries(200))
@given(st.lists(bags, max_size=12), st.sampled_from([1, 7, 1000]))
def test_background_counts_every_pair_once(made: list[Bag], bin_count: int) -> None:
    """The histogram is that of brute force over all pairs; equal bags are in the last bin, empty ones in the first."""
    counts = background_counts(bags_of(made), bin_count)
    assert counts.tolist() == brute_counts(made, bin_count)


@pytest.mark.nightly
def test_background_of_real_texts(real_data: Path) -> None:
    """On real prose too, and nothing depends on the order of the documents."""
    made = real_bags(real_data, 120)
    counts = background_counts(bags_of(made))
    assert counts.tolist() == brute_counts(made, 1000)
    assert np.array_equal(background_counts(bags_of(made[::-1])), counts)


@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_agreement_counts_equal_values(rows: int, seed: int) -> None:
    """Row by row, all 256 of them at most, on arrays that do not lie in one piece as well."""
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(0, 3, (2 * rows, 256), dtype=np.uint8) for _ in range(2))
    right[1::3] = left[1::3]
    counts = agreement_counts(left[::2], right[::2])
    assert counts.dtype == np.int16
    assert counts.tolist() == [
        sum(a == b for a, b in zip(x, y, strict=True))
        for x, y in zip(left[::2].tolist(), right[::2].tolist(), strict=True)
    ]


@pytest.mark.parametrize("threshold", ["0.5", "0.7", "0.8", "0.95", "1"])
@pytest.mark.parametrize("loss", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("k", [32, 256])
def test_least_agreement_loses_no_more_than_allowed(threshold: str, loss: float, k: int) -> None:
    """One value fewer loses at most `loss` of the pairs at the threshold; demanding one more would lose too many."""
    least = least_agreement(Fraction(threshold), loss, k)
    p = float(Fraction(threshold) + (1 - Fraction(threshold)) / 256)

    def lost(m: int) -> float:
        return math.fsum(math.comb(k, a) * p**a * (1 - p) ** (k - a) for a in range(m))

    assert lost(least) <= loss * (1 + 1e-9)
    assert least == k or lost(least + 1) > loss * (1 - 1e-9)


def test_golden_least_agreements() -> None:
    """Values that the tables depend on: they do not move. Equal bags agree everywhere."""
    assert [least_agreement(Fraction(t), 1e-5) for t in ("0.7", "0.8", "0.9")] == [147, 176, 208]
    assert least_agreement(Fraction(1), 1e-5) == 256
    assert least_agreement(Fraction("0.7"), 0.6, 1) == 1
