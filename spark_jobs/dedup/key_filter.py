"""A Bloom filter over band keys: which earlier documents can share a bucket with a new one.

An increment is looked up in the index of all signatures. Each earlier document has as many keys as a new one, and
nearly none of them matters; the filter (2 to 4 bytes a new key) lets only those leave the scan that probably do. It
never holds a key back that was put in.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_BITS_PER_KEY = 16
_PROBES = 4
_LEAST_BITS = 1 << 13
MOST_BITS = 1 << 30


def filter_bytes(key_count: int) -> int:
    """Size of a filter for so many keys: a power of two, 16 to 32 bits a key."""
    bits = _LEAST_BITS
    while bits < _BITS_PER_KEY * key_count:
        bits *= 2
    return bits // 8


@njit(cache=True)
def put_keys(keys: NDArray[np.uint64], filled: NDArray[np.uint8]) -> None:
    """Put (K,) keys into a filter of (B,) bytes, B a power of two."""
    mask = np.uint64(filled.size * 8 - 1)
    for key in keys:
        probe = key
        step = (key >> np.uint64(32)) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
        for _ in range(_PROBES):
            bit = (probe >> np.uint64(10)) & mask
            filled[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))
            probe += step


@njit(cache=True)
def has_keys(keys: NDArray[np.uint64], filled: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(K,) whether each key was put in; a few others pass too (fewer than 3 in 1,000 at 16 bits a key)."""
    mask = np.uint64(filled.size * 8 - 1)
    found = np.zeros(keys.size, np.bool_)
    for place in range(keys.size):
        probe = keys[place]
        step = (probe >> np.uint64(32)) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
        here = True
        for _ in range(_PROBES):
            bit = (probe >> np.uint64(10)) & mask
            if not filled[bit >> np.uint64(3)] & (np.uint8(1) << np.uint8(bit & np.uint64(7))):
                here = False
                break
            probe += step
        found[place] = here
    return found
