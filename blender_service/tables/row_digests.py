"""A digest of every row of a block, compared before the row is served: what was flipped since the file was checked.

A block's file is checked as a whole when it is mapped, and then read for hours from memory that the file shares with a
disk. So its rows carry digests of their own, over their ids, their segments and their documents' ids, and an offset
that is read from the file is compared with the file's bounds before it is followed. Ids are compared just before they
are copied into the message.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

# Columns of a block's line of addresses: where its arrays lie, then how many segments and bytes of texts it has.
IDS, ROW_TOKENS, SEGMENTS, TEXTS, TEXT_STARTS, STARTS, TOKENS, PLACES, DIGESTS, SEGMENT_COUNT, TEXT_BYTES = range(11)
ADDRESS_COUNT: Final = 11
_FACTOR: Final = 0x1E3779B97F4A7C15  # odd, so that no two numbers have one product modulo 2**64
_SHIFT: Final = 29
_KEPT: Final = (1 << 64 - _SHIFT) - 1  # makes the shift of a signed number a logical one


def _load(kind: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer()), align=1)

    return generate


@intrinsic
def int64_at(typing_context, address):  # type: ignore[no-untyped-def]
    """Load the int64 at an address; for compiled code."""
    return types.int64(types.int64), _load(types.int64)


@intrinsic
def int32_at(typing_context, address):  # type: ignore[no-untyped-def]
    """Load the int32 at an address; for compiled code."""
    return types.int32(types.int64), _load(types.int32)


@intrinsic
def _uint8_at(typing_context, address):  # type: ignore[no-untyped-def]
    """Load the byte at an address."""
    return types.uint8(types.int64), _load(types.uint8)


@njit(cache=True, nogil=True)
def _fold(digest: int, value: int) -> int:
    """Take a number into a digest; for either of the two given, no two of the other have one result."""
    product = (digest ^ value) * _FACTOR
    folded: int = product ^ ((product >> _SHIFT) & _KEPT)
    return folded


@njit(cache=True, nogil=True)
def _fold_bytes(digest: int, address: int, byte_count: int) -> int:
    """Take bytes into a digest, in four lanes, since each step of one waits for the step before."""
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
        digest = _fold(digest, np.int64(_uint8_at(at)))
        at += 1
    return digest


@njit(cache=True, nogil=True)
def row_digest(block: NDArray[np.int64], place: int, row_bytes: int) -> tuple[bool, int, int, int, int, int]:
    """Compute the digest of a row from where it lies, following no offset out of its block.

    Args:
        block: (11,) addresses and bounds.
        place: row of the block.
        row_bytes: of its ids.

    Returns:
        Whether its offsets lie inside the block (else all that follows is 0), its digest, its first segment and the one
        after its last, and the first byte of their texts and the one after the last.
    """
    first = int64_at(block[SEGMENTS] + 8 * place)
    last = int64_at(block[SEGMENTS] + 8 * place + 8)
    if not 0 <= first <= last <= block[SEGMENT_COUNT]:
        return False, 0, 0, 0, 0, 0
    text = int64_at(block[TEXT_STARTS] + 8 * first)
    text_end = int64_at(block[TEXT_STARTS] + 8 * last)
    if not 0 <= text <= text_end <= block[TEXT_BYTES]:
        return False, 0, 0, 0, 0, 0
    segments = last - first
    digest = _fold(_fold(np.int64(int32_at(block[ROW_TOKENS] + 4 * place)), first), last)
    digest = _fold_bytes(digest, block[IDS] + place * row_bytes, row_bytes)
    digest = _fold_bytes(digest, block[TEXT_STARTS] + 8 * first, 8 * (segments + 1))
    digest = _fold_bytes(digest, block[TEXTS] + text, text_end - text)
    digest = _fold_bytes(digest, block[STARTS] + 8 * first, 8 * segments)
    digest = _fold_bytes(digest, block[TOKENS] + 4 * first, 4 * segments)
    digest = _fold_bytes(digest, block[PLACES] + 4 * first, 4 * segments)
    return True, digest, first, last, text, text_end


@njit(cache=True, nogil=True)
def digest_rows(block: NDArray[np.int64], rows: int, row_bytes: int) -> NDArray[np.int64]:
    """Compute the digests of all rows of a block that is being made.

    Args:
        block: (11,) addresses and bounds; that of the digests is not used.
        rows: of the block.
        row_bytes: of the ids of each.

    Returns:
        (R,) int64.
    """
    digests = np.empty(rows, dtype=np.int64)
    for place in range(rows):
        digests[place] = row_digest(block, np.int64(place), row_bytes)[1]
    return digests
