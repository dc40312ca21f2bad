"""Large buckets: who is kept of a hundred thousand near-identical documents, without comparing all with all.

Only comparisons that can change who is kept are worth making. In rounds:

    1. the first members of each large bucket (its leaders) are compared with all others
    2. the kept set is found from all pairs so far, at every threshold; who is removed needs no more comparisons
    3. a bucket with few enough kept members has all of these compared; the others get further leaders

until no bucket has two kept members that were not compared with each other: then no kept two of a bucket are as
similar as the threshold, just as if all pairs had been made. It holds at each threshold of the list, and also where a
leader turns out to be removed by a document from elsewhere: the members it stood for are kept again in the next round,
and compared.

    boilerplate with a changed word each: 1 leader, all others are removed by it: 2 rounds
    a bucket whose members are alike in nothing but one band: leaders remove nobody

Leaders grow from 2 to 128, as long as each round removes a tenth of what was left in large buckets at a threshold.
What still has too many kept members then is split on further values of the signatures, and what that can miss is
computed and stored: the one place where a pair that shares a bucket may stay unseen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.dedup.kept_set import removed_vertices
from spark_jobs.dedup.threshold_pairs import exact, pairs_at
from spark_jobs.dedup.verification import Index, verified_pairs
from spark_jobs.lake.tables import Check, Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_LEADERS = (2, 8, 32, 128)
_FURTHER_VALUES = (4, 8, 16, 32, 64)
_PAIRS_A_MEMBER = 1
_CANDIDATES_DDL = "first bigint, second bigint"

LARGE_BUCKETS = Table(
    name="large_buckets",
    comment="One row per threshold, where an increment had buckets too large to compare all with all.",
    columns=(
        Column("threshold!", "double", "weighted Jaccard similarity from which on documents are duplicates"),
        Column("bucket_count!", "long", "large buckets"),
        Column("document_count!", "long", "documents in them"),
        Column("rounds!", "int", "rounds of comparisons until nothing was left"),
        Column("candidate_count!", "long", "pairs compared in them, over all thresholds"),
        Column("split_bucket_count!", "long", "buckets that leaders could not reduce, split on further values"),
        Column("further_values!", "int", "values of the signature that they were split on; 0 where none was"),
        Column("recall_in_split!", "double", "expected recall at the threshold of pairs inside split buckets, else 1"),
    ),
    key=("threshold",),
    partition=("increment",),
    checks=(Check("recall_in_bounds", "recall_in_split between 0 and 1", "recall is a fraction"),),
)


class Limits(Protocol):
    """What of the config decides here."""

    @property
    def thresholds(self) -> tuple[float, ...]: ...  # noqa: D102
    @property
    def max_bucket_pairs(self) -> int: ...  # noqa: D102
    @property
    def driver_edges(self) -> int: ...  # noqa: D102


def compare_large(
    large: DataFrame,
    compared: tuple[DataFrame, DataFrame],
    history: DataFrame,
    index: Index,
    limits: Limits,
) -> tuple[DataFrame, list[dict[str, Any]], tuple[DataFrame, ...]]:
    """Compare the members of large buckets until it is settled who is kept.

    Args:
        large: band, bucket, members, earlier of the large buckets.
        compared: candidates of all other buckets, and the pairs verified among them.
        history: rows of `pairs` of earlier increments.
        index: what candidates are verified with.
        limits: thresholds and limits.

    Returns:
        All verified pairs, facts for `large_buckets`, and DataFrames to unpersist.
    """
    large = large.persist()
    done = compared[0].persist()
    found = compared[1].persist()
    kept = [large, done, found]
    lowest = exact(min(limits.thresholds))
    members = large.mapInArrow(_members, "place bigint").distinct().persist()
    kept.append(members)
    earlier_edges = _edges(history, "place", "better_place", limits.thresholds)
    rounds = candidate_count = 0
    removed = [np.zeros(0, np.int64) for _ in limits.thresholds]
    if history.take(1):
        removed = _removed(earlier_edges, members, limits)
    most = limits.max_bucket_pairs
    leaders = [_LEADERS[0]] * len(removed)
    _, sizes = _too_large(large, removed, most)
    while True:
        choose = partial(_leader_candidates, removed=removed, leaders=leaders, most=most)
        fresh = large.mapInArrow(choose, _CANDIDATES_DDL).distinct()
        fresh = fresh.join(done.hint("merge"), ["first", "second"], "left_anti").localCheckpoint()
        count = fresh.count()
        if not count:
            break
        rounds += 1
        candidate_count += count
        found, done = _verify_more(fresh, count, found, done, index, lowest, kept)
        edges = _edges(found, "right_place", "left_place", limits.thresholds).unionByName(earlier_edges)
        removed = _removed(edges, members, limits)
        _log.info("large buckets, round %d: %d candidates", rounds, count)
        _, left = _too_large(large, removed, most)
        leaders = [_next_leaders(*one) for one in zip(leaders, sizes, left, strict=True)]
        sizes = left
    unsettled, _ = _too_large(large, removed, most)
    further, recalls = 0, [1.0] * len(limits.thresholds)
    if any(unsettled):
        further, fresh = _split(large, removed, index.signatures, limits)
        fresh = fresh.distinct().join(done.hint("merge"), ["first", "second"], "left_anti").localCheckpoint()
        count = fresh.count()
        candidate_count += count
        found, done = _verify_more(fresh, count, found, done, index, lowest, kept)
        recalls = _split_recalls(large, further, limits.thresholds)
    bucket_count, document_count = large.count(), members.count()
    facts = [
        {
            "threshold": float(threshold),
            "bucket_count": bucket_count,
            "document_count": document_count,
            "rounds": rounds,
            "candidate_count": candidate_count,
            "split_bucket_count": split,
            "further_values": further if split else 0,
            "recall_in_split": recall if split else 1.0,
        }
        for threshold, split, recall in zip(limits.thresholds, unsettled, recalls, strict=True)
    ]
    return found, facts, tuple(kept)


def large_bucket_rows(like: DataFrame, facts: Sequence[dict[str, Any]]) -> DataFrame:
    """Rows of `large_buckets`, in the session of another DataFrame."""
    ddl = (
        "threshold double, bucket_count bigint, document_count bigint, rounds int, candidate_count bigint, "
        "split_bucket_count bigint, further_values int, recall_in_split double"
    )
    return like.sparkSession.createDataFrame([tuple(row.values()) for row in facts], ddl)


def list_offsets(column: pa.ListArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and values of a column of lists of numbers, its own part of them alone."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = column.values.to_numpy()[offsets[0] : offsets[-1]]
    return offsets - offsets[0], values


def candidate_batch(
    new_offsets: NDArray[np.int64],
    new: NDArray[np.int64],
    earlier_offsets: NDArray[np.int64],
    earlier: NDArray[np.int64],
    leader_counts: NDArray[np.int64],
) -> pa.RecordBatch:
    """Candidates of some buckets, as `pairs_within` makes them, each once."""
    from spark_jobs.dedup.bucket_records import pairs_within

    first, second = pairs_within(new_offsets, new, earlier_offsets, earlier, leader_counts)
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    other = np.ones(len(first), np.bool_)
    other[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return pa.RecordBatch.from_arrays([pa.array(first[other]), pa.array(second[other])], names=["first", "second"])


def _verify_more(
    fresh: DataFrame,
    count: int,
    found: DataFrame,
    done: DataFrame,
    index: Index,
    lowest: Any,
    kept: list[DataFrame],
) -> tuple[DataFrame, DataFrame]:
    """All pairs and all candidates so far, with those of the fresh candidates."""
    verified, persisted = verified_pairs(fresh, count, index, lowest)
    more = verified.localCheckpoint()
    kept.extend((*persisted, more))
    return found.unionByName(more), done.unionByName(fresh)


def _edges(pairs: DataFrame, worse: str, better: str, thresholds: Sequence[float]) -> DataFrame:
    """Edges of all thresholds between places."""
    named = pairs.select("shared_weight", "united_weight", pairs[worse].alias("worse"), pairs[better].alias("better"))
    return pairs_at(named, thresholds).select("group", "worse", "better")


def _removed(edges: DataFrame, members: DataFrame, limits: Limits) -> list[NDArray[np.int64]]:
    """Places in large buckets that are removed at each threshold, ascending; 8 bytes each for the driver."""
    found = removed_vertices(edges, limits.driver_edges).join(
        members.withColumnRenamed("place", "vertex"), "vertex", "left_semi"
    )
    rows = found.toArrow()
    groups, places = rows.column("group").to_numpy(), rows.column("vertex").to_numpy()
    return [np.sort(places[groups == group]) for group in range(len(limits.thresholds))]


def _members(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places in a batch of buckets, each once."""
    for batch in batches:
        parts = [list_offsets(batch.column(name))[1] for name in ("members", "earlier")]
        yield pa.RecordBatch.from_arrays([pa.array(np.unique(np.concatenate(parts)))], names=["place"])


def _kept(
    offsets: NDArray[np.int64], places: NDArray[np.int64], removed: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lists without the removed places."""
    if not len(removed):
        return offsets, places
    at = np.minimum(np.searchsorted(removed, places), len(removed) - 1)
    stays = removed[at] != places
    counts = np.concatenate([[0], np.cumsum(stays)])
    return counts[offsets].astype(np.int64), places[stays]


def _kept_members(batch: pa.RecordBatch, removed: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Offsets and places of the new and of the earlier members that are not removed, and the pairs among them."""
    new_offsets, new = _kept(*list_offsets(batch.column("members")), removed)
    earlier_offsets, earlier = _kept(*list_offsets(batch.column("earlier")), removed)
    fresh, old = np.diff(new_offsets), np.diff(earlier_offsets)
    return new_offsets, new, earlier_offsets, earlier, fresh * (fresh - 1) // 2 + fresh * old


def _next_leaders(leaders: int, before: int, after: int) -> int:
    """Leaders of the next round at a threshold: more, while the last ones removed a tenth of what was left."""
    if not leaders or leaders == _LEADERS[-1] or 10 * after > 9 * before:
        return 0
    return _LEADERS[_LEADERS.index(leaders) + 1]


def _leader_candidates(
    batches: Iterable[pa.RecordBatch], removed: Sequence[NDArray[np.int64]], leaders: Sequence[int], most: int
) -> Iterator[pa.RecordBatch]:
    """All pairs of buckets with few kept members, the leaders' pairs of the others; at every threshold, each once."""
    rounds = list(zip(removed, leaders, strict=True))
    for batch in batches:
        for gone, first_members in rounds if any(map(len, removed)) else rounds[:1]:
            new_offsets, new, earlier_offsets, earlier, pair_counts = _kept_members(batch, gone)
            few = pair_counts <= most
            everyone = np.where(few, np.diff(new_offsets) + np.diff(earlier_offsets), 0)
            yield candidate_batch(new_offsets, new, earlier_offsets, earlier, everyone)
            # The same leaders stand first in most bands, so their followers are joined before pairs are made.
            followers: dict[int, list[NDArray[np.int64]]] = {}
            for bucket in np.flatnonzero(~few).tolist():
                fresh = new[new_offsets[bucket] : new_offsets[bucket + 1]]
                old = earlier[earlier_offsets[bucket] : earlier_offsets[bucket + 1]]
                for leader in old[:first_members].tolist():
                    followers.setdefault(leader, []).append(fresh)
                for place, leader in enumerate(fresh[: max(0, first_members - len(old))].tolist()):
                    followers.setdefault(leader, []).append(fresh[place + 1 :])
            for leader, lists in followers.items():
                second = np.unique(np.concatenate(lists))
                columns = [pa.array(np.full(len(second), leader)), pa.array(second)]
                yield pa.RecordBatch.from_arrays(columns, names=["first", "second"])


def _too_large(large: DataFrame, removed: Sequence[NDArray[np.int64]], most: int) -> tuple[list[int], list[int]]:
    """At each threshold the buckets whose kept members are too many to compare all with all, and these members."""
    count = partial(_count_too_large, removed=removed, most=most)
    rows = large.mapInArrow(count, "group int, buckets bigint, members bigint").toArrow()
    groups, buckets, members = (rows.column(name).to_numpy() for name in ("group", "buckets", "members"))
    places = range(len(removed))
    return [int(buckets[groups == at].sum()) for at in places], [int(members[groups == at].sum()) for at in places]


def _count_too_large(
    batches: Iterable[pa.RecordBatch], removed: Sequence[NDArray[np.int64]], most: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts = []
        for gone in removed:
            new_offsets, _, earlier_offsets, _, pair_counts = _kept_members(batch, gone)
            large = pair_counts > most
            counts.append((large.sum(), (np.diff(new_offsets) + np.diff(earlier_offsets))[large].sum()))
        columns = [pa.array(range(len(removed)), pa.int32())]
        columns += [pa.array([int(pair[at]) for pair in counts], pa.int64()) for at in (0, 1)]
        yield pa.RecordBatch.from_arrays(columns, names=["group", "buckets", "members"])


def _split(
    large: DataFrame, removed: Sequence[NDArray[np.int64]], signatures: DataFrame, limits: Limits
) -> tuple[int, DataFrame]:
    """Candidates of the buckets that leaders did not settle: members that agree in further values too."""
    from pyspark.sql import functions as F

    spread = partial(_spread, removed=removed, most=limits.max_bucket_pairs)
    rows = large.mapInArrow(spread, "bucket bigint, place bigint, earlier boolean").distinct()
    joined = rows.join(signatures.select("place", "signature"), "place").persist()
    member_count = max(1, joined.count())
    for further in _FURTHER_VALUES:
        keyed = joined.mapInArrow(partial(_further_keys, further=further), "part bigint, place bigint, earlier boolean")
        parts = keyed.groupBy("part").agg(
            F.sort_array(F.collect_list(F.when(~F.col("earlier"), F.col("place")))).alias("members"),
            F.sort_array(F.collect_list(F.when(F.col("earlier"), F.col("place")))).alias("earlier"),
        )
        fresh, old = F.size("members").cast("long"), F.size("earlier").cast("long")
        total = parts.agg(F.sum(fresh * (fresh - 1) / 2 + fresh * old)).collect()[0][0] or 0
        if total <= _PAIRS_A_MEMBER * member_count or further == _FURTHER_VALUES[-1]:
            break
    nobody = [np.zeros(0, np.int64)]
    compare = partial(_leader_candidates, removed=nobody, leaders=_LEADERS[:1], most=limits.max_bucket_pairs)
    candidates = parts.mapInArrow(compare, _CANDIDATES_DDL).localCheckpoint()
    joined.unpersist()
    return further, candidates


def _spread(
    batches: Iterable[pa.RecordBatch], removed: Sequence[NDArray[np.int64]], most: int
) -> Iterator[pa.RecordBatch]:
    """A row for each kept member of the unsettled buckets."""
    for batch in batches:
        names = batch.column("bucket").to_numpy()
        for gone in removed:
            new_offsets, new, earlier_offsets, earlier, pair_counts = _kept_members(batch, gone)
            open_buckets = pair_counts > most
            for offsets, places, is_earlier in ((new_offsets, new, False), (earlier_offsets, earlier, True)):
                lengths = np.diff(offsets)
                chosen = np.repeat(open_buckets, lengths)
                columns = [
                    pa.array(np.repeat(names, lengths)[chosen]),
                    pa.array(places[chosen]),
                    pa.array(np.full(int(chosen.sum()), is_earlier)),
                ]
                yield pa.RecordBatch.from_arrays(columns, names=["bucket", "place", "earlier"])


def _further_keys(batches: Iterable[pa.RecordBatch], further: int) -> Iterator[pa.RecordBatch]:
    """Keys of a bucket and of further values, their positions a function of the bucket alone."""
    from spark_jobs.dedup.bucket_records import further_keys
    from spark_jobs.dedup.signature_arrays import signature_rows

    for batch in batches:
        buckets = batch.column("bucket").to_numpy().view(np.uint64)
        keys = further_keys(np.ascontiguousarray(signature_rows(batch.column("signature"))), buckets, further)
        columns = [pa.array(keys.view(np.int64)), batch.column("place"), batch.column("earlier")]
        yield pa.RecordBatch.from_arrays(columns, names=["part", "place", "earlier"])


def _split_recalls(large: DataFrame, further: int, thresholds: Sequence[float]) -> list[float]:
    """Expected recall at each threshold of a pair that shares the split buckets of every band, at least."""
    from pyspark.sql import functions as F

    bands = int(large.agg(F.count_distinct("band")).collect()[0][0])
    recalls = []
    for threshold in thresholds:
        agree = threshold + (1 - threshold) / 256
        # Of the bands in which the pair shares a bucket at all, it must agree in the further values of one.
        recalls.append(1 - (1 - agree**further) ** max(1, bands))
    return recalls
