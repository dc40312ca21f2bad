"""Resolve offsets in one compiled pass: offsets in, (source, epoch, ordinal) out.

An epoch of a source is shuffled by a keyed permutation: a pure function of (key, epoch, position), nothing stored.
`_shuffled` composes that of `headrace.kernels.permutation` twice, so that a reader needs a few blocks at a time and not
the whole table::

    size 10, blocks of 2 rows, groups of 2 blocks:   blocks 0 1 2 3 4
    permute the blocks over the whole source         slots  3 0 | 4 1 | 2        (groups of two slots)
    permute the rows inside each group               ordinals 1 6 0 7 | 9 3 8 2 | 5 4

The last block may be short; in its group it counts as the last slot, so every group is a plain range of positions. The
tests have the same in NumPy (`plain_permutation`).

All words are uint64 and wrap: numba turns uint64 mixed with int64 into a float, so constants and casts are explicit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array, UInt64Array
from headrace.kernels.compiling import compiled, inner
from headrace.kernels.permutation import domain_bits, inverted, mix, permuted

_ONE = np.uint64(1)
_TWO = np.uint64(2)


class EpochState(NamedTuple):
    """What an epoch of each source of a segment needs, kept until the source moves to another epoch or run of reads.

    Attributes:
        cached: (n, 2) epoch and run of reads, -1 before the first.
        words: (n, 3) words and rotation of `_start_epoch`.
        bounds: (n, 6) its bounds.
        blocks: (n, group_blocks, 2) slots and blocks met last. The domain has 8 bits at least, so one of four takes
            64 walks of the Feistel on average.
    """

    cached: Int64Array
    words: UInt64Array
    bounds: Int64Array
    blocks: Int64Array


def new_state(source_count: int, group_blocks: int) -> EpochState:
    """Give the state before the first row."""
    return EpochState(
        np.full((source_count, 2), -1, dtype=np.int64),
        np.zeros((source_count, 3), dtype=np.uint64),
        np.zeros((source_count, 6), dtype=np.int64),
        np.full((source_count, group_blocks, 2), -1, dtype=np.int64),
    )


@inner
def _start_epoch(i, word, size, block_rows, group_blocks, words, bounds):  # type: ignore[no-untyped-def]
    """Fill what all rows of one epoch of source i share: words and rotation, blocks, and where the short one is."""
    block_count = (size + block_rows - 1) // block_rows
    block_bits = domain_bits(np.uint64(block_count))
    rotation = mix(word ^ _ONE) % np.uint64(block_count)
    words[i, 0] = word ^ _ONE
    words[i, 1] = rotation
    words[i, 2] = mix(word ^ _TWO)
    slot = np.int64(inverted(np.uint64(block_count - 1), word ^ _ONE, np.uint64(block_count), block_bits, rotation))
    group = slot // group_blocks
    slots = min(group_blocks, block_count - group * group_blocks)
    bounds[i, 0] = slot
    bounds[i, 1] = group
    bounds[i, 2] = (slots - 1) * block_rows + size - (block_count - 1) * block_rows
    bounds[i, 3] = group * group_blocks * block_rows
    bounds[i, 4] = block_count
    bounds[i, 5] = block_bits


@inner(inline="always")  # as a call of its own it costs a fifth more per row
def _shuffled(i, position, block_rows, group_blocks, words, bounds, blocks):  # type: ignore[no-untyped-def]
    """Send one position of the epoch of source i to its ordinal."""
    full = block_rows * group_blocks
    short_group, short_group_rows, rows_before = bounds[i, 1], bounds[i, 2], bounds[i, 3]
    if position < rows_before:
        group = position // full
        position -= group * full
    elif position < rows_before + short_group_rows:
        group = short_group
        position -= rows_before
    else:
        position -= rows_before + short_group_rows
        group = short_group + 1 + position // full
        position %= full
    block_count = bounds[i, 4]
    slots = min(group_blocks, block_count - group * group_blocks)
    rows = np.uint64(short_group_rows if group == short_group else slots * block_rows)
    row_word = words[i, 2] + np.uint64(group)
    place = np.int64(permuted(np.uint64(position), row_word, rows, domain_bits(rows), mix(row_word) % rows))
    slot_in_group = place // block_rows
    slot = group * group_blocks + slot_in_group
    if group == short_group:
        if slot_in_group == slots - 1:
            slot = bounds[i, 0]
        elif slot >= bounds[i, 0]:
            slot += 1
    kept = slot % group_blocks
    if blocks[i, kept, 0] != slot:
        blocks[i, kept, 0] = slot
        blocks[i, kept, 1] = permuted(np.uint64(slot), words[i, 0], np.uint64(block_count), bounds[i, 5], words[i, 1])
    return blocks[i, kept, 1] * block_rows + place - slot_in_group * block_rows


@compiled
def resolve_rows(
    distances: Int64Array,
    cycle_source: NDArray[np.uint16],
    cycle_rank: Int32Array,
    parts: Int64Array,
    keys: UInt64Array,
    read_runs: Int64Array,
    block_rows: int,
    group_blocks: int,
    state: EpochState,
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Resolve rows of one segment.

    Args:
        distances: (R,) rows counted from the segment's origin, any order.
        cycle_source: (P,) source of each slot of the cycle.
        cycle_rank: (P,) earlier slots of the same source.
        parts: (n, 3) of each source: rows in a cycle, rows read before the origin, end of its runs in `read_runs`.
        keys: (n,) permutation keys.
        read_runs: (G, 4) of each run: first row, base, size of an epoch (0: in the order of the ordinals), epoch.
        block_rows: rows of a block.
        group_blocks: blocks of a group.
        state: of the segment, left by an earlier call or new.

    Returns:
        (R,) source, (R,) epoch, (R,) ordinal.
    """
    row_count, cycle_rows = distances.size, cycle_source.size
    sources = np.empty(row_count, dtype=np.int64)
    epochs = np.empty(row_count, dtype=np.int64)
    ordinals = np.empty(row_count, dtype=np.int64)

    cached, words, bounds, blocks = state
    for row in range(row_count):
        turn = distances[row] // cycle_rows
        slot = distances[row] - turn * cycle_rows
        i = np.int64(cycle_source[slot])
        k = parts[i, 1] + turn * parts[i, 0] + cycle_rank[slot]
        read_run = parts[i, 2] - 1
        while read_runs[read_run, 0] > k:
            read_run -= 1
        position, base = k - read_runs[read_run, 0], read_runs[read_run, 1]
        size, epoch = read_runs[read_run, 2], read_runs[read_run, 3]
        if size > 0:
            epochs_before = position // size
            epoch += epochs_before
            if cached[i, 0] != epoch or cached[i, 1] != read_run:
                cached[i, 0], cached[i, 1] = epoch, read_run
                blocks[i] = -1
                word = mix(mix(mix(keys[i]) + np.uint64(epoch)) + np.uint64(base))
                _start_epoch(i, word, size, block_rows, group_blocks, words, bounds)
            position = _shuffled(i, position - epochs_before * size, block_rows, group_blocks, words, bounds, blocks)
        sources[row] = i
        epochs[row] = epoch
        ordinals[row] = base + position
    return sources, epochs, ordinals
