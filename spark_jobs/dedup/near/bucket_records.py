"""Scatter (key, place) records to partitions in blocks, and group them by key into buckets, without a Spark row each.

Fifty keys a document would be fifty rows a document for Spark to serialize, hash and sort. Here a block of records
travels to its partition as one row of bytes:

    batch of documents -> keys (D, bands) -> scatter by key -> one block for every partition      (mapInArrow)
    partition          -> its blocks, sorted by key -> groups of at least two = buckets           (mapInArrow)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import BoolArray, Int64Array, UInt64Array
from spark_jobs.dedup.sketches.bands import BAND_BITS, MAX_BANDS

BUCKETS_SCHEMA = pa.schema(
    [
        pa.field("band", pa.int32()),
        pa.field("bucket", pa.int64()),
        pa.field("member_count", pa.int32()),
        pa.field("members", pa.list_(pa.int64())),
        pa.field("earlier", pa.list_(pa.int64())),
    ]
)
_BATCH_MEMBERS = 4_000_000
_WORD, _IN_WORD = np.uint64(6), np.uint64(63)  # a bit's number: its word, and its place there


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
    """Order (K,) records by partition, a hash of the key.

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
    wanted = np.flatnonzero(_meets_a_new_one(keys, is_earlier))  # a sixth or less: the others need not be sorted
    keys, places, is_earlier = keys[wanted], places[wanted], is_earlier[wanted]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(keys) else np.zeros(0, int)
    lengths = np.diff(np.append(starts, len(keys)))
    new_counts = np.add.reduceat(~is_earlier[order], starts, dtype=np.int64) if len(keys) else np.zeros(0, np.int64)
    shared = (lengths >= 2) & (new_counts >= 1)
    inside = np.repeat(shared, lengths)
    chosen = order[inside]
    bucket_of = np.repeat(np.arange(int(shared.sum())), lengths[shared])
    chosen = chosen[np.lexsort((places[chosen], bucket_of))]
    later = ~is_earlier[chosen]
    new_counts = new_counts[shared]
    return Buckets(
        keys=ordered[starts[shared]],
        new_offsets=_offsets(new_counts),
        new=places[chosen[later]],
        earlier_offsets=_offsets(lengths[shared] - new_counts),
        earlier=places[chosen[~later]],
    )


@compiled
def _meets_a_new_one(keys: UInt64Array, is_earlier: BoolArray) -> BoolArray:
    """(K,) whether a key is there twice or more, one of them new; a few others pass, where two share a bit."""
    bits = np.uint64(9)
    while 1 << bits < 8 * keys.size:
        bits += np.uint64(1)
    shift = np.uint64(64) - bits
    once, twice, new = np.zeros((3, (1 << bits) >> 6), np.uint64)
    for index in range(keys.size):
        slot = keys[index] * GOLDEN >> shift
        word, bit = slot >> _WORD, np.uint64(1) << (slot & _IN_WORD)
        twice[word] |= once[word] & bit
        once[word] |= bit
        if not is_earlier[index]:
            new[word] |= bit
    meets = np.empty(keys.size, np.bool_)
    for index in range(keys.size):
        slot = keys[index] * GOLDEN >> shift
        word, bit = slot >> _WORD, np.uint64(1) << (slot & _IN_WORD)
        meets[index] = (twice[word] & new[word] & bit) != 0
    return meets


def _offsets(counts: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def bucket_rows(buckets: Buckets) -> Iterator[pa.RecordBatch]:
    """Rows of `buckets` (`BUCKETS_SCHEMA`), some millions of members at a time."""
    members = np.diff(buckets.new_offsets) + np.diff(buckets.earlier_offsets)
    block = np.cumsum(members) // _BATCH_MEMBERS
    edges = np.concatenate([[0], np.flatnonzero(np.diff(block)) + 1, [len(members)]])
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        keys = buckets.keys[start:end]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array((keys & np.uint64(MAX_BANDS - 1)).astype(np.int32)),
                pa.array(keys.view(np.int64)),
                pa.array(members[start:end].astype(np.int32)),
                _lists(buckets.new_offsets[start : end + 1], buckets.new),
                _lists(buckets.earlier_offsets[start : end + 1], buckets.earlier),
            ],
            schema=BUCKETS_SCHEMA,
        )


def _lists(offsets: Int64Array, values: Int64Array) -> pa.ListArray:
    """Make a column of lists from slices of one array of places."""
    inside = values[offsets[0] : offsets[-1]]
    return pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), pa.array(inside))


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


@inner
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
