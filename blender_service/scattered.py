"""Messages that are not in one piece: their first bytes, then equal pieces of memory, such as rows of mapped files."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

NOTHING: Final = np.empty(0, dtype=np.int64)


class Scattered:
    """Bytes in pieces. Whoever made it keeps the memory alive until it was sent or joined.

    Attributes:
        start: the first bytes.
        pieces: (P,) addresses of what follows, int64.
        piece_bytes: length of each piece.
    """

    __slots__ = ("piece_bytes", "pieces", "start")

    def __init__(self, start: bytes | memoryview, pieces: NDArray[np.int64] = NOTHING, piece_bytes: int = 1) -> None:
        """Hold the pieces."""
        self.start = start
        self.pieces = pieces
        self.piece_bytes = piece_bytes

    def __len__(self) -> int:
        return len(self.start) + self.pieces.size * self.piece_bytes

    def join(self) -> bytes:
        """Copy all of it into one piece."""
        vectors = np.empty((self.pieces.size, 2), dtype=np.int64)
        vectors[:, 0], vectors[:, 1] = self.pieces, self.piece_bytes
        joined = np.empty(self.pieces.size * self.piece_bytes, dtype=np.uint8)
        copy_vectors(vectors, 0, joined.size, joined)
        return b"".join([self.start, joined.data])


@intrinsic
def copy(typing_context, target, source, byte_count):  # type: ignore[no-untyped-def]
    """Copy bytes from one address to another, as C's memcpy does; for compiled code."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer = cgutils.voidptr_t
        to, start = (builder.inttoptr(address, pointer) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, start, arguments[2], context.get_constant(types.int64, 1))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@njit(cache=True, nogil=True)
def copy_vectors(vectors: NDArray[np.int64], first: int, byte_count: int, target: NDArray[np.uint8]) -> None:
    """Copy bytes [first, first + byte_count) of scattered memory.

    Args:
        vectors: (V, 2) address and length of each piece, int64.
        first: byte to begin with.
        byte_count: how many; they lie in the pieces.
        target: (byte_count or more,) uint8.
    """
    at = 0  # first byte of the piece
    done = 0
    for piece in range(vectors.shape[0]):
        length = vectors[piece, 1]
        skipped = max(0, first - at)
        if skipped < length and done < byte_count:
            taken = min(length - skipped, byte_count - done)
            copy(target.ctypes.data + done, vectors[piece, 0] + skipped, np.int64(taken))
            done += taken
        at += length
