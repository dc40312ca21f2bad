"""Prepare a fastText model's tables in compiled code: entries, their hash table, sums of each word's subwords."""

from __future__ import annotations

import numpy as np

from headrace.kernels.compiling import compiled
from headrace.kernels.hash_tables import slots_for
from spark_jobs.arrays import Float32Array, Int32Array, Int64Array, UInt8Array
from spark_jobs.fasttext.kernel import (
    ModelArrays,
    add_rows,
    hash_entry,
    hash_subwords,
    is_end_of_line,
    new_scratch,
)


@compiled
def find_entries(data: UInt8Array, entry_count: int, word_count: int) -> tuple[Int64Array, UInt8Array, Int64Array, int]:
    """Read entries: a string that ends with NUL, its count in 8 bytes, its kind in 1 (0 a word, 1 a label).

    Returns:
        (E + 1,) starts of the strings, the strings without NUL, (L,) counts of the labels, and the bytes read; -1
        where the data end before, or words follow labels.
    """
    starts = np.zeros(entry_count + 1, np.int64)
    counts = np.zeros(entry_count - word_count, np.int64)
    at = 0
    for entry in range(entry_count):
        first = at
        while at < data.size and data[at] != 0:
            at += 1
        if at + 10 > data.size or data[at + 9] != (entry >= word_count):  # NUL, count and kind are 10 bytes
            return starts, data[:0].copy(), counts, -1
        starts[entry + 1] = starts[entry] + at - first
        if entry >= word_count:
            for k in range(8):
                counts[entry - word_count] |= np.int64(data[at + 1 + k]) << (8 * k)
        at += 10
    strings = np.empty(starts[-1], np.uint8)
    read = 0
    for entry in range(entry_count):
        size = starts[entry + 1] - starts[entry]
        strings[starts[entry] : starts[entry + 1]] = data[read : read + size]
        read += size + 10
    return starts, strings, counts, at


@compiled
def fill_slots(entry_bytes: UInt8Array, starts: Int64Array) -> Int32Array:
    """Hash table of entry numbers: open addressing, at most half full; -1 is free."""
    size = slots_for(starts.size)
    slots = np.full(size, -1, np.int32)
    for entry in range(starts.size - 1):
        slot = np.int64(hash_entry(entry_bytes, starts[entry], starts[entry + 1])) & (size - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        slots[slot] = entry
    return slots


@compiled
def sum_words(t: ModelArrays) -> tuple[Float32Array, Int32Array]:
    """`word_sums` and `word_rows` of `ModelArrays`: with them a known word costs one row."""
    sums = np.empty((t.word_count, t.rows.shape[1]), np.float32)
    counts = np.empty(t.word_count, np.int32)
    longest = np.int64(0)
    for entry in range(t.word_count):
        longest = max(longest, t.entry_starts[entry + 1] - t.entry_starts[entry])
    s = new_scratch(t, longest)
    word, hidden = s.word, s.hidden
    for entry in range(t.word_count):
        hidden[:] = t.rows[entry]
        counts[entry] = 1
        first, length = t.entry_starts[entry], t.entry_starts[entry + 1] - t.entry_starts[entry]
        word[0] = ord("<")  # fastText cuts subwords of <word>
        word[1 : 1 + length] = t.entry_bytes[first : first + length]
        word[1 + length] = ord(">")
        # fastText's end of line has no subwords
        at = 0 if t.bucket > 0 and not is_end_of_line(word, length) else length + 2
        while at < length + 2:
            at, used = hash_subwords(
                word, at, length + 2, t.min_characters, t.max_characters, np.uint32(t.bucket), s.buckets, 0
            )
            counts[entry] += add_rows(t, s, used)
        sums[entry] = hidden
    return sums, counts
