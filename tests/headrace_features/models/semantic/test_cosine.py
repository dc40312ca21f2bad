"""Cosines of integers and the first better neighbours, against fractions of Python's integers over all pairs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from headrace_features.models.semantic.cosine import Queries, nearest_two
from headrace_features.models.static_vectors import LENGTH, MOST_DIMENSIONS, scaled

Array = np.ndarray[Any, Any]


def made(count: int, dimensions: int, seed: int) -> Array:
    """Vectors, of which every third is like the one before."""
    rng = np.random.default_rng(seed)
    plain = rng.normal(size=(count, dimensions))
    plain[2::3] = plain[1 : len(plain[2::3]) * 3 : 3] + 0.5 * rng.normal(size=plain[2::3].shape)
    return scaled(plain)


def cosine(one: Array, other: Array) -> Fraction:
    """The fraction by its definition, in Python's integers."""
    product = sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True))
    united = math.isqrt(sum(a * a for a in one.tolist()) * sum(b * b for b in other.tolist()))
    return Fraction(min(product, united), united)


@pytest.mark.parametrize(("dimensions", "most"), [(8, 10**6), (8, 3), (257, 10**6)])
def test_neighbours_are_the_first_better_ones(dimensions: int, most: int) -> None:
    """In parts of any size: better ones of no common family that reach the cosine, up to the number that is asked."""
    vectors, rng = made(90, dimensions, 3), np.random.default_rng(5)
    ranks, families = np.arange(90) // 2 * 2, np.where(rng.random(90) < 0.5, rng.integers(1, 4, 90), 0)
    least = Fraction(7, 10)
    expected = set()
    for row in range(40, 90):
        hits = [
            (row - 40, other, cosine(vectors[row], vectors[other]))
            for other in range(90)
            if ranks[other] < ranks[row] and (families[row] == 0 or families[row] != families[other])
        ]
        expected |= set([hit for hit in hits if hit[2] >= least][:most])
    queries = Queries(vectors[40:], ranks[40:], families[40:], least, most)
    found = set()
    for start, end in ((0, 7), (7, 7), (7, 60), (60, 90)):
        for query, other, shared, united in zip(
            *queries.neighbours(vectors[start:end], ranks[start:end], families[start:end]), strict=True
        ):
            found.add((int(query), int(other) + start, Fraction(int(shared), int(united))))
    assert found == expected and len(found) > 5


def test_products_of_the_longest_vectors_are_exact() -> None:
    """With the most dimensions rounding makes a vector longest where all coordinates end in .5."""
    half = np.full((1, MOST_DIMENSIONS), np.rint(LENGTH / 32 + 0.5), np.int16)
    whole = int((half.astype(np.int64) ** 2).sum())
    assert whole < 1 << 23 and scaled(np.ones((1, MOST_DIMENSIONS))).max() * 32 < 1 << 11
    _, _, shared, united = Queries(half, np.ones(1, np.int64), np.zeros(1, np.int64), Fraction(1), 1).neighbours(
        half, np.zeros(1, np.int64), np.zeros(1, np.int64)
    )
    assert (shared[0], united[0]) == (whole, whole)


def test_the_two_nearest_are_those_of_all_distances() -> None:
    """By float64; of two that are equally near the lower number; of one or none there is no second."""
    vectors, centroids = made(200, 16, 7), made(9, 16, 8)
    distances = ((vectors[:, None].astype(np.float64) - centroids) ** 2).sum(axis=2)
    first, second = nearest_two(vectors, centroids)
    np.testing.assert_array_equal(np.column_stack([first, second]), distances.argsort(axis=1, kind="stable")[:, :2])
    twice = nearest_two(vectors, np.vstack([centroids[:1], centroids[:1]]))
    assert not twice[0].any() and (twice[1] == 1).all()
    for few in (centroids[:1], centroids[:0]):
        assert not nearest_two(vectors, few)[0].any() and (nearest_two(vectors, few)[1] == -1).all()
