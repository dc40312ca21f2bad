"""The row hash of data versions: of the values in Arrow arrays, by type, whatever engine made the rows.

Every value has a word of 64 bits, and all else is XXH64 (Collet) of words or of bytes:

    null                        adds nothing to its row, struct or map; in a list its position counts
    boolean, int, date, time    the number; of times microseconds, or nanoseconds where the type has them
    float                       widened to double; one NaN, and -0.0 is 0.0, as where engines join and group
    decimal                     XXH64 of the unscaled number in 16 bytes, seed: the scale
    string, binary, fixed       XXH64 of the bytes
    list                        XXH64 of its elements' words, 0 for nulls; each null's position is hashed on top
    struct, row                 XXH64 of the sum of its fields' hashes: of one that is not null XXH64, seed: its name
    map                         XXH64 of the sum over its entries, each a struct of key and value, seed: their number

So neither the width of a number, nor the order of columns and of a map's entries, nor a column that came later and is
null counts, nor how Arrow holds the values: in chunks, slices, dictionaries, views, with offsets of 32 or 64 bits.

Imported by workers only: numba takes half a second to load.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.memory import byte_at, eight_bytes_at, four_bytes_at
from spark_jobs.arrays import BoolArray, Int64Array, UInt64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.ledger.data_version import DataVersion

# XXH64's five primes.
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BITS = np.uint64(64)
_PLAIN = np.uint64(0)  # the seed where no other is said

Words = npt.NDArray[np.int32] | Int64Array | UInt64Array


def row_hashes(rows: pa.RecordBatch) -> Int64Array:
    """(N,) signed 64-bit hash of every row, over all columns by their names.

    Raises:
        TableMismatchError: a column has a type impossible in tables, such as a union.
    """
    return _of_fields(rows.schema.names, rows.columns, rows.num_rows).view(np.int64)


def version_of_batch(rows: pa.RecordBatch) -> DataVersion:
    """The data version of these rows alone."""
    return DataVersion.of_hashes(row_hashes(rows))


def versions_by_increment(rows: pa.RecordBatch) -> dict[int, DataVersion]:
    """The data version of these rows, by their column `increment`."""
    hashes, numbers = row_hashes(rows), rows.column("increment").to_numpy(zero_copy_only=False)
    return {int(number): DataVersion.of_hashes(hashes[numbers == number]) for number in np.unique(numbers)}


def _of_fields(names: Sequence[str], columns: Iterable[pa.Array], count: int) -> UInt64Array:
    """(N,) words of rows or structs."""
    total = np.zeros(count, dtype=np.uint64)
    for name, column in zip(names, columns, strict=True):
        if column.null_count < count:  # a column of nulls alone is as one that is not there
            plain = _decoded(column)
            _add_field(total, _words(plain), _is_valid(plain), _tag(name))
    _finish_sums(total, np.zeros(count, dtype=np.int64))
    return total


@functools.cache
def _tag(name: str) -> np.uint64:
    """The seed of a field's hash."""
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def _decoded(column: pa.Array) -> pa.Array:
    """The values of an array of an encoded type, as a plain one."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _decoded(column.storage)
    if pa.types.is_dictionary(kind):
        return _decoded(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return _decoded(pc.run_end_decode(column))
    return column


def _is_valid(column: pa.Array) -> BoolArray:
    if not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    valid: BoolArray = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _words(column: pa.Array) -> Words:
    """(N,) words of values, of 32 bits where they are numbers of as many; anything where a value is null."""
    for is_of, words in _BY_KIND:
        if is_of(column.type):
            return words(column)
    raise TableMismatchError(f"a column of {column.type} has no data version; cast it to a type that Iceberg has")


def _numbers(column: pa.Array) -> Words:
    """Of what Arrow holds as numbers of a fixed width, without a copy where that is 32 or 64 bits."""
    kind = column.type
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    values: Words = _raw(column, np.dtype(f"{sign}{kind.bit_width // 8}"))
    return values if values.dtype in (np.int32, np.int64, np.uint64) else values.astype(np.int64)


def _times(column: pa.Array) -> Words:
    """Of times and moments: microseconds, or nanoseconds."""
    kind = column.type
    if kind.unit not in ("us", "ns"):
        column = column.cast(pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us"))
    words: Int64Array = _raw(column, np.dtype(np.int64))
    return words


def _floats(column: pa.Array) -> UInt64Array:
    with np.errstate(invalid="ignore"):  # a NaN of another kind
        #  + 0.0 makes 0.0 of -0.0
        values = _raw(column, np.dtype(f"f{column.type.bit_width // 8}")).astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    words: UInt64Array = values.view(np.uint64)
    return words


def _booleans(column: pa.Array) -> Words:
    words: Int64Array = _raw(column.cast(pa.int8()), np.dtype(np.int8)).astype(np.int64)
    return words


def _decimals(column: pa.Array) -> UInt64Array:
    kind = column.type
    if kind.precision <= 38 and not pa.types.is_decimal128(kind):
        column = column.cast(pa.decimal128(38, kind.scale))
    return _fixed(column, np.uint64(kind.scale % 2**64))  # a scale may be negative


def _fixed(column: pa.Array, seed: np.uint64 = _PLAIN) -> UInt64Array:
    """Of values of as many bytes each."""
    ends = np.arange(column.offset + 1, column.offset + len(column) + 1) * (column.type.bit_width // 8)
    return _bytes_at(column.buffers()[1], ends - column.type.bit_width // 8, ends, seed)


def _texts(column: pa.Array) -> UInt64Array:
    kind = column.type
    offsets = np.dtype(np.int64 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else np.int32)
    bounds = _raw(column, offsets, 1).astype(np.int64)
    return _bytes_at(column.buffers()[2], bounds[:-1], bounds[1:], _PLAIN)


def _bytes_at(data: pa.Buffer | None, starts: Int64Array, ends: Int64Array, seed: np.uint64) -> UInt64Array:
    hashes = np.empty(len(starts), dtype=np.uint64)
    _hash_bytes(hashes, np.int64(data.address if data is not None else 0), starts, ends, seed)
    return hashes


def _raw(column: pa.Array, kind: np.dtype[Any], more: int = 0) -> Any:
    """The first buffer after the validity of an array, as numbers: one a value and some more."""
    data = column.buffers()[1]
    if data is None or not data.size:
        return np.zeros(len(column) + more, dtype=kind)
    return np.frombuffer(data, kind)[column.offset : column.offset + len(column) + more]


def _lists(column: pa.Array) -> UInt64Array:
    values, starts, ends = _elements(column, column.values)
    words, hashes = _words(values), np.empty(len(column), dtype=np.uint64)
    if not values.null_count:
        _hash_lists(hashes, words, starts, ends)
        return hashes
    valid = _is_valid(values)
    _hash_lists(hashes, np.where(valid, words, words.dtype.type(0)), starts, ends)
    _hash_nulls(hashes, valid, starts, ends)
    return hashes


def _maps(column: pa.Array) -> UInt64Array:
    keys, starts, ends = _elements(column, column.keys)
    entries = _of_fields(("key", "value"), (keys, _elements(column, column.items)[0]), len(keys))
    sums = np.empty(len(column), dtype=np.uint64)
    _sum_entries(sums, entries, starts, ends)
    _finish_sums(sums, ends - starts)
    return sums


def _elements(column: pa.Array, values: pa.Array) -> tuple[pa.Array, Int64Array, Int64Array]:
    """The elements of lists, without those of rows before and after; and where those of each row begin and end."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        ends = np.arange(column.offset + 1, column.offset + len(column) + 1) * kind.list_size
        starts = ends - kind.list_size
    else:
        bounds = column.offsets.to_numpy().astype(np.int64)
        starts, ends = bounds[:-1], bounds[1:]
    first, last = (int(starts[0]), int(ends[-1])) if len(column) else (0, 0)
    return _decoded(values.slice(first, last - first)), starts - first, ends - first


def _structs(column: pa.Array) -> UInt64Array:
    names = [field.name for field in column.type]
    return _of_fields(names, (column.field(number) for number in range(len(names))), len(column))


def _cast_to(kind: pa.DataType) -> Callable[[pa.Array], Words]:
    return lambda column: _words(column.cast(kind))


_BY_KIND: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Words]]] = (
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_date32(kind), _numbers),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_binary(kind), _texts),
    (lambda kind: pa.types.is_large_string(kind) or pa.types.is_large_binary(kind), _texts),
    (pa.types.is_map, _maps),
    (lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind), _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_floating, _floats),
    (lambda kind: pa.types.is_timestamp(kind) or pa.types.is_time(kind), _times),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_fixed_size_binary, _fixed),
    (pa.types.is_string_view, _cast_to(pa.large_string())),
    (pa.types.is_binary_view, _cast_to(pa.large_binary())),
    (pa.types.is_date64, _cast_to(pa.date32())),
    (pa.types.is_null, lambda column: np.zeros(len(column), dtype=np.int64)),
)


@inner
def _rotated(value: np.uint64, bits: np.uint64) -> np.uint64:
    return (value << bits) | (value >> (_BITS - bits))


@compiled
def _finished(value: np.uint64) -> np.uint64:
    value ^= value >> np.uint64(33)
    value *= _P2
    value ^= value >> np.uint64(29)
    value *= _P3
    return value ^ (value >> np.uint64(32))


@inner
def _with_word(state: np.uint64, word: np.uint64) -> np.uint64:
    """The state of XXH64 after eight more bytes at the end."""
    state ^= _rotated(word * _P2, np.uint64(31)) * _P1
    state = _rotated(state, np.uint64(27)) * _P1 + _P4
    return state


@inner
def _in_lane(lane: np.uint64, word: np.uint64) -> np.uint64:
    """One of the four lanes of XXH64 after its next eight bytes."""
    lane = _rotated(lane + word * _P2, np.uint64(31)) * _P1
    return lane


@inner
def _merged(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> np.uint64:
    """The state of XXH64 after its four lanes."""
    state: np.uint64 = _rotated(a, np.uint64(1)) + _rotated(b, np.uint64(7))
    state += _rotated(c, np.uint64(12)) + _rotated(d, np.uint64(18))
    for lane in (a, b, c, d):
        state = (state ^ (_rotated(lane * _P2, np.uint64(31)) * _P1)) * _P1 + _P4
    return state


@inner
def _of_word(word: np.uint64, seed: np.uint64) -> np.uint64:
    hashed: np.uint64 = _finished(_with_word(seed + _P5 + np.uint64(8), word))
    return hashed


@inner
def _of_bytes(start: int, end: int, seed: np.uint64) -> np.uint64:
    """XXH64 of the bytes from one address to another."""
    length = end - start
    if length >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while start <= end - 32:
            a, b = _in_lane(a, eight_bytes_at(start)), _in_lane(b, eight_bytes_at(start + 8))
            c, d = _in_lane(c, eight_bytes_at(start + 16)), _in_lane(d, eight_bytes_at(start + 24))
            start += 32
        state = _merged(a, b, c, d)
    else:
        state = seed + _P5
    state += np.uint64(length)
    while start <= end - 8:
        state = _with_word(state, eight_bytes_at(start))
        start += 8
    if start <= end - 4:
        state ^= np.uint64(four_bytes_at(start)) * _P1
        state = _rotated(state, np.uint64(23)) * _P2 + _P3
        start += 4
    while start < end:
        state ^= np.uint64(byte_at(start)) * _P5
        state = _rotated(state, np.uint64(11)) * _P1
        start += 1
    hashed: np.uint64 = _finished(state)
    return hashed


@compiled
def _hash_bytes(hashes: UInt64Array, address: int, starts: Int64Array, ends: Int64Array, seed: np.uint64) -> None:
    for row in range(len(hashes)):
        hashes[row] = _of_bytes(address + starts[row], address + ends[row], seed)


@compiled
def _add_field(total: UInt64Array, words: Words, valid: BoolArray, tag: np.uint64) -> None:
    for row in range(len(total)):
        if valid[row]:
            # by way of 64 bits with a sign: -1 has one word, however wide its column is
            total[row] += _of_word(np.uint64(np.int64(words[row])), tag)


@compiled
def _finish_sums(sums: UInt64Array, seeds: Int64Array) -> None:
    for row in range(len(sums)):
        sums[row] = _of_word(sums[row], np.uint64(seeds[row]))


@compiled
def _sum_entries(sums: UInt64Array, entries: UInt64Array, starts: Int64Array, ends: Int64Array) -> None:
    for row in range(len(sums)):
        total = np.uint64(0)
        for at in range(starts[row], ends[row]):
            total += entries[at]
        sums[row] = total


@compiled
def _hash_lists(hashes: UInt64Array, words: Words, starts: Int64Array, ends: Int64Array) -> None:
    """XXH64 of the words of each list, as if they lay in eight bytes each."""
    for row in range(len(hashes)):
        at, end = starts[row], ends[row]
        length = np.uint64(8 * (end - at))
        if end - at >= 4:
            a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1  # XXH64's lanes under the seed 0
            while at <= end - 4:
                a = _in_lane(a, np.uint64(np.int64(words[at])))
                b = _in_lane(b, np.uint64(np.int64(words[at + 1])))
                c = _in_lane(c, np.uint64(np.int64(words[at + 2])))
                d = _in_lane(d, np.uint64(np.int64(words[at + 3])))
                at += 4
            state = _merged(a, b, c, d) + length
        else:
            state = _P5 + length
        while at < end:
            state = _with_word(state, np.uint64(np.int64(words[at])))
            at += 1
        hashes[row] = _finished(state)


@compiled
def _hash_nulls(hashes: UInt64Array, valid: BoolArray, starts: Int64Array, ends: Int64Array) -> None:
    """Mix the positions of the nulls of each list into its hash."""
    for row in range(len(hashes)):
        for at in range(starts[row], ends[row]):
            if not valid[at]:
                hashes[row] = _of_word(np.uint64(at - starts[row]), hashes[row])
