"""Members of buckets: which of them become candidates, batch by batch of lists.

A candidate is two places (first, second); a bucket's members in order are its earlier ones and then its new ones, and
two earlier ones are never a candidate. Everything here is a function of batches, for `mapInArrow`.

Members of large buckets are numbered by the rank of their place among all of them, so that who is removed is a mask:
ten million members are looked up in milliseconds instead of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

CANDIDATES_DDL = "first bigint, second bigint"
CHOSEN_DDL = "group int, first bigint, second bigint, shared bigint"
RANKED_DDL = "members array<int>, earlier array<int>"

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Masks = Sequence[NDArray[np.bool_]]


def in_turn(batches: Iterable[pa.RecordBatch], functions: Sequence[BatchFunction]) -> Iterator[pa.RecordBatch]:
    """Several functions of batches as one: a second `mapInArrow` would take a Python process of its own."""
    for function in functions:
        batches = function(batches)
    yield from batches


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
        wanted = ~(ranks_among(first, not_among)[1] & ranks_among(second, not_among)[1])
        first, second = first[wanted], second[wanted]
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    other = np.ones(len(first), np.bool_)
    other[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return pa.RecordBatch.from_arrays([pa.array(first[other]), pa.array(second[other])], names=["first", "second"])


def ranks_among(values: NDArray[np.int64], places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(N,) rank of each value among places, which are ascending, and (N,) whether it is one of them."""
    ranks = np.searchsorted(places, values)
    inside = ranks < len(places)
    inside[inside] = places[ranks[inside]] == values[inside]
    return ranks, inside


def ranked_members(batches: Iterable[pa.RecordBatch], places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Buckets with ranks instead of places.

    Args:
        batches: rows with the columns members and earlier.
        places: (N,) ascending; members at other places are left out.

    Yields:
        Rows of `RANKED_DDL`: ranks in `places`.
    """
    for batch in batches:
        lists = []
        for name in ("members", "earlier"):
            offsets, values = list_offsets(batch.column(name))
            ranks, inside = ranks_among(values, places)
            counts = np.concatenate([[0], np.cumsum(inside)])[offsets].astype(np.int32)
            lists.append(pa.ListArray.from_arrays(pa.array(counts), pa.array(ranks[inside].astype(np.int32))))
        yield pa.RecordBatch.from_arrays(lists, names=["members", "earlier"])


def all_members(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places in a batch of buckets, each once."""
    for batch in batches:
        parts = [list_offsets(batch.column(name))[1] for name in ("members", "earlier")]
        yield pa.RecordBatch.from_arrays([pa.array(np.unique(np.concatenate(parts)))], names=["place"])


def _kept(column: pa.ListArray, removed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and ranks of lists without the removed members."""
    offsets, ranks = list_offsets(column)
    stays = ~removed[ranks]
    counts = np.concatenate([[0], np.cumsum(stays)])
    return counts[offsets].astype(np.int64), ranks[stays].astype(np.int64)


def _kept_members(batch: pa.RecordBatch, removed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], ...]:
    """Offsets and ranks of the new and of the earlier members that are not removed, and the pairs among them."""
    new_offsets, new = _kept(batch.column("members"), removed)
    earlier_offsets, earlier = _kept(batch.column("earlier"), removed)
    fresh, old = np.diff(new_offsets), np.diff(earlier_offsets)
    return new_offsets, new, earlier_offsets, earlier, fresh * (fresh - 1) // 2 + fresh * old


def leader_candidates(
    batches: Iterable[pa.RecordBatch], removed: Masks, leaders: Sequence[int], places: NDArray[np.int64], most: int
) -> Iterator[pa.RecordBatch]:
    """All pairs of buckets with few kept members, the leaders' pairs of the others; at every threshold, each once.

    Args:
        batches: rows of `RANKED_DDL`.
        removed: (N,) for each threshold, who is removed.
        leaders: for each threshold, how many of the first members are leaders.
        places: (N,) place of each rank.
        most: pairs up to which a bucket has few members.

    Yields:
        Rows of `CHOSEN_DDL`: the threshold's number, two places, and in how many of the batch's buckets the first leads
        the second; 0 for pairs of buckets with few members.
    """
    rounds = list(zip(range(len(removed)), removed, leaders, strict=True))
    for batch in batches:
        for group, gone, first_members in rounds if any(mask.any() for mask in removed) else rounds[:1]:
            new_offsets, new, earlier_offsets, earlier, pair_counts = _kept_members(batch, gone)
            few = pair_counts <= most
            everyone = np.where(few, np.diff(new_offsets) + np.diff(earlier_offsets), 0)
            pairs = candidate_batch(new_offsets, new, earlier_offsets, earlier, everyone)
            first, second = (column.to_numpy() for column in pairs.columns)
            yield _chosen(group, places[first], places[second], np.zeros(len(first), np.int64))
            # The same leaders stand first in most bands, so their followers are joined before pairs are made.
            followers: dict[int, list[NDArray[np.int64]]] = {}
            for bucket in np.flatnonzero(~few).tolist():
                fresh = new[new_offsets[bucket] : new_offsets[bucket + 1]]
                old = earlier[earlier_offsets[bucket] : earlier_offsets[bucket + 1]]
                for leader in old[:first_members].tolist():
                    followers.setdefault(leader, []).append(fresh)
                for rank, leader in enumerate(fresh[: max(0, first_members - len(old))].tolist()):
                    followers.setdefault(leader, []).append(fresh[rank + 1 :])
            for leader, lists in followers.items():
                shared = np.bincount(np.concatenate(lists), minlength=1)
                ranks = np.flatnonzero(shared)
                yield _chosen(group, np.full(len(ranks), places[leader]), places[ranks], shared[ranks])


def _chosen(
    group: int, first: NDArray[np.int64], second: NDArray[np.int64], shared: NDArray[np.int64]
) -> pa.RecordBatch:
    columns = [pa.array(np.full(len(first), group, np.int32)), pa.array(first), pa.array(second), pa.array(shared)]
    return pa.RecordBatch.from_arrays(columns, names=["group", "first", "second", "shared"])


def count_too_large(batches: Iterable[pa.RecordBatch], removed: Masks, most: int) -> Iterator[pa.RecordBatch]:
    """At each threshold the buckets of a batch that are still too large, and their kept members."""
    for batch in batches:
        counts = []
        for gone in removed:
            new_offsets, _, earlier_offsets, _, pair_counts = _kept_members(batch, gone)
            large = pair_counts > most
            counts.append((large.sum(), (np.diff(new_offsets) + np.diff(earlier_offsets))[large].sum()))
        columns = [pa.array(range(len(removed)), pa.int32())]
        columns += [pa.array([int(pair[at]) for pair in counts], pa.int64()) for at in (0, 1)]
        yield pa.RecordBatch.from_arrays(columns, names=["group", "buckets", "members"])


def open_members(
    batches: Iterable[pa.RecordBatch], places: NDArray[np.int64], removed: Masks, most: int
) -> Iterator[pa.RecordBatch]:
    """Kept members of the buckets that are still too large: their places, and whether they came earlier."""
    for batch in batches:
        for gone in removed:
            new_offsets, new, earlier_offsets, earlier, pair_counts = _kept_members(batch, gone)
            too_large = pair_counts > most
            parts = [
                np.unique(ranks[np.repeat(too_large, np.diff(offsets))])
                for offsets, ranks in ((new_offsets, new), (earlier_offsets, earlier))
            ]
            is_earlier = np.repeat([False, True], [len(part) for part in parts])
            columns = [pa.array(places[np.concatenate(parts)]), pa.array(is_earlier)]
            yield pa.RecordBatch.from_arrays(columns, names=["place", "earlier"])
