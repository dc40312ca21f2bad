"""A keyed permutation of [0, size): a pure function of (position, key `word`), nothing stored.

An alternating Feistel network of six rounds on the smallest domain of at least 8 bits that holds the positions, walked
until it lands inside (fewer than 2 steps on average above 128 positions), then rotated. A Feistel network alone makes
even permutations only, and under 8 bits it is far from uniform; both numbers were chosen by chi-square over all
orders of small tables. The tests have the same in NumPy (`plain_permutation`). Golden values guard it: a change moves
every row of every packed table and of every blend.

All words are uint64 and wrap: numba turns uint64 mixed with int64 into a float, so constants and casts are explicit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.mixing import FIRST_MULTIPLIER, GOLDEN, SECOND_MULTIPLIER, mix64

_ZERO, _ONE, _S32, _WORD_BITS = (np.uint64(number) for number in (0, 1, 32, 64))

_mix64 = inner(mix64)


@inner
def mix(word: Any) -> Any:
    """The output of splitmix64 in the state `word`."""
    return _mix64(word + GOLDEN)


@inner
def domain_bits(size: Any) -> int:
    """Bits of the network's domain for `size` positions: enough to number them, at least 8."""
    bits = 0
    rest = size - _ONE
    while rest > _ZERO:
        bits += 1
        rest = rest >> _ONE
    return max(bits, 8)


@inner
def _round(half, word, bits):  # type: ignore[no-untyped-def]
    mixed = (half ^ word) * FIRST_MULTIPLIER
    mixed = mixed ^ (mixed >> _S32)
    # The top bits: in a product they depend on all bits of the factor, the low ones on few.
    return (mixed * SECOND_MULTIPLIER) >> (_WORD_BITS - bits)


@inner
def permuted(position: Any, word: Any, size: Any, bits: int, rotation: Any) -> Any:
    """The permuted position of a position; `bits` is `domain_bits(size)`, `rotation` is `mix(word) % size`."""
    # Of one position there is one order; the walk would go round a whole cycle to come back to it.
    if size == _ONE:
        return _ZERO
    high_bits = np.uint64(bits // 2)
    low_bits = np.uint64(bits) - high_bits
    low_mask = (_ONE << low_bits) - _ONE
    while True:
        high = position >> low_bits
        low = position & low_mask
        round_word = word
        for _ in range(3):
            round_word = round_word + GOLDEN
            high = high ^ _round(low, round_word, high_bits)
            round_word = round_word + GOLDEN
            low = low ^ _round(high, round_word, low_bits)
        position = (high << low_bits) | low
        if position < size:
            break
    position = position + rotation
    # No modulo is needed: both terms are below the size.
    return position - size if position >= size else position


@inner
def inverted(position: Any, word: Any, size: Any, bits: int, rotation: Any) -> Any:
    """Inverse of `permuted`, with the same arguments."""
    if size == _ONE:
        return _ZERO
    high_bits = np.uint64(bits // 2)
    low_bits = np.uint64(bits) - high_bits
    low_mask = (_ONE << low_bits) - _ONE
    position = position - rotation if position >= rotation else position + size - rotation
    while True:
        high = position >> low_bits
        low = position & low_mask
        # The rounds of `permuted` backwards: the low half by words 6, 4, 2, the high half by words 5, 3, 1.
        for pair in range(3):
            odd_word = word + np.uint64(6 - 2 * pair) * GOLDEN
            low = low ^ _round(high, odd_word, low_bits)
            high = high ^ _round(low, odd_word - GOLDEN, high_bits)
        position = (high << low_bits) | low
        if position < size:
            return position


@compiled
def permute_all(positions: NDArray[np.int64], size: np.uint64, word: np.uint64) -> NDArray[np.int64]:
    """(N,) permuted positions of (N,) positions."""
    bits, rotation = domain_bits(size), mix(word) % size
    places = np.empty_like(positions)
    for k in range(positions.size):
        places[k] = permuted(np.uint64(positions[k]), word, size, bits, rotation)
    return places
