"""Find the kept ones of a hundred thousand near-identical documents, without storing all their pairs.

Documents of boilerplate share a few large buckets, and a thousand small ones besides. So pairs of two documents that
are both in large buckets are not taken from the buckets at all. These documents are the *pool*, and the pool is
compared with itself by an exact join (`prefix_join`), in rounds:

    1. documents that can reach a threshold together meet in the list of a token that is rare in the pool
    2. in the first round each document is paired with one pivot, the first member of a long list; of several pivots
       it is the one with which the document shares most long lists. Later rounds make all pairs of short lists, and
       pair the members of long lists with more pivots
    3. the kept set is computed from all pairs so far, at every threshold; a document that is removed at all of them
       leaves the pool

Once all pairs are made, rounds have few documents and go on in one process, on Sail (`pool_rounds`). Rounds end when no
list is long and no pair is new. Then no two kept documents of the pool reach a threshold together,
as if all pairs had been made. This is true even if a document outside the pool removes a pivot: the members that the
pivot had removed are kept again in the next round, and compared. The rules of `removals` apply: documents that have
left the corpus are not in the pool, and revisions of one path do not count for each other.

    boilerplate with a changed word each: 1 pivot, all others are removed by it: 2 rounds
    pages of one template: the text that they share is in no prefix, so that only the rest of a page makes candidates

The number of pivots grows from 8 to 128 as long as each round removes a tenth of the rest; then all pairs of long lists
are made. If these are too many, as in forms filled from short lists, batches of kept documents are compared with all
others instead (`pool_batches`). The memory of every machine is bounded: the pool's documents are a Bloom filter of at
most 128 MB, its few false positives are compared too; edges of the graph come to the driver up to `driver_edges`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import UInt64Array
from spark_jobs.dedup.graph.dense_graph import from_driver
from spark_jobs.dedup.graph.kept_set import removed_table, removed_vertices
from spark_jobs.dedup.graph.threshold_pairs import KindThresholds, exact, groups_reached, own_groups, without
from spark_jobs.dedup.membership.revisions import counting_pairs, left_members
from spark_jobs.dedup.near.bucket_members import all_members
from spark_jobs.dedup.near.buckets import PARTITION_RECORDS
from spark_jobs.dedup.near.pair_columns import BAG, ENDS
from spark_jobs.dedup.near.places import inside
from spark_jobs.dedup.near.prefix_lists import (
    CHOSEN_DDL,
    RECORDS_DDL,
    list_candidates,
    one_pivot_each,
    pool_counters,
    prefix_records,
)
from spark_jobs.dedup.near.verification import (
    PAIR_COLUMNS,
    PAIRS_DDL,
    SIGNATURE,
    SignatureIndex,
    split_by_pool,
    verified_buckets,
    verified_pairs,
)
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import dealt_in_turn, persist, release
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.engine.united import united
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F

_log = logging.getLogger(__name__)
_PIVOTS = (8, 32, 128)
_DOCUMENT_PAIRS = 1_000  # all pairs are made where a document has fewer, with repeats; a pair takes 16 bytes and a join
_BUCKETS_OF_A_MEMBER = 8  # a member is in about so many large buckets or more; sizes the filter of distinct members

LARGE_BUCKETS = Table(
    name="large_buckets",
    comment="One row per threshold, where an increment had buckets too large to compare all with all.",
    columns=(
        Column("threshold!", "double", "weighted Jaccard similarity from which on documents are duplicates"),
        Column("bucket_count!", "long", "large buckets"),
        Column("document_count!", "long", "documents in them, compared with each other by an exact join"),
        Column("rounds!", "int", "rounds of comparisons until nothing was left"),
        Column(
            "candidate_count!",
            "long",
            "pairs made of them and compared one by one; batches of kept documents need none",
        ),
        Column("kept_count!", "long", "documents of them that these comparisons leave at the threshold"),
    ),
    key=("threshold",),
    partition=("increment",),
    checks=(Check("kept_are_some", "kept_count between 0 and document_count", "the kept are some of the documents"),),
)


class BucketLimits(Protocol):
    """The fields of a config read by this module."""

    @property
    def thresholds(self) -> KindThresholds: ...  # noqa: D102
    @property
    def max_bucket_pairs(self) -> int: ...  # noqa: D102
    @property
    def driver_edges(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class BucketCounts:
    """Sizes of the buckets of an increment.

    Attributes:
        small_pairs: pairs in small buckets; a pair counts in each of its buckets.
        large: number of large buckets.
        large_members: members of large buckets; a member counts in each of its buckets.
    """

    small_pairs: int
    large: int
    large_members: int


@dataclass
class Comparisons:
    """The comparisons of the pool, round by round.

    Attributes:
        pool: its documents (doc_id, place, earlier, total_weight and the columns of their bags).
        index: their signatures and bags alone, read by every round.
        counters: how often each token occurs in it (`prefix_join`).
        edges: pairs of the history and of this increment that count, as edges of a graph.
        verified: the pairs so far, round by round.
        compared: the candidates so far, `candidate_count` of them.
    """

    pool: DataFrame
    counters: bytes
    partition_count: int
    document_count: int
    increment: int
    revisions: DataFrame | None
    index: SignatureIndex
    limits: BucketLimits
    persisted: list[DataFrame]
    edges: list[DataFrame] = field(default_factory=list)
    verified: list[DataFrame] = field(default_factory=list)
    compared: list[DataFrame] = field(default_factory=list)
    candidate_count: int = 0

    @property
    def thresholds(self) -> tuple[Fraction, ...]:
        """The thresholds of the groups."""
        return tuple(exact(threshold) for threshold in self.limits.thresholds.together)

    def kept_pool(self) -> tuple[DataFrame, list[int]]:
        """The pool with the groups in which each document is still kept, and how many are kept in each group."""
        groups, first = own_groups(self.limits.thresholds)
        gone = self._removed()
        pool = self.pool.withColumn("groups", groups)
        if gone is not None:
            joined = self.pool.join(gone, self.pool["place"] == gone["vertex"], "left")
            pool = joined.select(*self.pool.columns, without(groups, F.col("groups")).alias("groups"))
        pool = persist(pool.where("groups <> 0"))
        self.persisted.append(pool)
        at = [F.greatest(F.lit(group), first) for group in range(len(self.thresholds))]
        counts = [F.count_if(F.getbit("groups", group) == 1) for group in at]
        return pool, [int(count) for count in pool.agg(*counts).collect()[0]]

    def _removed(self) -> DataFrame | None:
        """Rows (vertex, groups) of the documents removed by the pairs so far; None where there are no pairs."""
        edges = united(self.edges)
        count = edges.count()
        if not count:
            return None
        if count <= self.limits.driver_edges:
            return from_driver(edges.sparkSession, removed_table(edges.toArrow()), "vertex bigint, groups int")
        return removed_vertices(edges, self.limits.driver_edges)

    def take(self, verified: tuple[DataFrame, tuple[DataFrame, ...]]) -> None:
        """Take in what verification gives."""
        pairs, persisted = verified
        if not is_embedded(pairs):  # else the rows are in files already
            pairs = checkpointed(pairs)
        self.persisted.extend((*persisted, pairs))
        self.add(pairs)

    def add(self, pairs: DataFrame) -> None:
        """Take verified pairs in (computed already)."""
        self.verified.append(pairs)
        self.add_edges(pairs.withColumn("increment", F.lit(self.increment)).selectExpr("increment", *PAIR_COLUMNS))

    def add_edges(self, pairs: DataFrame) -> None:
        """Take those pairs that count (rows of `pairs`) into the graph, once: later rounds read narrow edges."""
        columns = "increment", "doc_id", "better_doc_id", "place", "better_place", "shared_weight", "united_weight"
        narrow = pairs.select(*columns)
        counted = narrow if self.revisions is None else counting_pairs(narrow, self.revisions)
        groups = groups_reached(self.limits.thresholds.together).alias("groups")
        edges = persist(counted.select(groups, F.col("place").alias("worse"), F.col("better_place").alias("better")))
        self.edges.append(edges)
        self.persisted.append(edges)

    def choose(self, pool: DataFrame, pivots: int | None) -> tuple[DataFrame, int]:
        """Candidates among the pool's documents, with repeats, and the number of members of long lists left out.

        This number is -1 if all pairs are asked for and there are too many of them.

        Args:
            pool: the documents with their groups of comparison.
            pivots: number of first members of a long list, paired with all others; None for all pairs. With 1
                short lists are left for later rounds: near-identical documents meet in a thousand of them.
        """
        records = pool.mapInArrow(
            functools.partial(
                prefix_records,
                counters=self.counters,
                thresholds=self.thresholds,
                partition_count=self.partition_count,
            ),
            RECORDS_DDL,
        )
        choose = functools.partial(
            list_candidates,
            thresholds=self.thresholds,
            pivots=pivots,
            most=self.limits.max_bucket_pairs,
            most_pairs=max(self.limits.max_bucket_pairs, _DOCUMENT_PAIRS * self.document_count // self.partition_count),
        )
        of_parts = dealt_in_turn(records, self.partition_count, F.col("part"))
        listed = persist(of_parts.map(choose, CHOSEN_DDL).to_frame())
        release(of_parts.frame)
        self.persisted.append(listed)
        # Rows without a second document are totals: -1 of a worker that gave up, else members of long lists left out.
        totals = listed.where("second IS NULL").agg(F.min("shared"), F.sum("shared")).collect()[0]
        least, left = (int(total or 0) for total in totals)
        chosen = listed.where("second IS NOT NULL")
        return (one_pivot_each(chosen) if pivots == 1 else chosen), min(least, left)

    def compare_in_batches(self) -> tuple[int, list[int]]:
        """Compare batches of kept documents with all of the pool; returns rounds and the number kept in each group."""
        from spark_jobs.dedup.near.pool_batches import FinishedBatches, leading, pivots_of, similar_to_pivots

        done, rounds = FinishedBatches(), 0
        while True:
            pool, counts = self.kept_pool()
            narrow = pool.select("place", "groups", "earlier", F.octet_length("units").alias("token_count"))
            places = done.next_batch(narrow.toArrow())
            if not len(places):
                self.verified = [united(self.verified).dropDuplicates(["left_doc_id", "right_doc_id"])]
                return rounds, counts
            wanted = F.broadcast(pool.sparkSession.createDataFrame(pa.table({"place": places})))
            batch = pool.join(wanted, "place", "left_semi").toArrow()
            batch = leading(batch.sort_by([("earlier", "descending"), ("place", "ascending")]), self.thresholds)
            compare = functools.partial(
                similar_to_pivots,
                pivots=pivots_of(batch, self.thresholds),
                thresholds=self.thresholds,
                increment=self.increment,
            )
            similar = checkpointed(pool.mapInArrow(compare, PAIRS_DDL))
            self.persisted.append(similar)
            self.add(similar)
            done.add(batch)
            rounds += 1
            _log.info("large buckets: %d documents compared with all others", batch.num_rows)

    def compare(self, chosen: DataFrame) -> bool:
        """Verify the candidates (first, second), with repeats, that were not compared before; whether there are any."""
        ends = F.least("first", "second").alias("first"), F.greatest("first", "second").alias("second")
        fresh = chosen.select(*ends).distinct()
        if self.compared:
            fresh = fresh.join(united(self.compared).hint("merge"), ["first", "second"], "left_anti")
        fresh = checkpointed(fresh)
        count = fresh.count()
        if not count:
            return False
        self.take(verified_pairs(fresh, count, self.index, self.limits.thresholds.lowest))
        self.compared.append(fresh)
        self.candidate_count += count
        _log.info("large buckets: %d candidates", count)
        return True


def compare_large(
    sized: tuple[DataFrame, DataFrame],
    counts: BucketCounts,
    before: tuple[DataFrame, DataFrame | None],
    index: SignatureIndex,
    limits: BucketLimits,
    increment: int,
) -> tuple[DataFrame, list[dict[str, Any]], tuple[DataFrame, ...]]:
    """Compare the members of all buckets, until no further comparison can change which documents are kept.

    Args:
        sized: the small buckets (members, earlier), and the large ones.
        counts: how much is in them.
        before: rows of `pairs` of earlier increments, and those of `revisions` up to this one, if there are any.
        index: what candidates are verified with.
        limits: thresholds and limits.
        increment: the new one.

    Returns:
        All verified pairs, facts for `large_buckets`, and DataFrames to unpersist.
    """
    from spark_jobs.dedup.near.key_filter import filter_of

    small, large = map(persist, sized)
    in_pool = filter_of(
        large.mapInArrow(all_members, "place bigint"), _places, counts.large_members // _BUCKETS_OF_A_MEMBER
    )
    history, revisions = before
    lowest, persisted = limits.thresholds.lowest, [small, large]
    if is_embedded(small):
        verified, of_pool = split_by_pool(small, index, lowest, increment, in_pool)
        of_small = functools.partial(tuple[DataFrame, tuple[DataFrame, ...]], (verified, (verified,)))
        persisted.extend((of_pool.signatures, of_pool.bags))
    else:
        of_small = functools.partial(verified_buckets, small, counts.small_pairs, index, lowest, increment, in_pool)
        signatures = persist(inside(index.signatures.select(*ENDS, *SIGNATURE), in_pool))
        of_pool = SignatureIndex(signatures, inside(index.bags, in_pool), index.driver_candidates)
        persisted.append(signatures)
    earlier = (F.col("increment") < increment).alias("earlier")
    pool = of_pool.bags.select(*ENDS, earlier, "total_weight", *BAG)
    if revisions is not None:
        pool = pool.join(left_members(revisions), "doc_id", "left_anti")
    if revisions is not None or not is_embedded(pool):  # else its rows are in files already
        pool = persist(pool)
        persisted.append(pool)
    counters, token_count, document_count = pool_counters(pool)
    state = Comparisons(
        pool=pool,
        counters=counters,
        partition_count=max(2, -(-token_count // PARTITION_RECORDS)),
        document_count=document_count,
        increment=increment,
        revisions=revisions,
        index=SignatureIndex(of_pool.signatures, pool.select("doc_id", "place", *BAG), index.driver_candidates),
        limits=limits,
        persisted=persisted,
    )
    state.add_edges(history)
    rounds, kept_counts = _rounds(state, of_small)
    facts = [
        {
            "threshold": float(threshold),
            "bucket_count": counts.large,
            "document_count": document_count,
            "rounds": rounds,
            "candidate_count": state.candidate_count,
            "kept_count": kept,
        }
        for threshold, kept in zip(limits.thresholds.together, kept_counts, strict=True)
    ]
    return united(state.verified), facts, tuple(state.persisted)


def _rounds(
    state: Comparisons, of_small: Callable[[], tuple[DataFrame, tuple[DataFrame, ...]]]
) -> tuple[int, list[int]]:
    """Compare until no list has a new pair; returns the number of rounds, and of documents kept in each group."""
    from spark_jobs.dedup.near.pool_rounds import last_rounds

    pool, counts = state.kept_pool()
    chosen, _ = state.choose(pool, 1)
    state.compare(chosen)
    state.take(of_small())
    pivots: int | None = _PIVOTS[0]
    rounds = 1
    while True:
        before = sum(counts)
        pool, counts = state.kept_pool()
        if 10 * sum(counts) > 9 * before:  # pivots remove too little, so all pairs are made
            pivots = None
        chosen, left = state.choose(pool, pivots)
        if left < 0:
            more, counts = state.compare_in_batches()
            return rounds + more, counts
        if not state.compare(chosen) and not left:
            return rounds, counts
        rounds += 1
        if pivots is None and is_embedded(pool):
            more, counts = last_rounds(state, pool.select("place", "groups"))
            return rounds + more, counts
        pivots = next((more for more in _PIVOTS if pivots is not None and more > pivots), None)


def _places(batch: pa.RecordBatch) -> UInt64Array:
    """The places of a batch as keys of a filter."""
    places: UInt64Array = batch.column("place").to_numpy().view(np.uint64)
    return places
