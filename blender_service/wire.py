"""Rows as arrays, and as messages. Needs NumPy and the generated protos only, so that a training job imports it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from headrace.blender.v1 import rows_pb2
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Consecutive rows [offset, offset + R) of a blend, with S segments in all.

    Attributes:
        offset: of the first row.
        input_ids: (R, L) token ids, uint16 or uint32; padding at the end of a window.
        token_counts: (R,) tokens before the padding, int32.
        source_names: names of the blend's sources.
        sources: (R,) index into source_names, uint8.
        epochs: (R,) pass over the source, int64.
        ordinals: (R,) row of the source's packed table, int64.
        segment_counts: (R,) segments of each row, int32.
        doc_id_bytes: UTF-8 document ids of all segments, one after the other.
        doc_id_lengths: (S,) bytes of each, int32.
        document_starts: (S,) first token, in the document's own tokens, int64.
        segment_token_counts: (S,) tokens, int32.
        window_starts: (S,) first token, in the window, int32.
        end_of_blend: whether no row follows.
        waiting_for: in a batch without rows, the row that a live table does not have yet.
    """

    offset: int
    input_ids: NDArray[np.unsignedinteger]
    token_counts: NDArray[np.int32]
    source_names: tuple[str, ...]
    sources: NDArray[np.uint8]
    epochs: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    segment_counts: NDArray[np.int32]
    doc_id_bytes: bytes
    doc_id_lengths: NDArray[np.int32]
    document_starts: NDArray[np.int64]
    segment_token_counts: NDArray[np.int32]
    window_starts: NDArray[np.int32]
    end_of_blend: bool = False
    waiting_for: str = ""

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.input_ids)

    @property
    def end(self) -> int:
        """Offset after the last row."""
        return self.offset + self.rows

    @cached_property
    def doc_ids(self) -> list[str]:
        """(S,) document id of each segment."""
        ends = np.cumsum(self.doc_id_lengths).tolist()
        return [self.doc_id_bytes[a:b].decode() for a, b in zip([0, *ends[:-1]], ends, strict=True)] if ends else []

    def tail(self, first: int) -> RowBatch:
        """Give the batch without its first `first` rows."""
        if first == 0:
            return self
        segments = int(self.segment_counts[:first].sum())
        doc_id_bytes = int(self.doc_id_lengths[:segments].sum())
        return RowBatch(
            offset=self.offset + first,
            input_ids=self.input_ids[first:],
            token_counts=self.token_counts[first:],
            source_names=self.source_names,
            sources=self.sources[first:],
            epochs=self.epochs[first:],
            ordinals=self.ordinals[first:],
            segment_counts=self.segment_counts[first:],
            doc_id_bytes=self.doc_id_bytes[doc_id_bytes:],
            doc_id_lengths=self.doc_id_lengths[segments:],
            document_starts=self.document_starts[segments:],
            segment_token_counts=self.segment_token_counts[segments:],
            window_starts=self.window_starts[segments:],
            end_of_blend=self.end_of_blend,
        )


def encode(batch: RowBatch) -> rows_pb2.RowBatch:
    """Turn rows into a message."""
    return rows_pb2.RowBatch(
        offset=batch.offset,
        rows=batch.rows,
        window_tokens=batch.input_ids.shape[1],
        token_bytes=batch.input_ids.dtype.itemsize,
        input_ids=_bytes(batch.input_ids),
        token_counts=_bytes(batch.token_counts),
        source_names=batch.source_names,
        sources=_bytes(batch.sources),
        epochs=_bytes(batch.epochs),
        ordinals=_bytes(batch.ordinals),
        segments=rows_pb2.Segments(
            counts=_bytes(batch.segment_counts),
            doc_ids=batch.doc_id_bytes,
            doc_id_lengths=_bytes(batch.doc_id_lengths),
            document_starts=_bytes(batch.document_starts),
            token_counts=_bytes(batch.segment_token_counts),
            window_starts=_bytes(batch.window_starts),
        ),
        end_of_blend=batch.end_of_blend,
        waiting_for=batch.waiting_for,
    )


def decode(message: rows_pb2.RowBatch) -> RowBatch:
    """Turn a message into rows; the arrays are read-only views of its bytes."""
    token_type = "<u2" if message.token_bytes == 2 else "<u4"
    segments = message.segments
    return RowBatch(
        offset=message.offset,
        input_ids=np.frombuffer(message.input_ids, token_type).reshape(message.rows, message.window_tokens),
        token_counts=np.frombuffer(message.token_counts, "<i4"),
        source_names=tuple(message.source_names),
        sources=np.frombuffer(message.sources, "u1"),
        epochs=np.frombuffer(message.epochs, "<i8"),
        ordinals=np.frombuffer(message.ordinals, "<i8"),
        segment_counts=np.frombuffer(segments.counts, "<i4"),
        doc_id_bytes=segments.doc_ids,
        doc_id_lengths=np.frombuffer(segments.doc_id_lengths, "<i4"),
        document_starts=np.frombuffer(segments.document_starts, "<i8"),
        segment_token_counts=np.frombuffer(segments.token_counts, "<i4"),
        window_starts=np.frombuffer(segments.window_starts, "<i4"),
        end_of_blend=message.end_of_blend,
        waiting_for=message.waiting_for,
    )


def concatenate(batches: list[RowBatch]) -> RowBatch:
    """Join batches that follow each other.

    Args:
        batches: at least one, each starting where the one before ends.
    """
    if len(batches) == 1:
        return batches[0]
    return RowBatch(
        offset=batches[0].offset,
        input_ids=np.concatenate([batch.input_ids for batch in batches]),
        token_counts=np.concatenate([batch.token_counts for batch in batches]),
        source_names=batches[0].source_names,
        sources=np.concatenate([batch.sources for batch in batches]),
        epochs=np.concatenate([batch.epochs for batch in batches]),
        ordinals=np.concatenate([batch.ordinals for batch in batches]),
        segment_counts=np.concatenate([batch.segment_counts for batch in batches]),
        doc_id_bytes=b"".join(batch.doc_id_bytes for batch in batches),
        doc_id_lengths=np.concatenate([batch.doc_id_lengths for batch in batches]),
        document_starts=np.concatenate([batch.document_starts for batch in batches]),
        segment_token_counts=np.concatenate([batch.segment_token_counts for batch in batches]),
        window_starts=np.concatenate([batch.window_starts for batch in batches]),
        end_of_blend=batches[-1].end_of_blend,
    )


def empty_batch(offset: int, window_tokens: int, token_bytes: int, source_names: tuple[str, ...]) -> RowBatch:
    """Give a batch without rows."""
    int32, int64 = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    ids = np.empty((0, window_tokens), dtype=np.uint16 if token_bytes == 2 else np.uint32)
    return RowBatch(
        offset, ids, int32, source_names, np.empty(0, dtype=np.uint8), int64, int64, int32, b"", int32, int64, int32,
        int32,
    )  # fmt: skip


def _bytes(array: NDArray[np.generic]) -> bytes:
    """Give an array's little-endian bytes."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
