"""Similarity of documents: exact by their bags, estimated by their signatures, and its distribution over a sample.

J(x, y) = sum over tokens of min(weights) / sum over tokens of max(weights), a fraction of integers. With X and Y the
total weights and m the sum of the minima, the sum of the maxima is X + Y - m, so only shared tokens are visited.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import Int16Array, Int64Array, UInt8Array, UInt16Array, UInt32Array, UInt64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, token_weights, total_weights
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES
from spark_jobs.exceptions import InputError

_COMMON: Final = 1 / 16  # of the documents
_COMMON_DOCUMENTS: Final = 8  # at least; in a small sample every token would be common
_VALUE_COUNT: Final = 256  # of a signature's 8 bits
_U0: Final = np.uint64(0)


def agreement_counts(left: UInt8Array, right: UInt8Array) -> Int16Array:
    """Count the agreeing values of two signatures, row by row.

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
    """Find how many of k values must agree, so that a pair of similarity `threshold` is rarely dropped.

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
        _Columns(left.offsets, left.hashes, token_weights(left)),
        _Columns(right.offsets, right.hashes, token_weights(right)),
        shared,
    )
    return shared, total_weights(left) + total_weights(right) - shared


def background_counts(bags: Bags, bin_count: int = 1000) -> Int64Array:
    """Count all pairs of a sample by their similarity.

    Documents are added one by one to lists by token, so each is compared only with those that share a token: the work
    is the number of tokens shared by pairs. A token of more than a sixteenth of the documents, and of more than eight,
    has a dense row of weights instead, which the processor compares many at a time. Memory is the sample's bags twice,
    at most 32 bytes a token in dense rows, and 12 bytes a document.

    Args:
        bags: D bags, all in memory.
        bin_count: bins of equal width from 0 to 1.

    Returns:
        (bin_count + 1,) int64: pairs with floor(J * bin_count) = i; they sum to D (D - 1) / 2. Empty bags count as 0.
    """
    vocabulary, tokens = np.unique(bags.hashes, return_inverse=True)
    frequencies = np.bincount(tokens, minlength=len(vocabulary))
    common = np.flatnonzero(frequencies > max(len(bags) * _COMMON, _COMMON_DOCUMENTS))
    rows = np.full(len(vocabulary), -1, dtype=np.int64)
    rows[common] = np.arange(len(common))
    frequencies[common] = 0
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(frequencies, dtype=np.int64)])
    counts = np.zeros(bin_count + 1, dtype=np.int64)
    tables = _Lists(rows, np.zeros((len(common), len(bags)), dtype=np.uint16), starts)
    _count_pairs(bags.offsets, tokens.astype(np.int64), token_weights(bags), total_weights(bags), tables, counts)
    return counts


@compiled
def _count_agreements(left: UInt8Array, right: UInt8Array, counts: Int16Array) -> None:
    for row in range(left.shape[0]):
        equal = 0
        for column in range(left.shape[1]):
            equal += int(left[row, column] == right[row, column])
        counts[row] = equal


class _Columns(NamedTuple):
    """One side of a comparison: (P + 1,) offsets, (T,) ascending hashes, (T,) weights."""

    offsets: Int64Array
    hashes: UInt64Array
    weights: UInt16Array


@compiled
def _share(left: _Columns, right: _Columns, shared: Int64Array) -> None:
    """Sum the minima of every row, by merging.

    A step does not branch on which side is behind, since that is unpredictable, so it depends on the step before it.
    Therefore two rows are merged in alternation, one from either half of the rows: the processor executes a step of one
    while it waits for the other. The inner loop takes so few steps that neither row can run out of tokens.
    """
    left_hashes, left_weights = left.hashes, left.weights
    right_hashes, right_weights = right.hashes, right.weights
    half = shared.size // 2
    row, other_row = 0, half
    i, i_end, j, j_end = _bounds(left, right, row, half)
    k, k_end, m, m_end = _bounds(left, right, other_row, shared.size)
    total, other_total = _U0, _U0
    while row < half and other_row < shared.size:
        steps = min(i_end - i, j_end - j, k_end - k, m_end - m)
        for _ in range(steps):
            a, b = left_hashes[i], right_hashes[j]
            total += np.uint64(min(left_weights[i], right_weights[j])) * np.uint64(a == b)
            i += np.uint64(a <= b)
            j += np.uint64(b <= a)
            a, b = left_hashes[k], right_hashes[m]
            other_total += np.uint64(min(left_weights[k], right_weights[m])) * np.uint64(a == b)
            k += np.uint64(a <= b)
            m += np.uint64(b <= a)
        if i == i_end or j == j_end:
            shared[row] = total
            row, total = row + 1, _U0
            i, i_end, j, j_end = _bounds(left, right, row, half)
        if k == k_end or m == m_end:
            shared[other_row] = other_total
            other_row, other_total = other_row + 1, _U0
            k, k_end, m, m_end = _bounds(left, right, other_row, shared.size)
    for rest in range(row, half):  # a row that was begun above is summed again from its start
        shared[rest] = share_row(left, rest, right, rest)
    for rest in range(other_row, shared.size):
        shared[rest] = share_row(left, rest, right, rest)


@compiled
def _bounds(
    left: _Columns, right: _Columns, row: int, row_end: int
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Where the tokens of a row begin and end, left and right; four zeros for the row after the last."""
    if row >= row_end:
        return _U0, _U0, _U0, _U0
    return (
        np.uint64(left.offsets[row]),
        np.uint64(left.offsets[row + 1]),
        np.uint64(right.offsets[row]),
        np.uint64(right.offsets[row + 1]),
    )


@inner
def share_row(left: Any, row: int, right: Any, other: int) -> np.uint64:
    """Sum of the minima of a row of one side and a row of the other; sides have the fields of `_Columns`, or more."""
    i, i_end = np.uint64(left.offsets[row]), np.uint64(left.offsets[row + 1])
    j, j_end = np.uint64(right.offsets[other]), np.uint64(right.offsets[other + 1])
    total = _U0
    while i < i_end and j < j_end:
        a, b = left.hashes[i], right.hashes[j]
        total += np.uint64(min(left.weights[i], right.weights[j])) * np.uint64(a == b)
        i += np.uint64(a <= b)
        j += np.uint64(b <= a)
    return total


class _Lists(NamedTuple):
    """Layout of the weights of V tokens in D documents: dense rows for common tokens, lists for others.

    Attributes:
        rows: (V,) row of a common token, -1 of others.
        dense: (C, D) weight of each common token in each document so far, 0 where it is not in it.
        starts: (V + 1,) where the list of each token begins; those of common tokens are empty.
    """

    rows: Int64Array
    dense: UInt16Array
    starts: Int64Array


@compiled
def _count_pairs(
    offsets: Int64Array,
    tokens: Int64Array,
    weights: UInt16Array,
    totals: Int64Array,
    lists: _Lists,
    counts: Int64Array,
) -> None:
    """Count all pairs of documents in `counts`, by bin of their similarity."""
    bin_count = counts.size - 1
    ends = lists.starts[:-1].copy()
    documents = np.empty(lists.starts[-1], dtype=np.int32)
    minima = np.empty(lists.starts[-1], dtype=np.uint16)
    shared = np.zeros(offsets.size, dtype=np.int64)
    for doc in range(offsets.size - 1):
        shared[:doc] = 0
        for index in range(offsets[doc], offsets[doc + 1]):
            token, weight = tokens[index], weights[index]
            row = lists.rows[token]
            if row >= 0:
                add_minima(lists.dense[row, :doc], weight, shared)
                lists.dense[row, doc] = weight
                continue
            end = ends[token]
            for entry in range(lists.starts[token], end):
                shared[documents[entry]] += np.int64(min(weight, minima[entry]))
            documents[end] = doc
            minima[end] = weight
            ends[token] = end + 1
        for other in range(doc):
            common = shared[other]
            united = totals[doc] + totals[other] - common
            counts[common * bin_count // united if united > 0 else 0] += 1


@inner
def add_minima(row: UInt16Array, weight: np.uint16, sums: Int64Array | UInt32Array) -> None:
    """Add min(weight, row[i]) to each sums[i]; a loop that the compiler turns into vector instructions."""
    for other in range(row.size):
        sums[other] += min(weight, row[other])
