"""Exact cosines of integer vectors, and a search for the neighbours of documents that precede them in an order.

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
    """(D,) the nearest centroid of each of D vectors, and the second nearest.

    Ties go to the lower number. With fewer than two centroids they are 0 and -1.
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
    """(D,) squared lengths of (D, V) vectors."""
    squares: Int64Array = np.square(vectors, dtype=np.int64).sum(axis=1)
    return squares


class Queries:
    """Documents whose better neighbours, similar ones of a lower rank, are searched in blocks, best first.

    After its `most`-th neighbour a document is compared no further. So n documents, all alike, give n * `most`
    pairs and not n^2.
    """

    def __init__(
        self, vectors: Int16Array, ranks: Int64Array, families: Int64Array, least: Fraction, most: int
    ) -> None:
        """Take the documents to search for.

        Args:
            vectors: (Q, V), none of them 0.
            ranks: (Q,) position in the order; others of a lower rank are better.
            families: (Q,) family, 0 for none; two documents of one family are no pair.
            least: least cosine of a pair.
            most: most neighbours returned per document, over all calls.
        """
        self._vectors = vectors.astype(np.float32)
        self._squares = squared_lengths(vectors)
        self._ranks, self._families, self._least = ranks, families, least
        self._left = np.full(len(vectors), most, np.int64)

    def neighbours(
        self, vectors: Int16Array, ranks: Int64Array, families: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Find the pairs with B further documents; arguments as of the constructor.

        Returns:
            Four (P,) arrays, by pair: row of the query, row of the other, numerator and denominator of the cosine.
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
    """Pairs (query, other) marked in (Q, B) `among` whose cosine reaches `least`, sorted; result as of `neighbours`."""
    products = queries @ others.T.astype(np.float32)
    lengths = np.sqrt(squares.astype(np.float32))[:, None] * np.sqrt(other_squares.astype(np.float32))
    mine, theirs = np.nonzero(among & (products >= float(least) * lengths - _SLACK))
    shared = products[mine, theirs].astype(np.int64)
    united = np.floor(np.sqrt((squares[mine] * other_squares[theirs]).astype(np.float64))).astype(np.int64)
    shared = np.minimum(shared, united)
    reached = shared * least.denominator >= united * least.numerator
    return mine[reached], theirs[reached], shared[reached], united[reached]
