"""The row order as one compiled pass: offsets in, (source, epoch, ordinal) out.

Bit-identical to `permutation.shuffle` applied source by source; it exists because a blend of many sources with small
blocks would cost more in NumPy calls than the rows cost to send. `python benchmarks/bench_blender.py` shows both.
All words are uint64: numba turns uint64 mixed with int64 into a float, so constants and casts are explicit.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from blender_service.permutation import FIRST_MULTIPLIER, GOLDEN, SECOND_MULTIPLIER

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_WORD_BITS = np.uint64(64)
_S27 = np.uint64(27)
_S30 = np.uint64(30)
_S31 = np.uint64(31)
_S32 = np.uint64(32)


@njit(cache=True)
def _mix(word):  # type: ignore[no-untyped-def]
    word = word + GOLDEN
    word = (word ^ (word >> _S30)) * FIRST_MULTIPLIER
    word = (word ^ (word >> _S27)) * SECOND_MULTIPLIER
    return word ^ (word >> _S31)


@njit(cache=True)
def _domain_bits(size):  # type: ignore[no-untyped-def]
    bits = 0
    rest = size - _ONE
    while rest > _ZERO:
        bits += 1
        rest = rest >> _ONE
    return max(bits, 8)


@njit(cache=True)
def _round(half, word, bits):  # type: ignore[no-untyped-def]
    mixed = (half ^ word) * FIRST_MULTIPLIER
    mixed = mixed ^ (mixed >> _S32)
    return (mixed * SECOND_MULTIPLIER) >> (_WORD_BITS - bits)


@njit(cache=True)
def _permute(place, word, size, bits, rotation):  # type: ignore[no-untyped-def]
    if size == _ONE:
        return _ZERO
    high_bits = np.uint64(bits // 2)
    low_bits = np.uint64(bits) - high_bits
    low_mask = (_ONE << low_bits) - _ONE
    while True:
        high = place >> low_bits
        low = place & low_mask
        round_word = word
        for _ in range(3):
            round_word = round_word + GOLDEN
            high = high ^ _round(low, round_word, high_bits)
            round_word = round_word + GOLDEN
            low = low ^ _round(high, round_word, low_bits)
        place = (high << low_bits) | low
        if place < size:
            break
    place = place + rotation
    return place - size if place >= size else place


@njit(cache=True)
def _invert(place, word, size, bits, rotation):  # type: ignore[no-untyped-def]
    if size == _ONE:
        return _ZERO
    high_bits = np.uint64(bits // 2)
    low_bits = np.uint64(bits) - high_bits
    low_mask = (_ONE << low_bits) - _ONE
    place = place - rotation if place >= rotation else place + size - rotation
    while True:
        high = place >> low_bits
        low = place & low_mask
        for pair in range(3):
            odd_word = word + np.uint64(6 - 2 * pair) * GOLDEN
            low = low ^ _round(high, odd_word, low_bits)
            high = high ^ _round(low, odd_word - GOLDEN, high_bits)
        place = (high << low_bits) | low
        if place < size:
            return place


@njit(cache=True, nogil=True)
def resolve_rows(
    positions: NDArray[np.int64],
    cycle_source: NDArray[np.uint8],
    cycle_rank: NDArray[np.int32],
    weights: NDArray[np.int64],
    first_rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    keys: NDArray[np.uint64],
    block_rows: int,
    group_blocks: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Resolve rows of one segment.

    Args:
        positions: (R,) rows counted from the segment's origin, any order.
        cycle_source: (P,) source of each place of the cycle.
        cycle_rank: (P,) earlier places of the same source.
        weights: (n,) rows of each source in a cycle.
        first_rows: (n,) rows of each source read before the origin.
        sizes: (n,) rows of each source.
        keys: (n,) permutation keys.
        block_rows: rows of a block.
        group_blocks: blocks of a group.

    Returns:
        (R,) source, (R,) epoch, (R,) ordinal.
    """
    row_count = positions.size
    source_count = weights.size
    sources = np.empty(row_count, dtype=np.int64)
    epochs = np.empty(row_count, dtype=np.int64)
    ordinals = np.empty(row_count, dtype=np.int64)

    # What one epoch of one source needs is computed once and kept until the source moves to another epoch.
    known_epoch = np.full(source_count, -1, dtype=np.int64)
    block_word = np.zeros(source_count, dtype=np.uint64)
    block_rotation = np.zeros(source_count, dtype=np.uint64)
    group_word = np.zeros(source_count, dtype=np.uint64)
    short_slot = np.zeros(source_count, dtype=np.int64)
    short_group = np.zeros(source_count, dtype=np.int64)
    short_group_rows = np.zeros(source_count, dtype=np.int64)
    rows_before = np.zeros(source_count, dtype=np.int64)

    # Few blocks mean long walks (64 on average for 4 blocks), so the block of each slot of a group is kept as well.
    slot_of = np.full((source_count, group_blocks), -1, dtype=np.int64)
    block_of = np.zeros((source_count, group_blocks), dtype=np.int64)

    cycle_rows = cycle_source.size
    full = block_rows * group_blocks
    for row in range(row_count):
        turn = positions[row] // cycle_rows
        place_in_cycle = positions[row] - turn * cycle_rows
        i = np.int64(cycle_source[place_in_cycle])
        k = first_rows[i] + turn * weights[i] + cycle_rank[place_in_cycle]
        size = sizes[i]
        epoch = k // size
        place = k - epoch * size
        block_count = (size + block_rows - 1) // block_rows
        block_bits = _domain_bits(np.uint64(block_count))
        if epoch != known_epoch[i]:
            known_epoch[i] = epoch
            slot_of[i] = -1
            word = _mix(_mix(_mix(keys[i]) + np.uint64(epoch)))
            block_word[i] = word ^ _ONE
            block_rotation[i] = _mix(block_word[i]) % np.uint64(block_count)
            group_word[i] = _mix(word ^ _TWO)
            slot = np.int64(
                _invert(
                    np.uint64(block_count - 1), block_word[i], np.uint64(block_count), block_bits, block_rotation[i]
                )
            )
            short_slot[i] = slot
            short_group[i] = slot // group_blocks
            first_slot = short_group[i] * group_blocks
            slots = min(group_blocks, block_count - first_slot)
            short_group_rows[i] = (slots - 1) * block_rows + size - (block_count - 1) * block_rows
            rows_before[i] = first_slot * block_rows
        if place < rows_before[i]:
            group = place // full
            place -= group * full
        elif place < rows_before[i] + short_group_rows[i]:
            group = short_group[i]
            place -= rows_before[i]
        else:
            place -= rows_before[i] + short_group_rows[i]
            group = short_group[i] + 1 + place // full
            place %= full
        slots = min(group_blocks, block_count - group * group_blocks)
        rows = np.uint64(short_group_rows[i] if group == short_group[i] else slots * block_rows)
        row_word = group_word[i] + np.uint64(group)
        shuffled = np.int64(_permute(np.uint64(place), row_word, rows, _domain_bits(rows), _mix(row_word) % rows))
        slot_in_group = shuffled // block_rows
        slot = group * group_blocks + slot_in_group
        if group == short_group[i]:
            if slot_in_group == slots - 1:
                slot = short_slot[i]
            elif slot >= short_slot[i]:
                slot += 1
        kept = slot % group_blocks
        if slot_of[i, kept] != slot:
            slot_of[i, kept] = slot
            block_of[i, kept] = _permute(
                np.uint64(slot), block_word[i], np.uint64(block_count), block_bits, block_rotation[i]
            )
        sources[row] = i
        epochs[row] = epoch
        ordinals[row] = block_of[i, kept] * block_rows + shuffled - slot_in_group * block_rows
    return sources, epochs, ordinals
