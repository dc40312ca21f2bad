"""Cosines of vectors of integers, exactly, and the better neighbours of documents among others that come in order.

Vectors are of a length of about 2030 (`models.encoder`), so their product is below 2^23 and a matrix product in
float32 gives it exactly, in any order of sums. A cosine is a fraction of integers, as the similarity of bags is:

    product of two vectors / square root, rounded down, of the product of their squared lengths
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from spark_jobs.arrays import BoolArray, Float32Array, Int16Array, Int32Array, Int64Array

_BLOCK: Final = 1024
_SLACK: Final = 4.0  # a product of floats is compared first, which is off by less


def nearest_two(vectors: Int16Array, centroids: Int16Array) -> tuple[Int32Array, Int32Array]:
    """(D,) the nearest centroid of each of D vectors, and the second one, -1 where there is one alone.

    Of equally near ones the lower number comes first. Without centroids all are in 0.
    """
    first, second = np.zeros(len(vectors), np.int32), np.full(len(vectors), -1, np.int32)
    if len(centroids) < 2:
        return first, second
    columns = np.ascontiguousarray(centroids.T, np.float32)
    squares = np.square(columns).sum(axis=0)
    for start in range(0, len(vectors), _BLOCK):
        rest = squares - 2 * (vectors[start : start + _BLOCK].astype(np.float32) @ columns)
        nearest = rest.argmin(axis=1)
        first[start : start + _BLOCK] = nearest
        rest[np.arange(len(rest)), nearest] = np.inf
        second[start : start + _BLOCK] = rest.argmin(axis=1)
    return first, second


def squared_lengths(vectors: Int16Array) -> Int64Array:
    """(D,) squares of the lengths of D vectors."""
    squares: Int64Array = np.square(vectors, dtype=np.int64).sum(axis=1)
    return squares


class Queries:
    """Some documents, of which the first better neighbours are looked for among others that come in their order.

    A document has enough neighbours when it has `most`; it is compared no further then. So the members of a cluster of
    documents that are all alike cost what they have pairs, not the square of their number.
    """

    def __init__(
        self, vectors: Int16Array, ranks: Int64Array, families: Int64Array, least: Fraction, most: int
    ) -> None:
        """Documents in their order.

        Args:
            vectors: (Q, V), none of them 0.
            ranks: (Q,) place in the order; others of a lower rank are better.
            families: (Q,) code of the family that no pair is sought in, 0 for none.
            least: cosine that is reached.
            most: better neighbours of a document.
        """
        self._vectors = vectors.astype(np.float32)
        self._squares = squared_lengths(vectors)
        self._ranks, self._families, self._least = ranks, families, least
        self._left = np.full(len(vectors), most, np.int64)

    def neighbours(
        self, vectors: Int16Array, ranks: Int64Array, families: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """The pairs with (B,) further others.

        Returns:
            (P,) rows of the queries, rows of the others, numerator and denominator of the cosine.
        """
        squares = squared_lengths(vectors)
        found = [(np.zeros(0, np.int64),) * 4]
        for start in range(0, len(vectors), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = np.flatnonzero(self._left)
            if not len(rows):
                break
            better = ranks[block] < self._ranks[rows, None]
            families_of = self._families[rows, None]
            better &= (families[block] != families_of) | (families_of == 0)
            mine, theirs, shared, united = _reaching(
                self._vectors[rows], self._squares[rows], vectors[block], squares[block], better, self._least
            )
            place = np.arange(len(mine)) - np.searchsorted(mine, mine)
            mine, theirs, shared, united = (
                one[place < self._left[rows][mine]] for one in (mine, theirs, shared, united)
            )
            self._left[rows] -= np.bincount(mine, minlength=len(rows))
            found.append((rows[mine], theirs + start, shared, united))
        query, other, shared, united = (np.concatenate(column) for column in zip(*found, strict=True))
        return query, other, shared, united


def _reaching(
    queries: Float32Array,
    squares: Int64Array,
    others: Int16Array,
    other_squares: Int64Array,
    among: BoolArray,
    least: Fraction,
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Rows and columns of (Q, B) `among` whose cosine reaches `least`, by row and column, with the cosine."""
    products = queries @ others.T.astype(np.float32)
    lengths = np.sqrt(squares.astype(np.float32))[:, None] * np.sqrt(other_squares.astype(np.float32))
    mine, theirs = np.nonzero(among & (products >= float(least) * lengths - _SLACK))
    shared = products[mine, theirs].astype(np.int64)
    united = np.floor(np.sqrt((squares[mine] * other_squares[theirs]).astype(np.float64))).astype(np.int64)
    shared = np.minimum(shared, united)
    reached = shared * least.denominator >= united * least.numerator
    return mine[reached], theirs[reached], shared[reached], united[reached]
