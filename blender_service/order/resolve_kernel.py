"""The row order as one compiled pass: offsets in, (source, epoch, ordinal) out.

Bit-identical to `permutation.shuffle` applied source by source; it exists because a blend of many sources with small
blocks would cost more in NumPy calls than the rows cost to send. `python benchmarks/bench_blender.py` shows both.
All words are uint64: numba turns uint64 mixed with int64 into a float, so constants and casts are explicit.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from blender_service.order.permutation import FIRST_MULTIPLIER, GOLDEN, SECOND_MULTIPLIER

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


@njit(cache=True)
def _start_epoch(i, word, size, block_rows, group_blocks, words, bounds):  # type: ignore[no-untyped-def]
    """Fill what all rows of one epoch of source i share: words and rotation, blocks, and where the short one is."""
    block_count = (size + block_rows - 1) // block_rows
    block_bits = _domain_bits(np.uint64(block_count))
    rotation = _mix(word ^ _ONE) % np.uint64(block_count)
    words[i, 0] = word ^ _ONE
    words[i, 1] = rotation
    words[i, 2] = _mix(word ^ _TWO)
    slot = np.int64(_invert(np.uint64(block_count - 1), word ^ _ONE, np.uint64(block_count), block_bits, rotation))
    group = slot // group_blocks
    slots = min(group_blocks, block_count - group * group_blocks)
    bounds[i, 0] = slot
    bounds[i, 1] = group
    bounds[i, 2] = (slots - 1) * block_rows + size - (block_count - 1) * block_rows
    bounds[i, 3] = group * group_blocks * block_rows
    bounds[i, 4] = block_count
    bounds[i, 5] = block_bits


@njit(cache=True, inline="always")  # as a call of its own it costs a fifth more per row
def _shuffled(i, place, block_rows, group_blocks, words, bounds, blocks):  # type: ignore[no-untyped-def]
    """Send one place of the epoch of source i to its ordinal; `permutation.shuffle` for one row."""
    full = block_rows * group_blocks
    short_group, short_group_rows, rows_before = bounds[i, 1], bounds[i, 2], bounds[i, 3]
    if place < rows_before:
        group = place // full
        place -= group * full
    elif place < rows_before + short_group_rows:
        group = short_group
        place -= rows_before
    else:
        place -= rows_before + short_group_rows
        group = short_group + 1 + place // full
        place %= full
    block_count = bounds[i, 4]
    slots = min(group_blocks, block_count - group * group_blocks)
    rows = np.uint64(short_group_rows if group == short_group else slots * block_rows)
    row_word = words[i, 2] + np.uint64(group)
    permuted = np.int64(_permute(np.uint64(place), row_word, rows, _domain_bits(rows), _mix(row_word) % rows))
    slot_in_group = permuted // block_rows
    slot = group * group_blocks + slot_in_group
    if group == short_group:
        if slot_in_group == slots - 1:
            slot = bounds[i, 0]
        elif slot >= bounds[i, 0]:
            slot += 1
    kept = slot % group_blocks
    if blocks[i, kept, 0] != slot:
        blocks[i, kept, 0] = slot
        blocks[i, kept, 1] = _permute(np.uint64(slot), words[i, 0], np.uint64(block_count), bounds[i, 5], words[i, 1])
    return blocks[i, kept, 1] * block_rows + permuted - slot_in_group * block_rows


@njit(cache=True, nogil=True)
def resolve_rows(
    positions: NDArray[np.int64],
    cycle_source: NDArray[np.uint8],
    cycle_rank: NDArray[np.int32],
    parts: NDArray[np.int64],
    keys: NDArray[np.uint64],
    legs: NDArray[np.int64],
    block_rows: int,
    group_blocks: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Resolve rows of one segment.

    Args:
        positions: (R,) rows counted from the segment's origin, any order.
        cycle_source: (P,) source of each place of the cycle.
        cycle_rank: (P,) earlier places of the same source.
        parts: (n, 3) of each source: rows in a cycle, rows read before the origin, legs up to and with its own.
        keys: (n,) permutation keys.
        legs: (G, 4) of each leg: first row, base, size of an epoch (0: in the order of the ordinals), epoch.
        block_rows: rows of a block.
        group_blocks: blocks of a group.

    Returns:
        (R,) source, (R,) epoch, (R,) ordinal.
    """
    row_count, source_count, cycle_rows = positions.size, keys.size, cycle_source.size
    sources = np.empty(row_count, dtype=np.int64)
    epochs = np.empty(row_count, dtype=np.int64)
    ordinals = np.empty(row_count, dtype=np.int64)

    # What one epoch of one source needs is computed once and kept until the source moves to another epoch or leg.
    known = np.full((source_count, 2), -1, dtype=np.int64)
    words = np.zeros((source_count, 3), dtype=np.uint64)
    bounds = np.zeros((source_count, 6), dtype=np.int64)
    # Few blocks mean long walks (64 rounds on average for 4 blocks): slot and block of each place of a group are kept.
    blocks = np.full((source_count, group_blocks, 2), -1, dtype=np.int64)

    for row in range(row_count):
        turn = positions[row] // cycle_rows
        place_in_cycle = positions[row] - turn * cycle_rows
        i = np.int64(cycle_source[place_in_cycle])
        k = parts[i, 1] + turn * parts[i, 0] + cycle_rank[place_in_cycle]
        leg = parts[i, 2] - 1
        while legs[leg, 0] > k:
            leg -= 1
        place, base, size, epoch = k - legs[leg, 0], legs[leg, 1], legs[leg, 2], legs[leg, 3]
        if size > 0:
            epochs_before = place // size
            epoch += epochs_before
            if known[i, 0] != epoch or known[i, 1] != leg:
                known[i, 0], known[i, 1] = epoch, leg
                blocks[i] = -1
                word = _mix(_mix(_mix(keys[i]) + np.uint64(epoch)) + np.uint64(base))
                _start_epoch(i, word, size, block_rows, group_blocks, words, bounds)
            place = _shuffled(i, place - epochs_before * size, block_rows, group_blocks, words, bounds, blocks)
        sources[row] = i
        epochs[row] = epoch
        ordinals[row] = base + place
    return sources, epochs, ordinals
