"""How messages are laid out, against plain slicing."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blender_service.http2.frames import (
    HEADER_BYTES,
    MOST_FRAMES,
    MOST_VECTORS,
    farewell,
    lay_out,
    most_frame_bytes,
)
from blender_service.scattered import Scattered, copy_vectors

MEMORY = np.random.default_rng(7).integers(0, 256, 1 << 16, dtype=np.uint8)


class Case(NamedTuple):
    """A message, the part of it that is sent, and in which frames.

    Attributes:
        message: where it lies.
        first: byte of it to begin with.
        byte_count: how many.
        frame_bytes: longest frame.
        room: frames and vectors that there is room for.
    """

    message: Scattered
    first: int
    byte_count: int
    frame_bytes: int
    room: tuple[int, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case; pieces may touch each other, and may come twice."""
    piece_bytes = draw(st.integers(1, 300))
    touching = draw(st.booleans())
    places = np.array(draw(st.lists(st.integers(0, (1 << 16) - 300), max_size=60)), dtype=np.int64)
    if touching and places.size:
        places = (np.arange(places.size, dtype=np.int64) // 3 * 3 % 7 + np.arange(places.size) % 3) * piece_bytes
    start = draw(st.binary(min_size=5, max_size=400))
    message = Scattered(start, MEMORY.ctypes.data + places, piece_bytes)
    first = draw(st.integers(0, len(message) - 1))
    byte_count = draw(st.integers(1, len(message) - first))
    vectors = draw(st.sampled_from([8, 20, 64, MOST_VECTORS]))
    frame_bytes = draw(st.integers(1, (vectors - 4) * piece_bytes))
    return Case(message, first, byte_count, frame_bytes, (draw(st.sampled_from([1, 3, MOST_FRAMES])), vectors))


def content_of(vectors: NDArray[np.int64]) -> bytes:
    """Join what vectors describe."""
    return b"".join(ctypes.string_at(int(address), int(length)) for address, length in vectors)


def frames_of(content: bytes, stream: int) -> list[bytes]:
    """Cut what goes over the wire into the frames' contents; their headers must be right."""
    found = []
    while content:
        size = int.from_bytes(content[:3], "big")
        assert content[3:HEADER_BYTES] == b"\0\0" + stream.to_bytes(4, "big")
        found.append(content[HEADER_BYTES : HEADER_BYTES + size])
        assert len(found[-1]) == size > 0
        content = content[HEADER_BYTES + size :]
    return found


@settings(max_examples=300)
@given(cases(), st.integers(1, (1 << 31) - 1))
def test_the_frames_are_the_message(case: Case, stream: int) -> None:
    """Headers cut off, what was laid out is the part that was asked for, or its beginning where there is no room."""
    message, first, byte_count, frame_bytes, (frame_count, vector_count) = case
    start = np.frombuffer(message.start, dtype=np.uint8)
    headers = np.empty((frame_count, HEADER_BYTES), dtype=np.uint8)
    vectors = np.full((vector_count + 1, 2), -1, dtype=np.int64)
    used, taken, wire_bytes = lay_out(
        (start.ctypes.data, len(start)), message.pieces, message.piece_bytes, (first, byte_count),
        frame_bytes, stream, headers, vectors[:vector_count],
    )  # fmt: skip
    assert 0 < used <= vector_count
    assert (vectors[vector_count] == -1).all()
    content = content_of(vectors[:used])
    assert len(content) == wire_bytes
    frames = frames_of(content, stream)
    assert 0 < len(frames) <= frame_count
    assert max(map(len, frames)) <= frame_bytes
    assert b"".join(frames) == message.join()[first : first + taken]
    assert 0 < taken <= byte_count
    if taken < byte_count:  # nothing but room was wanting
        longest = frame_bytes // message.piece_bytes + 4
        assert len(frames) == frame_count or used + longest > vector_count


@settings(max_examples=200)
@given(cases(), st.data())
def test_copies_are_slices(case: Case, data: st.DataObject) -> None:
    """`join` and `copy_vectors` give what slicing gives, and write nothing beside it."""
    message = case.message
    places = message.pieces - MEMORY.ctypes.data
    pieces = [MEMORY[place : place + message.piece_bytes].tobytes() for place in places]
    whole = b"".join([message.start, *pieces])
    assert message.join() == whole
    assert len(message) == len(whole)
    start = np.frombuffer(message.start, dtype=np.uint8)
    rows = [(start.ctypes.data, len(start)), *((address, message.piece_bytes) for address in message.pieces)]
    first = data.draw(st.integers(0, len(whole)))
    byte_count = data.draw(st.integers(0, len(whole) - first))
    target = np.full(byte_count + 8, 0xAA, dtype=np.uint8)
    copy_vectors(np.array(rows, dtype=np.int64), first, byte_count, target)
    assert target.tobytes() == whole[first : first + byte_count] + b"\xaa" * 8


def test_the_longest_frame_fits_for_every_piece() -> None:
    """One frame of `most_frame_bytes`, however its ends cut pieces, needs no more vectors than there are."""
    for piece_bytes in (1, 2, 3, 32):
        places = MEMORY.ctypes.data + np.arange(1100, dtype=np.int64) * piece_bytes * 2
        start = np.zeros(7, dtype=np.uint8)
        size = most_frame_bytes(piece_bytes)
        for first in range(0, 7 + 3 * piece_bytes):
            vectors = np.empty((MOST_VECTORS, 2), dtype=np.int64)
            headers = np.empty((MOST_FRAMES, HEADER_BYTES), dtype=np.uint8)
            part = (first, min(size, 7 + places.size * piece_bytes - first))
            used, taken, _ = lay_out((start.ctypes.data, 7), places, piece_bytes, part, size, 1, headers, vectors)
            assert taken == part[1]
            assert used <= MOST_VECTORS


def test_a_farewell_is_a_goaway_frame() -> None:
    """RFC 9113, 6.8: on stream 0, the last stream, no error."""
    assert farewell(5) == b"\0\0\x08\x07\0\0\0\0\0" + b"\0\0\0\x05" + b"\0\0\0\0"
