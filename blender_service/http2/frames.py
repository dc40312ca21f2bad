"""Lays a message out as DATA frames: which pieces of memory follow each other on the wire, nothing copied.

    message  [start | row | row | row | row ..]
    wire     [header][start, row, half a row][header][half a row, row, ..]     cut where a frame is full

Source: RFC 9113, sections 4.1 and 6.1
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

HEADER_BYTES: Final = 9
MOST_VECTORS: Final = 1024  # what Linux takes in one call
MOST_FRAMES: Final = 256
_ROOM: Final = MOST_VECTORS - 4  # a header, the start, and a row cut at either end


def most_frame_bytes(piece_bytes: int) -> int:
    """Give how long a frame may be so that its pieces surely fit into one call."""
    return _ROOM * piece_bytes


def farewell(last_stream: int) -> bytes:
    """Write a GOAWAY frame: streams after that one are not taken any more, and nothing went wrong."""
    return (8).to_bytes(3, "big") + b"\x07\0" + (0).to_bytes(4, "big") + last_stream.to_bytes(4, "big") + bytes(4)


@njit(cache=True, nogil=True)
def lay_out(
    start: tuple[int, int],
    pieces: NDArray[np.int64],
    piece_bytes: int,
    part: tuple[int, int],
    frame_bytes: int,
    stream: int,
    headers: NDArray[np.uint8],
    vectors: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Lay out a part of a message as frames, as many as fit.

    Args:
        start: address of the message's first bytes, and how many these are.
        pieces: (P,) addresses of what follows, int64.
        piece_bytes: length of each.
        part: byte to begin with, and how many, at least 1; they lie in the message.
        frame_bytes: longest frame, at most what `most_frame_bytes` gives.
        stream: number of the HTTP/2 stream.
        headers: (F, 9) room for the frames' headers, uint8.
        vectors: (V, 2) room for address and length of each piece on the wire, int64.

    Returns:
        Vectors used, bytes of the message that they hold, and these with the frames' headers.
    """
    used = 0
    frames = 0
    first, byte_count = part
    at, last = first, first + byte_count
    start_address, start_bytes = start
    while at < last and frames < headers.shape[0]:
        size = min(frame_bytes, last - at)
        if frames and used + size // piece_bytes + 4 > vectors.shape[0]:
            break
        header = headers[frames]
        for byte in range(3):
            header[byte] = (size >> (16 - 8 * byte)) & 0xFF
        header[3] = 0  # DATA
        header[4] = 0
        for byte in range(4):
            header[5 + byte] = (stream >> (24 - 8 * byte)) & 0xFF
        vectors[used, 0] = header.ctypes.data
        vectors[used, 1] = HEADER_BYTES
        used += 1
        end = at + size
        while at < end:
            if at < start_bytes:
                address = start_address + at
                length = min(end - at, start_bytes - at)
            else:
                piece, within = divmod(at - start_bytes, piece_bytes)
                address = pieces[piece] + within
                length = min(end - at, piece_bytes - within)
            if vectors[used - 1, 0] + vectors[used - 1, 1] == address:
                vectors[used - 1, 1] += length
            else:
                vectors[used, 0] = address
                vectors[used, 1] = length
                used += 1
            at += length
        frames += 1
    return used, at - first, at - first + frames * HEADER_BYTES
