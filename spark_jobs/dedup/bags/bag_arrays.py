"""The bags of a batch of documents as flat arrays, read from and written to the binary columns of the table `bags`.

The distinct tokens of document d are those from `offsets[d]` to `offsets[d + 1]`. A token weighs `units * levels`: the
weight of one occurrence times its capped number of occurrences. Two documents, {a: 2 x 30, c: 1 x 9} and {b: 1 x 255}:

    offsets   0           2      3
    hashes    a     c     b            ascending inside a document
    units     30    9     255
    levels    2     1     1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int64Array, UInt8Array, UInt16Array, UInt64Array
from spark_jobs.exceptions import TableMismatchError

_HASH_BYTES = 8


@dataclass(frozen=True)
class Bags:
    """Weighted tokens of D documents, T in all.

    Attributes:
        offsets: (D + 1,) int64 where the tokens of each document begin, from 0; the last one is T.
        hashes: (T,) uint64 distinct tokens, ascending inside each document.
        units: (T,) uint8 weight of one occurrence.
        levels: (T,) uint8 occurrences, capped.
    """

    offsets: Int64Array
    hashes: UInt64Array
    units: UInt8Array
    levels: UInt8Array

    def __len__(self) -> int:
        return len(self.offsets) - 1


def bags_from_columns(token_hashes: pa.Array, units: pa.Array, levels: pa.Array) -> Bags:
    """Read bags from their three binary columns; nothing is copied unless the hashes are badly aligned.

    Args:
        token_hashes: (D,) binary or large_binary, 8 bytes little-endian a token, ascending.
        units: (D,) binary or large_binary, 1 byte a token.
        levels: (D,) binary or large_binary, 1 byte a token.

    Raises:
        TableMismatchError: a null, or columns with different numbers of tokens.
    """
    columns = zip((token_hashes, units, levels), ("token_hashes", "units", "levels"), strict=True)
    return bags_of_bytes(*(_binary_buffer(column, name) for column, name in columns))


def bags_of_bytes(
    hashes: tuple[Int64Array, UInt8Array], units: tuple[Int64Array, UInt8Array], levels: tuple[Int64Array, UInt8Array]
) -> Bags:
    """Bags of the offsets from 0, (D + 1,), and the bytes of each of the three columns; nothing is copied.

    Raises:
        TableMismatchError: they disagree on the number of tokens.
    """
    (hash_ends, hash_bytes), (unit_ends, unit_bytes), (level_ends, level_bytes) = hashes, units, levels
    if not (np.array_equal(unit_ends * _HASH_BYTES, hash_ends) and np.array_equal(unit_ends, level_ends)):
        raise TableMismatchError(
            "bags: token_hashes, units and levels of a row differ in their number of tokens (wanted 8, 1 and 1 bytes a "
            "token); materialize bags again"
        )
    return Bags(unit_ends, np.require(hash_bytes.view("<u8"), np.uint64, "A"), unit_bytes, level_bytes)


def binary_column(values: UInt8Array | UInt64Array, offsets: Int64Array) -> pa.Array:
    """Make a column of byte strings from slices of one array, little-endian.

    Args:
        values: (T,) the values of all rows.
        offsets: (D + 1,) int64 where the values of each row begin.

    Raises:
        ValueError: the batch is too large for a binary column.
    """
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False)).view(np.uint8)
    if len(data) >= 1 << 31:
        raise ValueError(f"bags: a batch holds {len(data)} bytes of tokens, Arrow strings end at 2^31; fewer rows")
    ends = (offsets * values.itemsize).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def total_weights(bags: Bags) -> Int64Array:
    """(D,) int64 total weight of each bag; 0 for an empty one."""
    totals = np.empty(len(bags), dtype=np.int64)
    _sum_weights(bags.offsets, bags.units, bags.levels, totals)
    return totals


def token_weights(bags: Bags) -> UInt16Array:
    """(T,) uint16 weight of every token in its bag, at most 255 * 255."""
    weights = np.empty(len(bags.units), dtype=np.uint16)
    _multiply(bags.units, bags.levels, weights)
    return weights


def rows_of(bags: Bags, rows: Int64Array) -> Bags:
    """The bags of some documents, in the order of their row numbers."""
    lengths = np.diff(bags.offsets)[rows]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    places = np.arange(offsets[-1]) + np.repeat(bags.offsets[rows] - offsets[:-1], lengths)
    return Bags(offsets, bags.hashes[places], bags.units[places], bags.levels[places])


def _binary_buffer(column: pa.Array, name: str) -> tuple[Int64Array, UInt8Array]:
    """Offsets of a binary column from 0, (D + 1,), and the bytes they point into."""
    if column.null_count:
        raise TableMismatchError(f"bags: {column.null_count} nulls in {name}, wanted none; materialize bags again")
    if len(column) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    _, offset_buffer, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    ends = np.frombuffer(offset_buffer, dtype=width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if data is None:
        return ends - ends[0], np.zeros(0, dtype=np.uint8)
    return ends - ends[0], np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]


@compiled
def _sum_weights(offsets: Int64Array, units: UInt8Array, levels: UInt8Array, totals: Int64Array) -> None:
    for doc in range(totals.size):
        total = 0
        for token in range(offsets[doc], offsets[doc + 1]):
            total += int(
                np.uint16(units[token] * levels[token])
            )  # 255 * 255 fits into 16 bits, so the product stays narrow
        totals[doc] = total


@compiled
def _multiply(units: UInt8Array, levels: UInt8Array, weights: UInt16Array) -> None:
    for token in range(weights.size):  # NumPy would convert both sides to uint16 first, at three times the cost
        weights[token] = np.uint16(units[token]) * np.uint16(levels[token])
