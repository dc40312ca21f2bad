"""Derive a model's inputs from the token ids and the segments of windows.

    input_ids      a0 a1 a2  b0 b1  PAD         a, b: segments of two documents
    document_ids    0  0  0   1  1   -1
    position_ids    0  1  2   0  1    0         starts at 0 in every segment
    labels         a1 a2 -100 b1 -100 -100      the next token of the same segment; -100 is ignored by the loss

Two positions see each other where document_ids are equal, so a block-diagonal causal mask follows:
`(document_ids[:, :, None] == document_ids[:, None, :]) & causal`. Padding sees padding, so no row of it is empty.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from blender_service.arrays import Int32Array, Int64Array
from blender_service.wire.row_batch import RowBatch

IGNORED_LABEL: Final = -100
PADDING_DOCUMENT: Final = -1


class WindowLayout:
    """Arrays over R rows of L tokens; each is made when it is asked for, by segments instead of tokens."""

    def __init__(self, batch: RowBatch) -> None:
        """Lay out the rows of a batch."""
        self._ids = batch.input_ids
        rows, window_tokens = batch.input_ids.shape
        row = np.repeat(np.arange(rows), batch.segment_counts)
        segments_before = np.cumsum(batch.segment_counts) - batch.segment_counts
        self._number = np.arange(row.size) - segments_before[row]
        self._starts = row * window_tokens + batch.window_starts
        self._ends = self._starts + batch.segment_token_counts

    @cached_property
    def input_ids(self) -> Int64Array:
        """(R, L) int64."""
        return self._ids.astype(np.int64)

    @cached_property
    def labels(self) -> Int64Array:
        """(R, L) int64, the next token, or -100."""
        labels = np.empty(self._ids.size, dtype=np.int64)
        labels[:-1] = self._ids.reshape(-1)[1:]
        labels[self._ends - 1] = IGNORED_LABEL
        return self._padded(labels, IGNORED_LABEL)

    @cached_property
    def position_ids(self) -> Int64Array:
        """(R, L) int64, position inside the segment; 0 in padding."""
        positions = np.arange(self._ids.size)
        positions -= np.repeat(np.insert(self._starts, 0, 0), np.diff(self._starts, prepend=0, append=self._ids.size))
        return self._padded(positions, 0)

    @cached_property
    def document_ids(self) -> Int32Array:
        """(R, L) int32, number of the segment inside its window; -1 in padding."""
        runs = np.full(2 * self._starts.size + 1, PADDING_DOCUMENT, dtype=np.int32)
        runs[1::2] = self._number
        bounds = np.zeros(runs.size + 1, dtype=np.int64)
        bounds[1:-1:2], bounds[2:-1:2], bounds[-1] = self._starts, self._ends, self._ids.size
        return np.repeat(runs, np.diff(bounds)).reshape(self._ids.shape)

    @cached_property
    def cu_seqlens(self) -> Int32Array:
        """(S + 1,) int32, from 0 to R * L, bounds of sequences in rows laid one after the other.

        As FlashAttention's varlen kernels take them. A sequence is a segment, or the padding between two of them inside
        one row, so that the bounds cover every token.
        """
        rows, window_tokens = self._ids.shape
        bounds = (np.arange(rows + 1) * window_tokens, self._starts, self._ends)
        return np.unique(np.concatenate(bounds)).astype(np.int32)

    @property
    def max_seqlen(self) -> int:
        """Tokens of the longest sequence."""
        return int(np.diff(self.cu_seqlens).max(initial=0))

    def _padded(self, flat: Int64Array, value: int) -> Int64Array:
        """Set the tokens of no segment to a value, and give the array the shape (R, L)."""
        starts, ends = np.insert(self._ends, 0, 0), np.append(self._starts, flat.size)
        padding = np.flatnonzero(starts < ends)
        for start, end in zip(starts[padding].tolist(), ends[padding].tolist(), strict=True):
            flat[start:end] = value
        return flat.reshape(self._ids.shape)
