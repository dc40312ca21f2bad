"""Digest every row of a block, so that damage since the file was checked is found before the row is served.

A block's file is checked as a whole when it is mapped, and then read for hours from memory that is backed by the disk.
So its rows carry digests of their own, over their ids, their segments and their documents' ids, and an offset that is
read from the file is compared with the file's bounds before it is followed. Ids are digested just before they are
copied into the message.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from blender_service.arrays import Int64Array
from blender_service.wire.scattered_memory import int32_at, int64_at, uint8_at

# Columns of a block's row in the table of addresses: addresses of the arrays of `Block`, then the lengths of two.
(
    INPUT_IDS_AT,
    TOKEN_COUNTS_AT,
    SEGMENT_STARTS_AT,
    DOC_IDS_AT,
    DOC_ID_STARTS_AT,
    DOCUMENT_STARTS_AT,
    SEGMENT_TOKENS_AT,
    WINDOW_STARTS_AT,
    ROW_DIGESTS_AT,
    SEGMENT_COUNT,
    DOC_ID_BYTES,
) = range(11)
ADDRESS_COUNT: Final = 11
_FACTOR: Final = 0x1E3779B97F4A7C15  # odd, so that no two numbers have one product modulo 2**64
_SHIFT: Final = 29
_KEPT: Final = (1 << 64 - _SHIFT) - 1  # makes the shift of a signed number a logical one


@njit(cache=True, nogil=True)
def _fold(digest: int, value: int) -> int:
    """Fold a number into a digest; with either argument fixed, the result is a bijection of the other."""
    product = (digest ^ value) * _FACTOR
    folded: int = product ^ ((product >> _SHIFT) & _KEPT)
    return folded


@njit(cache=True, nogil=True)
def _fold_bytes(digest: int, address: int, byte_count: int) -> int:
    """Fold bytes into a digest, in four lanes that a processor computes in parallel."""
    one, two, three, four = digest, digest + 1, digest + 2, digest + 3
    at, end = address, address + byte_count
    while end - at >= 32:
        one = _fold(one, int64_at(at))
        two = _fold(two, int64_at(at + 8))
        three = _fold(three, int64_at(at + 16))
        four = _fold(four, int64_at(at + 24))
        at += 32
    digest = _fold(_fold(_fold(one, two), three), four)
    while end - at >= 8:
        digest = _fold(digest, int64_at(at))
        at += 8
    while at < end:
        digest = _fold(digest, np.int64(uint8_at(at)))
        at += 1
    return digest


@njit(cache=True, nogil=True)
def row_digest(block: Int64Array, row: int, row_bytes: int) -> tuple[bool, int, int, int, int, int]:
    """Compute the digest of a row in place, without following an offset out of its block.

    Args:
        block: (11,) addresses and lengths.
        row: row of the block.
        row_bytes: of its ids.

    Returns:
        Whether its offsets lie inside the block (else all that follows is 0), its digest, its first segment and the one
        after its last, and the first byte of their document ids and the one after the last.
    """
    first = int64_at(block[SEGMENT_STARTS_AT] + 8 * row)
    last = int64_at(block[SEGMENT_STARTS_AT] + 8 * row + 8)
    if not 0 <= first <= last <= block[SEGMENT_COUNT]:
        return False, 0, 0, 0, 0, 0
    text = int64_at(block[DOC_ID_STARTS_AT] + 8 * first)
    text_end = int64_at(block[DOC_ID_STARTS_AT] + 8 * last)
    if not 0 <= text <= text_end <= block[DOC_ID_BYTES]:
        return False, 0, 0, 0, 0, 0
    segments = last - first
    digest = _fold(_fold(np.int64(int32_at(block[TOKEN_COUNTS_AT] + 4 * row)), first), last)
    digest = _fold_bytes(digest, block[INPUT_IDS_AT] + row * row_bytes, row_bytes)
    digest = _fold_bytes(digest, block[DOC_ID_STARTS_AT] + 8 * first, 8 * (segments + 1))
    digest = _fold_bytes(digest, block[DOC_IDS_AT] + text, text_end - text)
    digest = _fold_bytes(digest, block[DOCUMENT_STARTS_AT] + 8 * first, 8 * segments)
    digest = _fold_bytes(digest, block[SEGMENT_TOKENS_AT] + 4 * first, 4 * segments)
    digest = _fold_bytes(digest, block[WINDOW_STARTS_AT] + 4 * first, 4 * segments)
    return True, digest, first, last, text, text_end


@njit(cache=True, nogil=True)
def digest_rows(block: Int64Array, rows: int, row_bytes: int) -> Int64Array:
    """Compute the digests of all rows of a new block.

    Args:
        block: (11,) addresses and lengths; the address of the digests is not used.
        rows: of the block.
        row_bytes: of the ids of each.

    Returns:
        (R,) int64.
    """
    digests = np.empty(rows, dtype=np.int64)
    for row in range(rows):
        digests[row] = row_digest(block, np.int64(row), row_bytes)[1]
    return digests
