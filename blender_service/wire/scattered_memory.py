"""Follow addresses in compiled code, and join pieces of memory, such as rows of mapped files, into one message.

Each byte of a message is copied once. Whoever passes an address keeps the memory behind it alive.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from blender_service.arrays import Int64Array

# A new bytes object may be filled before any other code has it (https://docs.python.org/3/c-api/bytes.html). Zeroing it
# first, or a second copy out of an array, would cost as much as copying the rows.
_new_bytes: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
_address_of: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))


def join(start: NDArray[np.uint8], pieces: Int64Array, piece_bytes: int) -> bytes:
    """Join some first bytes and pieces of memory into one bytes object.

    Args:
        start: (S,) the first bytes, uint8.
        pieces: (P,) addresses of what follows, int64; the caller keeps that memory alive.
        piece_bytes: length of each piece.
    """
    joined: bytes = _new_bytes(None, start.size + pieces.size * piece_bytes)
    copy_pieces(_address_of(joined), start, pieces, piece_bytes)
    return joined


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
def uint8_at(typing_context, address):  # type: ignore[no-untyped-def]
    """Load the byte at an address; for compiled code."""
    return types.uint8(types.int64), _load(types.uint8)


@intrinsic
def put_int64(typing_context, address, value):  # type: ignore[no-untyped-def]
    """Store an int64 at an address, which need not be aligned; for compiled code."""
    return types.void(types.int64, types.int64), _store(types.int64)


@intrinsic
def put_int32(typing_context, address, value):  # type: ignore[no-untyped-def]
    """Store an int32 at an address, which need not be aligned; for compiled code."""
    return types.void(types.int64, types.int32), _store(types.int32)


def _store(kind: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
        builder.store(arguments[1], pointer, align=1)
        return context.get_dummy_value()

    return generate


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
def copy_pieces(target: int, start: NDArray[np.uint8], pieces: Int64Array, piece_bytes: int) -> None:
    """Copy the pieces that `join` describes to the address `target`."""
    copy(target, start.ctypes.data, np.int64(start.size))
    target += start.size
    for piece in range(pieces.size):
        copy(target, pieces[piece], np.int64(piece_bytes))
        target += piece_bytes
