"""Copies rows out of mapped blocks, compiled: one row of a batch may lie in any of hundreds of blocks.

Blocks are passed as a table of addresses, one line a block, so that a batch costs two calls however many blocks it
touches. The caller keeps the blocks alive, and vouches for slots and places: nothing is checked here.
`python benchmarks/bench_blender.py` measures it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from blender_service.block_file import Block

ADDRESS_COUNT: Final = 8
_IDS, _COUNTS, _SEGMENTS, _TEXTS, _TEXT_STARTS, _STARTS, _TOKENS, _PLACES = range(ADDRESS_COUNT)


def addresses_of(block: Block) -> list[int]:
    """List where the arrays of a block lie, in the order that the kernels expect."""
    arrays = (
        block.input_ids,
        block.token_counts,
        block.segment_starts,
        block.doc_id_bytes,
        block.doc_id_starts,
        block.document_starts,
        block.segment_token_counts,
        block.window_starts,
    )
    return [array.__array_interface__["data"][0] for array in arrays]


@intrinsic
def _copy(typing_context, target, source, byte_count):  # type: ignore[no-untyped-def]
    """Copy bytes from one address to another, as C's memcpy does."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = cgutils.voidptr_t
        to, start = (builder.inttoptr(address, pointer) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, start, arguments[2], context.get_constant(types.int64, 1))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _int64_at(typing_context, address):  # type: ignore[no-untyped-def]
    """Load the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = context.get_value_type(types.int64)
        return builder.load(builder.inttoptr(arguments[0], value.as_pointer()))

    return types.int64(types.int64), generate


@njit(cache=True, nogil=True)
def copy_rows(
    table: NDArray[np.int64], slots: NDArray[np.int32], places: NDArray[np.int32], row_bytes: int, target: int
) -> None:
    """Copy the token ids of rows, one after the other.

    Args:
        table: (B, 8) addresses of each block's arrays.
        slots: (R,) line of the table for each row, int32.
        places: (R,) row in that block, int32.
        row_bytes: bytes of one row's ids.
        target: address of R * row_bytes bytes.
    """
    for row in range(slots.size):
        source = table[slots[row], _IDS] + np.int64(places[row]) * row_bytes
        _copy(target + row * row_bytes, source, np.int64(row_bytes))


@njit(cache=True, nogil=True)
def gather_segments(table: NDArray[np.int64], slots: NDArray[np.int32], places: NDArray[np.int32]) -> Any:
    """Copy all else of rows: R rows with S segments in all.

    Args:
        table: (B, 8) addresses of each block's arrays.
        slots: (R,) line of the table for each row, int32.
        places: (R,) row in that block, int32.

    Returns:
        token_counts (R,) int32, segment_counts (R,) int32, doc_id_bytes uint8, doc_id_lengths (S,) int32,
        document_starts (S,) int64, segment_token_counts (S,) int32, window_starts (S,) int32.
    """
    rows = slots.size
    token_counts = np.empty(rows, dtype=np.int32)
    segment_counts = np.empty(rows, dtype=np.int32)
    segments = 0
    text_bytes = 0
    for row in range(rows):
        block = table[slots[row]]
        first = _int64_at(block[_SEGMENTS] + 8 * np.int64(places[row]))
        last = _int64_at(block[_SEGMENTS] + 8 * np.int64(places[row]) + 8)
        segment_counts[row] = last - first
        segments += last - first
        text_bytes += _int64_at(block[_TEXT_STARTS] + 8 * last) - _int64_at(block[_TEXT_STARTS] + 8 * first)
    texts = np.empty(text_bytes, dtype=np.uint8)
    lengths = np.empty(segments, dtype=np.int32)
    starts = np.empty(segments, dtype=np.int64)
    tokens = np.empty(segments, dtype=np.int32)
    window_starts = np.empty(segments, dtype=np.int32)
    at = np.int64(0)
    text_at = np.int64(0)
    for row in range(rows):
        block = table[slots[row]]
        first = _int64_at(block[_SEGMENTS] + 8 * np.int64(places[row]))
        count = np.int64(segment_counts[row])
        text = _int64_at(block[_TEXT_STARTS] + 8 * first)
        text_count = _int64_at(block[_TEXT_STARTS] + 8 * (first + count)) - text
        _copy(token_counts.ctypes.data + 4 * row, block[_COUNTS] + 4 * np.int64(places[row]), np.int64(4))
        _copy(texts.ctypes.data + text_at, block[_TEXTS] + text, text_count)
        _copy(starts.ctypes.data + 8 * at, block[_STARTS] + 8 * first, 8 * count)
        _copy(tokens.ctypes.data + 4 * at, block[_TOKENS] + 4 * first, 4 * count)
        _copy(window_starts.ctypes.data + 4 * at, block[_PLACES] + 4 * first, 4 * count)
        for segment in range(count):
            start = _int64_at(block[_TEXT_STARTS] + 8 * (first + segment))
            lengths[at + segment] = _int64_at(block[_TEXT_STARTS] + 8 * (first + segment + 1)) - start
        at += count
        text_at += text_count
    return token_counts, segment_counts, texts, lengths, starts, tokens, window_starts
