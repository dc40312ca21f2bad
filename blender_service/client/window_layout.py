"""Derive a model's inputs from the token ids and the segments of windows.

    input_ids      a0 a1 a2  b0 b1  PAD         a, b: segments of two documents
    document_ids    0  0  0   1  1   -1
    position_ids    0  1  2   0  1    0         starts at 0 in every segment
    labels         a1 a2 -100 b1 -100 -100      the next token of the same segment; -100 is ignored by the loss. Where
                                                rows have the column `trainable`, so is each token that it leaves out

    documents              the ids of a and b
    segment_documents       0 1                 which of them each segment is of, in the order of rows and windows

Two positions see each other where document_ids are equal, so a block-diagonal causal mask follows:
`(document_ids[:, :, None] == document_ids[:, None, :]) & causal`. Padding sees padding, so no row of it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.blend.definition_messages import Blend
from blender_service.exceptions import InvalidReadError
from blender_service.wire.row_batch import RowBatch

IGNORED_LABEL: Final = -100
_TRAINABLE: Final = "trainable"  # the column of rows
PADDING_DOCUMENT: Final = -1
_SHORT_TOKENS: Final = 128  # of segments on average, below which numbers are repeated at once, not run by run


def sequence_tokens_of(blend: Blend, *batches: RowBatch) -> int:
    """Give the length of the sequences in rows of a blend: the length class of their sources, else that of a row.

    Raises:
        InvalidReadError: they are of several.
    """
    names = {batch.source_names[source] for batch in batches for source in np.unique(batch.sources).tolist()}
    lengths = sorted({blend.length_classes.get(name, batches[0].input_ids.shape[1]) for name in names})
    if len(lengths) > 1:
        raise InvalidReadError(
            f"blend {blend.blend_id}: rows from {batches[0].offset} on have sequences of {lengths[0]} and {lengths[1]} "
            f"tokens; take steps that divide the turns of {blend.turn_rows} rows, and begin at a multiple of theirs"
        )
    return lengths[0]


NewArray = Callable[[str, tuple[int, int], DTypeLike], NDArray[Any]]


def new_array(name: str, shape: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
    """Give an array of any values; `name` is its name in a layout."""
    return np.empty(shape, dtype)


class WindowLayout:
    """Arrays over R rows of L tokens; each is made when it is asked for, by segments instead of tokens.

    With `sequence_tokens`, the length class of all rows (`sequence_tokens_of`), they are over the sequences in the
    rows, which are R and L of all arrays then.
    """

    def __init__(self, *batches: RowBatch, new_array: NewArray = new_array, sequence_tokens: int = 0) -> None:
        """Lay out the rows of batches, at least one, one after the other, in arrays of `new_array`.

        Raises:
            InvalidReadError: the rows are no such sequences.
        """
        self._batches, self._new_array = batches, new_array
        counts = np.concatenate([batch.segment_counts for batch in batches])
        window_tokens = batches[0].input_ids.shape[1]
        length = sequence_tokens or window_tokens
        self._shape = (counts.size * window_tokens // length, length)
        row = np.repeat(np.arange(counts.size), counts)
        self._starts = row * window_tokens + np.concatenate([batch.window_starts for batch in batches])
        self._ends = self._starts + np.concatenate([batch.segment_token_counts for batch in batches])
        sequence = self._starts // length
        self._number = np.arange(row.size) - np.searchsorted(sequence, sequence)
        if window_tokens % length or (sequence != (self._ends - 1) // length).any():
            raise InvalidReadError(f"layout: rows of {window_tokens} tokens are no sequences of {length}")

    @cached_property
    def input_ids(self) -> Int64Array:
        """(R, L) int64."""
        ids = self._new_array("input_ids", self._shape, np.int64)
        for rows, batch in self._parts(ids):
            rows[:] = batch.input_ids
        return ids

    @cached_property
    def labels(self) -> Int64Array:
        """(R, L) int64, the next token, or -100."""
        labels = self._new_array("labels", self._shape, np.int64)
        for rows, batch in self._parts(labels):
            rows[:, :-1] = batch.input_ids[:, 1:]  # what a row ends with is the end of a segment, or padding
            if _TRAINABLE in batch.columns:
                np.copyto(rows[:, :-1], IGNORED_LABEL, where=~batch.columns[_TRAINABLE][:, 1:])
        flat = labels.reshape(-1)
        flat[self._ends - 1] = IGNORED_LABEL
        return self._padded(labels, IGNORED_LABEL)

    @cached_property
    def position_ids(self) -> Int64Array:
        """(R, L) int64, position inside the segment; 0 in padding."""
        positions = self._new_array("position_ids", self._shape, np.int64)
        flat = positions.reshape(-1)
        if flat.size < _SHORT_TOKENS * self._starts.size:
            before = np.diff(self._starts, prepend=0, append=flat.size)
            np.subtract(np.arange(flat.size), np.repeat(np.insert(self._starts, 0, 0), before), out=flat)
        else:
            positions[:] = ascending = np.arange(self._shape[1], dtype=np.int32)
            for start, end in self._runs(self._starts % self._shape[1] > 0):
                flat[start:end] = ascending[: end - start]
        return self._padded(positions, 0)

    @cached_property
    def document_ids(self) -> Int32Array:
        """(R, L) int32, number of the segment inside its window; -1 in padding."""
        documents = self._new_array("document_ids", self._shape, np.int32)
        flat = documents.reshape(-1)
        if flat.size < _SHORT_TOKENS * self._starts.size:
            runs = np.full(2 * self._starts.size + 1, PADDING_DOCUMENT, dtype=np.int32)
            runs[1::2] = self._number
            bounds = np.zeros(runs.size + 1, dtype=np.int64)
            bounds[1:-1:2], bounds[2:-1:2], bounds[-1] = self._starts, self._ends, flat.size
            flat[:] = np.repeat(runs, np.diff(bounds))
            return documents
        documents.fill(0)
        later = self._number > 0
        for (start, end), number in zip(self._runs(later), self._number[later].tolist(), strict=True):
            flat[start:end] = number
        return self._padded(documents, PADDING_DOCUMENT)

    @cached_property
    def cu_seqlens(self) -> Int32Array:
        """(S + 1,) int32, from 0 to R * L, bounds of sequences in rows laid one after the other.

        As FlashAttention's varlen kernels take them. A sequence is a segment, or the padding between two of them inside
        one row, so that the bounds cover every token.
        """
        rows, window_tokens = self._shape
        bounds = (np.arange(rows + 1) * window_tokens, self._starts, self._ends)
        return np.unique(np.concatenate(bounds)).astype(np.int32)

    def block_mask(self, block_tokens: int = 128) -> NDArray[np.int8]:
        """Say what each block of tokens sees of each: nothing 0, a part 1, all 2.

        As kernels with sparse blocks want it (FlexAttention, splash attention of JAX, MLX), of the causal mask inside
        documents; padding sees padding. The last block may be short.

        Returns:
            (R, Q, K): query by key, ceil(L / block_tokens) of each.
        """
        rows, window_tokens = self._shape
        ids = np.pad(self.document_ids, ((0, 0), (0, -window_tokens % block_tokens)), mode="edge")
        blocks = ids.reshape(rows, -1, block_tokens)
        padding, last = (blocks == PADDING_DOCUMENT).any(axis=2), blocks.max(axis=2)
        first = np.where(blocks == PADDING_DOCUMENT, np.iinfo(np.int32).max, blocks).min(axis=2)
        has_all = (blocks == blocks[:, :, :1]).all(axis=2)
        # Documents are numbered in order, so a block and a later one share at most the last of one, the first of other.
        shared = (first[:, :, None] == last[:, None]) | (padding[:, :, None] & padding[:, None])
        alike = has_all[:, :, None] & has_all[:, None] & (blocks[:, :, None, 0] == blocks[:, None, :, 0])
        visible: NDArray[np.int8] = np.tril(shared.astype(np.int8) + alike, -1)
        number = np.arange(blocks.shape[1])
        visible[:, number, number] = np.where(window_tokens - number * block_tokens == 1, 2, 1 + (block_tokens == 1))
        return visible

    @cached_property
    def documents(self) -> list[str]:
        """Ids of the documents, each once, in the order of their first segments."""
        return list(dict.fromkeys(doc_id for batch in self._batches for doc_id in batch.doc_ids))

    @cached_property
    def segment_documents(self) -> Int64Array:
        """(S,) int64, index into `documents` of each segment, row by row."""
        numbers = {doc_id: number for number, doc_id in enumerate(self.documents)}
        of_segments = (numbers[doc_id] for batch in self._batches for doc_id in batch.doc_ids)
        return np.fromiter(of_segments, np.int64, self._starts.size)

    @property
    def max_seqlen(self) -> int:
        """Tokens of the longest sequence."""
        return int(np.diff(self.cu_seqlens).max(initial=0))

    def _runs(self, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
        """Give where the tokens of some segments start and end."""
        return zip(self._starts[chosen].tolist(), self._ends[chosen].tolist(), strict=True)

    def _parts(self, array: NDArray[Any]) -> Iterator[tuple[NDArray[Any], RowBatch]]:
        """Give the rows of each batch in an array, and the batch."""
        first = 0
        for batch in self._batches:
            yield array.reshape(-1, batch.input_ids.shape[1])[first : first + batch.rows], batch
            first += batch.rows

    def _padded(self, values: NDArray[Any], value: int) -> NDArray[Any]:
        """Set the tokens of no segment to a value."""
        flat = values.reshape(-1)
        starts, ends = np.insert(self._ends, 0, 0), np.append(self._starts, flat.size)
        padding = np.flatnonzero(starts < ends)
        for start, end in zip(starts[padding].tolist(), ends[padding].tolist(), strict=True):
            flat[start:end] = value
        return values
