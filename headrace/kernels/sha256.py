"""SHA-256 of many stretches of a buffer, by the OpenSSL of Python's own `hashlib`.

`hashlib` takes a microsecond of Python's lock for each text, and lets go of the lock for every longer one, so threads
that hash small texts wait for one another. Compiled code calls the same functions without the lock. Where Python has
its OpenSSL within itself, or OpenSSL lacks these functions, `hashlib` does the work.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled

_CONTEXT_WORDS: Final = 32  # of OpenSSL's SHA256_CTX, which has 14 of 64 bits
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS: Final = 64


def sha256_digits(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint8]:
    """SHA-256 of stretches of a buffer, as (H, 64) lower-case hex digits in ASCII, for the H that start at 0 or later.

    Args:
        data: the buffer.
        starts: (D,) first bytes; a stretch with a start below 0 is left out.
        ends: (D,) bytes after the last ones.
    """
    is_wanted = starts >= 0
    digits = np.empty((np.count_nonzero(is_wanted), _DIGITS), np.uint8)
    functions = _functions()
    if functions is not None:
        _hash_stretches(functions, data.ctypes.data, starts, ends, digits, _HEX)
    else:
        view, wanted = data.data, np.flatnonzero(is_wanted)
        for row, (start, end) in enumerate(zip(starts[wanted].tolist(), ends[wanted].tolist(), strict=True)):
            digits[row] = np.frombuffer(hashlib.sha256(view[start:end]).hexdigest().encode(), np.uint8)
    return digits


@functools.cache
def _functions() -> NDArray[np.int64] | None:
    """Addresses of OpenSSL's functions to begin, extend and end a hash; None where they are not to be had."""
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)
        parts = [getattr(library, f"SHA256_{part}") for part in ("Init", "Update", "Final")]
    except (ImportError, AttributeError, OSError):
        return None
    return np.array([ctypes.cast(part, ctypes.c_void_p).value for part in parts], np.int64)


@intrinsic
def _call(typing_context: Any, function: Any, first: Any, second: Any, third: Any) -> Any:
    """Call a function of C at an address with three numbers or addresses; further arguments than it has are lost."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word, word, word])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int32(types.int64, types.int64, types.int64, types.int64), generate


@compiled
def _hash_stretches(
    functions: NDArray[np.int64],
    address: int,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    digits: NDArray[np.uint8],
    hexadecimal: NDArray[np.uint8],
) -> None:
    context, digest = np.empty(_CONTEXT_WORDS, np.int64), np.empty(32, np.uint8)
    state, hashed, row = context.ctypes.data, digest.ctypes.data, 0
    for at in range(len(starts)):
        if starts[at] < 0:
            continue
        _call(functions[0], state, 0, 0)
        _call(functions[1], state, address + starts[at], ends[at] - starts[at])
        _call(functions[2], hashed, state, 0)
        for byte in range(32):
            digits[row, 2 * byte] = hexadecimal[digest[byte] >> 4]
            digits[row, 2 * byte + 1] = hexadecimal[digest[byte] & 15]
        row += 1
