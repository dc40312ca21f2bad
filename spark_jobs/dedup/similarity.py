"""How alike documents are: exactly by their bags, cheaply by their signatures, and as a distribution over a sample.

J(x, y) = sum over tokens of min(weights) / sum over tokens of max(weights), a fraction of integers. With X and Y the
total weights and m the sum of the minima, the sum of the maxima is X + Y - m, so only shared tokens are visited.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.dedup.bag_arrays import Bags, total_weights
from spark_jobs.dedup.darts import SIGNATURE_VALUES
from spark_jobs.exceptions import InputError

Int16Array = npt.NDArray[np.int16]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
UInt16Array = npt.NDArray[np.uint16]
UInt8Array = npt.NDArray[np.uint8]

_VALUE_COUNT = 256  # of a signature's 8 bits


def agreement_counts(left: UInt8Array, right: UInt8Array) -> Int16Array:
    """Count the values in which signatures agree, row by row.

    Args:
        left: (P, K) uint8.
        right: (P, K) uint8.

    Returns:
        (P,) int16 in [0, K].
    """
    counts = np.empty(len(left), dtype=np.int16)
    _count_agreements(np.ascontiguousarray(left), np.ascontiguousarray(right), counts)
    return counts


def least_agreement(threshold: Fraction, loss: float, k: int = SIGNATURE_VALUES) -> int:
    """Find how many of k values must agree so that a pair of similarity `threshold` is hardly ever dropped.

    Computed in integers, so every machine finds the same number.

    Args:
        threshold: J of the pairs that must not be lost; more similar ones are lost less often.
        loss: most probability, at J = threshold, of fewer agreeing values.
        k: values compared.

    Returns:
        The largest m with P[Binomial(k, J + (1 - J) / 256) < m] <= loss; pairs with fewer agreeing values are dropped.
    """
    p = threshold + (1 - threshold) / _VALUE_COUNT
    hit, miss = p.numerator, p.denominator - p.numerator
    allowed = Fraction(str(loss)) * p.denominator**k
    below, m = 0, 0
    while m <= k:
        below += math.comb(k, m) * hit**m * miss ** (k - m)
        if below > allowed:
            break
        m += 1
    return min(m, k)


def overlaps(left: Bags, right: Bags) -> tuple[Int64Array, Int64Array]:
    """Compare bags exactly, row by row.

    Args:
        left: P bags.
        right: P bags.

    Returns:
        (P,) int64 sums of the minima, and (P,) int64 sums of the maxima: J is their quotient (0 / 0 for empty bags).

    Raises:
        InputError: `left` and `right` differ in length.
    """
    if len(left) != len(right):
        raise InputError(f"overlaps: {len(left)} bags against {len(right)}; give one right bag for each left one")
    shared = np.empty(len(left), dtype=np.int64)
    _share(
        left.offsets, left.hashes, _weights(left), right.offsets, right.hashes, _weights(right), shared
    )  # fmt: skip
    return shared, total_weights(left) + total_weights(right) - shared


def background_counts(bags: Bags, bin_count: int = 1000) -> Int64Array:
    """Count all pairs of a sample by their similarity.

    Documents are added one by one to lists by token, and meet in them only those that share a token: the work is the
    number of tokens shared by pairs. Memory is the sample's bags twice and 8 bytes a document.

    Args:
        bags: D bags, all in memory.
        bin_count: bins of equal width from 0 to 1.

    Returns:
        (bin_count + 1,) int64: pairs with floor(J * bin_count) = i; they sum to D (D - 1) / 2. Empty bags count as 0.
    """
    vocabulary, tokens = np.unique(bags.hashes, return_inverse=True)
    frequencies = np.bincount(tokens, minlength=len(vocabulary))
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(frequencies, dtype=np.int64)])
    counts = np.zeros(bin_count + 1, dtype=np.int64)
    _count_pairs(bags.offsets, tokens.astype(np.int64), _weights(bags), total_weights(bags), starts, counts)
    return counts


def _weights(bags: Bags) -> UInt16Array:
    """(T,) uint16 weight of every token: at most 255 * 255."""
    return np.multiply(bags.units, bags.levels, dtype=np.uint16)


@njit(cache=True, nogil=True)
def _count_agreements(left: UInt8Array, right: UInt8Array, counts: Int16Array) -> None:
    for row in range(left.shape[0]):
        equal = 0
        for column in range(left.shape[1]):
            equal += int(left[row, column] == right[row, column])
        counts[row] = equal


@njit(cache=True, nogil=True)
def _share(
    left_offsets: Int64Array,
    left_hashes: UInt64Array,
    left_weights: UInt16Array,
    right_offsets: Int64Array,
    right_hashes: UInt64Array,
    right_weights: UInt16Array,
    shared: Int64Array,
) -> None:
    """Merge ascending hashes; without a branch on which side is behind, since no branch predictor can guess it."""
    for row in range(shared.size):
        i, i_end = np.uint64(left_offsets[row]), np.uint64(left_offsets[row + 1])
        j, j_end = np.uint64(right_offsets[row]), np.uint64(right_offsets[row + 1])
        total = np.int64(0)
        while i < i_end and j < j_end:
            a, b = left_hashes[i], right_hashes[j]
            weight = min(left_weights[i], right_weights[j])
            total += np.int64(weight) if a == b else np.int64(0)
            i += np.uint64(a <= b)
            j += np.uint64(b <= a)
        shared[row] = total


@njit(cache=True, nogil=True)
def _count_pairs(
    offsets: Int64Array,
    tokens: Int64Array,
    weights: UInt16Array,
    totals: Int64Array,
    starts: Int64Array,
    counts: Int64Array,
) -> None:
    bin_count = counts.size - 1
    ends = starts[:-1].copy()
    documents = np.empty(tokens.size, dtype=np.int32)
    minima = np.empty(tokens.size, dtype=np.uint16)
    shared = np.zeros(offsets.size, dtype=np.int64)
    for doc in range(offsets.size - 1):
        shared[:doc] = 0
        for place in range(offsets[doc], offsets[doc + 1]):
            token, weight = tokens[place], weights[place]
            end = ends[token]
            for entry in range(starts[token], end):
                shared[documents[entry]] += np.int64(min(weight, minima[entry]))
            documents[end] = doc
            minima[end] = weight
            ends[token] = end + 1
        for other in range(doc):
            common = shared[other]
            united = totals[doc] + totals[other] - common
            counts[common * bin_count // united if united > 0 else 0] += 1
