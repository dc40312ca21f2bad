"""Keep or remove documents one by one, in their order: one goes where a kept one before it is similar enough.

Documents that share a bucket are compared, each with the kept ones alone, so a hundred thousand near-identical ones are
compared with one. Signatures decide first, then the bags, exactly; the most similar kept document is the witness.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import Int32Array, Int64Array, UInt8Array, UInt16Array, UInt64Array
from spark_jobs.dedup.removal.best_edges import compared_fractions
from spark_jobs.dedup.sketches.similarity import share_row


class Sketched(NamedTuple):
    """D documents with their bags, T tokens in all, and signatures of K values.

    Attributes:
        offsets: (D + 1,) int64 where the tokens of each begin.
        hashes: (T,) uint64 tokens, ascending inside each.
        weights: (T,) uint16 their weights.
        totals: (D,) int64 sums of the weights.
        signatures: (D, K) uint8.
    """

    offsets: Int64Array
    hashes: UInt64Array
    weights: UInt16Array
    totals: Int64Array
    signatures: UInt8Array


class DocumentBuckets(NamedTuple):
    """B buckets, and in which of them each document is.

    Attributes:
        starts: (B + 1,) int64 where the members of each begin.
        of_documents: (D + 1,) int64 where the buckets of each document begin.
        numbers: (M,) int32 buckets, document by document.
    """

    starts: Int64Array
    of_documents: Int64Array
    numbers: Int32Array


class Removed(NamedTuple):
    """R removed documents: (R,) int64 numbers, (R,) of the kept ones, (R,) numerators and (R,) denominators of J."""

    documents: Int64Array
    witnesses: Int64Array
    shared: Int64Array
    united: Int64Array


def buckets_of(members: Int64Array, starts: Int64Array, document_count: int) -> DocumentBuckets:
    """Buckets by document, of lists of members one after the other.

    Args:
        members: (M,) documents.
        starts: (B + 1,) where those of each bucket begin.
        document_count: D.
    """
    order = np.argsort(members, kind="stable")
    numbers = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))[order]
    ends = np.cumsum(np.bincount(members, minlength=document_count))
    return DocumentBuckets(starts, np.concatenate([np.zeros(1, np.int64), ends]), numbers)


def removed_documents(documents: Sketched, buckets: DocumentBuckets, threshold: Fraction, least: int) -> Removed:
    """Documents that are removed, each with the most similar kept one before it, the first of equal ones.

    Args:
        documents: in the order in which they are kept.
        buckets: of them.
        threshold: J from which on the later of two documents goes.
        least: agreeing values of two signatures below which bags are not compared.
    """
    counts = len(documents.totals)
    witnesses, shared = np.full(counts, -1, np.int64), np.zeros(counts, np.int64)
    _remove(documents, buckets, (threshold.numerator, threshold.denominator), least, witnesses, shared)
    gone = np.flatnonzero(witnesses >= 0)
    united = documents.totals[gone] + documents.totals[witnesses[gone]] - shared[gone]
    return Removed(gone, witnesses[gone], shared[gone], united)


@compiled
def _remove(
    documents: Sketched,
    buckets: DocumentBuckets,
    threshold: tuple[int, int],
    least: int,
    witnesses: Int64Array,
    shared: Int64Array,
) -> None:
    """Fill witnesses, -1 for a kept document, and the weight shared with each."""
    numerator, denominator = threshold
    kept = np.empty(buckets.numbers.size, np.int32)
    ends = buckets.starts[:-1].copy()  # behind the kept documents of each bucket, which come first in it
    met = np.full(witnesses.size, -1, np.int64)
    for document in range(witnesses.size):
        best, best_shared, best_united = np.int64(-1), np.int64(0), np.int64(1)
        for at in range(buckets.of_documents[document], buckets.of_documents[document + 1]):
            bucket = buckets.numbers[at]
            for entry in range(buckets.starts[bucket], ends[bucket]):
                other = np.int64(kept[entry])
                if met[other] == document:  # in another bucket of both
                    continue
                met[other] = document
                lighter = min(documents.totals[document], documents.totals[other])
                heavier = max(documents.totals[document], documents.totals[other])
                # J is at most lighter / heavier
                if lighter * denominator < heavier * numerator or not _agree(documents, document, other, least):
                    continue
                common = np.int64(share_row(documents, document, documents, other))
                united = lighter + heavier - common
                if common * denominator < united * numerator:
                    continue
                ahead = compared_fractions(common, united, best_shared, best_united)
                if best < 0 or ahead > 0 or (ahead == 0 and other < best):
                    best, best_shared, best_united = other, common, united
        if best >= 0:
            witnesses[document], shared[document] = best, best_shared
            continue
        for at in range(buckets.of_documents[document], buckets.of_documents[document + 1]):
            bucket = buckets.numbers[at]
            kept[ends[bucket]] = document
            ends[bucket] += 1


@inner
def _agree(documents: Sketched, left: int, right: int, least: int) -> bool:
    """Whether enough values of two signatures are equal."""
    equal = 0
    for value in range(documents.signatures.shape[1]):
        equal += int(documents.signatures[left, value] == documents.signatures[right, value])
    return equal >= least
