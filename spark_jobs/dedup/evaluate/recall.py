"""Measured recall: a sample of documents compared with all others, without signatures, bands or buckets.

A proof over stored pairs says nothing about pairs that were missed. So a sample of the kept documents is put into an
index of its own, small enough for every worker. Each document of the corpus looks up the sampled documents that it can
be similar to, by the same prefixes as in `prefix_join`, and is compared with these bag by bag. The tokens are ordered
by how rare they are *in the sample*, so most tokens of most documents are in no list at all.

A document that reaches a threshold with a kept one must be removed at that threshold; if it is not, it was missed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numba import njit

from spark_jobs.arrays import Int64Array, UInt8Array, UInt16Array, UInt64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, token_weights, total_weights
from spark_jobs.dedup.near.key_filter import filter_bytes, has_keys, put_keys


class SampleIndex(NamedTuple):
    """S sampled documents, and for each token the documents that have it in their prefix.

    Attributes:
        offsets: (S + 1,) int64 where the tokens of each document begin.
        hashes: (T,) uint64 tokens, ascending in each document.
        weights: (T,) uint16 their weights.
        totals: (S,) int64 total weights.
        tokens: (V,) uint64 distinct tokens, ascending.
        ranks: (V,) int64 rank of each in the order of tokens, the rarest first.
        starts: (V + 1,) int64 where the list of the token of each rank begins.
        documents: (P,) int64 documents with the token in their prefix.
        suffixes: (P,) int64 weight of the token and of all after it in that document.
        filled: a filter of the tokens (`key_filter`).
    """

    offsets: Int64Array
    hashes: UInt64Array
    weights: UInt16Array
    totals: Int64Array
    tokens: UInt64Array
    ranks: Int64Array
    starts: Int64Array
    documents: Int64Array
    suffixes: Int64Array
    filled: UInt8Array


class Similar(NamedTuple):
    """Pairs of a document and a sampled one.

    Attributes:
        rows: (P,) int64 row of the document.
        sampled: (P,) int64 row of the sampled one.
        shared: (P,) int64 numerator of J.
        united: (P,) int64 denominator of J.
    """

    rows: Int64Array
    sampled: Int64Array
    shared: Int64Array
    united: Int64Array


def sample_index(bags: Bags, threshold: Fraction) -> SampleIndex:
    """Index a sample of documents for lookups with at least the similarity `threshold`."""
    tokens, numbers, counts = np.unique(bags.hashes, return_inverse=True, return_counts=True)
    order = np.argsort(counts, kind="stable")
    ranks = np.empty(len(tokens), np.int64)
    ranks[order] = np.arange(len(tokens))
    weights, totals = token_weights(bags), total_weights(bags)
    first = np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)
    starts, documents, suffixes = _prefixes(
        _Documents(bags.offsets, bags.hashes, weights, totals),
        ranks[numbers],
        first,
        threshold.numerator,
        threshold.denominator,
    )
    filled = np.zeros(filter_bytes(len(tokens)), np.uint8)
    put_keys(tokens, filled)
    return SampleIndex(
        offsets=bags.offsets,
        hashes=np.ascontiguousarray(bags.hashes),
        weights=weights,
        totals=totals,
        tokens=tokens,
        ranks=ranks,
        starts=starts,
        documents=documents,
        suffixes=suffixes,
        filled=filled,
    )


def similar_to_sample(bags: Bags, index: SampleIndex, threshold: Fraction) -> Similar:
    """All pairs of a document and a sampled one that are at least as similar as the threshold, also with itself.

    Args:
        bags: D bags.
        index: the sample, indexed for this threshold or a lower one.
        threshold: lowest weighted Jaccard similarity.
    """
    hashes = np.ascontiguousarray(bags.hashes)
    passing = np.flatnonzero(has_keys(hashes, index.filled)) if len(index.tokens) else np.zeros(0, np.int64)
    at = np.minimum(np.searchsorted(index.tokens, hashes[passing]), len(index.tokens) - 1)
    hit = index.tokens[at] == hashes[passing]
    known = passing[hit]
    starts = np.searchsorted(known, bags.offsets)
    documents = _Documents(bags.offsets, hashes, token_weights(bags), total_weights(bags))
    looked_up = _Known(starts, known, index.ranks[at[hit]])
    return Similar(*_look_up(documents, looked_up, index, threshold.numerator, threshold.denominator))


class _Documents(NamedTuple):
    """Bags as flat arrays: (D + 1,) offsets, (T,) hashes and weights, (D,) total weights."""

    offsets: Int64Array
    hashes: UInt64Array
    weights: UInt16Array
    totals: Int64Array


@njit(cache=True, nogil=True)
def _prefixes(
    documents: _Documents, ranks: Int64Array, first: Int64Array, numerator: int, denominator: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The lists of an index: for each rank the documents with its token in their prefix, and what of them is left.

    Args:
        documents: S documents.
        ranks: (T,) rank of each of their tokens.
        first: (V + 1,) where the tokens of each rank would begin, were all T sorted by rank.
        numerator: of the threshold.
        denominator: of the threshold.

    Returns:
        The fields `starts`, `documents` and `suffixes` of `SampleIndex`.
    """
    ends = first[:-1].copy()
    owners = np.empty(ranks.size, np.int64)
    by_rank = np.empty(ranks.size, np.int64)
    for doc in range(documents.totals.size):
        for token in range(documents.offsets[doc], documents.offsets[doc + 1]):
            end = ends[ranks[token]]
            owners[end], by_rank[end] = doc, token
            ends[ranks[token]] = end + 1
    starts = np.zeros(first.size, np.int64)
    suffixes = np.empty(ranks.size, np.int64)
    left = documents.totals.copy()  # weight of the tokens of each document that come later in the order
    filled = 0
    for rank in range(first.size - 1):
        for entry in range(first[rank], first[rank + 1]):
            doc = owners[entry]
            if left[doc] * denominator >= documents.totals[doc] * numerator:
                owners[filled], suffixes[filled] = doc, left[doc]
                filled += 1
            left[doc] -= np.int64(documents.weights[by_rank[entry]])
        starts[rank + 1] = filled
    return starts, owners[:filled].copy(), suffixes[:filled].copy()


class _Known(NamedTuple):
    """The K tokens of D documents that the sample has: (D + 1,) offsets, (K,) token indices, (K,) their ranks."""

    starts: Int64Array
    tokens: Int64Array
    ranks: Int64Array


@njit(cache=True, nogil=True)
def _look_up(
    documents: _Documents, known: _Known, index: SampleIndex, numerator: int, denominator: int
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """The fields of `Similar` for the threshold numerator / denominator."""
    found = np.empty((4, 1024), np.int64)
    filled = 0
    seen = np.full(index.totals.size, -1, np.int64)
    for doc in range(documents.totals.size):
        begin, end = known.starts[doc], known.starts[doc + 1]
        total = documents.totals[doc]
        suffix = np.int64(0)
        for token in range(begin, end):
            suffix += np.int64(documents.weights[known.tokens[token]])
        if suffix * denominator < numerator * total:
            continue  # too much of its weight is on tokens that no sampled document has
        for at in np.argsort(known.ranks[begin:end]):
            if suffix * denominator < numerator * total:
                break
            rank = known.ranks[begin + at]
            for entry in range(index.starts[rank], index.starts[rank + 1]):
                sampled = index.documents[entry]
                both = total + index.totals[sampled]
                ahead = min(suffix, index.suffixes[entry])
                if seen[sampled] == doc or ahead * (numerator + denominator) < numerator * both:
                    continue
                seen[sampled] = doc
                shared = _shared(documents, doc, index, sampled)
                if shared * denominator >= (both - shared) * numerator:
                    if filled == found.shape[1]:
                        larger = np.empty((4, 2 * filled), np.int64)
                        larger[:, :filled] = found
                        found = larger
                    found[0, filled], found[1, filled] = doc, sampled
                    found[2, filled], found[3, filled] = shared, both - shared
                    filled += 1
            suffix -= np.int64(documents.weights[known.tokens[begin + at]])
    return found[0, :filled], found[1, :filled], found[2, :filled], found[3, :filled]


@njit(cache=True, nogil=True)
def _shared(documents: _Documents, doc: int, index: SampleIndex, sampled: int) -> np.int64:
    """Sum of the lesser weights of a document and a sampled one."""
    i, i_end = documents.offsets[doc], documents.offsets[doc + 1]
    j, j_end = index.offsets[sampled], index.offsets[sampled + 1]
    total = np.int64(0)
    while i < i_end and j < j_end:
        if documents.hashes[i] == index.hashes[j]:
            total += np.int64(min(documents.weights[i], index.weights[j]))
            i += 1
            j += 1
        elif documents.hashes[i] < index.hashes[j]:
            i += 1
        else:
            j += 1
    return total
