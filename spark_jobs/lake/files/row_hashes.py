"""The row hash of `data_version` over Arrow batches: bit for bit Spark's `xxhash64`, for rows that Spark never sees.

A row is hashed column by column, each hash the seed of the next: a null flag, then the value if there is one; a list
of numbers as its size and its elements, a list of structs as Spark's JSON of it. For an int and a long Spark gives the
XXH64 (Collet) of their 4 and 8 bytes, for a time that of its microseconds. Every step over a list needs the result of
the one before, so the processor would wait for each multiplication: four lists are hashed side by side.

Imported by workers only: numba takes half a second to load.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled
from headrace.kernels.memory import byte_at, eight_bytes_at, four_bytes_at
from spark_jobs.arrays import UInt64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.ledger.data_version import DataVersion

_SEED = 42  # of Spark's `xxhash64`
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BITS = np.uint64(64)
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LANES = 4  # lists hashed side by side; `_hash_lists` has them written out


def row_hashes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """(N,) signed 64-bit hash of every row, as `data_version.row_hash` over the same columns.

    Args:
        rows: columns of the types that `data_files.can_hash` takes, and times, in the table's order.
    """
    state = np.full(rows.num_rows, _SEED, dtype=np.uint64)
    nowhere = np.zeros(rows.num_rows, dtype=np.bool_)
    for column in rows.columns:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        _hash_ints(state, missing.astype(np.int32), nowhere)
        _hash_column(state, column, missing)
    return state.view(np.int64)


def version_of_batch(rows: pa.RecordBatch) -> DataVersion:
    """The data version of these rows alone; columns as in `row_hashes`."""
    return DataVersion.of_hashes(row_hashes(rows))


def _hash_column(state: UInt64Array, column: pa.Array, missing: npt.NDArray[np.bool_]) -> None:
    """Mix the values of one column into the hashes of their rows."""
    kind = column.type
    if pa.types.is_boolean(kind):
        _hash_ints(state, pc.fill_null(column, False).cast(pa.int32()).to_numpy(), missing)
    elif pa.types.is_int32(kind):
        _hash_ints(state, pc.fill_null(column, 0).to_numpy(), missing)
    elif pa.types.is_int64(kind):
        _hash_longs(state, pc.fill_null(column, 0).to_numpy(), missing)
    elif pa.types.is_timestamp(kind):
        _hash_longs(state, pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), missing)
    elif pa.types.is_string(kind):
        _hash_strings(state, column, missing)
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        _hash_strings(state, _json(column), missing)
    elif pa.types.is_list(kind):
        counts = pc.list_value_length(column).to_numpy().astype(np.int32)
        _hash_ints(state, counts, missing)
        starts = column.offsets.to_numpy().astype(np.int64)[:-1]
        _hash_lists(state, column.values.to_numpy(), starts, counts, np.argsort(counts, kind="stable"))
    else:
        raise TableMismatchError(f"a column of {kind} cannot be hashed outside of Spark; write the table by Spark")


def _hash_strings(state: UInt64Array, column: pa.Array, missing: npt.NDArray[np.bool_]) -> None:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    content = column.buffers()[2]
    values = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, dtype=np.uint8)
    _hash_bytes(state, values, offsets, missing)


def _json(column: pa.ListArray) -> pa.Array:
    """Lists of structs as Spark writes them in JSON."""
    structs = column.flatten()
    parts: list[pa.Array | str] = []
    for number, field in enumerate(structs.type):
        values = structs.field(number)
        quote = '"' if pa.types.is_string(field.type) else ""
        text = _escaped(values) if quote else values.cast(pa.string())
        parts += [f'{"," if number else "{"}"{field.name}":{quote}', text, quote]
    rows = pc.binary_join_element_wise(*parts, "}", "")
    offsets = column.offsets.to_numpy()
    lists = pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), rows)
    return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")


def _escaped(values: pa.Array) -> pa.Array:
    """Strings as Jackson escapes them."""
    if not pc.any(pc.match_substring_regex(values, _NEEDS_ESCAPE)).as_py():
        return values
    return pa.array(
        ["".join(_ESCAPES.get(c) or (c if c >= " " else f"\\u{ord(c):04X}") for c in s) for s in values.to_pylist()]
    )


@compiled
def _rotated(value: np.uint64, bits: np.uint64) -> np.uint64:
    return (value << bits) | (value >> (_BITS - bits))


@compiled
def _finished(value: np.uint64) -> np.uint64:
    value ^= value >> np.uint64(33)
    value *= _P2
    value ^= value >> np.uint64(29)
    value *= _P3
    return value ^ (value >> np.uint64(32))


@compiled
def _of_int(value: np.int32, seed: np.uint64) -> np.uint64:
    found = seed + _P5 + np.uint64(4)
    found ^= np.uint64(np.uint32(value)) * _P1
    hashed: np.uint64 = _finished(_rotated(found, np.uint64(23)) * _P2 + _P3)
    return hashed


@compiled
def _of_long(value: np.int64, seed: np.uint64) -> np.uint64:
    found = seed + _P5 + np.uint64(8)
    found ^= _rotated(np.uint64(value) * _P2, np.uint64(31)) * _P1
    hashed: np.uint64 = _finished(_rotated(found, np.uint64(27)) * _P1 + _P4)
    return hashed


@compiled
def _of_bytes(start: int, end: int, seed: np.uint64) -> np.uint64:
    """XXH64 of the bytes from one address to another."""
    length = end - start
    if length >= 32:
        v1, v2, v3, v4 = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while start <= end - 32:
            v1 = _rotated(v1 + eight_bytes_at(start) * _P2, np.uint64(31)) * _P1
            v2 = _rotated(v2 + eight_bytes_at(start + 8) * _P2, np.uint64(31)) * _P1
            v3 = _rotated(v3 + eight_bytes_at(start + 16) * _P2, np.uint64(31)) * _P1
            v4 = _rotated(v4 + eight_bytes_at(start + 24) * _P2, np.uint64(31)) * _P1
            start += 32
        found = _rotated(v1, np.uint64(1)) + _rotated(v2, np.uint64(7))
        found += _rotated(v3, np.uint64(12)) + _rotated(v4, np.uint64(18))
        for v in (v1, v2, v3, v4):
            found = (found ^ (_rotated(v * _P2, np.uint64(31)) * _P1)) * _P1 + _P4
    else:
        found = seed + _P5
    found += np.uint64(length)
    while start <= end - 8:
        found ^= _rotated(eight_bytes_at(start) * _P2, np.uint64(31)) * _P1
        found = _rotated(found, np.uint64(27)) * _P1 + _P4
        start += 8
    if start <= end - 4:
        found ^= np.uint64(four_bytes_at(start)) * _P1
        found = _rotated(found, np.uint64(23)) * _P2 + _P3
        start += 4
    while start < end:
        found ^= np.uint64(byte_at(start)) * _P5
        found = _rotated(found, np.uint64(11)) * _P1
        start += 1
    hashed: np.uint64 = _finished(found)
    return hashed


@compiled
def _hash_ints(state: UInt64Array, values: npt.NDArray[np.int32], missing: npt.NDArray[np.bool_]) -> None:
    for row in range(len(state)):
        if not missing[row]:
            state[row] = _of_int(values[row], state[row])


@compiled
def _hash_longs(state: UInt64Array, values: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_]) -> None:
    for row in range(len(state)):
        if not missing[row]:
            state[row] = _of_long(values[row], state[row])


@compiled
def _hash_bytes(
    state: UInt64Array, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], missing: npt.NDArray[np.bool_]
) -> None:
    address = np.int64(data.ctypes.data)
    for row in range(len(state)):
        if not missing[row]:
            state[row] = _of_bytes(address + offsets[row], address + offsets[row + 1], state[row])


@compiled
def _of_number(value: np.int64, seed: np.uint64, is_long: bool) -> np.uint64:
    hashed: np.uint64 = _of_long(value, seed) if is_long else _of_int(np.int32(value), seed)
    return hashed


@compiled
def _hash_lists(
    state: UInt64Array,
    values: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int32],
    order: npt.NDArray[np.int64],
) -> None:
    """Mix the elements of lists into the hashes of their rows; `order` puts lists of like length side by side."""
    is_long = values.itemsize == 8
    done = 0
    while done + _LANES <= len(order):
        a, b, c, d = order[done], order[done + 1], order[done + 2], order[done + 3]
        sa, sb, sc, sd = state[a], state[b], state[c], state[d]
        together = counts[a]  # the shortest of the four, since `order` is ascending
        for i in range(together):
            sa = _of_number(values[starts[a] + i], sa, is_long)
            sb = _of_number(values[starts[b] + i], sb, is_long)
            sc = _of_number(values[starts[c] + i], sc, is_long)
            sd = _of_number(values[starts[d] + i], sd, is_long)
        state[a], state[b], state[c], state[d] = sa, sb, sc, sd
        for lane in range(1, _LANES):
            row = order[done + lane]
            for i in range(together, counts[row]):
                state[row] = _of_number(values[starts[row] + i], state[row], is_long)
        done += _LANES
    for row in order[done:]:
        for i in range(counts[row]):
            state[row] = _of_number(values[starts[row] + i], state[row], is_long)
