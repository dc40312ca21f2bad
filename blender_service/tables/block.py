"""One block: consecutive rows of a data file, decoded. Data files of a lake never change, so neither does a block."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numba import carray, types
from numba.core.cgutils import raw_memcpy, voidptr_t
from numba.extending import intrinsic
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
        left_off: rules whose tokens it lacks.
    """

    path: str
    start: int
    end: int
    window_tokens: int
    token_bytes: int
    vocabulary_size: int
    columns: tuple[TokenColumn, ...] = ()
    left_off: tuple[int, ...] = ()


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
        columns: (R, L) of each, a bool, float32 or int32 for each position, in the order of the table's `columns`.
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

    @functools.cached_property
    def addresses(self) -> tuple[int, ...]:
        """Where its arrays lie: those of the segments, the ids, the columns; for compiled code while it is held."""
        arrays: tuple[NDArray[Any], ...] = (*self.segments, self.input_ids, *self.columns)
        assert all(array.flags.c_contiguous for array in arrays)
        return tuple(array.ctypes.data for array in arrays)


def addresses_of(blocks: Sequence[RowBlock]) -> Int64Array:
    """(B, 8 + columns) addresses of the arrays of blocks, which the caller holds while it uses them."""
    return np.array([block.addresses for block in blocks], dtype=np.int64)


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """A pointer to an address."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], voidptr_t)

    return types.voidptr(types.int64), write


@intrinsic
def _copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes from an address to another: a loop over the bytes of a row took five times as long."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, of = (builder.inttoptr(address, voidptr_t) for address in arguments[:2])
        raw_memcpy(builder, to, of, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), write


@compiled
def copy_rows(
    addresses: Int64Array, blocks: Int64Array, rows: Int64Array, target: int, width: int, places: Int64Array
) -> None:
    """Copy rows of some blocks to places of an array, in one pass.

    Thousands of blocks of a few rows each are met where a blend has hundreds of sources; a call for each would take
    longer than copying. So blocks are given by the addresses of their arrays.

    Args:
        addresses: (B,) of an array of rows of each block.
        blocks: (N,) index of the block of each row.
        rows: (N,) row of the block.
        target: address of an array of rows of the same width.
        width: bytes of a row.
        places: (N,) row of the target.
    """
    for number in range(rows.size):
        _copy(target + places[number] * width, addresses[blocks[number]] + rows[number] * width, width)


@compiled
def take_rows(addresses: Int64Array, blocks: Int64Array, rows: Int64Array) -> Segments:
    """Copy what rows of some blocks have beside their ids.

    Args:
        addresses: (B, 7 or more) of the arrays of each block's `Segments`.
        blocks: (N,) index of the block of each row.
        rows: (N,) row of the block.
    """
    starts = np.zeros(rows.size + 1, dtype=np.int64)
    byte_count = 0
    for place in range(rows.size):
        of = addresses[blocks[place]]
        bounds = carray(_pointer(of[1] + 8 * rows[place]), 2, np.int64)
        texts = carray(_pointer(of[3]), bounds[1] + 1, np.int64)
        starts[place + 1] = starts[place] + bounds[1] - bounds[0]
        byte_count += texts[bounds[1]] - texts[bounds[0]]
    count = starts[-1]
    row_tokens = np.empty(rows.size, dtype=np.int32)
    doc_ids, doc_id_starts = np.empty(byte_count, dtype=np.uint8), np.zeros(count + 1, dtype=np.int64)
    document_starts = np.empty(count, dtype=np.int64)
    token_counts, window_starts = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    at = byte = 0
    for place in range(rows.size):
        of = addresses[blocks[place]]
        row_tokens[place] = carray(_pointer(of[0] + 4 * rows[place]), 1, np.int32)[0]
        bounds = carray(_pointer(of[1] + 8 * rows[place]), 2, np.int64)
        first, last = bounds[0], bounds[1]
        texts = carray(_pointer(of[3]), last + 1, np.int64)
        document_start = carray(_pointer(of[4]), last, np.int64)
        token_count = carray(_pointer(of[5]), last, np.int32)
        window_start = carray(_pointer(of[6]), last, np.int32)
        shift = byte - texts[first]
        for segment in range(first, last):
            document_starts[at] = document_start[segment]
            token_counts[at] = token_count[segment]
            window_starts[at] = window_start[segment]
            doc_id_starts[at + 1] = texts[segment + 1] + shift
            at += 1
        letters = carray(_pointer(of[2]), texts[last], np.uint8)
        for letter in range(texts[first], texts[last]):
            doc_ids[byte] = letters[letter]
            byte += 1
    return Segments(row_tokens, starts, doc_ids, doc_id_starts, document_starts, token_counts, window_starts)


def in_order(parts: Sequence[Segments], places: Sequence[Int64Array]) -> Segments:
    """Put the rows of parts, at least one, into their places.

    Args:
        parts: of some rows each.
        places: of each part's rows, which are 0, 1, .. in all.
    """
    addresses = np.array([[array.ctypes.data for array in part] for part in parts], dtype=np.int64)
    counts = [len(part) for part in places]
    order = np.argsort(np.concatenate(places))
    part_of, row_of = np.repeat(np.arange(len(parts)), counts), np.concatenate([np.arange(count) for count in counts])
    segments: Segments = take_rows(addresses, part_of[order], row_of[order])
    return segments
