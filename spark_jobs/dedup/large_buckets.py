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

Leaders grow from 1 to 128, as long as each round removes a tenth of what was left in large buckets at a threshold.
What still has too many kept members then is split on further values of the signatures (`split_buckets`), and what that
can miss is computed and stored: the one place where a pair that shares a bucket may stay unseen.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spark_jobs.dedup.bucket_members import (
    CANDIDATES_DDL,
    all_members,
    all_pairs,
    count_too_large,
    leader_candidates,
    members_among,
    open_members,
)
from spark_jobs.dedup.kept_set import removed_vertices
from spark_jobs.dedup.threshold_pairs import exact, pairs_at
from spark_jobs.dedup.verification import Index, verified_pairs
from spark_jobs.lake.tables import Check, Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_LEADERS = (1, 8, 32, 128)

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
        count = partial(count_too_large, removed=self.removed, most=self.limits.max_bucket_pairs)
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
    members = large.mapInArrow(all_members, "place bigint").distinct().persist()
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
    among = large.unionByName(small.mapInArrow(partial(members_among, places=places), large.schema))
    while True:
        settled = [gone for gone, count in zip(state.removed, unsettled, strict=True) if not count]
        choose = partial(leader_candidates, removed=settled, leaders=[0] * len(settled), most=limits.max_bucket_pairs)
        if not settled or not state.compare(among.mapInArrow(choose, CANDIDATES_DDL), lowest):
            break
        rounds += 1
        state.settle()
        unsettled, _ = state.too_large(large)
    further, recalls = 0, [1.0] * len(limits.thresholds)
    if any(unsettled):
        from spark_jobs.dedup.split_buckets import split_recall

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
        choose = partial(leader_candidates, removed=state.removed, leaders=leaders, most=most)
        if not state.compare(large.mapInArrow(choose, CANDIDATES_DDL), lowest):
            return rounds
        rounds += 1
        state.settle()
        _, left = state.too_large(large)
        leaders = [_next_leaders(*one) for one in zip(leaders, sizes, left, strict=True)]
        sizes = left


def _split(large: DataFrame, state: _Comparisons, unsettled: Sequence[int]) -> int:
    """Compare what is left in buckets that leaders could not reduce on further values; returns how many."""
    from spark_jobs.dedup.split_buckets import split_buckets

    most = state.limits.max_bucket_pairs
    still = [gone for gone, count in zip(state.removed, unsettled, strict=True) if count]
    pool = large.mapInArrow(partial(open_members, removed=still, most=most), "place bigint, earlier boolean")
    further, parts, members = split_buckets(pool.distinct().toArrow(), state.index.signatures)
    state.kept.append(members)
    choose = partial(leader_candidates, removed=[np.zeros(0, np.int64)], leaders=_LEADERS[:1], most=most)
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


def _edges(pairs: DataFrame, worse: str, better: str, thresholds: Sequence[float]) -> DataFrame:
    """Edges of all thresholds between places."""
    named = pairs.select("shared_weight", "united_weight", pairs[worse].alias("worse"), pairs[better].alias("better"))
    return pairs_at(named, thresholds).select("group", "worse", "better")


def _next_leaders(leaders: int, before: int, after: int) -> int:
    """Leaders of the next round at a threshold: more, while the last ones removed a tenth of what was left."""
    if not leaders or leaders == _LEADERS[-1] or 10 * after > 9 * before:
        return 0
    return _LEADERS[_LEADERS.index(leaders) + 1]
