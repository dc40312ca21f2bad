"""The project's hashes of 64-bit words: their constants and the step for one word.

Plain functions: they take NumPy arrays as they are, without Numba, and kernels compile them (`inner(mix64)`). Stored
values depend on them: the golden tests of orders, signatures and packed tables guard every bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
FIRST_MULTIPLIER: Final = np.uint64(0xBF58476D1CE4E5B9)
SECOND_MULTIPLIER: Final = np.uint64(0x94D049BB133111EB)
FNV_BASIS: Final = np.uint64(0xCBF29CE484222325)
FNV_PRIME: Final = np.uint64(0x100000001B3)
_S27, _S30, _S31, _S32 = (np.uint64(bits) for bits in (27, 30, 31, 32))
_64_BITS: Final = (1 << 64) - 1


def mix64(z: Any) -> Any:
    """Mix 64 bits so that each output bit depends on all input bits (Steele et al. 2014).

    It is the finaliser of splitmix64: `mix64(state + GOLDEN)`.
    """
    z = (z ^ (z >> _S30)) * FIRST_MULTIPLIER
    z = (z ^ (z >> _S27)) * SECOND_MULTIPLIER
    return z ^ (z >> _S31)


def hash_step(h: Any, word: Any) -> Any:
    """Extend the hash of a sequence by one more word; two sequences differing in one word alone never collide."""
    h = (h ^ np.uint64(word)) * GOLDEN
    return h ^ (h >> _S32)


def plain_hash(words: Iterable[int], h: int = 0) -> int:
    """Hash a sequence of words by `hash_step`, in plain Python, for tables made without compiled code."""
    for word in words:
        h = (h ^ word) * int(GOLDEN) & _64_BITS
        h ^= h >> 32
    return h
