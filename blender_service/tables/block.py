"""One block: consecutive rows of a data file, decoded. Data files of a lake never change, so neither does a block."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.tables.token_columns import TokenColumn
from headrace.kernels.compiling import compiled


class BlockKey(NamedTuple):
    """All that decides the content of a block.

    Attributes:
        path: the data file.
        start: first ordinal.
        end: ordinal after the last.
        window_tokens: length L of a row.
        token_bytes: width of a token id, 2 or 4.
        vocabulary_size: every id of the block is below it.
        columns: that it has beside the ids.
    """

    path: str
    start: int
    end: int
    window_tokens: int
    token_bytes: int
    vocabulary_size: int
    columns: tuple[TokenColumn, ...] = ()


class Segments(NamedTuple):
    """What R rows have beside their ids: counts, and S segments.

    Attributes:
        row_tokens: (R,) tokens before the padding, int32.
        starts: (R + 1,) first segment of each row in the arrays below, int64.
        doc_ids: (D,) UTF-8 document ids, one after the other, uint8.
        doc_id_starts: (S + 1,) first byte of each document id, int64.
        document_starts: (S,) first token, in the document, int64.
        token_counts: (S,) tokens, int32.
        window_starts: (S,) first token, in the window, int32.
    """

    row_tokens: Int32Array
    starts: Int64Array
    doc_ids: NDArray[np.uint8]
    doc_id_starts: Int64Array
    document_starts: Int64Array
    token_counts: Int32Array
    window_starts: Int32Array


_NO_32, _NO_64 = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
_ZERO = np.zeros(1, dtype=np.int64)
NO_ROWS: Final = Segments(_NO_32, _ZERO, np.empty(0, dtype=np.uint8), _ZERO, _NO_64, _NO_32, _NO_32)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """R rows of a packed table.

    Attributes:
        start: first ordinal.
        input_ids: (R, L) token ids, uint16 or uint32.
        segments: of the rows.
        columns: (R, L) of each, a value for each position, bool or float32; in the order of the table's `columns`.
    """

    start: int
    input_ids: NDArray[np.unsignedinteger]
    segments: Segments
    columns: tuple[NDArray[Any], ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.input_ids)

    @functools.cached_property
    def byte_count(self) -> int:
        """Its bytes of memory."""
        return sum(array.nbytes for array in (self.input_ids, *self.segments, *self.columns))


@compiled
def copy_rows(source: NDArray[Any], rows: Int64Array, target: NDArray[Any], places: Int64Array) -> None:
    """Copy rows of (R, L) values to places of another array, in one pass."""
    for number in range(rows.size):
        target[places[number]] = source[rows[number]]


@compiled
def take_rows(segments: Segments, rows: Int64Array) -> Segments:
    """Copy some rows, in any order.

    Args:
        segments: of all rows.
        rows: (N,) those to copy, int64.
    """
    starts = np.zeros(rows.size + 1, dtype=np.int64)
    byte_count = 0
    for place in range(rows.size):
        first, last = segments.starts[rows[place]], segments.starts[rows[place] + 1]
        starts[place + 1] = starts[place] + last - first
        byte_count += segments.doc_id_starts[last] - segments.doc_id_starts[first]
    count = starts[-1]
    row_tokens = np.empty(rows.size, dtype=np.int32)
    doc_ids, doc_id_starts = np.empty(byte_count, dtype=np.uint8), np.zeros(count + 1, dtype=np.int64)
    document_starts = np.empty(count, dtype=np.int64)
    token_counts, window_starts = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    at = byte = 0
    for place in range(rows.size):
        row_tokens[place] = segments.row_tokens[rows[place]]
        first, last = segments.starts[rows[place]], segments.starts[rows[place] + 1]
        shift = byte - segments.doc_id_starts[first]
        for segment in range(first, last):
            document_starts[at] = segments.document_starts[segment]
            token_counts[at] = segments.token_counts[segment]
            window_starts[at] = segments.window_starts[segment]
            doc_id_starts[at + 1] = segments.doc_id_starts[segment + 1] + shift
            at += 1
        for source in range(segments.doc_id_starts[first], segments.doc_id_starts[last]):
            doc_ids[byte] = segments.doc_ids[source]
            byte += 1
    return Segments(row_tokens, starts, doc_ids, doc_id_starts, document_starts, token_counts, window_starts)


def join_rows(parts: Sequence[Segments]) -> Segments:
    """Put the rows of parts, at least one, after each other."""
    columns = {name: [getattr(part, name) for part in parts] for name in Segments._fields}
    for name in ("starts", "doc_id_starts"):
        ends = np.cumsum([starts[-1] for starts in columns[name]])
        columns[name] = [np.zeros(1, dtype=np.int64)] + [
            starts[1:] + (end - starts[-1]) for starts, end in zip(columns[name], ends, strict=True)
        ]
    return Segments(**{name: np.concatenate(arrays) for name, arrays in columns.items()})
