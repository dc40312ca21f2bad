"""Write and read protobuf's wire format by hand, so that token ids are viewed or copied once, not parsed.

A message is `RowBatch` of `rows.proto`, and any protobuf library parses it: fields may come in any order, and the ids
come last. They begin at a multiple of 8 bytes, so that a reader views them as an array without copying. For that the
number of rows, which comes first, is padded with up to seven bytes, which the format allows for a varint::

    rows (padded) | offset | ... small fields ... | tag and length of input_ids | input_ids
    ^ 0                                                                         ^ a multiple of 8

Needs NumPy only. Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blender_service.exceptions import MalformedMessageError

ALIGNMENT: Final = 8
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES: Final = 10

Field = int | memoryview


@functools.lru_cache(4096)
def varint(value: int, pad_to: int = 0) -> bytes:
    """Write a number below 2**64, in at least `pad_to` bytes."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    groups += [0] * (pad_to - len(groups))
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def number_field(field: int, value: int) -> bytes:
    """Write a number, left out where it is 0."""
    return varint(field << 3 | VARINT) + varint(value & (1 << 64) - 1) if value else b""


def bytes_field(field: int, content: bytes) -> bytes:
    """Write bytes, left out where there are none."""
    return varint(field << 3 | LENGTH_DELIMITED) + varint(len(content)) + content if content else b""


def array_field(field: int, array: NDArray[np.generic]) -> tuple[bytes, memoryview]:
    """Write an array as its little-endian bytes: two pieces to be joined, so that they are copied once."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return (_length_tag(field, little.nbytes) if little.nbytes else b""), little.data


@functools.lru_cache(4096)
def _length_tag(field: int, byte_count: int) -> bytes:
    """Begin a field of so many bytes."""
    return varint(field << 3 | LENGTH_DELIMITED) + varint(byte_count)


def begin_message(padded: tuple[int, int], head: bytes, payload_field: int, payload_bytes: int) -> bytes:
    """Write a message up to its payload, whose bytes the caller appends.

    Args:
        padded: field and value of the number that comes first and is padded.
        head: the other fields.
        payload_field: field of the payload, which comes last.
        payload_bytes: its length.
    """
    field, value = padded
    tail = varint(payload_field << 3 | LENGTH_DELIMITED) + varint(payload_bytes) if payload_bytes else b""
    tag, number = varint(field << 3 | VARINT), varint(value)
    padding = -(len(tag) + len(number) + len(head) + len(tail)) % ALIGNMENT
    return b"".join([tag, varint(value, len(number) + padding), head, tail])


def read_fields(message: memoryview) -> Iterator[tuple[int, Field]]:
    """Give the fields of a message in the order they come: numbers, and views of bytes.

    Raises:
        MalformedMessageError: the message breaks off, or has a kind of field that protobuf does not.
    """
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        if kind == LENGTH_DELIMITED:
            size, at = _read_varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise MalformedMessageError(f"message: byte {at} has wire type {kind}; the sender speaks another protocol")
        if at + size > len(message):
            raise MalformedMessageError(
                f"message: field {tag >> 3} has {size} bytes from byte {at} on, the message ends at {len(message)}; "
                "read it again"
            )
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    """Read a number; give it with the index of the byte after it."""
    value = shift = 0
    for index in range(at, min(at + MAX_VARINT_BYTES, len(message))):
        byte = message[index]
        if byte < 0x80:
            return (value | byte << shift) & (1 << 64) - 1, index + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    raise MalformedMessageError(f"message: the number at byte {at} of {len(message)} does not end; read it again")
