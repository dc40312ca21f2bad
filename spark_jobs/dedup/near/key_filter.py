"""A Bloom filter: a set of any number of 64-bit keys in at most 128 MB, without false negatives.

An increment is compared with the signatures of all earlier documents. Each of these has as many keys as a new document,
and hardly any key is shared with a new one; the filter (2 to 4 bytes per new key) passes only keys that probably are.
Beyond 67 million keys it has fewer bits for each, so that more others pass: that costs time, not memory
(`passing_share`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.kernels.compiling import compiled
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import BoolArray, UInt8Array, UInt64Array
from spark_jobs.spark_sql import DataFrame

KeysOf = Callable[[pa.RecordBatch], UInt64Array]

_BITS_PER_KEY = 16  # with 4 probes fewer than 3 in 1,000 other keys pass
_PROBES = 4
_LEAST_BITS = 1 << 13
_MOST_BITS = 1 << 30
_FILLED_DDL = "filled binary"


def filter_bytes(key_count: int) -> int:
    """Size of a filter for a number of keys: a power of two, 16 to 32 bits a key, at most 128 MB."""
    bits = _LEAST_BITS
    while bits < min(_MOST_BITS, _BITS_PER_KEY * key_count):
        bits *= 2
    return bits // 8


def passing_share(key_count: int) -> float:
    """Share of keys not in the set that pass a filter of `key_count` keys (Bloom 1970)."""
    return float((1.0 - np.exp(-_PROBES * key_count / (8 * filter_bytes(key_count)))) ** _PROBES)


def filter_of(frame: DataFrame, keys: KeysOf, key_count: int) -> bytes:
    """Build the filter of all keys of a frame.

    Args:
        frame: any rows.
        keys: function from a batch of them to (K,) uint64 keys.
        key_count: number of keys, about.
    """
    size = filter_bytes(key_count)
    parts = frame.mapInArrow(partial(fill, keys=keys, size=size), _FILLED_DDL)
    whole = parts.coalesce(1).mapInArrow(partial(_unite, size=size), _FILLED_DDL).toArrow()
    return bytes(whole.column("filled")[0].as_py())


def fill(batches: Iterable[pa.RecordBatch], keys: KeysOf, size: int) -> Iterator[pa.RecordBatch]:
    """One row: the filter of the keys of one partition."""
    filled = np.zeros(size, np.uint8)
    for batch in batches:
        put_keys(keys(batch), filled)
    yield pa.RecordBatch.from_arrays([pa.array([filled.tobytes()], pa.binary())], names=["filled"])


def _unite(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """One row: the union of filters."""
    united = np.zeros(size, np.uint8)
    for batch in batches:
        for filled in batch.column("filled"):
            united |= np.frombuffer(filled.as_buffer(), np.uint8)
    yield pa.RecordBatch.from_arrays([pa.array([united.tobytes()], pa.binary())], names=["filled"])


@compiled
def put_keys(keys: UInt64Array, filled: UInt8Array) -> None:
    """Put (K,) keys into a filter of (B,) bytes, B a power of two."""
    mask = np.uint64(filled.size * 8 - 1)
    for key in keys:
        probe = key  # bits below 10 are no hash: keys of bands have the band's number there
        step = (key >> np.uint64(32)) * GOLDEN | np.uint64(1)
        for _ in range(_PROBES):
            bit = (probe >> np.uint64(10)) & mask
            filled[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))
            probe += step


@compiled
def has_keys(keys: UInt64Array, filled: UInt8Array) -> BoolArray:
    """(K,) whether each key may be in the set; fewer than 3 in 1,000 others pass too, at 16 bits a key."""
    mask = np.uint64(filled.size * 8 - 1)
    is_member = np.zeros(keys.size, np.bool_)
    for index in range(keys.size):
        probe = keys[index]
        step = (probe >> np.uint64(32)) * GOLDEN | np.uint64(1)
        here = True
        for _ in range(_PROBES):
            bit = (probe >> np.uint64(10)) & mask
            if not filled[bit >> np.uint64(3)] & (np.uint8(1) << np.uint8(bit & np.uint64(7))):
                here = False
                break
            probe += step
        is_member[index] = here
    return is_member
