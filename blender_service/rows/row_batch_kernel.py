"""Write messages of rows out of mapped blocks, in compiled code: each row may lie in any of hundreds of blocks.

Blocks are passed as a table of addresses, one row for each, so that a message costs one call however many blocks it
touches. The caller keeps the blocks alive and guarantees that slots and rows are in range; the contents of the blocks
are checked here. `row_batch.begin` is the readable form that writes the same bytes; `benchmarks/bench_blender.py`
measures both.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.tables.row_digests import (
    DOC_ID_STARTS_AT,
    DOC_IDS_AT,
    DOCUMENT_STARTS_AT,
    INPUT_IDS_AT,
    ROW_DIGESTS_AT,
    SEGMENT_TOKENS_AT,
    TOKEN_COUNTS_AT,
    WINDOW_STARTS_AT,
    row_digest,
)
from blender_service.wire.protobuf import ALIGNMENT, LENGTH_DELIMITED, VARINT
from blender_service.wire.row_batch import (
    COUNTS,
    DOC_ID_LENGTHS,
    DOC_IDS,
    DOCUMENT_STARTS,
    EPOCHS,
    INPUT_IDS,
    OFFSET,
    ORDINALS,
    ROWS,
    SEGMENT_TOKEN_COUNTS,
    SEGMENTS,
    SOURCES,
    TOKEN_BYTES,
    TOKEN_COUNTS,
    WINDOW_STARTS,
    WINDOW_TOKENS,
)
from blender_service.wire.scattered_memory import copy, int32_at, int64_at, put_int32, put_int64


@njit(cache=True)
def _varint_size(value: int) -> int:
    """Count the bytes of a number in protobuf's wire format."""
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@njit(cache=True)
def _put_varint(out: NDArray[np.uint8], at: int, value: int, size: int) -> int:
    """Write a number in so many bytes; give the index after it."""
    for byte in range(size):
        out[at + byte] = (value & 0x7F) | (0x80 if byte < size - 1 else 0)
        value >>= 7
    return at + size


@njit(cache=True)
def _put_number(out: NDArray[np.uint8], at: int, field: int, value: int) -> int:
    """Write a field with a number, left out where it is 0."""
    if value == 0:
        return at
    after: int = _put_varint(out, _put_varint(out, at, field << 3 | VARINT, 1), value, _varint_size(value))
    return after


@njit(cache=True)
def _put_length(out: NDArray[np.uint8], at: int, field: int, byte_count: int) -> int:
    """Begin a field of bytes, left out where there are none."""
    if byte_count == 0:
        return at
    at = _put_varint(out, at, field << 3 | LENGTH_DELIMITED, 1)
    after: int = _put_varint(out, at, byte_count, _varint_size(byte_count))
    return after


@njit(cache=True)
def _field_size(byte_count: int) -> int:
    """Count the bytes of a field of bytes; numbers of fields are below 16, so a tag is one byte."""
    return 1 + _varint_size(byte_count) + byte_count if byte_count else 0


@njit(cache=True, nogil=True)
def number_blocks(blocks: Int64Array) -> tuple[Int64Array, Int32Array]:
    """Number the blocks that rows lie in.

    Args:
        blocks: (R,) block of each row, few different ones, int64, none below 0.

    Returns:
        The different blocks, ascending, int64, and (R,) index of each row's block among them, int32.
    """
    room = 1
    while room < 2 * blocks.size:
        room *= 2
    # A hash table with linear probing, at most half full; the multiplier spreads numbers that are close together.
    numbers = np.full(room, -1, dtype=np.int32)
    found = np.empty(blocks.size, dtype=np.int64)
    slots = np.empty(blocks.size, dtype=np.int32)
    count = 0
    for row in range(blocks.size):
        bucket = (blocks[row] * 0x9E3779B97F4A7C1 >> 20) & (room - 1)
        while numbers[bucket] >= 0 and found[numbers[bucket]] != blocks[row]:
            bucket = (bucket + 1) & (room - 1)
        if numbers[bucket] < 0:
            numbers[bucket] = count
            found[count] = blocks[row]
            count += 1
        slots[row] = numbers[bucket]
    order = np.argsort(found[:count])
    rank = np.empty(count, dtype=np.int32)
    for index in range(count):
        rank[order[index]] = index
    for row in range(blocks.size):
        slots[row] = rank[slots[row]]
    return found[order], slots


@njit(cache=True, nogil=True)
def write_rows(
    table: Int64Array,
    starts: Int64Array,
    slots: Int32Array,
    rows_in_block: Int32Array,
    sources: NDArray[np.uint8],
    epochs: Int64Array,
    names: NDArray[np.uint8],
    offset: int,
    window: tuple[int, int],
) -> tuple[NDArray[np.uint8], Int64Array, int]:
    """Write the message of R rows, at least one, up to their ids, which the caller copies after it (`join`).

    Args:
        table: (B, 11) addresses and lengths of each block's arrays, see `row_digests`.
        starts: (B,) first ordinal of each block.
        slots: (R,) block of each row, as index into the table, int32.
        rows_in_block: (R,) row in that block, int32.
        sources: (R,) index of each row's source, uint8.
        epochs: (R,) pass over it, int64.
        names: fields of the sources' names, uint8.
        offset: of the first row.
        window: tokens of a row, and bytes of a token.

    Returns:
        The bytes before the ids, uint8; (R,) addresses of the rows' ids, int64; and the first row that does not have
        its digest, in which case the other results must not be used, or -1.
    """
    rows = slots.size
    row_bytes = window[0] * window[1]
    ids = np.empty(rows, dtype=np.int64)
    bounds = np.empty((rows, 4), dtype=np.int64)  # checked values: the mapped file may change between two reads
    segments = np.int64(0)
    doc_id_bytes = np.int64(0)
    for row in range(rows):
        block = table[slots[row]]
        row_in_block = np.int64(rows_in_block[row])
        ids[row] = block[INPUT_IDS_AT] + row_in_block * row_bytes
        inside, digest, first, last, text, text_end = row_digest(block, row_in_block, row_bytes)
        if not inside or digest != int64_at(block[ROW_DIGESTS_AT] + 8 * row_in_block):
            return np.empty(0, dtype=np.uint8), ids, row
        bounds[row, 0], bounds[row, 1], bounds[row, 2], bounds[row, 3] = first, last, text, text_end
        segments += last - first
        doc_id_bytes += text_end - text
    inner = (
        _field_size(4 * rows) + _field_size(doc_id_bytes) + 3 * _field_size(4 * segments) + _field_size(8 * segments)
    )
    size = _field_size(4 * rows) + names.size + _field_size(rows) + 2 * _field_size(8 * rows) + _field_size(inner)
    for number in (offset, window[0], window[1]):
        size += 1 + _varint_size(number) if number else 0
    size += 1 + _varint_size(rows * row_bytes)  # tag and length of the ids
    row_digits = _varint_size(rows)
    row_digits += -(1 + row_digits + size) % ALIGNMENT
    out = np.empty(1 + row_digits + size, dtype=np.uint8)

    at = _put_varint(out, _put_varint(out, 0, ROWS << 3 | VARINT, 1), rows, row_digits)
    at = _put_number(out, at, OFFSET, offset)
    at = _put_number(out, at, WINDOW_TOKENS, window[0])
    at = _put_number(out, at, TOKEN_BYTES, window[1])
    base = out.ctypes.data
    counts_at = base + _put_length(out, at, TOKEN_COUNTS, 4 * rows)
    at = counts_at - base + 4 * rows
    out[at : at + names.size] = names
    at = _put_length(out, at + names.size, SOURCES, rows)
    out[at : at + rows] = sources
    at = _put_length(out, at + rows, EPOCHS, 8 * rows)
    copy(base + at, epochs.ctypes.data, np.int64(8 * rows))
    ordinals_at = base + _put_length(out, at + 8 * rows, ORDINALS, 8 * rows)
    at = _put_length(out, ordinals_at - base + 8 * rows, SEGMENTS, inner)
    segment_counts_at = base + _put_length(out, at, COUNTS, 4 * rows)
    doc_ids_at = base + _put_length(out, segment_counts_at - base + 4 * rows, DOC_IDS, doc_id_bytes)
    lengths_at = base + _put_length(out, doc_ids_at - base + doc_id_bytes, DOC_ID_LENGTHS, 4 * segments)
    starts_at = base + _put_length(out, lengths_at - base + 4 * segments, DOCUMENT_STARTS, 8 * segments)
    tokens_at = base + _put_length(out, starts_at - base + 8 * segments, SEGMENT_TOKEN_COUNTS, 4 * segments)
    windows_at = base + _put_length(out, tokens_at - base + 4 * segments, WINDOW_STARTS, 4 * segments)
    _put_length(out, windows_at - base + 4 * segments, INPUT_IDS, rows * row_bytes)

    for row in range(rows):
        block = table[slots[row]]
        row_in_block = np.int64(rows_in_block[row])
        first, last, text, text_end = bounds[row]
        put_int64(ordinals_at + 8 * row, starts[slots[row]] + row_in_block)
        put_int32(segment_counts_at + 4 * row, np.int32(last - first))
        put_int32(counts_at + 4 * row, int32_at(block[TOKEN_COUNTS_AT] + 4 * row_in_block))
        for segment in range(first, last):
            end = min(max(text, int64_at(block[DOC_ID_STARTS_AT] + 8 * segment + 8)), text_end)
            copy(doc_ids_at, block[DOC_IDS_AT] + text, end - text)
            put_int32(lengths_at, np.int32(end - text))
            put_int64(starts_at, int64_at(block[DOCUMENT_STARTS_AT] + 8 * segment))
            put_int32(tokens_at, int32_at(block[SEGMENT_TOKENS_AT] + 4 * segment))
            put_int32(windows_at, int32_at(block[WINDOW_STARTS_AT] + 4 * segment))
            doc_ids_at += end - text
            lengths_at += 4
            starts_at += 8
            tokens_at += 4
            windows_at += 4
            text = end
    return out, ids, -1
