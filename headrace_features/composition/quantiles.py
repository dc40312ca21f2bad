"""Exact quantiles of columns, without a sort: a count of the leading 16 bits, then of the next ones where ranks fall.

Doubles are read as whole numbers of 64 bits in the same order. Four counts find the t-th least value of each quantile;
the driver holds 65,536 counts for each. The bound is the least number above that value, so

    bin of v  =  floor(k * share of the documents with a lesser value)         of those that the bounds were made of

and equal values are in one bin, whatever their number; of distinct values each bin has as many documents, give or take
one. Counts do not depend on partitions or engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.arrays import Float64Array, Int64Array
from spark_jobs.lake.engine.arrangement import persist, release
from spark_jobs.spark_sql import DataFrame, F

_DIGITS: Final = ("high div 65536", "high % 65536", "low div 65536", "low % 65536")
_PREFIXES: Final = ("0L", "high div 65536", "high", "high * 65536 + low div 65536")
_KEYS_DDL: Final = "dimension int, high bigint, low bigint"
_SIGN: Final = np.uint64(1 << 63)


def ordered_bits(values: Float64Array) -> npt.NDArray[np.uint64]:
    """(N,) whole numbers in the order of (N,) finite or infinite doubles; equal ones have one."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def from_bits(bits: npt.NDArray[np.uint64]) -> Float64Array:
    """(N,) doubles of `ordered_bits`."""
    return np.where(bits & _SIGN, bits ^ _SIGN, ~bits).view(np.float64)


def ranks(count: int, parts: int) -> Int64Array:
    """(parts - 1,) places, from 0, of the values whose successors begin bins 1, 2, .. of `count` values."""
    return -(-np.arange(1, parts, dtype=np.int64) * count // parts) - 1


def quantile_bounds(values: DataFrame, parts: Mapping[str, int]) -> dict[str, Float64Array]:
    """Bounds of quantiles of some columns.

    Args:
        values: doubles, a column for each; nulls and NaN do not count.
        parts: number of quantiles by column.

    Returns:
        (k - 1,) ascending bounds by column, none for one without a value.
    """
    names = list(parts)
    keys = persist(values.select(*names).mapInArrow(_keys, _KEYS_DDL))
    try:
        counts = keys.groupBy("dimension").agg(F.count("*").alias("count")).toArrow().to_pydict()
        wanted = {
            at: ranks(count, parts[names[at]]) for at, count in zip(counts["dimension"], counts["count"], strict=True)
        }
        found = _least_values(keys, wanted)
    finally:
        release(keys)
    return {name: np.nextafter(found.get(at, np.zeros(0)), np.inf) for at, name in enumerate(names)}


def _keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for each value: its column, and the halves of its whole number."""
    for batch in batches:
        for at, column in enumerate(batch.columns):
            values = column.drop_null().to_numpy(zero_copy_only=False)
            bits = ordered_bits(values[~np.isnan(values)])
            high, low = (bits >> np.uint64(32)).view(np.int64), (bits & np.uint64(0xFFFFFFFF)).view(np.int64)
            numbers = pa.array(np.full(len(bits), at, np.int32))
            yield pa.RecordBatch.from_arrays([numbers, pa.array(high), pa.array(low)], ["dimension", "high", "low"])


def _least_values(keys: DataFrame, wanted: Mapping[int, Int64Array]) -> dict[int, Float64Array]:
    """The values at some places of each column, counted from the least."""
    left = {at: [(0, int(rank)) for rank in of_column] for at, of_column in wanted.items()}
    for digit, prefix in zip(_DIGITS, _PREFIXES, strict=True):
        named = sorted({(at, before) for at, states in left.items() for before, _ in states})
        if not named:
            return {}
        chosen = keys.sparkSession.createDataFrame(named, "dimension int, prefix bigint")
        rows = keys.select("dimension", F.expr(prefix).alias("prefix"), F.expr(digit).alias("digit"))
        met = rows.join(F.broadcast(chosen), ["dimension", "prefix"]).groupBy("dimension", "prefix", "digit")
        counted = (
            met.agg(F.count("*").alias("count"))
            .toArrow()
            .sort_by([("dimension", "ascending"), ("prefix", "ascending"), ("digit", "ascending")])
        )
        columns = [counted[name].to_numpy() for name in ("dimension", "prefix", "digit", "count")]
        left = {at: [_narrowed(columns, at, *state) for state in states] for at, states in left.items()}
    return {at: from_bits(np.array([value for value, _ in states], np.uint64)) for at, states in left.items()}


def _narrowed(columns: list[Int64Array], at: int, prefix: int, rank: int) -> tuple[int, int]:
    """Append the next digit to a prefix: that of the value at place `rank` among those with the prefix."""
    dimensions, prefixes, digits, counts = columns
    first, end = np.searchsorted(dimensions, [at, at + 1])
    part = slice(*(first + np.searchsorted(prefixes[first:end], [prefix, prefix + 1])))
    upto = np.cumsum(counts[part])
    place = int(np.searchsorted(upto, rank, side="right"))
    before = int(upto[place - 1]) if place else 0
    return prefix * 65536 + int(digits[part][place]), rank - before
