"""Records of buckets: (key, place) pairs in blocks, scattered to partitions and grouped by key without a row for each.

Fifty keys a document would be fifty rows a document for Spark to serialize, hash and sort. Here a block of them travels
as one row of bytes for each partition that it is meant for:

    batch of documents -> keys (D, bands) -> scatter by key -> one block for every partition      (mapInArrow)
    partition          -> its blocks, sorted by key -> runs of at least two = buckets             (mapInArrow)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

# The low bits of a key are its band (spark_jobs.dedup.near.bands); those above are a hash.
_BAND_BITS = 10


@dataclass(frozen=True)
class Runs:
    """Buckets with at least two members, at least one of them new.

    Attributes:
        keys: (B,) uint64, ascending.
        new_offsets: (B + 1,) int64 into `new`.
        new: (N,) int64 places of new members, ascending in each bucket.
        earlier_offsets: (B + 1,) int64 into `earlier`.
        earlier: (M,) int64 places of members of earlier increments, ascending in each bucket.
    """

    keys: NDArray[np.uint64]
    new_offsets: NDArray[np.int64]
    new: NDArray[np.int64]
    earlier_offsets: NDArray[np.int64]
    earlier: NDArray[np.int64]


@njit(cache=True)
def scatter(
    keys: NDArray[np.uint64], places: NDArray[np.int64], partition_count: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Order (K,) records by the partition that their key belongs to.

    Returns:
        (P + 1,) offsets of the partitions, and keys and places in their order.
    """
    count = np.uint64(partition_count)
    offsets = np.zeros(partition_count + 1, np.int64)
    for key in keys:
        offsets[np.int64((key >> np.uint64(_BAND_BITS)) % count) + 1] += 1
    for part in range(partition_count):
        offsets[part + 1] += offsets[part]
    filled = offsets[:-1].copy()
    scattered_keys = np.empty_like(keys)
    scattered_places = np.empty_like(places)
    for record in range(keys.size):
        partition = np.int64((keys[record] >> np.uint64(_BAND_BITS)) % count)
        scattered_keys[filled[partition]] = keys[record]
        scattered_places[filled[partition]] = places[record]
        filled[partition] += 1
    return offsets, scattered_keys, scattered_places


def runs(keys: NDArray[np.uint64], places: NDArray[np.int64], is_earlier: NDArray[np.bool_]) -> Runs:
    """Group (K,) records by key; a bucket of one, or without a new member, is left out."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(keys) else np.zeros(0, int)
    lengths = np.diff(np.append(starts, len(keys)))
    new_counts = np.add.reduceat(~is_earlier[order], starts, dtype=np.int64) if len(keys) else np.zeros(0, np.int64)
    wanted = (lengths >= 2) & (new_counts >= 1)
    inside = np.repeat(wanted, lengths)
    chosen = order[inside]
    run_of = np.repeat(np.arange(int(wanted.sum())), lengths[wanted])
    chosen = chosen[np.lexsort((places[chosen], run_of))]
    later = ~is_earlier[chosen]
    new_counts = new_counts[wanted]
    return Runs(
        keys=ordered[starts[wanted]],
        new_offsets=_offsets(new_counts),
        new=places[chosen[later]],
        earlier_offsets=_offsets(lengths[wanted] - new_counts),
        earlier=places[chosen[~later]],
    )


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@njit(cache=True)
def pairs_within(
    new_offsets: NDArray[np.int64],
    new: NDArray[np.int64],
    earlier_offsets: NDArray[np.int64],
    earlier: NDArray[np.int64],
    leader_counts: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Candidates of (B,) buckets: of the first `leader_counts[b]` members with all that come after them.

    The members of a bucket in order are its earlier ones and then its new ones; two earlier ones are never a candidate.
    A leader count of at least the bucket's members gives all pairs.

    Returns:
        (C,) places that come first and (C,) places that come later.
    """
    total = 0
    for bucket in range(leader_counts.size):
        old, fresh, leaders = _sizes(new_offsets, earlier_offsets, leader_counts, bucket)
        total += _count(old, fresh, leaders)
    first = np.empty(total, np.int64)
    second = np.empty(total, np.int64)
    filled = 0
    for bucket in range(leader_counts.size):
        old, fresh, leaders = _sizes(new_offsets, earlier_offsets, leader_counts, bucket)
        old_start, new_start = earlier_offsets[bucket], new_offsets[bucket]
        for leader in range(min(leaders, old)):
            for member in range(fresh):
                first[filled] = earlier[old_start + leader]
                second[filled] = new[new_start + member]
                filled += 1
        for leader in range(min(leaders - old, fresh)):
            for member in range(leader + 1, fresh):
                first[filled] = new[new_start + leader]
                second[filled] = new[new_start + member]
                filled += 1
    return first, second


@njit(cache=True)
def _sizes(
    new_offsets: NDArray[np.int64],
    earlier_offsets: NDArray[np.int64],
    leader_counts: NDArray[np.int64],
    bucket: int,
) -> tuple[int, int, int]:
    return (
        earlier_offsets[bucket + 1] - earlier_offsets[bucket],
        new_offsets[bucket + 1] - new_offsets[bucket],
        leader_counts[bucket],
    )


@njit(cache=True)
def _count(old: int, fresh: int, leaders: int) -> int:
    count = min(leaders, old) * fresh
    among = min(max(leaders - old, 0), fresh)
    return count + among * fresh - among * (among + 1) // 2
