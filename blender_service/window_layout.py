"""What a model needs besides token ids, derived from the segments of a window.

    input_ids      a0 a1 a2  b0 b1  PAD         a, b: segments of two documents
    document_ids    0  0  0   1  1   -1
    position_ids    0  1  2   0  1    0         starts at 0 in every segment
    labels         a1 a2 -100 b1 -100 -100      the next token of the same segment; -100 is ignored by the loss

Two positions see each other where document_ids are equal, so a block-diagonal causal mask follows:
`(document_ids[:, :, None] == document_ids[:, None, :]) & causal`. Padding sees padding, so no row of it is empty.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.wire import RowBatch

IGNORED_LABEL: Final = -100
PADDING_DOCUMENT: Final = -1


class WindowLayout(NamedTuple):
    """Arrays of the shape of input_ids, (R, L).

    Attributes:
        labels: int64, the next token, or -100.
        position_ids: int64, place inside the segment; 0 in padding.
        document_ids: int32, number of the segment inside its window; -1 in padding.
    """

    labels: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    document_ids: NDArray[np.int32]


def lay_out(batch: RowBatch) -> WindowLayout:
    """Derive labels, position ids and document ids of every row.

    Args:
        batch: R rows of L tokens.
    """
    rows, window_tokens = batch.input_ids.shape
    counts = batch.segment_token_counts.astype(np.int64)
    row = np.repeat(np.arange(rows), batch.segment_counts)
    segments_before = np.cumsum(batch.segment_counts) - batch.segment_counts
    number = np.arange(counts.size) - segments_before[row]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.repeat(row * window_tokens + batch.window_starts, counts) + within

    document_ids = np.full(rows * window_tokens, PADDING_DOCUMENT, dtype=np.int32)
    document_ids[place] = np.repeat(number, counts)
    position_ids = np.zeros(rows * window_tokens, dtype=np.int64)
    position_ids[place] = within

    document_ids = document_ids.reshape(rows, window_tokens)
    labels = np.full((rows, window_tokens), IGNORED_LABEL, dtype=np.int64)
    goes_on = (document_ids[:, 1:] == document_ids[:, :-1]) & (document_ids[:, 1:] != PADDING_DOCUMENT)
    labels[:, :-1][goes_on] = batch.input_ids[:, 1:][goes_on]
    return WindowLayout(labels, position_ids.reshape(rows, window_tokens), document_ids)


def sequence_bounds(document_ids: NDArray[np.int32]) -> tuple[NDArray[np.int32], int]:
    """Give the bounds of the sequences in rows laid one after the other, as FlashAttention's varlen kernels take them.

    A sequence is a run of equal document ids inside one row, padding included, so that the bounds cover every token.

    Args:
        document_ids: (R, L).

    Returns:
        cu_seqlens, (S + 1,) int32, from 0 to R * L; and the tokens of the longest sequence.
    """
    rows, window_tokens = document_ids.shape
    begins = np.ones((rows, window_tokens), dtype=np.bool_)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    bounds = np.append(np.flatnonzero(begins), rows * window_tokens).astype(np.int32)
    return bounds, int(np.diff(bounds).max(initial=0))
