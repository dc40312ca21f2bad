"""A keyed permutation of [0, N), by which the windows of an increment are shuffled in the table.

An alternating Feistel network of 6 rounds on b = max(8, bits of N - 1) bits is applied until the value is below N
(cycle walking, fewer than 2 steps on average for N > 128); then the value is rotated. On 2^b values a Feistel network
makes only even permutations, half of all orders, and under 8 bits it is far from uniform, hence the rotation and the
8. The map is bijective for every key and N, and needs no table. The golden values of its test guard the order: a change
here moves every row of every packed table.
"""

from __future__ import annotations

import hashlib

import numpy as np

from headrace.kernels.mixing import FIRST_MULTIPLIER, GOLDEN, SECOND_MULTIPLIER, mix64
from spark_jobs.arrays import Int64Array, UInt64Array

_ROUNDS = 6
_MIN_BITS = 8


def permutation_key(table: str, increment: int, seed: int = 0) -> int:
    """Key of one increment of one packed table: 8 bytes of a SHA-256, little-endian."""
    text = f"headrace.packed.order.1\0{seed}\0{table}\0{increment}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def permute(values: Int64Array, size: int, key: int) -> Int64Array:
    """Permute values by the permutation of [0, size) that `key` chooses.

    Args:
        values: (N,) in [0, size).
        size: length of the permuted range, >= 1 and below 2^62.
        key: 64 well mixed bits, see `permutation_key`.

    Returns:
        (N,) permuted values in [0, size), distinct for distinct values.
    """
    if size == 1:
        return np.zeros_like(values)
    tweak = np.uint64(key)
    bits = max(_MIN_BITS, (size - 1).bit_length())
    state = _feistel(values.astype(np.uint64), bits, tweak)
    outside = np.flatnonzero(state >= size)
    while outside.size:
        state[outside] = _feistel(state[outside], bits, tweak)
        outside = outside[state[outside] >= size]
    rotation = int(mix64(np.array([tweak], dtype=np.uint64) + GOLDEN)[0]) % size
    placed = state.astype(np.int64)
    placed -= np.where(placed >= size - rotation, size - rotation, -rotation)
    return placed


def _feistel(values: UInt64Array, bits: int, tweak: np.uint64) -> UInt64Array:
    """One pass of the network over values of `bits` bits: the high half, then the low half, is xored in turn."""
    high_bits, low_bits = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    high = values >> low_bits
    low = values & ((np.uint64(1) << low_bits) - np.uint64(1))
    round_key = tweak
    for number in range(_ROUNDS):
        round_key = (np.array([round_key], dtype=np.uint64) + GOLDEN)[0]
        if number % 2 == 0:
            high ^= _round(low, round_key) >> (np.uint64(64) - high_bits)
        else:
            low ^= _round(high, round_key) >> (np.uint64(64) - low_bits)
    return (high << low_bits) | low


def _round(half: UInt64Array, round_key: np.uint64) -> UInt64Array:
    """The round function: 64 mixed bits of which the caller takes the top ones."""
    z = (half ^ round_key) * FIRST_MULTIPLIER
    z ^= z >> np.uint64(32)
    return z * SECOND_MULTIPLIER
