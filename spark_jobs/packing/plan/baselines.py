"""Two baseline plans for comparison with best-fit decreasing; they fill windows one after another in metadata order.

    next_fit            a piece too long for the open window opens the next one; the rest stays empty
    concat_and_slice    all documents are one string of tokens, cut every L of them: no padding, but cuts anywhere

Both are sequential, since a window depends on all before it. So each shard of the plan is one task, over metadata only,
and here a bucket is a shard. As in `placement` there are two passes over the same rows: the first counts the windows of
each shard, the second places documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Int64Array
from spark_jobs.packing.plan.placement import (
    EMPTY_DOCUMENTS,
    UnitRules,
    bucket_parts,
    count_row,
    pieces_of,
    placements,
)
from spark_jobs.packing.plan.repository_runs import ALONE, greedy_starts
from spark_jobs.packing.plan.units import Pieces, pieces_between, with_specials
from spark_jobs.packing.plan.window_order import CellOrder, WindowOrder

SEQUENCE_PIECES, SEQUENCE_TOKENS = -3, -4
Sequence = Literal["next_fit", "concat_and_slice"]


@dataclass
class OpenWindow:
    """The window being filled: its number in the shard, and the tokens in it."""

    number: int = 0
    fill: int = 0

    @property
    def window_count(self) -> int:
        """Windows begun."""
        return self.number + (self.fill > 0)


@dataclass(frozen=True)
class SequencePlacer:
    """Places the documents of a task's shards.

    Attributes:
        rules: how documents are cut; their thetas are not used.
        sequence: which of the two plans.
        first_windows: number of the first window of each shard in the increment.
        order: from windows to ordinals.
        cell_shards: shards of a cell; those of the first come first.
    """

    rules: UnitRules
    sequence: Sequence
    first_windows: tuple[int, ...]
    order: WindowOrder | CellOrder
    cell_shards: int = 1 << 62  # all are of one

    def place_batches(self, documents: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Place documents as `Placer.place_batches` does; the bucket of a row is the number of its shard."""
        for bucket, parts in groupby(bucket_parts(documents), key=itemgetter(0)):
            window = OpenWindow()
            for _, rows in parts:
                pieces, windows, starts = fill_windows(rows, self.rules, self.sequence, window)
                ordinals = self.order.ordinals(self.first_windows[bucket] + windows)
                yield placements(rows, pieces, ordinals, starts, bucket // self.cell_shards)


def count_windows(
    documents: Iterable[pa.RecordBatch], rules: UnitRules, sequence: Sequence
) -> Iterator[pa.RecordBatch]:
    """Count the windows of each shard, as units of length L; arguments and rows as in `placement.count_batches`.

    Pieces and tokens are counted as units of length 0 under SEQUENCE_PIECES and SEQUENCE_TOKENS.
    """
    for bucket, parts in groupby(bucket_parts(documents), key=itemgetter(0)):
        window = OpenWindow()
        totals = dict.fromkeys((EMPTY_DOCUMENTS, SEQUENCE_PIECES, SEQUENCE_TOKENS), 0)
        for _, rows in parts:
            pieces, _, _ = fill_windows(rows, rules, sequence, window)
            totals[EMPTY_DOCUMENTS] += rows.num_rows - int(pieces.first.sum())
            totals[SEQUENCE_PIECES] += len(pieces.length)
            totals[SEQUENCE_TOKENS] += int(pieces.length.sum())
        yield count_row(ALONE, bucket, rules.window_tokens, window.window_count)
        for what, total in totals.items():
            yield count_row(what, bucket, 0, total)


def fill_windows(
    rows: pa.RecordBatch, rules: UnitRules, sequence: Sequence, window: OpenWindow
) -> tuple[Pieces, Int64Array, Int64Array]:
    """Place the next documents of a shard.

    Args:
        rows: documents in metadata order.
        rules: how they are cut.
        sequence: which of the two plans.
        window: the open window, updated.

    Returns:
        The pieces, (N,) their windows, counted from 0 in the shard, and (N,) their first positions in those.
    """
    pieces = pieces_of(rows, rules)
    if sequence == "concat_and_slice":
        token_counts = rows.column("token_count").to_numpy().astype(np.int64)
        return _slice(with_specials(token_counts, rules.leading), rules, window)
    if not len(pieces.length):
        return pieces, pieces.start, pieces.start
    # What the open window holds already counts as one more piece before the others.
    lengths = np.concatenate([[window.fill], pieces.length]) if window.fill else pieces.length
    hard = np.arange(len(lengths)) == 0
    starts = greedy_starts(lengths, hard, rules.window_tokens)
    before = np.cumsum(lengths) - lengths
    nth = np.cumsum(starts) - 1
    positions = before - before[starts][nth]
    windows = window.number + nth
    window.number, window.fill = int(windows[-1]), int(positions[-1] + lengths[-1])
    new_pieces = slice(len(lengths) - len(pieces.length), None)
    return pieces, windows[new_pieces], positions[new_pieces]


def _slice(lengths: Int64Array, rules: UnitRules, window: OpenWindow) -> tuple[Pieces, Int64Array, Int64Array]:
    """Cut the string of all documents every L tokens."""
    size = rules.window_tokens
    ends = window.number * size + window.fill + np.cumsum(lengths)
    begins = ends - lengths
    counts = np.where(lengths > 0, (ends - 1) // size - begins // size + 1, 0)
    document = np.repeat(np.arange(len(lengths), dtype=np.int64), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    windows = begins[document] // size + number
    first_tokens = np.maximum(windows * size, begins[document])
    if len(ends):
        window.number, window.fill = divmod(int(ends[-1]), size)
    pieces = pieces_between(document, first_tokens - begins[document], lengths, rules.leading)
    return pieces, windows, first_tokens - windows * size
