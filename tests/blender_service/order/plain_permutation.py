"""The keyed permutation in NumPy: the readable form that the compiled one must equal bit for bit.

`permute` is a six-round alternating Feistel network, see `headrace.kernels.permutation`; `shuffle` composes it twice,
first blocks over the whole source, then rows inside each group of blocks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from blender_service.arrays import Int64Array, UInt64Array
from blender_service.order.epochs import read_run_of
from blender_service.order.resolve import BlendOrder, ResolvedRows
from blender_service.order.segments import Segment
from headrace.kernels.mixing import FIRST_MULTIPLIER, GOLDEN, SECOND_MULTIPLIER

ROUNDS: Final = 6
MIN_DOMAIN_BITS: Final = 8
_MASK: Final = (1 << 64) - 1


def mix(word: int) -> int:
    """Scramble a 64-bit word (splitmix64: Steele, Lea, Flood 2014)."""
    word = (word + int(GOLDEN)) & _MASK
    word = ((word ^ (word >> 30)) * int(FIRST_MULTIPLIER)) & _MASK
    word = ((word ^ (word >> 27)) * int(SECOND_MULTIPLIER)) & _MASK
    return word ^ (word >> 31)


def tweak(key: int, kind: int, epoch: int, base: int) -> int:
    """Give the word that makes one epoch's permutation different from every other.

    Args:
        key: of the source.
        kind: 0, the only kind of shuffle of order version 1.
        epoch: pass over the source, from 0.
        base: first ordinal of the shuffled range.
    """
    return mix((mix((mix(key ^ kind) + epoch) & _MASK) + base) & _MASK)


def domain_bits(size: int) -> int:
    """Give the width of the Feistel domain for `size` rows, at least 8 bits."""
    return max(MIN_DOMAIN_BITS, (size - 1).bit_length())


def permute(positions: UInt64Array, word: int, size: int) -> UInt64Array:
    """Send each position of [0, size) to another one; a bijection for every word.

    Args:
        positions: (R,) positions, each < size.
        word: the tweak.
        size: number of rows, >= 1.

    Returns:
        (R,) the permuted positions.
    """
    if size == 1:
        return np.zeros_like(positions)
    bits = domain_bits(size)
    permuted = positions.astype(np.uint64, copy=True)
    walking = np.arange(positions.size)
    while walking.size:
        permuted[walking] = _feistel(permuted[walking], word, bits)
        walking = walking[permuted[walking] >= np.uint64(size)]
    return (permuted + np.uint64(mix(word) % size)) % np.uint64(size)


def _feistel(values: UInt64Array, word: int, bits: int) -> UInt64Array:
    """Run the six rounds once on the whole domain of `bits` bits."""
    high_bits = bits // 2
    low_bits = bits - high_bits
    high = values >> np.uint64(low_bits)
    low = values & np.uint64((1 << low_bits) - 1)
    for round_index in range(ROUNDS):
        round_word = np.uint64((word + (round_index + 1) * int(GOLDEN)) & _MASK)
        if round_index % 2 == 0:
            high = high ^ _round(low, round_word, high_bits)
        else:
            low = low ^ _round(high, round_word, low_bits)
    return (high << np.uint64(low_bits)) | low


def _round(half: UInt64Array, round_word: np.uint64, bits: int) -> UInt64Array:
    """Give the top `bits` bits of the round function."""
    mixed = (half ^ round_word) * FIRST_MULTIPLIER
    mixed = mixed ^ (mixed >> np.uint64(32))
    top: UInt64Array = (mixed * SECOND_MULTIPLIER) >> np.uint64(64 - bits)
    return top


class Grouping(NamedTuple):
    """Where the short last block of a source lies, which is all a grouped shuffle must know beforehand.

    Attributes:
        block_count: number of blocks.
        short_slot: slot that the last block is permuted to.
        short_group: group of that slot.
        short_group_rows: rows of that group.
        rows_before: rows of the groups before it.
    """

    block_count: int
    short_slot: int
    short_group: int
    short_group_rows: int
    rows_before: int


def grouping(word: int, size: int, block_rows: int, group_blocks: int) -> Grouping:
    """Locate the short last block of a grouped shuffle of `size` rows.

    Args:
        word: the tweak of the epoch.
        size: number of rows, >= 1.
        block_rows: rows of a block.
        group_blocks: blocks of a group.
    """
    block_count = -(-size // block_rows)
    short_rows = size - (block_count - 1) * block_rows
    slots = np.arange(block_count, dtype=np.uint64)
    short_slot = int(np.flatnonzero(permute(slots, word ^ 1, block_count) == np.uint64(block_count - 1))[0])
    group = short_slot // group_blocks
    group_rows = (min(group_blocks, block_count - group * group_blocks) - 1) * block_rows + short_rows
    return Grouping(block_count, short_slot, group, group_rows, group * group_blocks * block_rows)


def shuffle(positions: UInt64Array, word: int, size: int, block_rows: int, group_blocks: int) -> UInt64Array:
    """Send each position of an epoch to an ordinal of [0, size), touching few blocks at a time.

    Args:
        positions: (R,) positions inside the epoch, each < size.
        word: the tweak of the epoch.
        size: number of rows, >= 1.
        block_rows: rows of a block of consecutive ordinals.
        group_blocks: blocks whose rows are shuffled together.

    Returns:
        (R,) ordinals relative to the range's first.
    """
    blocks = grouping(word, size, block_rows, group_blocks)
    signed = positions.astype(np.int64)
    full = group_blocks * block_rows
    after = signed - blocks.rows_before - blocks.short_group_rows
    is_before = signed < blocks.rows_before
    group = np.where(is_before, signed // full, np.where(after < 0, blocks.short_group, 0))
    group = np.where(after >= 0, blocks.short_group + 1 + after // full, group)
    position = np.where(is_before, signed % full, np.where(after < 0, signed - blocks.rows_before, after % full))
    ordinals = np.empty(positions.size, dtype=np.uint64)
    for value in np.unique(group):
        members = np.flatnonzero(group == value)
        ordinals[members] = _shuffle_group(position[members], int(value), blocks, word, block_rows, group_blocks)
    return ordinals


def _shuffle_group(
    position: Int64Array, group: int, blocks: Grouping, word: int, block_rows: int, group_blocks: int
) -> UInt64Array:
    """Permute rows inside one group, then send its slots to their blocks."""
    slot_count = min(group_blocks, blocks.block_count - group * group_blocks)
    rows = blocks.short_group_rows if group == blocks.short_group else slot_count * block_rows
    row_word = (mix(word ^ 2) + group) & _MASK
    permuted = permute(position.astype(np.uint64), row_word, rows)
    slot = permuted // np.uint64(block_rows) + np.uint64(group * group_blocks)
    if group == blocks.short_group:
        last = np.uint64(group * group_blocks + slot_count - 1)
        shifted = np.where(slot >= np.uint64(blocks.short_slot), slot + np.uint64(1), slot)
        slot = np.where(slot == last, np.uint64(blocks.short_slot), shifted)
    block = permute(slot, word ^ 1, blocks.block_count)
    return block * np.uint64(block_rows) + permuted % np.uint64(block_rows)


def resolve_with_numpy(order: BlendOrder, offsets: Int64Array) -> ResolvedRows:
    """Resolve in NumPy alone."""
    resolved = ResolvedRows(*(np.empty(offsets.size, dtype=np.int64) for _ in range(3)))
    for index, members in order._by_segment(offsets):
        segment, arrays = order.segments[index], order._arrays_of(index)
        cycle = segment.cycle
        turn, position = np.divmod(offsets[members] - segment.origin, cycle.rows)
        local = cycle.source[position].astype(np.int64)
        k = arrays.parts[local, 1] + turn * arrays.parts[local, 0] + cycle.rank[position]
        resolved.source[members] = arrays.source[local]
        for part in np.unique(local):
            own = members[local == part]
            resolved.epoch[own], resolved.ordinal[own] = _rows_of(order, segment, int(part), k[local == part])
    return resolved


def _rows_of(order: BlendOrder, segment: Segment, part: int, k: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Give epoch and ordinal of the k-th rows of one source."""
    read_runs = segment.parts[part].read_runs
    key = int(order._keys[order._index[segment.parts[part].name]])
    read_run_index = np.array([read_runs.index(read_run_of(read_runs, int(row))) for row in k])
    epochs, ordinals = np.empty_like(k), np.empty_like(k)
    for index in np.unique(read_run_index):
        read_run, members = read_runs[index], np.flatnonzero(read_run_index == index)
        turn, position = np.divmod(k[members] - read_run.first, read_run.size or 1 << 62)
        epochs[members] = read_run.epoch + turn
        for epoch in np.unique(epochs[members]) if read_run.size else ():
            same = epochs[members] == epoch
            word = tweak(key, 0, int(epoch), read_run.base)
            positions = position[same].astype(np.uint64)
            position[same] = shuffle(positions, word, read_run.size, order.block_rows, order.group_blocks).astype(
                np.int64
            )
        ordinals[members] = read_run.base + position
    return epochs, ordinals
