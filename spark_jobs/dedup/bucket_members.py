"""Members of buckets: which of them become candidates, batch by batch of lists of places.

A candidate is two places (first, second); a bucket's members in order are its earlier ones and then its new ones, and
two earlier ones are never a candidate. Everything here is a function of batches, for `mapInArrow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

CANDIDATES_DDL = "first bigint, second bigint"


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


def members_among(batches: Iterable[pa.RecordBatch], places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
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


def all_members(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def leader_candidates(
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


def count_too_large(
    batches: Iterable[pa.RecordBatch], removed: Sequence[NDArray[np.int64]], most: int
) -> Iterator[pa.RecordBatch]:
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
