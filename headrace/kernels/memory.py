"""Access to memory by address, in compiled code.

Functions run once per token take addresses instead of arrays: Numba counts the references of every array
passed on, five times as long as the token itself takes (measured).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _loader(bits: int, result: Any) -> Any:
    """Make a compiled function address -> unsigned little-endian number of 8, 32 or 64 bits there, aligned or not."""

    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            loaded.align = 1
            return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

        return result(types.int64), generate

    return intrinsic(typed)


byte_at = _loader(8, types.int64)
four_bytes_at = _loader(32, types.int64)
eight_bytes_at = _loader(64, types.uint64)


@intrinsic
def store(typing_context: Any, address: Any, number: Any) -> Any:
    """Write an integer at an address, in as many bytes as its type has: an int32 in 4."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], arguments[1].type.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.void(types.int64, number), generate


@intrinsic
def trailing_zeros(typing_context: Any, number: Any) -> Any:
    """Number of zero bits below the lowest one bit, 40 -> 3; the number is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate
