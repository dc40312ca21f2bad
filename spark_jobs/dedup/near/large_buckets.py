"""Find which of a hundred thousand near-identical documents are kept, without storing all their pairs.

Boilerplate puts its documents into the same few large buckets, and into a thousand small ones besides. Pairs of two
documents that are both in large buckets are therefore not taken from the buckets at all. These documents are the
*pool*, and the pool is compared with itself by an exact join (`prefix_join`), in rounds:

    1. documents that can reach a threshold together meet in the list of a token that is rare in the pool
    2. in the first round each document is paired with one pivot, the first member of a long list; of several pivots
       it is the one with which the document shares most long lists. Later rounds make all pairs of short lists, and
       pair the members of long lists with more pivots
    3. the kept set is computed from all pairs so far, at every threshold; a document that is removed at all of them
       leaves the pool

Rounds end when no list is long and no pair is new. Then no two kept documents of the pool reach a threshold together,
as if all pairs had been made. This holds also where a pivot is removed by a document from elsewhere: the members that
it had removed are kept again in the next round, and compared. The rules of `removals` apply: documents that have left
are not in the pool, and revisions of one path do not count for each other.

    boilerplate with a changed word each: 1 pivot, all others are removed by it: 2 rounds
    pages of one template: the text that they share is in no prefix, so that only the rest of a page makes candidates

The number of pivots grows from 8 to 128 as long as each round removes a tenth of what was left; then all pairs of long
lists are made. Where these are too many, as in forms filled from short lists, batches of kept documents are compared
with all others instead (`pool_batches`). The memory of every machine is bounded: the places of the pool are a Bloom
filter of at most 128 MB, whose few false positives are compared in the pool as well; edges of the graph come to the
driver up to `driver_edges`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.arrays import Int64Array, UInt32Array, UInt64Array
from spark_jobs.dedup.graph.dense_graph import from_driver
from spark_jobs.dedup.graph.kept_set import removed_table, removed_vertices
from spark_jobs.dedup.graph.threshold_pairs import KindThresholds, exact, groups_reached, own_groups, without
from spark_jobs.dedup.membership.revisions import counting_pairs, left_members
from spark_jobs.dedup.near.bucket_members import CANDIDATES_DDL, all_members, all_pairs, candidate_batch
from spark_jobs.dedup.near.buckets import PARTITION_RECORDS
from spark_jobs.dedup.near.verification import BAG, ENDS, PAIR_COLUMNS, PAIRS_DDL, Index, verified_pairs
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import dealt, persist, release
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    from spark_jobs.dedup.near.prefix_join import Members

_log = logging.getLogger(__name__)
_PIVOTS = (8, 32, 128)
_DOCUMENT_PAIRS = 1_000  # all pairs are made where a document has fewer, with repeats; a pair takes 16 bytes and a join
_BUCKETS_OF_A_MEMBER = 8  # a member is in about so many large buckets or more; sizes the filter of distinct members
_RECORDS_DDL = "part int, records binary"
_CHOSEN_DDL = "first bigint, second bigint, shared bigint"
_RECORD = np.dtype(
    [("token", "<u8"), ("place", "<i8"), ("total", "<i8"), ("suffix", "<i8"), ("groups", "<i4"), ("earlier", "<i4")]
)
_RECORD_COLUMNS = {"place": "place", "total": "total_weight", "groups": "groups", "earlier": "earlier"}

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


class Limits(Protocol):
    """The fields of a config that this module reads."""

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
        small_pairs: pairs in small buckets; a pair counts in every bucket that has it.
        large: number of large buckets.
        large_members: members of large buckets; a member counts in every bucket that has it.
    """

    small_pairs: int
    large: int
    large_members: int


@dataclass
class _Comparisons:
    """The candidates of large buckets, round by round: what was found so far, and what every round needs.

    `pool` are the documents of large buckets (doc_id, place, earlier, total_weight and the columns of their bags) and
    `counters` how often tokens occur in it (`prefix_join`); `done` are candidates compared, `candidate_count` of them.
    """

    pool: DataFrame
    counters: bytes
    partition_count: int
    document_count: int
    increment: int
    history: DataFrame
    revisions: DataFrame | None
    index: Index
    limits: Limits
    persisted: list[DataFrame]
    found: DataFrame | None = None
    done: DataFrame | None = None
    candidate_count: int = 0

    @property
    def thresholds(self) -> tuple[Fraction, ...]:
        """The thresholds of the groups."""
        return tuple(exact(one) for one in self.limits.thresholds.together)

    def kept_pool(self) -> tuple[DataFrame, list[int]]:
        """The pool with the groups in which each document is still kept, and how many are kept in each group."""
        own, first = own_groups(self.limits.thresholds)
        gone = self._removed()
        pool = self.pool.withColumn("groups", own)
        if gone is not None:
            joined = self.pool.join(gone, self.pool["place"] == gone["vertex"], "left")
            pool = joined.select(*self.pool.columns, without(own, F.col("groups")).alias("groups"))
        pool = persist(pool.where("groups <> 0"))
        self.persisted.append(pool)
        at = [F.greatest(F.lit(group), first) for group in range(len(self.thresholds))]
        counts = [F.count_if(F.getbit("groups", group) == 1) for group in at]
        return pool, [int(count) for count in pool.agg(*counts).collect()[0]]

    def _removed(self) -> DataFrame | None:
        """Rows (vertex, groups) of the documents that the pairs so far remove; None where there are no pairs."""
        columns = "increment", "doc_id", "better_doc_id", "place", "better_place", "shared_weight", "united_weight"
        pairs = self.history.select(*columns)
        if self.found is not None:
            found = self.found.withColumn("increment", F.lit(self.increment)).selectExpr(
                "increment", *(name for name in PAIR_COLUMNS if name.rpartition(" ")[2] in columns)
            )
            pairs = pairs.unionByName(found)
        counted = pairs if self.revisions is None else counting_pairs(pairs, self.revisions)
        edges = counted.select(
            groups_reached(self.limits.thresholds.together).alias("groups"),
            F.col("place").alias("worse"),
            F.col("better_place").alias("better"),
        )
        edges = persist(edges)
        count = edges.count()
        if not count:
            gone = None
        elif count <= self.limits.driver_edges:
            gone = from_driver(edges.sparkSession, removed_table(edges.toArrow()), "vertex bigint, groups int")
        else:
            gone = removed_vertices(edges, self.limits.driver_edges)
        release(edges)
        return gone

    def choose(self, pool: DataFrame, pivots: int | None) -> tuple[DataFrame, int]:
        """Candidates of the pool's documents, with repeats, and how many members of long lists were left out of them.

        -1 are left out where all pairs are asked for and there are too many of them.

        Args:
            pool: the documents with the groups in which they are compared.
            pivots: number of first members of a long list that are paired with all others; None for all pairs. With 1
                short lists are left for later rounds: near-identical documents meet in a thousand of them.
        """
        records = pool.mapInArrow(
            partial(
                prefix_records,
                counters=self.counters,
                thresholds=self.thresholds,
                partition_count=self.partition_count,
            ),
            _RECORDS_DDL,
        )
        choose = partial(
            list_candidates,
            thresholds=self.thresholds,
            pivots=pivots,
            most=self.limits.max_bucket_pairs,
            most_pairs=max(self.limits.max_bucket_pairs, _DOCUMENT_PAIRS * self.document_count // self.partition_count),
        )
        of_parts = dealt(records, self.partition_count, F.col("part"))
        listed = persist(of_parts.map(choose, _CHOSEN_DDL).to_frame())
        self.persisted.append(listed)
        told = (
            listed.where("second IS NULL").agg(F.min("shared").alias("least"), F.sum("shared").alias("left")).collect()
        )
        least, left = (int(told[0][name] or 0) for name in ("least", "left"))
        chosen = listed.where("second IS NOT NULL")
        return (_one_pivot_each(chosen) if pivots == 1 else chosen), min(least, left)

    def compare_in_batches(self) -> tuple[int, list[int]]:
        """Compare batches of kept documents with all of the pool; rounds, and how many are kept in each group."""
        from spark_jobs.dedup.near.pool_batches import Done, leading, pivots_of, similar_to_pivots

        done, rounds = Done(), 0
        while True:
            pool, counts = self.kept_pool()
            narrow = pool.select("place", "groups", "earlier", F.octet_length("units").alias("token_count"))
            places = done.next_batch(narrow.toArrow())
            if not len(places):
                assert self.found is not None
                self.found = self.found.dropDuplicates(["left_doc_id", "right_doc_id"])
                return rounds, counts
            asked = F.broadcast(pool.sparkSession.createDataFrame(pa.table({"place": places})))
            batch = pool.join(asked, "place", "left_semi").toArrow()
            batch = leading(batch.sort_by([("earlier", "descending"), ("place", "ascending")]), self.thresholds)
            compare = partial(
                similar_to_pivots,
                pivots=pivots_of(batch, self.thresholds),
                thresholds=self.thresholds,
                increment=self.increment,
            )
            found = checkpointed(pool.mapInArrow(compare, PAIRS_DDL))
            self.persisted.append(found)
            self.found = found if self.found is None else self.found.unionByName(found)
            done.add(batch)
            rounds += 1
            _log.info("large buckets: %d documents compared with all others", batch.num_rows)

    def compare(self, chosen: DataFrame, beside: tuple[DataFrame, int] | None = None) -> bool:
        """Verify candidates that were not compared before; False where there are none.

        Args:
            chosen: rows (first, second), with repeats.
            beside: other distinct candidates to verify with them, and about how many these are.
        """
        ends = F.least("first", "second").alias("first"), F.greatest("first", "second").alias("second")
        fresh = chosen.select(*ends).distinct()
        if self.done is not None:
            fresh = fresh.join(self.done.hint("merge"), ["first", "second"], "left_anti")
        fresh = checkpointed(fresh)
        count = fresh.count()
        if not count and not beside:
            return False
        candidates, total = (fresh.unionByName(beside[0]), count + beside[1]) if beside else (fresh, count)
        verified, persisted = verified_pairs(candidates, total, self.index, self.limits.thresholds.lowest)
        more = checkpointed(verified)
        self.persisted.extend((*persisted, more))
        self.found = more if self.found is None else self.found.unionByName(more)
        self.done = fresh if self.done is None else self.done.unionByName(fresh)
        self.candidate_count += count
        _log.info("large buckets: %d candidates", count)
        return True


def compare_large(
    sized: tuple[DataFrame, DataFrame],
    counts: BucketCounts,
    before: tuple[DataFrame, DataFrame | None],
    index: Index,
    limits: Limits,
    increment: int,
) -> tuple[DataFrame, list[dict[str, Any]], tuple[DataFrame, ...]]:
    """Compare the members of buckets, some of which are large, until no comparison can change which are kept.

    Args:
        sized: the buckets (members, earlier) that are small, and those that are large.
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
    inside = filter_of(
        large.mapInArrow(all_members, "place bigint"), _places, counts.large_members // _BUCKETS_OF_A_MEMBER
    )
    history, revisions = before
    pool = _pool(index.bags, inside, increment)
    if revisions is not None:
        pool = pool.join(left_members(revisions), "doc_id", "left_anti")
    pool = persist(pool)
    counters, token_count, document_count = _counters(pool)
    state = _Comparisons(
        pool=pool,
        counters=counters,
        partition_count=max(2, -(-token_count // PARTITION_RECORDS)),
        document_count=document_count,
        increment=increment,
        history=history,
        revisions=revisions,
        index=index,
        limits=limits,
        persisted=[small, large, pool],
    )
    of_small = small.mapInArrow(partial(all_pairs, not_among=inside), CANDIDATES_DDL).distinct()
    rounds, kept_counts = _rounds(state, (of_small, counts.small_pairs))
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
    assert state.found is not None  # the first round verifies the small buckets at least
    return state.found, facts, tuple(state.persisted)


def _rounds(state: _Comparisons, of_small: tuple[DataFrame, int]) -> tuple[int, list[int]]:
    """Compare until no list has a new pair; the number of rounds, and how many documents are kept in each group."""
    pool, counts = state.kept_pool()
    chosen, _ = state.choose(pool, 1)
    state.compare(chosen, of_small)
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
        pivots = next((more for more in _PIVOTS if pivots is not None and more > pivots), None)


def large_bucket_rows(like: DataFrame, facts: Sequence[dict[str, Any]]) -> DataFrame:
    """Rows of `large_buckets`, in the session of another DataFrame."""
    ddl = (
        "threshold double, bucket_count bigint, document_count bigint, rounds int, candidate_count bigint, "
        "kept_count bigint"
    )
    return like.sparkSession.createDataFrame([tuple(row.values()) for row in facts], ddl)


def _one_pivot_each(chosen: DataFrame) -> DataFrame:
    """Of several pivots of a member, the one with which it shares most long lists."""
    summed = chosen.groupBy("first", "second").agg(F.sum("shared").alias("shared"))
    return summed.groupBy("second").agg(F.max_by("first", F.struct("shared", -F.col("first"))).alias("first"))


def _places(batch: pa.RecordBatch) -> UInt64Array:
    """The places of a batch as keys of a filter."""
    places: UInt64Array = batch.column("place").to_numpy().view(np.uint64)
    return places


def _pool(bags: DataFrame, inside: bytes, increment: int) -> DataFrame:
    """The bags of the documents whose place is in the filter."""
    earlier = (F.col("increment") < increment).alias("earlier")
    read = bags.select(*ENDS, earlier, "total_weight", *BAG)
    return read.mapInArrow(partial(_passing, inside=inside), read.schema)


def _passing(batches: Iterable[pa.RecordBatch], inside: bytes) -> Iterator[pa.RecordBatch]:
    """The rows whose place is in a filter."""
    from spark_jobs.dedup.near.key_filter import has_keys

    filled = np.frombuffer(inside, np.uint8)
    for batch in batches:
        yield batch.filter(pa.array(has_keys(_places(batch), filled)))


def _counters(pool: DataFrame) -> tuple[bytes, int, int]:
    """Counters of the pool's tokens, and how many tokens and documents they counted."""
    parts = pool.mapInArrow(_count, "counters binary, documents bigint")
    counted = parts.coalesce(1).mapInArrow(_sum, "counters binary, documents bigint").toArrow().to_pylist()[0]
    return counted["counters"], int(np.frombuffer(counted["counters"], np.uint32).sum()), counted["documents"]


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Counters of the tokens of one partition."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.near.prefix_join import COUNTERS, count_tokens

    counters, documents = np.zeros(COUNTERS, np.uint32), 0
    for batch in batches:
        count_tokens(bags_from_columns(*(batch.column(name) for name in BAG)).hashes, counters)
        documents += batch.num_rows
    yield _counted(counters, documents)


def _sum(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sum of counters."""
    from spark_jobs.dedup.near.prefix_join import COUNTERS

    counters, documents = np.zeros(COUNTERS, np.uint32), 0
    for batch in batches:
        for part in batch.column("counters"):
            counters += np.frombuffer(part.as_buffer(), np.uint32)
        documents += sum(batch.column("documents").to_pylist())
    yield _counted(counters, documents)


def _counted(counters: UInt32Array, documents: int) -> pa.RecordBatch:
    columns = [pa.array([counters.tobytes()], pa.binary()), pa.array([documents], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["counters", "documents"])


def prefix_records(
    batches: Iterable[pa.RecordBatch], counters: bytes, thresholds: tuple[Fraction, ...], partition_count: int
) -> Iterator[pa.RecordBatch]:
    """The tokens in the prefixes of documents, as records in one block for every partition that gets any.

    Args:
        batches: documents of the pool with the groups in which they are compared.
        counters: how often the tokens occur in the pool.
        thresholds: of the groups.
        partition_count: partitions that the blocks are distributed to, by token.

    Yields:
        Rows of `_RECORDS_DDL`; a block is an array of `_RECORD`.
    """
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.near.bucket_records import scatter
    from spark_jobs.dedup.near.prefix_join import prefixes

    counted = np.frombuffer(counters, np.uint32)
    for batch in batches:
        if not batch.num_rows:
            continue
        bags = bags_from_columns(*(batch.column(name) for name in BAG))
        found = prefixes(bags, counted, batch.column("groups").to_numpy(), thresholds)
        records = np.empty(len(found.tokens), _RECORD)
        records["token"], records["suffix"] = found.tokens, found.suffixes
        for name, column in _RECORD_COLUMNS.items():
            records[name] = batch.column(column).to_numpy(zero_copy_only=False)[found.documents]
        offsets, _, order = scatter(found.tokens, np.arange(len(records)), partition_count)
        records = records[order]
        some = np.flatnonzero(np.diff(offsets))
        blocks = [records[offsets[part] : offsets[part + 1]].tobytes() for part in some]
        yield pa.RecordBatch.from_arrays(
            [pa.array(some, pa.int32()), pa.array(blocks, pa.binary())], names=["part", "records"]
        )


def list_candidates(
    batches: Iterable[pa.RecordBatch], thresholds: tuple[Fraction, ...], pivots: int | None, most: int, most_pairs: int
) -> Iterator[pa.RecordBatch]:
    """Candidates of the lists of tokens of one partition, which is held in memory.

    Args:
        batches: rows of `_RECORDS_DDL`.
        thresholds: of the groups.
        pivots: number of first members of a long list that are paired with all others; None for all pairs.
        most: a list with more pairs than this is long.
        most_pairs: all pairs are given up where there are more of them than this.

    Yields:
        Rows of `_CHOSEN_DDL`: two places, and in how many long lists the first leads the second, 0 for pairs of short
        lists, which with one pivot are left out; and a row (null, null, members of long lists, -1 if given up).
    """
    from spark_jobs.dedup.near.prefix_join import list_pairs

    blocks = [np.zeros(0, _RECORD)]
    for batch in batches:
        blocks += [np.frombuffer(block.as_buffer(), _RECORD) for block in batch.column("records")]
    begins, ends, members = _lists(np.concatenate(blocks))
    sizes = ends - begins
    long = (sizes * (sizes - 1) // 2 > most) & (pivots is not None)
    short = ~long & (pivots != 1)
    made = 0
    for first, second in list_pairs(begins[short], ends[short], members, thresholds):
        pairs = candidate_batch(first, second)
        made += pairs.num_rows
        if pivots is None and made > most_pairs:
            yield _chosen(pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), np.array([-1]))
            return
        yield _chosen(pairs.column("first"), pairs.column("second"), np.zeros(pairs.num_rows, np.int64))
    led = list(list_pairs(begins[long], ends[long], members, thresholds, pivots)) if long.any() else []
    for first, second in led:
        ends_of, shared = np.unique(np.stack([first, second]), axis=1, return_counts=True)
        yield _chosen(pa.array(ends_of[0]), pa.array(ends_of[1]), shared)
    yield _chosen(pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), np.array([int(sizes[long].sum())]))


def _lists(records: NDArray[np.void]) -> tuple[Int64Array, Int64Array, Members]:
    """Sort records into lists by token, in each the earlier documents first, then by place.

    Returns:
        (L,) where each list of at least two members begins, (L,) where it ends, and the members.
    """
    from spark_jobs.dedup.near.prefix_join import Members

    records = records[np.lexsort((records["place"], records["earlier"] == 0, records["token"]))]
    tokens = records["token"]
    begins = np.flatnonzero(np.append(True, tokens[1:] != tokens[:-1])) if len(tokens) else np.zeros(0, np.int64)
    ends = np.append(begins[1:], len(tokens))[: len(begins)]
    several = ends - begins > 1
    members = Members(
        places=np.ascontiguousarray(records["place"]),
        totals=np.ascontiguousarray(records["total"]),
        suffixes=np.ascontiguousarray(records["suffix"]),
        groups=np.ascontiguousarray(records["groups"]),
        earlier=records["earlier"] == 1,
    )
    return begins[several], ends[several], members


def _chosen(first: pa.Array, second: pa.Array, shared: Int64Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([first, second, pa.array(shared)], names=["first", "second", "shared"])
