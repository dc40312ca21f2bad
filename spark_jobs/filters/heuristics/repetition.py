"""Gopher's measures of repetition, over words, lines and paragraphs by their hashes.

An n-gram is in a text twice only if its first and its last n - 1 words are. So each length looks only at neighbours
among the places left over by the length before (in ordinary prose few), and its key is exact: the number of the
(n - 1)-gram and that of the last word.

    words      a b a b a c      left over 0 1 2 3 4 (`c` is there once)
    2-grams    ab ba ab ba      left over 0 1 2 3
    3-grams    aba bab aba      left over 0 2, which are no neighbours

Source: Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", table A1. What
the paper leaves open is as in datatrove: the most frequent n-gram counts with one space between its words, and the
first of several; a duplicated n-gram is one read before, without those inside a duplicate, and reading goes on behind.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.hash_tables import slots_for
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import Int32Array, Int64Array, UInt8Array, UInt64Array

FIRST_DUPLICATE_N: Final = 5
LAST_N: Final = 10
NGRAM_MEASURES: Final = 9
"""Characters of the most frequent 2-, 3- and 4-gram, then of duplicated 5- to 10-grams."""
_S32: Final = np.uint64(32)
# A word or an n-gram is named by its slot, and MOST_WORDS keys have 1 << 21 of these. A key of two names has 42 bits
# then, and leaves 22 of an entry for a count, which no text of MOST_WORDS words passes.
_SLOT_BITS: Final = np.uint64(21)
_COUNT_BITS: Final = np.uint64(22)
_COUNT_MASK: Final = np.uint64((1 << 22) - 1)
MOST_WORDS: Final = 1 << 20
"""Words of a text whose n-grams are counted, about 6 MB of prose, and as many lines: as many as an entry can number."""


@inner
def _fill(numbers: UInt64Array | Int32Array, count: int, number: int) -> None:
    """Set the first numbers; a loop is compiled in a tenth of the time of a slice."""
    for k in range(count):
        numbers[k] = number


@inner
def _number(keys: UInt64Array, numbers: Int32Array, slots: int, key: np.uint64, next_number: int) -> int:
    """The number of a key; a new one gets `next_number`."""
    mixed = key * GOLDEN
    # The low bits of a product hang on the low bits of its factor alone; the high ones hang on all.
    slot = np.int64((mixed ^ mixed >> _S32) & np.uint64(slots - 1))
    while numbers[slot] >= 0:
        if keys[slot] == key:
            number: int = numbers[slot]
            return number
        slot = (slot + 1) & (slots - 1)
    keys[slot] = key
    numbers[slot] = next_number
    return next_number


@inner
def duplicates(
    hashes: UInt64Array, lengths: Int32Array, count: int, keys: UInt64Array, numbers: Int32Array
) -> tuple[int, int, int]:
    """Elements read before: their number, their characters, and those of elements of positive length.

    The length of a line without content is negative, so that one reading serves Gopher and FineWeb.
    """
    slots = slots_for(count)
    _fill(numbers, slots, -1)
    duplicate_count = characters = filled = 0
    for k in range(count):
        if _number(keys, numbers, slots, hashes[k], k) != k:
            duplicate_count += 1
            characters += abs(lengths[k])
            filled += max(lengths[k], 0)
    return duplicate_count, characters, filled


@inner
def _count(table: UInt64Array, slots: int, key: np.uint64, spread: np.uint64) -> np.int64:
    """Count a key of 42 bits; its slot as its number. An entry is the key and, below it, 22 bits of count."""
    slot = np.int64(spread & np.uint64(slots - 1))
    while True:
        entry = table[slot]
        if entry == np.uint64(0) or entry >> _COUNT_BITS == key:
            table[slot] = (key << _COUNT_BITS | entry & _COUNT_MASK) + np.uint64(1)
            return slot
        slot = (slot + 1) & (slots - 1)


@inner
def ngram_characters(
    hashes: UInt64Array,
    lengths: Int32Array,
    count: int,
    work: tuple[Int32Array, Int32Array, Int32Array],
    table: UInt64Array,
    last_ends: Int32Array,
    measured: Int64Array,
    first: int,
) -> None:
    """Write the characters of repeated n-grams: NGRAM_MEASURES of them, from `measured[first]` on.

    Args:
        hashes: (count,) words.
        lengths: (count,) their characters.
        count: number of words, at most MOST_WORDS.
        work: room for `count` numbers each: of words, of n-grams, places.
        table: room for `slots_for(count)` entries.
        last_ends: likewise.
        measured: written to.
        first: where.
    """
    words, grams, places = work
    slots = slots_for(count)
    _fill(table, slots, np.uint64(0))
    for k in range(count):
        h = hashes[k]
        # 42 bits: in one of eight texts of a million distinct words two of these are one
        words[k] = grams[k] = _count(table, slots, h >> _COUNT_BITS, h)
    left = 0
    for k in range(count):
        places[left] = k
        # the place is written anyway: no branch, which would be guessed wrong often
        left += table[words[k]] & _COUNT_MASK > np.uint64(1)
    if left:
        _fill(last_ends, slots, 0)
    for n in range(2, LAST_N + 1):
        going, left = left, 0
        for p in range(going - 1):
            k = places[p]
            places[left] = k
            left += places[p + 1] == k + 1
        slots = slots_for(left)
        _fill(table, slots, np.uint64(0))
        for p in range(left):
            k = places[p]
            key = np.uint64(grams[k]) << _SLOT_BITS | np.uint64(words[k + n - 1])
            grams[k] = _count(table, slots, key, key * GOLDEN >> _S32)
        best, place, characters, free, going, left = np.uint64(1), 0, 0, 0, left, 0
        for p in range(going):
            k = places[p]
            gram = grams[k]
            occurrences = table[gram] & _COUNT_MASK
            if occurrences == np.uint64(1):
                continue
            places[left] = k
            left += 1
            if n < FIRST_DUPLICATE_N:
                if occurrences > best:
                    best, place = occurrences, k
            elif k >= free:
                if last_ends[gram] == n:  # marked with n: the room is not cleared for each length
                    characters += _characters(lengths, k, n)
                    free = k + n
                last_ends[gram] = n
        if n < FIRST_DUPLICATE_N and count >= n:
            characters = (n - 1 + _characters(lengths, place, n)) * np.int64(best)
        measured[first + n - 2] = characters


@inner
def _characters(lengths: Int32Array, first: int, n: int) -> int:
    """Characters of n words."""
    characters = 0
    for k in range(first, first + n):
        characters += lengths[k]
    return characters


@inner
def compressed_size(points: UInt8Array, start: int, end: int, places: Int32Array) -> int:
    """Characters left when repeated runs become references, as LZ4's blocks have them.

    A reference takes 3 characters and one for each 255 of its length; a run is one of at least 4 beginning less than
    65,536 back, found by the last place of its first four.

    Args:
        points: (C,) code points.
        start: first one looked at.
        end: behind the last one.
        places: (4096,) room.
    """
    _fill(places, len(places), -1)
    size, i = 0, start
    misses = 0
    while i + 4 <= end:  # LZ4's shortest match
        key = np.uint64(points[i]) ^ np.uint64(points[i + 1]) << np.uint64(16) ^ np.uint64(points[i + 2]) << _S32
        # of 21 bits; what overlaps is told apart when the run is compared
        key ^= np.uint64(points[i + 3]) << np.uint64(43)
        slot = np.int64(key * GOLDEN >> np.uint64(52))  # 12 bits, for 4,096 places
        back = places[slot]
        places[slot] = i
        if back >= 0 and i - back < 65536:
            length = 0
            while i + length < end and points[back + length] == points[i + length]:
                length += 1
            if length >= 4:
                size += 3 + length // 255
                i += length
                misses = 0
                continue
        step = 1 + (misses >> 4)  # as LZ4 does: the longer nothing repeats, the fewer places are tried
        size += step
        i += step
        misses += 1
    return size + max(0, end - i)
