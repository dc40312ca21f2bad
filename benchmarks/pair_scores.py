"""Precision, recall and F1 of found pairs against known pairs, at each threshold.

    found   pairs of J >= threshold, and any two documents of one exact class (J = 1)
    known   pairs of a truth file
    precision = |found and known| / |found|     recall = |found and known| / |known|     F1 = their harmonic mean

Exact duplicates have no bags of their own: one document represents its class, and its pairs count for every document
of the class. Classes are not expanded: a pair between classes of 3 and 2 counts as 6 pairs.

         class  A A' A''    class  B B'      pair A-B of J = 0.9
         found at 0.8: 3 + 1 within, 3 * 2 between = 10
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.dedup.graph.threshold_pairs import exact


@dataclass(frozen=True)
class FoundPairs:
    """Rows of `pairs`, with documents as numbers.

    Attributes:
        first: (P,) one document.
        second: (P,) the other.
        shared: (P,) numerator of J, below 10^12.
        united: (P,) denominator of J, below 10^12.
    """

    first: Int64Array
    second: Int64Array
    shared: Int64Array
    united: Int64Array


@dataclass(frozen=True)
class Score:
    """Found pairs against known ones at one threshold.

    Attributes:
        threshold: least J of a pair that counts as found.
        found: pairs found, of all documents.
        known: pairs known, each once.
        both: known pairs that were found.
        same_witness: known pairs that were not found, but whose documents are represented by one kept document, so that
            at most one of their texts survives.
    """

    threshold: float
    found: int
    known: int
    both: int
    same_witness: int

    @property
    def precision(self) -> float | None:
        """Share of found pairs that are known; None where none was found."""
        return self.both / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """Share of known pairs that were found; None where none is known."""
        return self.both / self.known if self.known else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None where there is neither a found nor a known pair."""
        total = self.found + self.known
        return 2 * self.both / total if total else None


def score(
    known: Int64Array,
    found: FoundPairs,
    representatives: Int64Array,
    thresholds: Sequence[float],
    witnesses: Mapping[float, Int64Array] | None = None,
) -> list[Score]:
    """Compare known pairs with found ones at each threshold.

    Args:
        known: (T, 2) pairs of different documents, in any order, repeated or not.
        found: verified pairs.
        representatives: (N,) for each document the one that represents its exact class, itself if it repeats none.
        thresholds: similarities, compared exactly as the decimals that they are.
        witnesses: threshold -> (N,) witness of each removed document, -1 for a kept one.
    """
    count = len(representatives)
    sizes = np.bincount(representatives, minlength=count).astype(np.int64)
    within = int((sizes * (sizes - 1) // 2).sum())
    keys = _pair_keys(representatives[found.first], representatives[found.second], count)
    between = keys >= 0
    distinct = np.unique(_pair_keys(known[:, 0], known[:, 1], count))
    left, right = np.divmod(distinct, count) if count else (distinct, distinct)
    known_keys = _pair_keys(representatives[left], representatives[right], count)
    scores = []
    for threshold in thresholds:
        bound = exact(threshold)
        reached = found.shared * bound.denominator >= found.united * bound.numerator
        here = np.unique(keys[between & reached])
        lower, upper = np.divmod(here, count) if count else (here, here)
        hits = (known_keys < 0) | np.isin(known_keys, here)
        joined = _same_kept(left, right, representatives, (witnesses or {}).get(threshold)) & ~hits
        total = within + int((sizes[lower] * sizes[upper]).sum())
        scores.append(Score(threshold, total, len(distinct), int(hits.sum()), int(joined.sum())))
    return scores


def _pair_keys(first: Int64Array, second: Int64Array, count: int) -> Int64Array:
    """One number for each unordered pair, equal for (a, b) and (b, a); -1 where a = b."""
    keys = np.minimum(first, second) * count + np.maximum(first, second)
    return np.where(first == second, -1, keys).astype(np.int64)


def _same_kept(
    left: Int64Array, right: Int64Array, representatives: Int64Array, witness: Int64Array | None
) -> BoolArray:
    """(P,) whether two documents end at one kept document: themselves, their representative or its witness."""
    if witness is None:
        return np.zeros(len(left), bool)
    kept = np.where(witness[representatives] >= 0, witness[representatives], representatives)
    same: BoolArray = kept[left] == kept[right]
    return same
