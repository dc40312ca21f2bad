"""Compare the documents of large buckets batch by batch, where nearly all pairs of them are candidates.

In forms filled from short lists each word is in a large share of the documents, so that nearly all pairs are candidates
of a join by tokens. Then the greedy order itself saves work: a removed document need not be compared further.

1. the first documents in the order that are kept by the pairs so far form a batch, without those that a better one of
   the batch removes
    2. all documents are compared with the batch, exactly (`sample_join`), and the kept set is computed again
    3. this repeats until every kept document was in a batch while kept at the same thresholds

So n documents, K of them kept, take n * K sums of rows of weights, and no list of pairs. A batch is bounded by its
tokens, held by every worker: 75 bytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, bags_from_columns
from spark_jobs.dedup.graph.in_memory import REMOVED, kept_states
from spark_jobs.dedup.near.pair_columns import BAG, ENDS
from spark_jobs.dedup.near.sample_join import SampledPairs, SampleIndex, sample_index, similar_to_sample
from spark_jobs.dedup.near.verification import PAIRS_DDL
from spark_jobs.lake.declare.tables import ddl_names

BATCH_DOCUMENTS = 2048
BATCH_TOKENS = 1_000_000


class Pivots(NamedTuple):
    """A batch to compare with: the columns `ENDS` of its documents, and the index of their bags."""

    ends: pa.Table
    sample: SampleIndex


class FinishedBatches:
    """The documents of earlier batches, with the thresholds of their keeping then."""

    def __init__(self) -> None:
        self._places = np.zeros(0, np.int64)
        self._groups = np.zeros(0, np.int32)

    def next_batch(self, kept: pa.Table) -> Int64Array:
        """Places of the next batch: the first kept documents of no former batch at all their present thresholds.

        Args:
            kept: columns place, groups, earlier, token_count of the documents kept at any threshold. One that
                was removed and is kept again is compared again, since batches in between did not include it.
        """
        places, groups = kept.column("place").to_numpy(), kept.column("groups").to_numpy()
        by_place = np.argsort(places, kind="stable")
        at = np.minimum(np.searchsorted(places[by_place], self._places), max(len(places) - 1, 0))
        here = places[by_place[at]] == self._places if len(places) else np.zeros(len(self._places), bool)
        self._places, self._groups = self._places[here], self._groups[here]
        rows = by_place[at[here]]
        self._groups &= groups[rows]
        left = groups.copy()
        left[rows] &= ~self._groups
        waiting = np.flatnonzero(left)
        earlier = kept.column("earlier").to_numpy(zero_copy_only=False)
        waiting = waiting[np.lexsort((places[waiting], ~earlier[waiting]))][:BATCH_DOCUMENTS]
        tokens = np.cumsum(kept.column("token_count").to_numpy()[waiting])
        chosen: Int64Array = places[waiting[: max(1, np.searchsorted(tokens, BATCH_TOKENS, side="right"))]]
        return chosen

    def add(self, pivots: pa.Table) -> None:
        """Record documents, with the columns place and groups, as compared."""
        new = pivots.column("place").to_numpy()
        others = ~np.isin(self._places, new)
        self._places = np.concatenate([self._places[others], new])
        self._groups = np.concatenate([self._groups[others], pivots.column("groups").to_numpy()]).astype(np.int32)


def leading(batch: pa.Table, thresholds: tuple[Fraction, ...]) -> pa.Table:
    """The documents of a batch, in keeping order, that are kept within the batch at one threshold or more."""
    bags, groups = _bags(batch), batch.column("groups").to_numpy().astype(np.int32)
    similar = similar_to_sample(bags, groups, sample_index(bags, groups, thresholds), thresholds)
    return batch.filter(pa.array(kept_groups(similar, groups, thresholds) != 0))


def kept_groups(similar: SampledPairs, groups: Int32Array, thresholds: tuple[Fraction, ...]) -> Int32Array:
    """(D,) thresholds (as bits) at which each of D documents in keeping order is kept, by all their similar pairs."""
    kept = groups.copy()
    worse = similar.rows > similar.sampled
    for group, threshold in enumerate(thresholds):
        counts = worse & ((groups[similar.rows] & groups[similar.sampled]) >> group & 1 == 1)
        counts &= similar.shared * threshold.denominator >= similar.united * threshold.numerator
        states = kept_states(similar.rows[counts], similar.sampled[counts], len(groups))
        kept[states == REMOVED] &= ~np.int32(1 << group)
    return kept


def pivots_of(batch: pa.Table, thresholds: tuple[Fraction, ...]) -> Pivots:
    """Make the pivots of a batch, sent to every worker."""
    groups = batch.column("groups").to_numpy().astype(np.int32)
    return Pivots(batch.select(list(ENDS)).combine_chunks(), sample_index(_bags(batch), groups, thresholds))


def similar_to_pivots(
    batches: Iterable[pa.RecordBatch], pivots: Pivots, thresholds: tuple[Fraction, ...], increment: int
) -> Iterator[pa.RecordBatch]:
    """Verified pairs of documents with pivots, as rows of `PAIRS_DDL`; two earlier documents are no pair."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        groups = table.column("groups").to_numpy().astype(np.int32)
        similar = similar_to_sample(_bags(table), groups, pivots.sample, thresholds)
        documents, other = table.select(list(ENDS)).take(similar.rows), pivots.ends.take(similar.sampled)
        led = _is_first(other, documents)  # the pivot is the better document; where it is not, both may be pivots
        is_pivot = np.isin(documents.column("place").to_numpy(), pivots.ends.column("place").to_numpy())
        new = np.maximum(documents.column("increment").to_numpy(), other.column("increment").to_numpy()) == increment
        same = documents.column("place").to_numpy() == other.column("place").to_numpy()
        for flipped in (False, True):
            chosen = pa.array(~same & new & (led != flipped) & ~(flipped & is_pivot))
            left, right = (documents, other) if flipped else (other, documents)
            sides = [side.filter(chosen).column(name) for side in (left, right) for name in ENDS]
            weights = [pa.array(similar.shared).filter(chosen), pa.array(similar.united).filter(chosen)]
            yield from pa.table([*sides, *weights], names=ddl_names(PAIRS_DDL)).to_batches()


def _bags(documents: pa.Table) -> Bags:
    return bags_from_columns(*(documents.column(name).cast(pa.large_binary()).combine_chunks() for name in BAG))


def _is_first(rows: pa.Table, other: pa.Table) -> np.ndarray:
    """(R,) whether row r of `rows` comes before row r of `other` in the order (increment, place)."""
    increments = [side.column("increment").to_numpy() for side in (rows, other)]
    places = [side.column("place").to_numpy() for side in (rows, other)]
    earlier: np.ndarray = (increments[0] < increments[1]) | ((increments[0] == increments[1]) & (places[0] < places[1]))
    return earlier
