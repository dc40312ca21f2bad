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

Small buckets take part: pairs of two members of large buckets are made only of those that are kept by then, since
near-identical documents meet in a thousand small buckets as well.

Leaders grow from 2 to 128, as long as each round removes a tenth of what was left in large buckets at a threshold.
What still has too many kept members then is split on further values of the signatures (`split_buckets`), and what that
can miss is computed and stored: the one place where a pair that shares a bucket may stay unseen.
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

from spark_jobs.dedup.kept_set import removed_vertices
from spark_jobs.dedup.split_buckets import split_buckets, split_recall
from spark_jobs.dedup.threshold_pairs import exact, pairs_at
from spark_jobs.dedup.verification import Index, verified_pairs
from spark_jobs.lake.tables import Check, Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_LEADERS = (2, 8, 32, 128)
CANDIDATES_DDL = "first bigint, second bigint"

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


@dataclass
class _Comparisons:
    """What was compared so far, and who of the members of large buckets is removed by it at each threshold.

    Attributes:
        members: rows (place) of the members.
        history: rows (group, worse, better) of the pairs of earlier increments.
        index: what candidates are verified with.
        limits: thresholds and limits.
        done: candidates compared.
        found: pairs verified among them.
        kept: DataFrames to unpersist.
        removed: for each threshold the removed places, ascending; 8 bytes each for the driver.
        candidate_count: candidates compared in large buckets.
    """

    members: DataFrame
    history: DataFrame
    index: Index
    limits: Limits
    done: DataFrame
    found: DataFrame
    kept: list[DataFrame]
    removed: list[NDArray[np.int64]]
    candidate_count: int = 0

    def compare(self, candidates: DataFrame, threshold: Fraction) -> bool:
        """Verify those that were not compared before; False where there are none."""
        done = self.done.hint("merge")
        fresh = candidates.distinct().join(done, ["first", "second"], "left_anti").localCheckpoint()
        count = fresh.count()
        if not count:
            return False
        verified, persisted = verified_pairs(fresh, count, self.index, threshold)
        more = verified.localCheckpoint()
        self.kept.extend((*persisted, more))
        self.found, self.done = self.found.unionByName(more), self.done.unionByName(fresh)
        self.candidate_count += count
        _log.info("large buckets: %d candidates", count)
        return True

    def settle(self) -> None:
        """Find who is removed by all pairs so far."""
        edges = _edges(self.found, "right_place", "left_place", self.limits.thresholds).unionByName(self.history)
        gone = removed_vertices(edges, self.limits.driver_edges).join(
            self.members.withColumnRenamed("place", "vertex"), "vertex", "left_semi"
        )
        rows = gone.toArrow()
        groups, places = rows.column("group").to_numpy(), rows.column("vertex").to_numpy()
        self.removed = [np.sort(places[groups == group]) for group in range(len(self.limits.thresholds))]

    def too_large(self, large: DataFrame) -> tuple[list[int], list[int]]:
        """At each threshold the buckets with too many kept members to compare all with all, and these members."""
        count = partial(_count_too_large, removed=self.removed, most=self.limits.max_bucket_pairs)
        rows = large.mapInArrow(count, "group int, buckets bigint, members bigint").toArrow()
        groups, buckets, members = (rows.column(name).to_numpy() for name in ("group", "buckets", "members"))
        places = range(len(self.removed))
        return [int(buckets[groups == at].sum()) for at in places], [int(members[groups == at].sum()) for at in places]


def compare_large(
    sized: tuple[DataFrame, DataFrame], history: DataFrame, index: Index, limits: Limits
) -> tuple[DataFrame, list[dict[str, Any]], tuple[DataFrame, ...]]:
    """Compare the members of buckets, some of which are large, until it is settled who is kept.

    Args:
        sized: the buckets (band, bucket, members, earlier) that are small, and those that are large.
        history: rows of `pairs` of earlier increments.
        index: what candidates are verified with.
        limits: thresholds and limits.

    Returns:
        All verified pairs, facts for `large_buckets`, and DataFrames to unpersist.
    """
    small, large = (buckets.persist() for buckets in sized)
    members = large.mapInArrow(_members, "place bigint").distinct().persist()
    places = np.sort(members.toArrow().column("place").to_numpy())
    lowest = exact(min(limits.thresholds))
    done = small.mapInArrow(partial(all_pairs, not_among=places), CANDIDATES_DDL).distinct().persist()
    verified, persisted = verified_pairs(done, done.count(), index, lowest)
    found = verified.persist()
    state = _Comparisons(
        members=members,
        history=_edges(history, "place", "better_place", limits.thresholds),
        index=index,
        limits=limits,
        done=done,
        found=found,
        kept=[small, large, members, done, found, *persisted],
        removed=[np.zeros(0, np.int64) for _ in limits.thresholds],
    )
    rounds = _by_leaders(large, state, bool(history.take(1)), lowest)
    unsettled, _ = state.too_large(large)
    among = large.unionByName(small.mapInArrow(partial(_among, places=places), large.schema))
    while True:
        settled = [gone for gone, count in zip(state.removed, unsettled, strict=True) if not count]
        choose = partial(_leader_candidates, removed=settled, leaders=[0] * len(settled), most=limits.max_bucket_pairs)
        if not settled or not state.compare(among.mapInArrow(choose, CANDIDATES_DDL), lowest):
            break
        rounds += 1
        state.settle()
        unsettled, _ = state.too_large(large)
    further, recalls = 0, [1.0] * len(limits.thresholds)
    if any(unsettled):
        further = _split(large, state, unsettled)
        recalls = split_recall(further, limits.thresholds)
    facts = [
        {
            "threshold": float(threshold),
            "bucket_count": large.count(),
            "document_count": len(places),
            "rounds": rounds,
            "candidate_count": state.candidate_count,
            "split_bucket_count": split,
            "further_values": further if split else 0,
            "recall_in_split": recall if split else 1.0,
        }
        for threshold, split, recall in zip(limits.thresholds, unsettled, recalls, strict=True)
    ]
    return state.found, facts, tuple(state.kept)


def _by_leaders(large: DataFrame, state: _Comparisons, has_history: bool, lowest: Fraction) -> int:
    """Rounds of leaders, until no large bucket has any new comparison; returns how many."""
    if has_history:
        state.settle()
    leaders = [_LEADERS[0]] * len(state.removed)
    _, sizes = state.too_large(large)
    rounds = 0
    while True:
        most = state.limits.max_bucket_pairs
        choose = partial(_leader_candidates, removed=state.removed, leaders=leaders, most=most)
        if not state.compare(large.mapInArrow(choose, CANDIDATES_DDL), lowest):
            return rounds
        rounds += 1
        state.settle()
        _, left = state.too_large(large)
        leaders = [_next_leaders(*one) for one in zip(leaders, sizes, left, strict=True)]
        sizes = left


def _split(large: DataFrame, state: _Comparisons, unsettled: Sequence[int]) -> int:
    """Compare what is left in buckets that leaders could not reduce on further values; returns how many."""
    most = state.limits.max_bucket_pairs
    still = [gone for gone, count in zip(state.removed, unsettled, strict=True) if count]
    pool = large.mapInArrow(partial(_open_members, removed=still, most=most), "place bigint, earlier boolean")
    further, parts, members = split_buckets(pool.distinct().toArrow(), state.index.signatures)
    state.kept.append(members)
    choose = partial(_leader_candidates, removed=[np.zeros(0, np.int64)], leaders=_LEADERS[:1], most=most)
    # Below this threshold everything is settled, so that less similar pairs say nothing new.
    least = min(t for t, count in zip(state.limits.thresholds, unsettled, strict=True) if count)
    state.compare(parts.mapInArrow(choose, CANDIDATES_DDL), exact(least))
    return further


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


def all_pairs(
    batches: Iterable[pa.RecordBatch], not_among: NDArray[np.int64] | None = None
) -> Iterator[pa.RecordBatch]:
    """All pairs of the members of buckets, each once a batch.

    Args:
        batches: rows with the columns members and earlier.
        not_among: places, ascending; pairs of two of them are left out.

    Yields:
        Rows of `CANDIDATES_DDL`.
    """
    for batch in batches:
        new_offsets, new = list_offsets(batch.column("members"))
        earlier_offsets, earlier = list_offsets(batch.column("earlier"))
        everyone = np.diff(new_offsets) + np.diff(earlier_offsets)
        yield candidate_batch(new_offsets, new, earlier_offsets, earlier, everyone, not_among)


def candidate_batch(
    new_offsets: NDArray[np.int64],
    new: NDArray[np.int64],
    earlier_offsets: NDArray[np.int64],
    earlier: NDArray[np.int64],
    leader_counts: NDArray[np.int64],
    not_among: NDArray[np.int64] | None = None,
) -> pa.RecordBatch:
    """Candidates of some buckets, as `pairs_within` makes them, each once; not those of two places `not_among`."""
    from spark_jobs.dedup.bucket_records import pairs_within

    first, second = pairs_within(new_offsets, new, earlier_offsets, earlier, leader_counts)
    if not_among is not None:
        wanted = ~(_inside(first, not_among) & _inside(second, not_among))
        first, second = first[wanted], second[wanted]
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    other = np.ones(len(first), np.bool_)
    other[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return pa.RecordBatch.from_arrays([pa.array(first[other]), pa.array(second[other])], names=["first", "second"])


def _inside(values: NDArray[np.int64], sorted_places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) whether each value is one of the places."""
    if not len(sorted_places):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(sorted_places, values), len(sorted_places) - 1)
    found: NDArray[np.bool_] = sorted_places[at] == values
    return found


def _among(batches: Iterable[pa.RecordBatch], places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Buckets reduced to those of their members that are at some places."""
    for batch in batches:
        lists = []
        for name in ("members", "earlier"):
            offsets, values = list_offsets(batch.column(name))
            inside = _inside(values, places)
            counts = np.concatenate([[0], np.cumsum(inside)])[offsets]
            lists.append(pa.ListArray.from_arrays(pa.array(counts.astype(np.int32)), pa.array(values[inside])))
        rest = [batch.column("band"), batch.column("bucket"), *lists]
        yield pa.RecordBatch.from_arrays(rest, names=["band", "bucket", "members", "earlier"])


def _edges(pairs: DataFrame, worse: str, better: str, thresholds: Sequence[float]) -> DataFrame:
    """Edges of all thresholds between places."""
    named = pairs.select("shared_weight", "united_weight", pairs[worse].alias("worse"), pairs[better].alias("better"))
    return pairs_at(named, thresholds).select("group", "worse", "better")


def _members(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places in a batch of buckets, each once."""
    for batch in batches:
        parts = [list_offsets(batch.column(name))[1] for name in ("members", "earlier")]
        yield pa.RecordBatch.from_arrays([pa.array(np.unique(np.concatenate(parts)))], names=["place"])


def _kept(
    offsets: NDArray[np.int64], places: NDArray[np.int64], removed: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lists without the removed places."""
    stays = ~_inside(places, removed)
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


def _open_members(
    batches: Iterable[pa.RecordBatch], removed: Sequence[NDArray[np.int64]], most: int
) -> Iterator[pa.RecordBatch]:
    """Kept members of the buckets that are still too large."""
    for batch in batches:
        for gone in removed:
            new_offsets, new, earlier_offsets, earlier, pair_counts = _kept_members(batch, gone)
            too_large = pair_counts > most
            parts = [
                np.unique(places[np.repeat(too_large, np.diff(offsets))])
                for offsets, places in ((new_offsets, new), (earlier_offsets, earlier))
            ]
            is_earlier = np.repeat([False, True], [len(part) for part in parts])
            columns = [pa.array(np.concatenate(parts)), pa.array(is_earlier)]
            yield pa.RecordBatch.from_arrays(columns, names=["place", "earlier"])
