"""Precision, recall and F1 against sets of pairs that are spelled out."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.loading import load

_MODULE = load("pair_scores")
FoundPairs, score = _MODULE.FoundPairs, _MODULE.score


N = 9
THRESHOLDS = (0.7, 0.8, 0.9)
UNITED = 10

documents = st.integers(0, N - 1)
two = st.lists(documents, min_size=2, max_size=2, unique=True).map(tuple)


@st.composite
def classes(draw: st.DrawFn) -> list[int]:
    """Who stands for each document: a star, as `exact_duplicates` is."""
    first = draw(st.lists(st.integers(0, N - 1), min_size=N, max_size=N))
    stars = [min(number, one) for number, one in enumerate(first)]
    return [one if stars[one] == one else number for number, one in enumerate(stars)]


def _found(weights: dict[tuple[int, int], int]) -> FoundPairs:
    rows = np.array([(a, b, shared, UNITED) for (a, b), shared in weights.items()], np.int64).reshape(-1, 4)
    return FoundPairs(*(rows[:, place] for place in range(4)))


def _spelled_out(weights: dict[tuple[int, int], int], stands: list[int], threshold: float) -> set[frozenset[int]]:
    """Every pair found at a threshold, document by document."""
    pairs = {
        frozenset((stands[a], stands[b]))
        for (a, b), shared in weights.items()
        if Fraction(shared, UNITED) >= Fraction(str(threshold))
    }
    return {
        frozenset((a, b))
        for a, b in combinations(range(N), 2)
        if stands[a] == stands[b] or frozenset((stands[a], stands[b])) in pairs
    }


@given(st.lists(two, max_size=20), st.dictionaries(two, st.integers(5, UNITED), max_size=15), classes())
def test_scores_are_those_of_sets_that_are_spelled_out(
    known: list[tuple[int, int]], weights: dict[tuple[int, int], int], stands: list[int]
) -> None:
    """Unordered, repeated, with exact classes: found, known and both are sizes of sets."""
    truth = {frozenset(pair) for pair in known}
    rows = np.array(known, np.int64).reshape(-1, 2)
    for one in score(rows, _found(weights), np.array(stands), THRESHOLDS):
        found = _spelled_out(weights, stands, one.threshold)
        both = len(found & truth)
        assert (one.found, one.known, one.both) == (len(found), len(truth), both)
        assert one.precision == (both / len(found) if found else None)
        assert one.recall == (both / len(truth) if truth else None)
        if both and one.precision and one.recall and one.f1:
            assert one.f1 == pytest.approx(2 * one.precision * one.recall / (one.precision + one.recall))


@given(
    st.lists(two, min_size=1, max_size=20),
    st.dictionaries(two, st.integers(5, UNITED), max_size=15),
    classes(),
    st.lists(st.integers(-1, N - 1), min_size=N, max_size=N),
)
def test_missed_pairs_of_one_witness_are_counted_apart(
    known: list[tuple[int, int]], weights: dict[tuple[int, int], int], stands: list[int], witness: list[int]
) -> None:
    """Both documents end at one kept document, through their class and its witness, but are no pair found."""

    def kept(number: int) -> int:
        return witness[stands[number]] if witness[stands[number]] >= 0 else stands[number]

    rows = np.array(known, np.int64)
    (one,) = score(rows, _found(weights), np.array(stands), (0.8,), {0.8: np.array(witness)})
    missed = {frozenset(pair) for pair in known} - _spelled_out(weights, stands, 0.8)
    assert one.same_witness == sum(kept(min(pair)) == kept(max(pair)) for pair in missed)


def test_thresholds_are_compared_exactly() -> None:
    """J = 7/10 is at 0.7, although 0.7 as a double is less than 7/10 and 0.7 * 10 is not 7 in every form."""
    weights = FoundPairs(np.array([0, 2]), np.array([1, 3]), np.array([7, 699_999]), np.array([10, 1_000_000]))
    (one,) = score(np.array([[1, 0]]), weights, np.arange(4), (0.7,))
    assert (one.found, one.both, one.precision, one.recall, one.f1) == (1, 1, 1.0, 1.0, 1.0)


def test_classes_of_thousands_are_not_spelled_out() -> None:
    """A pair between two classes of 50,000 documents counts as 2.5 * 10^9 pairs, in milliseconds."""
    size = 50_000
    stands = np.repeat([0, size], size)
    one_pair = FoundPairs(np.array([0]), np.array([size]), np.array([9]), np.array([10]))
    (one,) = score(np.array([[1, size + 1]]), one_pair, stands, (0.8,))
    assert one.found == size * size + 2 * (size * (size - 1) // 2)
    assert one.recall == 1.0


def test_nothing_found_and_nothing_known_has_no_share() -> None:
    """Shares of nothing are none, not zero."""
    nothing = np.zeros(0, np.int64)
    (one,) = score(np.zeros((0, 2), np.int64), FoundPairs(nothing, nothing, nothing, nothing), nothing, (0.8,))
    assert (one.precision, one.recall, one.f1) == (None, None, None)
