"""Hash tables with open addressing and linear probing; the number of slots is a power of two.

A search begins at `first`, bits of the key's hash, and ends at the key's slot, or at the free slot where it would be.
So one function serves look-ups and inserts. Keys are hashes and never 0, the mark of a free slot. Python fills a table
through `py_func` of a function, its uncompiled form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.memory import eight_bytes_at

_ZERO, _ONE = np.uint64(0), np.uint64(1)  # with plain integers Numba computes unsigned ones in floats


@inner
def slots_for(count: int) -> int:
    """Number of slots (a power of two, at least 16) filled by `count` keys by half at most."""
    slots = 16
    while slots < 2 * count:
        slots *= 2
    return slots


@inner(inline="always")
def key_slot(keys: Any, first: Any, key: Any) -> Any:
    """Index of a key in `keys`, or of the free slot where it is to be inserted."""
    mask = np.uint64(keys.size - 1)
    slot = first & mask
    while keys[slot] != key and keys[slot] != _ZERO:
        slot = (slot + _ONE) & mask
    return slot


@inner(inline="always")
def entry_slot(slots: Any, keys: Any, first: Any, key: Any) -> Any:
    """Slot with the index of a key in `keys`, or the free slot (-1) where that index is to be inserted."""
    mask = np.uint64(slots.size - 1)
    slot = first & mask
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = (slot + _ONE) & mask
    return slot


@inner(inline="always")
def key_address(rows: int, row_bytes: int, mask: Any, first: Any, key: Any) -> Any:
    """Address of the row beginning with a key's 8 bytes, or of the free row for it, in the table at `rows`."""
    slot = first & mask
    at = rows + row_bytes * np.int64(slot)
    key_here = eight_bytes_at(at)
    while key_here != key and key_here != _ZERO:  # noqa: PLR1714 - compiled to two compares
        slot = (slot + _ONE) & mask
        at = rows + row_bytes * np.int64(slot)
        key_here = eight_bytes_at(at)
    return at
