"""Find the offsets at which a blend reads a row of a source, and how often by then: the inverse of `resolve`.

The permutation of an epoch is undone step by step (`resolve_kernel` has the steps and their pictures): the ordinal's
block gives its slot, the slot its group, the rank in the group the position; the runs of reads make that the k-th read
of the source, and the cycle the offset. A row is found in microseconds, however large the table and far the offset.

How often rows were read is closed form too: an epoch read whole gives each of its rows one read; of an epoch read in
part the position of a row says whether it was read::

    10 rows of a table of 4:   epochs 0 and 1 whole, of epoch 2 the positions 0 and 1     counts  2 3 3 2
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from blender_service.arrays import Int64Array
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


def reads_before(order: BlendOrder, name: str, offset: int, ordinals: Int64Array) -> Int64Array:
    """Count how often rows of a source are read before an offset.

    Args:
        order: of the blend.
        name: of the source.
        offset: first row of the blend that does not count.
        ordinals: (R,) rows of its table.

    Returns:
        (R,) how often each is read.
    """
    whole: Counter[tuple[int, int]] = Counter()
    parts: dict[tuple[int, int, int], list[int]] = {}  # what was read of an epoch is one range, also across updates
    for run, start, stop in _reads_by_run(order, name, offset):
        if not run.size:
            whole[run.base + start, stop - start] += 1
            continue
        first, last = start // run.size, (stop - 1) // run.size
        whole[run.base, run.size] += max(0, last - first - 1)
        for turn in sorted({first, last}):
            begin, end = max(start - turn * run.size, 0), min(stop - turn * run.size, run.size)
            parts.setdefault((run.epoch + turn, run.base, run.size), [begin, end])[1] = end
    counts = np.zeros(ordinals.size, np.int64)
    for (epoch, base, size), (start, stop) in parts.items():
        if stop - start == size:
            whole[base, size] += 1
        else:
            shape = (order.block_rows, order.group_blocks)
            _count_between(counts, ordinals, order.key(name), epoch, base, size, shape, start, stop)
    for (base, size), turns in whole.items():
        counts[(ordinals >= base) & (ordinals < base + size)] += turns
    return counts


def read_in_epoch(order: BlendOrder, name: str, offset: int, epoch: int, rows: int) -> Int64Array:
    """Count how often each row of a source is read in an epoch before an offset: (rows,), each 0 or 1."""
    counts, ordinals, shape = np.zeros(rows, np.int64), np.arange(rows), (order.block_rows, order.group_blocks)
    for run, start, stop in _reads_by_run(order, name, offset):
        turn = epoch - run.epoch
        if run.size and max(start - turn * run.size, 0) < min(stop - turn * run.size, run.size):
            begin, end = max(start - turn * run.size, 0), min(stop - turn * run.size, run.size)
            _count_between(counts, ordinals, order.key(name), epoch, run.base, run.size, shape, begin, end)
    return counts


def _reads_by_run(order: BlendOrder, name: str, offset: int) -> Iterator[tuple[ReadRun, int, int]]:
    """The runs of reads of a source before an offset, each with the range [start, stop) of its reads."""
    for segment in order.segments:
        stop = offset if segment.end is None else min(offset, segment.end)
        for index, part in enumerate(segment.parts):
            if part.name != name or stop <= segment.start:
                continue
            first, last = segment.rows_at(segment.start)[index], segment.rows_at(stop)[index]
            for run, following in itertools.zip_longest(part.read_runs, part.read_runs[1:]):
                start, end = max(first, run.first), min(last, following.first if following else last)
                if start < end:
                    yield run, start - run.first, end - run.first


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


@compiled
def _count_between(counts, ordinals, key, epoch, base, size, shape, start, stop):  # type: ignore[no-untyped-def]
    """Add one to the counts of the ordinals with a position in [start, stop) of an epoch."""
    for row in range(ordinals.size):
        index = ordinals[row] - base
        if index >= 0 and index < size:
            position = _position(index, key, epoch, base, size, shape[0], shape[1])
            if position >= start and position < stop:
                counts[row] += 1
