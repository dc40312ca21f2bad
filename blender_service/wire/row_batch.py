"""Convert batches of rows between arrays and messages of `rows.proto`; a training job imports this.

Token ids are most of a message. They stand before its other fields, and are copied once to write it and not at all to
read it, where generated code copies them three times and twice; the rest is generated code's::

    20 token_bytes   2a length in five bytes   ids ..   the other fields

So the ids begin at byte 8, where an array of them is aligned. Fields may come in any order, and so may a sender's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import MalformedMessageError
from headrace.blender.v1 import rows_pb2

MAX_WINDOW_TOKENS: Final = 1 << 31
_OF_ROWS: Final = ("input_ids", "token_counts", "sources", "epochs", "ordinals", "segment_counts")
_DTYPE_OF: Final = {
    rows_pb2.TokenColumn.BOOL: "?",
    rows_pb2.TokenColumn.FLOAT32: "<f4",
    rows_pb2.TokenColumn.INT32: "<i4",
}
_TYPE_OF: Final = {np.dtype(dtype): kind for kind, dtype in _DTYPE_OF.items()}
_IDS_START: Final = 8
_LENGTH_SHIFTS: Final = (0, 7, 14, 21, 28)  # a varint of five bytes, however small
_OF_SEGMENTS: Final = ("doc_id_lengths", "document_starts", "segment_token_counts", "window_starts")


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Consecutive rows [offset, offset + R) of a blend, with S segments in all.

    Attributes:
        offset: of the first row.
        input_ids: (R, L) token ids, uint16 or uint32; padding at the end of a window.
        token_counts: (R,) tokens before the padding, int32.
        source_names: names of the blend's sources.
        sources: (R,) index into source_names, of `index_type`.
        epochs: (R,) pass over the source, int64.
        ordinals: (R,) row of the source's packed table, int64.
        segment_counts: (R,) segments of each row, int32.
        doc_id_bytes: UTF-8 document ids of all segments, one after the other.
        doc_id_lengths: (S,) bytes of each, int32.
        document_starts: (S,) first token, in the document's own tokens, int64.
        segment_token_counts: (S,) tokens, int32.
        window_starts: (S,) first token, in the window, int32.
        end_of_blend: whether no row follows.
        waiting_for: in a batch without rows, the row still missing from a live table.
        columns: (R, L) values of each column named by the read, bool, float32 or int32, by name.
    """

    offset: int
    input_ids: NDArray[np.unsignedinteger]
    token_counts: Int32Array
    source_names: tuple[str, ...]
    sources: NDArray[np.unsignedinteger]
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
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.input_ids)

    @property
    def byte_count(self) -> int:
        """Bytes of its arrays."""
        arrays = [getattr(self, name) for name in (*_OF_ROWS, *_OF_SEGMENTS)] + [*self.columns.values()]
        return int(sum(array.nbytes for array in arrays)) + len(self.doc_id_bytes)

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
        return self.part(first, self.rows) if first else self

    def part(self, first: int, last: int) -> RowBatch:
        """Give the rows [first, last); its arrays are views."""
        segment, end = (int(self.segment_counts[:row].sum()) for row in (first, last))
        byte, last_byte = (int(self.doc_id_lengths[:count].sum()) for count in (segment, end))
        kept: dict[str, Any] = {name: getattr(self, name)[first:last] for name in _OF_ROWS}
        kept |= {name: getattr(self, name)[segment:end] for name in _OF_SEGMENTS}
        kept["columns"] = {name: values[first:last] for name, values in self.columns.items()}
        return replace(self, offset=self.offset + first, doc_id_bytes=self.doc_id_bytes[byte:last_byte], **kept)


class MessageCutter:
    """Writes messages of parts of a batch; what they have in common is done once."""

    def __init__(self, batch: RowBatch) -> None:
        """View the bytes of all fields."""
        self._batch = batch
        self._segments, self._texts = _ends(batch.segment_counts), _ends(batch.doc_id_lengths)
        self._index_bytes = batch.sources.dtype.itemsize
        self._row_bytes = batch.input_ids.shape[1] * batch.input_ids.dtype.itemsize
        self._columns = {
            name: (_TYPE_OF[_little(values)], values.dtype.itemsize * values.shape[1], _bytes(values))
            for name, values in batch.columns.items()
        }
        self._bytes = {name: _bytes(getattr(batch, name)) for name in (*_OF_ROWS, *_OF_SEGMENTS)}

    def cut(self, first: int, last: int, offset: int) -> bytes:
        """Write the message of the rows [first, last), beginning at an offset of the blend."""
        batch, of = self._batch, self._bytes
        segment, end = self._segments[[first, last]].tolist()
        text, text_end = self._texts[[segment, end]].tolist()
        four_s, eight_s = slice(4 * segment, 4 * end), slice(8 * segment, 8 * end)
        four, eight = slice(4 * first, 4 * last), slice(8 * first, 8 * last)
        segments = rows_pb2.Segments(
            counts=of["segment_counts"][four].tobytes(),
            doc_ids=batch.doc_id_bytes[text:text_end],
            doc_id_lengths=of["doc_id_lengths"][four_s].tobytes(),
            document_starts=of["document_starts"][eight_s].tobytes(),
            token_counts=of["segment_token_counts"][four_s].tobytes(),
            window_starts=of["window_starts"][four_s].tobytes(),
        )
        message = rows_pb2.RowBatch(
            offset=offset,
            rows=last - first,
            window_tokens=batch.input_ids.shape[1],
            token_counts=of["token_counts"][four].tobytes(),
            source_names=batch.source_names,
            sources=of["sources"][self._index_bytes * first : self._index_bytes * last].tobytes(),
            epochs=of["epochs"][eight].tobytes(),
            ordinals=of["ordinals"][eight].tobytes(),
            segments=segments,
            end_of_blend=batch.end_of_blend,
            waiting_for=batch.waiting_for,
            columns=[
                rows_pb2.TokenColumn(name=name, type=kind, values=values[width * first : width * last].tobytes())
                for name, (kind, width, values) in self._columns.items()
            ],
        )
        ids = of["input_ids"][self._row_bytes * first : self._row_bytes * last]
        return b"".join((_ids_head(batch.input_ids.dtype.itemsize, ids.nbytes), ids, message.SerializeToString()))


def _ids_head(token_bytes: int, ids_bytes: int) -> bytes:
    """Write the eight bytes before the ids."""
    length = [(ids_bytes >> shift) & 0x7F | 0x80 for shift in _LENGTH_SHIFTS]
    length[-1] &= 0x7F
    return bytes((0x20, token_bytes, 0x2A, *length))


def _ids_end(message: bytes) -> int:
    """Give the end of the ids of a message beginning with them, of any other 0."""
    head = message[:_IDS_START]
    if len(head) < _IDS_START or head[7] > 7:
        return 0
    ids_bytes = sum((byte & 0x7F) << shift for byte, shift in zip(head[3:], _LENGTH_SHIFTS, strict=True))
    end = _IDS_START + ids_bytes
    return end if end <= len(message) and head == _ids_head(head[1], ids_bytes) else 0


def index_type(source_count: int) -> str:
    """Give the type of an index into so many sources."""
    return "u1" if source_count <= 1 << 8 else "<u2"


def encode(batch: RowBatch) -> bytes:
    """Turn rows into a message."""
    return MessageCutter(batch).cut(0, batch.rows, batch.offset)


def _little(array: NDArray[Any]) -> np.dtype[Any]:
    return array.dtype.newbyteorder("<")


def _bytes(array: NDArray[Any]) -> memoryview:
    """View an array as its little-endian bytes."""
    return np.ascontiguousarray(array, _little(array)).reshape(-1).view(np.uint8).data


def _ends(counts: Int32Array) -> Int64Array:
    """Give where the items of each count begin, and the last ones end."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def decode(message: bytes) -> RowBatch:
    """Turn a message into rows; the arrays are read-only.

    Raises:
        MalformedMessageError: the message breaks off, or the lengths of its arrays contradict its counts.
    """
    end = _ids_end(message)
    try:
        fields = rows_pb2.RowBatch.FromString(message[:2] + message[end:] if end else message)
    except DecodeError as error:
        raise MalformedMessageError(f"message: {len(message)} bytes are no RowBatch: {error}; read it again") from error
    segments, rows, window_tokens = fields.segments, fields.rows, fields.window_tokens
    token_bytes = fields.token_bytes or 2
    if token_bytes not in (2, 4) or window_tokens >= MAX_WINDOW_TOKENS:
        raise MalformedMessageError(f"message: rows of {window_tokens} tokens of {token_bytes} bytes; mend the sender")
    segment_counts = _array("segments.counts", segments.counts, "<i4", rows)
    count = int(segment_counts.sum())
    doc_id_lengths = _array("segments.doc_id_lengths", segments.doc_id_lengths, "<i4", count)
    if doc_id_lengths.sum() != len(segments.doc_ids) or (rows and min(segment_counts.min(), 0)):
        raise MalformedMessageError("message: the segments do not add up; mend the sender")
    content = fields.input_ids or memoryview(message)[_IDS_START:end] if end else fields.input_ids
    ids = _array("input_ids", content, f"<u{token_bytes}", rows * window_tokens)
    return RowBatch(
        offset=fields.offset,
        input_ids=ids.reshape(rows, window_tokens),
        token_counts=_array("token_counts", fields.token_counts, "<i4", rows),
        source_names=tuple(fields.source_names),
        sources=_array("sources", fields.sources, index_type(len(fields.source_names)), rows),
        epochs=_array("epochs", fields.epochs, "<i8", rows),
        ordinals=_array("ordinals", fields.ordinals, "<i8", rows),
        segment_counts=segment_counts,
        doc_id_bytes=segments.doc_ids,
        doc_id_lengths=doc_id_lengths,
        document_starts=_array("segments.document_starts", segments.document_starts, "<i8", count),
        segment_token_counts=_array("segments.token_counts", segments.token_counts, "<i4", count),
        window_starts=_array("segments.window_starts", segments.window_starts, "<i4", count),
        end_of_blend=fields.end_of_blend,
        waiting_for=fields.waiting_for,
        columns={column.name: _values(column, rows, window_tokens) for column in fields.columns},
    )


def _values(column: rows_pb2.TokenColumn, rows: int, window_tokens: int) -> NDArray[Any]:
    """View the values of a column as an array.

    Raises:
        MalformedMessageError: they are of an unknown type, or not as many as there are positions.
    """
    dtype = _DTYPE_OF.get(column.type)
    if dtype is None:
        raise MalformedMessageError(f"message: column {column.name} is of type {column.type}; update the client")
    values = _array(f"column {column.name}", column.values, dtype, rows * window_tokens)
    return values.reshape(rows, window_tokens)


def _array(field: str, content: bytes | memoryview, dtype: str, count: int) -> NDArray[Any]:
    """View a field as an array."""
    kind = np.dtype(dtype)
    if len(content) != count * kind.itemsize:
        raise MalformedMessageError(
            f"message: {field} has {len(content)} bytes, {count} x {kind.itemsize} are announced; mend the sender"
        )
    return np.frombuffer(content, kind)


def concatenate(batches: list[RowBatch]) -> RowBatch:
    """Join batches, at least one, each starting where the one before ends."""
    if len(batches) == 1:
        return batches[0]
    names = (*_OF_ROWS, *_OF_SEGMENTS)
    arrays: dict[str, Any] = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}
    doc_id_bytes = b"".join(batch.doc_id_bytes for batch in batches)
    columns = {name: np.concatenate([batch.columns[name] for batch in batches]) for name in batches[0].columns}
    return replace(batches[-1], offset=batches[0].offset, doc_id_bytes=doc_id_bytes, columns=columns, **arrays)


def empty_batch(offset: int, window_tokens: int, token_bytes: int, source_names: tuple[str, ...]) -> RowBatch:
    """Give a batch without rows."""
    int32, int64 = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    ids = np.empty((0, window_tokens), dtype=np.uint16 if token_bytes == 2 else np.uint32)
    return RowBatch(
        offset, ids, int32, source_names, np.empty(0, index_type(len(source_names))), int64, int64, int32, b"", int32,
        int64, int32, int32,
    )  # fmt: skip
