"""Convert batches of rows between arrays and messages of `rows.proto`; a training job imports this, and NumPy only."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import MalformedMessageError
from blender_service.wire.protobuf import (
    Field,
    array_field,
    begin_message,
    bytes_field,
    number_field,
    read_fields,
)

# Numbers of the fields in rows.proto.
OFFSET, ROWS, WINDOW_TOKENS, TOKEN_BYTES, INPUT_IDS, TOKEN_COUNTS, SOURCE_NAMES = range(1, 8)
SOURCES, EPOCHS, ORDINALS, SEGMENTS, END_OF_BLEND, WAITING_FOR = range(8, 14)
COUNTS, DOC_IDS, DOC_ID_LENGTHS, DOCUMENT_STARTS, SEGMENT_TOKEN_COUNTS, WINDOW_STARTS = range(1, 7)

MAX_WINDOW_TOKENS: Final = 1 << 31
_OF_ROWS: Final = ("input_ids", "token_counts", "sources", "epochs", "ordinals", "segment_counts")
_OF_SEGMENTS: Final = ("doc_id_lengths", "document_starts", "segment_token_counts", "window_starts")


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
    token_counts: Int32Array
    source_names: tuple[str, ...]
    sources: NDArray[np.uint8]
    epochs: Int64Array
    ordinals: Int64Array
    segment_counts: Int32Array
    doc_id_bytes: bytes
    doc_id_lengths: Int32Array
    document_starts: Int64Array
    segment_token_counts: Int32Array
    window_starts: Int32Array
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
        rest: dict[str, Any] = {name: getattr(self, name)[first:] for name in _OF_ROWS}
        rest |= {name: getattr(self, name)[segments:] for name in _OF_SEGMENTS}
        return replace(self, offset=self.offset + first, doc_id_bytes=self.doc_id_bytes[doc_id_bytes:], **rest)


def begin(batch: RowBatch) -> bytes:
    """Write the message of a batch up to its token ids; only the shape and type of `input_ids` are used."""
    segments = b"".join(
        [
            *array_field(COUNTS, batch.segment_counts),
            bytes_field(DOC_IDS, batch.doc_id_bytes),
            *array_field(DOC_ID_LENGTHS, batch.doc_id_lengths),
            *array_field(DOCUMENT_STARTS, batch.document_starts),
            *array_field(SEGMENT_TOKEN_COUNTS, batch.segment_token_counts),
            *array_field(WINDOW_STARTS, batch.window_starts),
        ]
    )
    rows, window_tokens = batch.input_ids.shape
    token_bytes = batch.input_ids.dtype.itemsize
    head = b"".join(
        [
            number_field(OFFSET, batch.offset),
            number_field(WINDOW_TOKENS, window_tokens),
            number_field(TOKEN_BYTES, token_bytes),
            *array_field(TOKEN_COUNTS, batch.token_counts),
            names_field(batch.source_names),
            *array_field(SOURCES, batch.sources),
            *array_field(EPOCHS, batch.epochs),
            *array_field(ORDINALS, batch.ordinals),
            bytes_field(SEGMENTS, segments),
            number_field(END_OF_BLEND, batch.end_of_blend),
            bytes_field(WAITING_FOR, batch.waiting_for.encode()),
        ]
    )
    return begin_message((ROWS, rows), head, INPUT_IDS, rows * window_tokens * token_bytes)


@functools.lru_cache(256)
def names_field(names: tuple[str, ...]) -> bytes:
    """Write the names of the sources, which are the same in every message of a blend."""
    return b"".join(bytes_field(SOURCE_NAMES, name.encode()) for name in names)


def encode(batch: RowBatch) -> bytes:
    """Turn rows into a message."""
    ids = np.ascontiguousarray(batch.input_ids, dtype=batch.input_ids.dtype.newbyteorder("<"))
    return b"".join([begin(batch), ids.data])


def decode(message: bytes | memoryview) -> RowBatch:
    """Turn a message into rows; the arrays are read-only views of its bytes.

    Raises:
        MalformedMessageError: the message breaks off, or the lengths of its arrays contradict its counts.
    """
    numbers, content, names = _sorted_fields(read_fields(memoryview(message)))
    _, segments, _ = _sorted_fields(read_fields(content.get(SEGMENTS, memoryview(b""))))
    rows, window_tokens = numbers.get(ROWS, 0), numbers.get(WINDOW_TOKENS, 0)
    token_bytes = numbers.get(TOKEN_BYTES, 2)
    if token_bytes not in (2, 4) or window_tokens >= MAX_WINDOW_TOKENS:
        raise MalformedMessageError(f"message: rows of {window_tokens} tokens of {token_bytes} bytes; mend the sender")
    segment_counts = _array(segments, COUNTS, "<i4", rows)
    doc_id_bytes = bytes(segments.get(DOC_IDS, b""))
    doc_id_lengths = _array(segments, DOC_ID_LENGTHS, "<i4", int(segment_counts.sum()))
    if doc_id_lengths.sum() != len(doc_id_bytes) or (rows and min(segment_counts.min(), 0)):
        raise MalformedMessageError("message: the segments do not add up; mend the sender")
    count = len(doc_id_lengths)
    return RowBatch(
        offset=numbers.get(OFFSET, 0),
        input_ids=_array(content, INPUT_IDS, f"<u{token_bytes}", rows * window_tokens).reshape(rows, window_tokens),
        token_counts=_array(content, TOKEN_COUNTS, "<i4", rows),
        source_names=names,
        sources=_array(content, SOURCES, "u1", rows),
        epochs=_array(content, EPOCHS, "<i8", rows),
        ordinals=_array(content, ORDINALS, "<i8", rows),
        segment_counts=segment_counts,
        doc_id_bytes=doc_id_bytes,
        doc_id_lengths=doc_id_lengths,
        document_starts=_array(segments, DOCUMENT_STARTS, "<i8", count),
        segment_token_counts=_array(segments, SEGMENT_TOKEN_COUNTS, "<i4", count),
        window_starts=_array(segments, WINDOW_STARTS, "<i4", count),
        end_of_blend=bool(numbers.get(END_OF_BLEND, 0)),
        waiting_for=bytes(content.get(WAITING_FOR, b"")).decode(errors="replace"),
    )


def _sorted_fields(
    fields: Iterable[tuple[int, Field]],
) -> tuple[dict[int, int], dict[int, memoryview], tuple[str, ...]]:
    """Sort fields into numbers, bytes and names of sources; of a field that comes twice the last one counts."""
    numbers: dict[int, int] = {}
    content: dict[int, memoryview] = {}
    names: list[str] = []
    for field, value in fields:
        if isinstance(value, int):
            numbers[field] = value
        elif field == SOURCE_NAMES:
            names.append(bytes(value).decode(errors="replace"))
        else:
            content[field] = value
    return numbers, content, tuple(names)


def _array(content: dict[int, memoryview], field: int, dtype: str, count: int) -> NDArray[Any]:
    """View a field as an array; one that is not aligned to its width is copied, from which padding keeps the ids."""
    view = content.get(field, memoryview(b""))
    kind = np.dtype(dtype)
    if len(view) != count * kind.itemsize:
        raise MalformedMessageError(
            f"message: field {field} has {len(view)} bytes, {count} x {kind.itemsize} are announced; mend the sender"
        )
    array = np.frombuffer(view, kind)
    return array if array.flags.aligned else np.frombuffer(bytes(view), kind)


def concatenate(batches: list[RowBatch]) -> RowBatch:
    """Join batches, at least one, each starting where the one before ends."""
    if len(batches) == 1:
        return batches[0]
    names = (*_OF_ROWS, *_OF_SEGMENTS)
    arrays: dict[str, Any] = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}
    doc_id_bytes = b"".join(batch.doc_id_bytes for batch in batches)
    return replace(batches[-1], offset=batches[0].offset, doc_id_bytes=doc_id_bytes, **arrays)


def empty_batch(offset: int, window_tokens: int, token_bytes: int, source_names: tuple[str, ...]) -> RowBatch:
    """Give a batch without rows."""
    int32, int64 = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    ids = np.empty((0, window_tokens), dtype=np.uint16 if token_bytes == 2 else np.uint32)
    return RowBatch(
        offset, ids, int32, source_names, np.empty(0, dtype=np.uint8), int64, int64, int32, b"", int32, int64, int32,
        int32,
    )  # fmt: skip
