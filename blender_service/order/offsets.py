"""Find the offsets at which a blend reads a row of a source: the inverse of `resolve`, in closed form.

The permutation of an epoch is undone step by step (`resolve_kernel` has the steps and their pictures): the ordinal's
block gives its slot, the slot its group, the rank in the group the position; the runs of reads make that the k-th read
of the source, and the cycle the offset. A row is found in microseconds, however large the table and far the offset.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from blender_service.order.epochs import ReadRun
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import OFFSET_LIMIT, Part, Segment
from headrace.kernels.compiling import compiled
from headrace.kernels.permutation import domain_bits, inverted, mix

_ONE, _TWO = np.uint64(1), np.uint64(2)


def offsets_of(order: BlendOrder, name: str, ordinal: int) -> Iterator[tuple[int, int]]:
    """Give the (offset, epoch) of every read of a row of a source, ascending; without end where the source has none.

    Args:
        order: of the blend.
        name: of the source.
        ordinal: row of its table.
    """
    for segment in order.segments:
        for index, part in enumerate(segment.parts):
            if part.name == name:
                yield from _in_segment(order, segment, index, part, ordinal)


def _in_segment(order: BlendOrder, segment: Segment, index: int, part: Part, ordinal: int) -> Iterator[tuple[int, int]]:
    first = segment.rows_at(segment.start)[index]
    end = part.end_row if part.end_row is not None else OFFSET_LIMIT
    for run, following in itertools.zip_longest(part.read_runs, part.read_runs[1:]):
        for read, epoch in _reads(order, part.name, run, first, ordinal):
            if read >= min(end, following.first if following else end):
                break
            if read >= first:
                turns, rank = divmod(read - part.first_row, part.weight)
                yield segment.origin + turns * segment.cycle_rows + segment.cycle.slot_of(index, rank), epoch


def _reads(order: BlendOrder, name: str, run: ReadRun, first: int, ordinal: int) -> Iterator[tuple[int, int]]:
    """The (k, epoch) of each read of an ordinal in one run of reads, ascending, from the epoch of read `first` on."""
    index = ordinal - run.base
    if index < 0 or (run.size and index >= run.size):
        return
    if not run.size:
        yield run.first + index, run.epoch
        return
    for turn in itertools.count(max(0, first - run.first) // run.size):
        if run.rows is not None and turn * run.size >= run.rows:
            return
        epoch = run.epoch + turn
        position = _position(index, order.key(name), epoch, run.base, run.size, order.block_rows, order.group_blocks)
        yield run.first + turn * run.size + int(position), epoch


@compiled
def _position(index, key, epoch, base, size, block_rows, group_blocks):  # type: ignore[no-untyped-def]
    """The position in its epoch of an ordinal, counted from the base of its run of reads."""
    word = mix(mix(mix(key) + np.uint64(epoch)) + np.uint64(base))
    block_count = (size + block_rows - 1) // block_rows
    count, bits = np.uint64(block_count), domain_bits(np.uint64(block_count))
    rotation = mix(word ^ _ONE) % count
    short = np.int64(inverted(np.uint64(block_count - 1), word ^ _ONE, count, bits, rotation))  # slot of the last block
    short_group = short // group_blocks
    slot = np.int64(inverted(np.uint64(index // block_rows), word ^ _ONE, count, bits, rotation))
    group = slot // group_blocks
    slots = min(group_blocks, block_count - group * group_blocks)
    rows = slots * block_rows
    in_group, start = slot - group * group_blocks, group * group_blocks * block_rows
    missing = block_count * block_rows - size
    if group == short_group:
        rows -= missing
        in_group = slots - 1 if slot == short else in_group - (1 if slot > short else 0)
    elif group > short_group:
        start -= missing
    row_word = mix(word ^ _TWO) + np.uint64(group)
    within = np.uint64(in_group * block_rows + index % block_rows)
    count = np.uint64(rows)
    return start + np.int64(inverted(within, row_word, count, domain_bits(count), mix(row_word) % count))
