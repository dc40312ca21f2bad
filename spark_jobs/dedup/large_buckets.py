"""Large buckets: who is kept of a hundred thousand near-identical documents, without comparing all with all.

Only comparisons that can change who is kept are worth making. In rounds:

    1. the first members of each large bucket (its leaders) are compared with all others; in the first round there is
       one to each, and who has several buckets is compared with the one leader it shares most of them with
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
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.dedup.bucket_members import (
    CANDIDATES_DDL,
    CHOSEN_DDL,
    RANKED_DDL,
    BatchFunction,
    all_members,
    all_pairs,
    count_too_large,
    in_turn,
    leader_candidates,
    open_members,
    ranked_members,
)
from spark_jobs.dedup.kept_set import removed_table, removed_vertices
from spark_jobs.dedup.threshold_pairs import exact, groups_reached
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


@dataclass(frozen=True)
class BucketCounts:
    """What is in the buckets of an increment.

    Attributes:
        small_pairs: pairs of small buckets, each counted in every bucket it shares.
        large: large buckets.
        large_members: their members, each counted in every one of them.
    """

    small_pairs: int
    large: int
    large_members: int


@dataclass
class _Comparisons:
    """What was compared so far, and who of the members of large buckets is removed by it at each threshold.

    Attributes:
        large: rows of `RANKED_DDL`: the large buckets.
        places: (N,) places of their members, ascending; 8 bytes each for the driver.
        history: rows (groups, worse, better) of the pairs of earlier increments.
        index: what candidates are verified with.
        limits: thresholds and limits.
        removed: (N,) for each threshold, whether the member is removed.
        kept: DataFrames to unpersist.
        found: pairs verified so far.
        done: candidates of members compared so far.
        candidate_count: how many these are.
    """

    large: DataFrame
    places: NDArray[np.int64]
    history: DataFrame
    index: Index
    limits: Limits
    removed: list[NDArray[np.bool_]]
    kept: list[DataFrame]
    found: DataFrame | None = None
    done: DataFrame | None = None
    candidate_count: int = 0

    def leaders_choice(self, removed: Sequence[NDArray[np.bool_]], leaders: Sequence[int]) -> BatchFunction:
        """What of ranked buckets is to be compared where some members are removed: to rows of `CHOSEN_DDL`."""
        most = self.limits.max_bucket_pairs
        return partial(leader_candidates, removed=removed, leaders=leaders, places=self.places, most=most)

    def compare(self, chosen: DataFrame, threshold: Fraction, beside: tuple[DataFrame, int] | None = None) -> bool:
        """Verify candidates that were not compared before; False where there are none.

        Args:
            chosen: rows (first, second), repeats among them.
            threshold: lowest weighted Jaccard similarity.
            beside: other distinct candidates to verify with them, and about how many these are.
        """
        fresh = chosen.select("first", "second").distinct()
        if self.done is not None:
            fresh = fresh.join(self.done.hint("merge"), ["first", "second"], "left_anti")
        fresh = fresh.localCheckpoint()
        count = fresh.count()
        if not count and not beside:
            return False
        candidates, total = (fresh.unionByName(beside[0]), count + beside[1]) if beside else (fresh, count)
        verified, persisted = verified_pairs(candidates, total, self.index, threshold)
        more = verified.localCheckpoint()
        self.kept.extend((*persisted, more))
        self.found = more if self.found is None else self.found.unionByName(more)
        self.done = fresh if self.done is None else self.done.unionByName(fresh)
        self.candidate_count += count
        _log.info("large buckets: %d candidates", count)
        return True

    def settle(self) -> None:
        """Find who is removed by all pairs so far."""
        edges = self.history
        if self.found is not None:
            edges = edges.unionByName(_edges(self.found, "right_place", "left_place", self.limits.thresholds))
        edges = edges.persist()
        if edges.count() <= self.limits.driver_edges:
            gone = removed_table(edges.toArrow())
        else:
            members = edges.sparkSession.createDataFrame(pa.table({"vertex": self.places}))
            gone = removed_vertices(edges, self.limits.driver_edges).join(members, "vertex", "left_semi").toArrow()
        edges.unpersist()
        groups = _at_places(gone, self.places)
        self.removed = [groups >> group & 1 == 1 for group in range(len(self.removed))]

    def too_large(self) -> tuple[list[int], list[int]]:
        """At each threshold the buckets with too many kept members to compare all with all, and these members."""
        count = partial(count_too_large, removed=self.removed, most=self.limits.max_bucket_pairs)
        rows = self.large.mapInArrow(count, "group int, buckets bigint, members bigint").toArrow()
        groups, buckets, members = (rows.column(name).to_numpy() for name in ("group", "buckets", "members"))
        at_each = [groups == group for group in range(len(self.removed))]
        return [int(buckets[at].sum()) for at in at_each], [int(members[at].sum()) for at in at_each]


def compare_large(
    sized: tuple[DataFrame, DataFrame], counts: BucketCounts, history: DataFrame, index: Index, limits: Limits
) -> tuple[DataFrame, list[dict[str, Any]], tuple[DataFrame, ...]]:
    """Compare the members of buckets, some of which are large, until it is settled who is kept.

    Args:
        sized: the buckets (members, earlier) that are small, and those that are large.
        counts: what is in them.
        history: rows of `pairs` of earlier increments.
        index: what candidates are verified with.
        limits: thresholds and limits.

    Returns:
        All verified pairs, facts for `large_buckets`, and DataFrames to unpersist.
    """
    small, large = (buckets.persist() for buckets in sized)
    places = np.sort(large.mapInArrow(all_members, "place bigint").distinct().toArrow().column("place").to_numpy())
    rank = partial(ranked_members, places=places)
    ranked = large.mapInArrow(rank, RANKED_DDL).persist()
    state = _Comparisons(
        large=ranked,
        places=places,
        history=_edges(history, "place", "better_place", limits.thresholds),
        index=index,
        limits=limits,
        removed=[np.zeros(len(places), np.bool_) for _ in limits.thresholds],
        kept=[small, large, ranked],
    )
    if history.take(1):
        state.settle()
    rounds, unsettled = _rounds(state, small, rank, counts)
    further, recalls = 0, [1.0] * len(limits.thresholds)
    if any(unsettled):
        from spark_jobs.dedup.split_buckets import split_recall

        further = _split(state, unsettled)
        recalls = split_recall(further, limits.thresholds)
    facts = [
        {
            "threshold": float(threshold),
            "bucket_count": counts.large,
            "document_count": len(places),
            "rounds": rounds,
            "candidate_count": state.candidate_count,
            "split_bucket_count": split,
            "further_values": further if split else 0,
            "recall_in_split": recall if split else 1.0,
        }
        for threshold, split, recall in zip(limits.thresholds, unsettled, recalls, strict=True)
    ]
    assert state.found is not None  # the first round verifies the small buckets at least
    return state.found, facts, tuple(state.kept)


def _rounds(state: _Comparisons, small: DataFrame, rank: BatchFunction, counts: BucketCounts) -> tuple[int, list[int]]:
    """Compare until nothing is new in any bucket; returns the rounds, and at each threshold the buckets left large."""
    lowest = exact(min(state.limits.thresholds))
    leaders = [_LEADERS[0]] * len(state.removed)
    sizes = [counts.large_members] * len(state.removed)
    of_small = small.mapInArrow(partial(all_pairs, not_among=state.places), CANDIDATES_DDL).distinct()
    led = _one_leader_each(state.large.mapInArrow(state.leaders_choice(state.removed, leaders), CHOSEN_DDL))
    state.compare(led, lowest, (of_small, counts.small_pairs))
    rounds = 0
    while True:
        rounds += 1
        state.settle()
        unsettled, left = state.too_large()
        leaders = [_next_leaders(*one) for one in zip(leaders, sizes, left, strict=True)]
        sizes = left
        chosen = state.large.mapInArrow(state.leaders_choice(state.removed, leaders), CHOSEN_DDL)
        settled = [gone for gone, count in zip(state.removed, unsettled, strict=True) if not count]
        if settled:
            among_small = (rank, state.leaders_choice(settled, [0] * len(settled)))
            chosen = chosen.unionByName(small.mapInArrow(partial(in_turn, functions=among_small), CHOSEN_DDL))
        if not state.compare(chosen, lowest):
            return rounds, unsettled


def _one_leader_each(chosen: DataFrame) -> DataFrame:
    """Of the leaders of a member at a threshold the one with which it shares most buckets; other pairs as they are."""
    from pyspark.sql import functions as F

    summed = chosen.groupBy("group", "first", "second").agg(F.sum("shared").alias("shared"))
    unled = F.when(F.col("shared") == 0, F.col("first"))
    most_shared = F.max_by("first", F.struct("shared", -F.col("first")))
    return summed.groupBy("group", "second", unled.alias("unled")).agg(most_shared.alias("first"))


def _split(state: _Comparisons, unsettled: Sequence[int]) -> int:
    """Compare what is left in buckets that leaders could not reduce on further values; returns how many."""
    from spark_jobs.dedup.split_buckets import split_buckets

    open_groups = [group for group, count in enumerate(unsettled) if count]
    still = [state.removed[group] for group in open_groups]
    find = partial(open_members, places=state.places, removed=still, most=state.limits.max_bucket_pairs)
    pool = state.large.mapInArrow(find, "place bigint, earlier boolean").distinct().toArrow()
    further, parts, members = split_buckets(pool, state.index.signatures)
    state.kept.append(members)
    nobody = np.zeros(len(state.places), np.bool_)  # all in the pool are kept, at one of the thresholds
    rank, choose = partial(ranked_members, places=state.places), state.leaders_choice([nobody], _LEADERS[:1])
    # Below this threshold everything is settled, so that less similar pairs say nothing new.
    least = min(state.limits.thresholds[group] for group in open_groups)
    chosen = parts.mapInArrow(partial(in_turn, functions=(rank, choose)), CHOSEN_DDL)
    state.compare(chosen, exact(least))
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
    return pairs.select(
        groups_reached(thresholds).alias("groups"), pairs[worse].alias("worse"), pairs[better].alias("better")
    )


def _at_places(removed: pa.Table, places: NDArray[np.int64]) -> NDArray[np.int32]:
    """(N,) groups in which the document at each of some ascending places is removed; the others are left out."""
    vertices, groups = removed.column("vertex").to_numpy(), removed.column("groups").to_numpy()
    inside = np.isin(vertices, places)
    found = np.zeros(len(places), np.int32)
    found[np.searchsorted(places, vertices[inside])] = groups[inside]
    return found


def _next_leaders(leaders: int, before: int, after: int) -> int:
    """Leaders of the next round at a threshold: more, while the last ones removed a tenth of what was left."""
    if not leaders or leaders == _LEADERS[-1] or 10 * after > 9 * before:
        return 0
    return _LEADERS[_LEADERS.index(leaders) + 1]
