"""Pairs in buckets with agreeing signatures, found in one process without a list of candidates.

Near-identical documents share a hundred buckets, so buckets have many times more pairs than there are different ones:
444 million in 5 GB of text. They are not listed and sorted. Documents are numbered in the order (increment, place,
doc_id), and each new one looks through its buckets for those before it; a mark says whom it has met:

    stream        3  0 4 7  2  4 7  2  0 9      each bucket is its size and its members, in a file
    document 7    its buckets begin at 0, 4     it meets 0 and 4; then 4 again, which is marked

Documents are taken in parts: each reads the stream once, to list the buckets of its documents.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import slots_for
from headrace.kernels.memory import eight_bytes_at
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array
from spark_jobs.dedup.near.bucket_members import list_offsets
from spark_jobs.dedup.near.comparison import SignatureColumns
from spark_jobs.dedup.near.key_filter import has_keys
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES
from spark_jobs.threads import in_order_of

_PART_MEMBERS = 8_000_000  # of the buckets of a part's documents: 64 MB a thread
_SHIFT: Final = np.uint64(32)
# Eight values of a signature are compared in one word; its bytes, then its 16-bit parts, are counters side by side.
_LOW: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_EVEN: Final = np.uint64(0x00FF00FF00FF00FF)
_ONES: Final = np.uint64(0x0001000100010001)
_SEVEN, _EIGHT, _TOP = np.uint64(7), np.uint64(8), np.uint64(48)


class _Numbered(NamedTuple):
    """D documents by number: their rank in the order (increment, place, doc_id).

    Attributes:
        weights: (D,) int64 total weights.
        codes: (D,) int64, equal for documents of one kind and version.
        kinds: (D,) int64 number of the kind.
        bounds: (3, kinds) int64 numerator and denominator of the kind's threshold, least agreeing values.
        signatures: (D,) int64 addresses of their signatures.
        pooled: (D,) bool; two of these are not compared.
    """

    weights: Int64Array
    codes: Int64Array
    kinds: Int64Array
    bounds: Int64Array
    signatures: Int64Array
    pooled: BoolArray


def agreeing_in_buckets(
    buckets: pa.Table, documents: SignatureColumns, first_new: int, not_among: bytes | None, file: Path, threads: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Pairs of a new document and one before it in a shared bucket, with sizes and signatures that may suffice.

    Args:
        buckets: columns members and earlier, places of documents.
        documents: all of them, and others.
        first_new: number of documents of earlier increments; two of these are no pair.
        not_among: a filter of places (`key_filter`); pairs of two places in it are left out.
        file: where the numbered buckets are written, 4 bytes a member.
        threads: that compare.

    Yields:
        Rows of the left documents, and of the right ones; the left one comes first in the order. Each pair comes once.
    """
    rows = np.empty(len(documents.ranks), np.int64)
    rows[documents.ranks] = np.arange(len(rows))
    pooled = np.zeros(len(rows), np.bool_)
    if not_among is not None:
        places = np.empty(len(rows), np.int64)
        places[documents.ranks[documents.by_place]] = documents.places
        pooled = has_keys(places.view(np.uint64), np.frombuffer(not_among, np.uint8))
    kinds = documents.kinds[rows]
    numbered = _Numbered(
        weights=documents.weights[rows],
        codes=documents.versions[rows] * documents.bounds.shape[1] + kinds,
        kinds=kinds,
        bounds=documents.bounds,
        signatures=documents.signatures.addresses[rows],
        pooled=pooled,
    )
    counts = _write_stream(buckets, documents, first_new, file, threads)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if not starts[-1]:
        return
    stream = np.frombuffer(pa.memory_map(str(file)).read_buffer(), np.int32)
    cuts = np.flatnonzero(np.diff(starts[1:] // _PART_MEMBERS)) + 1
    edges = [first_new, *cuts[cuts > first_new].tolist(), len(counts)]

    def meet(part: tuple[int, int]) -> tuple[Int32Array, Int32Array]:
        first, last = part
        pairs: tuple[Int32Array, Int32Array] = _meet(stream, first, starts[first : last + 1] - starts[first], numbered)
        return pairs

    with ThreadPoolExecutor(threads) as pool:
        for left, right in in_order_of(pool, meet, itertools.pairwise(edges)):
            yield rows[left], rows[right]


def _write_stream(
    buckets: pa.Table, documents: SignatureColumns, first_new: int, file: Path, threads: int
) -> Int64Array:
    """Write the buckets by numbers of documents; gives (D,) in how many buckets each new document is."""
    ranks = documents.ranks[documents.by_place]
    order = np.lexsort((ranks, documents.places))
    numbers = _Numbers(documents.places, ranks[order].astype(np.int32), _slots(documents.places))
    repeats = int(np.unique(documents.places, return_counts=True)[1].max(initial=0))
    counts = np.zeros(len(ranks), np.int64)

    def renamed(batch: pa.RecordBatch) -> Int32Array:
        new_offsets, new = list_offsets(batch.column("members"))
        earlier_offsets, earlier = list_offsets(batch.column("earlier"))
        written = np.empty(batch.num_rows + (len(new) + len(earlier)) * repeats, np.int32)
        size = _number((earlier_offsets, earlier), (new_offsets, new), numbers, first_new, written)
        return written[:size]

    with file.open("wb") as out, ThreadPoolExecutor(threads) as pool:
        for stream in in_order_of(pool, renamed, buckets.to_batches()):
            _count(stream, first_new, counts)
            stream.tofile(out)
    return counts


class _Numbers(NamedTuple):
    """Numbers by place.

    Attributes:
        places: (D,) int64 ascending.
        numbers: (D,) int32 number of each; those of one place ascend.
        slots: int32 hash table of the first index of each place, -1 where free.
    """

    places: Int64Array
    numbers: Int32Array
    slots: Int32Array


@inner
def _slot(places: Int64Array, slots: Int32Array, place: np.int64) -> np.int64:
    """Where a place is in a hash table, or the free slot for it."""
    mask = np.uint64(slots.size - 1)
    slot = (np.uint64(place) * GOLDEN >> _SHIFT) & mask
    while slots[slot] >= 0 and places[slots[slot]] != place:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@compiled
def _slots(places: Int64Array) -> Int32Array:
    slots = np.full(slots_for(places.size), np.int32(-1), np.int32)
    for index in range(places.size):
        slot = _slot(places, slots, places[index])
        if slots[slot] < 0:
            slots[slot] = index
    return slots


@compiled
def _number(
    earlier: tuple[Int64Array, Int64Array],
    new: tuple[Int64Array, Int64Array],
    numbers: _Numbers,
    first_new: int,
    written: Int32Array,
) -> int:
    """Write the size and the members of each bucket, the earlier ones first; gives how much was written."""
    filled = 0
    for bucket in range(new[0].size - 1):
        size = filled
        filled += 1
        for is_new in (False, True):
            offsets, values = new if is_new else earlier
            for member in range(offsets[bucket], offsets[bucket + 1]):
                place = values[member]
                index = np.int64(numbers.slots[_slot(numbers.places, numbers.slots, place)])
                while 0 <= index < numbers.places.size and numbers.places[index] == place:
                    number = numbers.numbers[index]
                    if (number >= first_new) == is_new:
                        written[filled] = number
                        filled += 1
                    index += 1
        written[size] = filled - size - 1
    return filled


@compiled
def _count(stream: Int32Array, first_new: int, counts: Int64Array) -> None:
    """Count the buckets of each new document."""
    begin = 0
    while begin < stream.size:
        end = begin + 1 + stream[begin]
        for at in range(begin + 1, end):
            if stream[at] >= first_new:
                counts[stream[at]] += 1
        begin = end


@compiled
def _meet(stream: Int32Array, first: int, starts: Int64Array, documents: _Numbered) -> tuple[Int32Array, Int32Array]:
    """Agreeing pairs of the documents from number `first` on, with those before them.

    Args:
        stream: buckets, each its size and its members; the new ones ascend.
        first: number of the first document; all are new.
        starts: (N + 1,) where the buckets of each of N documents begin in a list of them.
        documents: all.
    """
    buckets = np.empty(starts[-1], np.int64)
    ends = starts[:-1].copy()
    begin = 0
    while begin < stream.size:
        end = begin + 1 + stream[begin]
        for at in range(begin + 1, end):
            document = stream[at] - first
            if 0 <= document < ends.size:
                buckets[ends[document]] = begin
                ends[document] += 1
        begin = end
    met = np.full(documents.weights.size, np.int32(-1), np.int32)
    left, right = np.empty(1024, np.int32), np.empty(1024, np.int32)
    filled = 0
    for number in range(ends.size):
        document = first + number
        for entry in range(starts[number], starts[number + 1]):
            at = buckets[entry] + 1
            while stream[at] != document:
                other = stream[at]
                at += 1
                if met[other] == document:
                    continue
                met[other] = document
                if _agree(documents, other, document):
                    if filled == left.size:
                        left, right = _twice(left), _twice(right)
                    left[filled], right[filled] = other, document
                    filled += 1
    return left[:filled], right[:filled]


@inner
def _agree(documents: _Numbered, left: int, right: int) -> bool:
    """Whether sizes and signatures of two documents allow the threshold of their kind."""
    if documents.codes[left] != documents.codes[right] or (documents.pooled[left] and documents.pooled[right]):
        return False
    numerator, denominator, least = documents.bounds[:, documents.kinds[left]]
    lighter, heavier = documents.weights[left], documents.weights[right]
    if min(lighter, heavier) * denominator < max(lighter, heavier) * numerator:
        return False
    here, there = documents.signatures[left], documents.signatures[right]
    equal = np.uint64(0)
    for at in range(0, SIGNATURE_VALUES, 8):
        apart = eight_bytes_at(here + at) ^ eight_bytes_at(there + at)
        # The top bit of each byte of `apart` that is not 0.
        unlike = ((apart & _LOW) + _LOW | apart) & ~_LOW
        equal += (~unlike & ~_LOW) >> _SEVEN  # eight counters side by side, of at most 32
    four = (equal & _EVEN) + (equal >> _EIGHT & _EVEN)
    return bool(np.int64(four * _ONES >> _TOP) >= least)  # the product has the sum of the four parts on top


@inner
def _twice(values: Int32Array) -> Int32Array:
    """A copy of an array with room for as many values more."""
    larger = np.empty(2 * values.size, np.int32)
    larger[: values.size] = values
    return larger
