"""Scatter (key, place) records to partitions in blocks, and group them by key into buckets, without a Spark row each.

Fifty keys a document would be fifty rows a document for Spark to serialize, hash and sort. Here a block of records
travels to its partition as one row of bytes:

    batch of documents -> keys (D, bands) -> scatter by key -> one block for every partition      (mapInArrow)
    partition          -> its blocks, sorted by key -> groups of at least two = buckets           (mapInArrow)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.kernels.compiling import compiled
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import BoolArray, Int64Array, UInt64Array
from spark_jobs.dedup.sketches.bands import BAND_BITS


@dataclass(frozen=True)
class Buckets:
    """Buckets with at least two members, at least one of them new.

    Attributes:
        keys: (B,) uint64, ascending.
        new_offsets: (B + 1,) int64 into `new`.
        new: (N,) int64 places of new members, ascending in each bucket.
        earlier_offsets: (B + 1,) int64 into `earlier`.
        earlier: (M,) int64 places of members of earlier increments, ascending in each bucket.
    """

    keys: UInt64Array
    new_offsets: Int64Array
    new: Int64Array
    earlier_offsets: Int64Array
    earlier: Int64Array


@compiled
def scatter(keys: UInt64Array, places: Int64Array, partition_count: int) -> tuple[Int64Array, UInt64Array, Int64Array]:
    """Order (K,) records by partition, which is a hash of the key.

    Returns:
        (P + 1,) offsets of the partitions, and (K,) keys and (K,) places in that order.
    """
    count = np.uint64(partition_count)  # the low bits of a key are its band, so the partition is taken from the hash
    offsets = np.zeros(partition_count + 1, np.int64)
    for key in keys:
        offsets[np.int64((key >> np.uint64(BAND_BITS)) % count) + 1] += 1
    for part in range(partition_count):
        offsets[part + 1] += offsets[part]
    filled = offsets[:-1].copy()
    scattered_keys = np.empty_like(keys)
    scattered_places = np.empty_like(places)
    for record in range(keys.size):
        partition = np.int64((keys[record] >> np.uint64(BAND_BITS)) % count)
        scattered_keys[filled[partition]] = keys[record]
        scattered_places[filled[partition]] = places[record]
        filled[partition] += 1
    return offsets, scattered_keys, scattered_places


def group_by_key(keys: UInt64Array, places: Int64Array, is_earlier: BoolArray) -> Buckets:
    """Group (K,) records by key; buckets with one member, or without a new one, are left out."""
    several = np.flatnonzero(_occurs_again(keys))  # of a corpus' keys a sixth: the others need not be sorted
    keys, places, is_earlier = keys[several], places[several], is_earlier[several]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(keys) else np.zeros(0, int)
    lengths = np.diff(np.append(starts, len(keys)))
    new_counts = np.add.reduceat(~is_earlier[order], starts, dtype=np.int64) if len(keys) else np.zeros(0, np.int64)
    wanted = (lengths >= 2) & (new_counts >= 1)
    inside = np.repeat(wanted, lengths)
    chosen = order[inside]
    bucket_of = np.repeat(np.arange(int(wanted.sum())), lengths[wanted])
    chosen = chosen[np.lexsort((places[chosen], bucket_of))]
    later = ~is_earlier[chosen]
    new_counts = new_counts[wanted]
    return Buckets(
        keys=ordered[starts[wanted]],
        new_offsets=_offsets(new_counts),
        new=places[chosen[later]],
        earlier_offsets=_offsets(lengths[wanted] - new_counts),
        earlier=places[chosen[~later]],
    )


@compiled
def _occurs_again(keys: UInt64Array) -> BoolArray:
    """(K,) whether a key is there twice or more; a few others pass, those that meet another key in a slot."""
    bits = np.uint64(4)
    while 1 << bits < 4 * keys.size:
        bits += np.uint64(1)
    shift = np.uint64(64) - bits
    counts = np.zeros(1 << bits, np.uint8)
    for key in keys:
        slot = key * GOLDEN >> shift
        counts[slot] = min(counts[slot] + 1, 2)
    again = np.empty(keys.size, np.bool_)
    for index in range(keys.size):
        again[index] = counts[keys[index] * GOLDEN >> shift] > 1
    return again


def _offsets(counts: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@compiled
def pairs_within(
    new_offsets: Int64Array,
    new: Int64Array,
    earlier_offsets: Int64Array,
    earlier: Int64Array,
    pivot_counts: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """Candidates of B buckets: each of the first `pivot_counts[b]` members with all members after it.

    A bucket lists its earlier members, then its new ones; two earlier ones are never a candidate.
    A pivot count of at least the bucket's members gives all pairs.

    Returns:
        (C,) places of the first members, and (C,) places of the later ones.
    """
    total = 0
    for bucket in range(pivot_counts.size):
        old, fresh, pivots = _sizes(new_offsets, earlier_offsets, pivot_counts, bucket)
        total += _count(old, fresh, pivots)
    first = np.empty(total, np.int64)
    second = np.empty(total, np.int64)
    filled = 0
    for bucket in range(pivot_counts.size):
        old, fresh, pivots = _sizes(new_offsets, earlier_offsets, pivot_counts, bucket)
        old_start, new_start = earlier_offsets[bucket], new_offsets[bucket]
        for pivot in range(min(pivots, old)):
            for member in range(fresh):
                first[filled] = earlier[old_start + pivot]
                second[filled] = new[new_start + member]
                filled += 1
        for pivot in range(min(pivots - old, fresh)):
            for member in range(pivot + 1, fresh):
                first[filled] = new[new_start + pivot]
                second[filled] = new[new_start + member]
                filled += 1
    return first, second


@compiled
def _sizes(
    new_offsets: Int64Array,
    earlier_offsets: Int64Array,
    pivot_counts: Int64Array,
    bucket: int,
) -> tuple[int, int, int]:
    return (
        earlier_offsets[bucket + 1] - earlier_offsets[bucket],
        new_offsets[bucket + 1] - new_offsets[bucket],
        pivot_counts[bucket],
    )


@compiled
def _count(old: int, fresh: int, pivots: int) -> int:
    count = min(pivots, old) * fresh
    among = min(max(pivots - old, 0), fresh)
    return count + among * fresh - among * (among + 1) // 2
