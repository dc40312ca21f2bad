"""Hash tables with open addressing: a power of two of slots, the next one tried while another key lies in a slot.

A search begins at `first`, bits of the key's hash, and ends at the key's slot, or at the free slot where it would be.
So one function finds and makes room. Keys are hashes and never 0, which is a free slot. `py_func` of a function fills
a table in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from headrace.kernels.memory import eight_bytes_at

_ZERO, _ONE = np.uint64(0), np.uint64(1)


@njit
def slots_for(count: int) -> int:
    """Slots of a table that is at most half full."""
    slots = 16
    while slots < 2 * count:
        slots *= 2
    return slots


@njit(inline="always")
def key_slot(keys: Any, first: Any, key: Any) -> Any:
    """The slot of a key in a table of keys."""
    mask = np.uint64(keys.size - 1)
    slot = first & mask
    while keys[slot] != key and keys[slot] != _ZERO:
        slot = (slot + _ONE) & mask
    return slot


@njit(inline="always")
def entry_slot(slots: Any, keys: Any, first: Any, key: Any) -> Any:
    """The slot of a key in a table of indices into `keys`; -1 is free."""
    mask = np.uint64(slots.size - 1)
    slot = first & mask
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = (slot + _ONE) & mask
    return slot


@njit(inline="always")
def key_address(rows: int, row_bytes: int, mask: Any, first: Any, key: Any) -> Any:
    """The address of the row that begins with a key, in a table of rows at an address."""
    slot = first & mask
    at = rows + row_bytes * np.int64(slot)
    found = eight_bytes_at(at)
    while found != key and found != _ZERO:  # noqa: PLR1714 - compiled to two compares
        slot = (slot + _ONE) & mask
        at = rows + row_bytes * np.int64(slot)
        found = eight_bytes_at(at)
    return at
