"""Hash tables of fixed size from words of up to 31 bytes to up to seven token ids.

An entry has 64 bytes, a line of the processor's cache: 31 bytes of the word, one for its length and kind, the number of
ids, and the ids, 4 bytes each. The bytes are compared as four numbers of 64 bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from headrace.kernels.mixing import GOLDEN
from headrace.kernels.utf8 import Integer
from spark_jobs.arrays import Int32Array, UInt8Array, UInt64Array

Key = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
KEY_BYTES: Final = 31
KEPT_IDS: Final = 7
ZERO: Final = np.uint64(0)


def padded_copy(data: UInt8Array) -> tuple[UInt8Array, UInt64Array]:
    """Copy bytes so that `key_of` may read 8 at once, beyond the end too; returns the copy as uint8 and as uint64."""
    padded = np.zeros((len(data) >> 3) + 6, dtype=np.uint64)
    text = padded.view(np.uint8)[: len(data)]
    text[:] = data
    return text, padded


@njit(_nrt=False, inline="always")
def _load(padded: UInt64Array, at: int, size: int) -> Integer:
    """Up to 8 bytes from a position on as one number, the first byte lowest; those beyond `size` are 0."""
    shift = np.uint64(8 * (at & 7))
    # The second word is shifted in two steps, because a shift by 64 bits (where `shift` is 0) is not defined.
    found = padded[at >> 3] >> shift | (padded[(at >> 3) + 1] << (np.uint64(63) - shift)) << np.uint64(1)
    return found & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)) if size < 8 else found


@njit(_nrt=False, inline="always")
def key_of(padded: UInt64Array, at: int, size: int, is_word: bool) -> Key:
    """Up to 31 bytes, their number, and whether they are a whole word: as a piece of one they may have other ids."""
    return (
        _load(padded, at, size),
        _load(padded, at + 8, size - 8) if size > 8 else ZERO,
        _load(padded, at + 16, size - 16) if size > 16 else ZERO,
        (_load(padded, at + 24, size - 24) if size > 24 else ZERO) | np.uint64(2 * size + is_word) << np.uint64(56),
    )


@njit(_nrt=False, inline="always")
def first_slot(entries: UInt64Array, key: Key) -> Integer:
    """The slot of a key by its hash, the only one that it may have in a cache."""
    mixed = ((key[0] * GOLDEN ^ key[1]) * GOLDEN ^ key[2]) * GOLDEN ^ key[3]
    return np.int64(mixed * GOLDEN >> np.uint64(40)) & (len(entries) - 1)  # the best 24 bits: tables are smaller


@njit(_nrt=False, inline="always")
def is_at(entries: UInt64Array, slot: int, key: Key) -> bool:
    """Whether the entry in a slot has a key."""
    return bool(
        entries[slot, 0] == key[0]
        and entries[slot, 1] == key[1]
        and entries[slot, 2] == key[2]
        and entries[slot, 3] == key[3]
    )


@njit(_nrt=False, inline="always")
def recall(entries: UInt64Array, slot: int, ids: Int32Array, count: int) -> Integer:
    """Write the ids of an entry from `ids[count]` on; gives their number."""
    first = entries[slot, 4]
    kept = np.int64(first & np.uint64(0xFFFFFFFF))
    ids[count] = np.int32(first >> np.uint64(32))
    for index in range(2, kept + 1):
        ids[count + index - 1] = np.int32(
            entries[slot, 4 + (index >> 1)] >> np.uint64(32 * (index & 1)) & np.uint64(0xFFFFFFFF)
        )
    return kept


@njit(_nrt=False, inline="always")
def keep(entries: UInt64Array, slot: int, key: Key, ids: Int32Array, count: int) -> None:
    """Write an entry: 31 bytes and their number, the number of ids and up to seven ids."""
    for index in range(4):
        entries[slot, index] = key[index]
    entries[slot, 4] = np.uint64(count)
    for index in range(5, 8):
        entries[slot, index] = ZERO
    for index in range(1, count + 1):
        entries[slot, 4 + (index >> 1)] |= np.uint64(ids[index - 1]) << np.uint64(32 * (index & 1))


@njit(_nrt=False, inline="always")
def probed_slot(entries: UInt64Array, key: Key) -> Integer:
    """Slot of a key in a table that forgets nothing, or the free slot where it would be."""
    slot = first_slot(entries, key)
    while entries[slot, 3] != ZERO and not is_at(entries, slot, key):
        slot = (slot + 1) & (len(entries) - 1)
    return slot
