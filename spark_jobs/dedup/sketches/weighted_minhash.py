"""Sketch bags so that the expected share of agreeing values of two sketches is the similarity of their bags.

Consistent weighted sampling in the sense of Ioffe 2010 ("Improved Consistent Sampling, Weighted Minhash and L1
Sketching"), for integer weights and with darts (see `darts`). A token of weight `unit * level` owns the first
`level` of its strips. A signature holds, for each slot, the value of the dart of least rank on the strips of its bag:

    strip 1 of a   | .       .  3:17          .      |      x = {a: 2 x 30}    slot 3: rank .02, value 90
    strip 2 of a   |    .  3:90       .  .           |      y = {a: 1 x 30, b: 1 x 30}    slot 3: value 17
    strip 1 of b   | .  .   .  .  .   .  3:44   .  . |
                   0 ------------ rank ------------>        x owns the first two strips, y the first and the third

Why the probability is exact: the darts of a slot are a Poisson process on the union of both bags' strips. The dart of
least rank is equally likely to lie anywhere there, so it lies in the intersection with probability sum min / sum max =
J. Slots are independent (thinning), so the number of equal values is Binomial(256, p), p = J + (1 - J) / 256.

A signature needs about k (ln k + 1) darts, however long the document: all darts up to a rank are merged, and that rank
grows until every slot has a dart up to it, which no later one can beat. The first rank, its growth and the choice of
hot tokens change only the speed.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, total_weights
from spark_jobs.dedup.sketches.darts import (
    HOT_RANKS,
    RANK_BITS,
    RANK_ONE,
    READ_DARTS,
    SIGNATURE_VALUES,
    Darts,
    cell_count,
    cell_dart,
    cell_stream,
    find_token,
    strip_key,
)
from spark_jobs.exceptions import EmptyBagError

_FIRST_DARTS: Final = SIGNATURE_VALUES * (math.log(SIGNATURE_VALUES) + 1.5)  # fill all slots in 4 of 5 cases


def signatures(bags: Bags, darts: Darts) -> UInt8Array:
    """Make the signatures of bags.

    P[signatures(x)[i] == signatures(y)[i]] = J + (1 - J) / 256 for every i, with J = sum min / sum max of the weights.

    Args:
        bags: D bags, each of weight 1 or more.
        darts: as `make_darts` returns.

    Returns:
        (D, 256) uint8.

    Raises:
        EmptyBagError: a bag weighs nothing, so no dart lies on it.
    """
    totals = total_weights(bags)
    if len(bags) and totals.min() <= 0:
        raise EmptyBagError(
            f"signatures: the bag in row {int(np.argmin(totals))} of the batch has no weight; leave empty documents "
            "out of bags"
        )
    out = np.empty((len(bags), SIGNATURE_VALUES), dtype=np.uint8)
    failed = _sketch(bags.offsets, bags.hashes, bags.units, bags.levels, totals, _most_strips(bags), darts, out)
    if failed >= 0:
        raise EmptyBagError(
            f"signatures: the bag in row {failed} of the batch, of weight {totals[failed]}, has no dart for some slot "
            "up to the last rank (probability 3e-12 at weight 1); take another seed"
        )
    return out


def _most_strips(bags: Bags) -> int:
    """Number of strips of the bag with the most."""
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(bags.levels, dtype=np.int64)])
    return int(np.max(ends[bags.offsets[1:]] - ends[bags.offsets[:-1]], initial=1))


_U1: Final = np.uint64(1)
_U2: Final = np.uint64(2)
_U3: Final = np.uint64(3)
_U8: Final = np.uint64(8)
_U16: Final = np.uint64(16)
_BYTE: Final = np.uint64(0xFF)
_NO_DART: Final = np.uint64((1 << 64) - 1)
_LAST_RANK: Final = np.uint64((1 << RANK_BITS) - 2)  # below the rank bits of _NO_DART
_FIRST_REACH: Final = np.uint64(int(_FIRST_DARTS * RANK_ONE))
_HOT_REACH: Final = np.uint64(HOT_RANKS)


class _Strips(NamedTuple):
    """Strips of one document, each with its position in the table, key, unit and the next cell to draw."""

    position: UInt64Array
    key: UInt64Array
    unit: UInt8Array
    cell: UInt64Array


@compiled
def _sketch(
    offsets: Int64Array,
    hashes: UInt64Array,
    units: UInt8Array,
    levels: UInt8Array,
    totals: Int64Array,
    most_strips: int,
    darts: Darts,
    out: UInt8Array,
) -> int:
    """Write signatures to `out`; returns the row of a bag that leaves a slot empty, or -1."""
    hot, cold = _empty_strips(most_strips), _empty_strips(most_strips)
    best = np.empty(SIGNATURE_VALUES, dtype=np.uint64)
    for doc in range(offsets.size - 1):
        start, end = offsets[doc], offsets[doc + 1]
        hot_count, cold_count = _list_strips(hashes[start:end], units[start:end], levels[start:end], darts, hot, cold)
        best[:] = _NO_DART
        reach = min(_FIRST_REACH // np.uint64(totals[doc]), _LAST_RANK)
        first = True
        while True:
            _merge_rows(reach, hot_count, hot.position, darts.table, first, best)
            if reach >= _HOT_REACH:
                _merge_cells(reach, hot_count, hot, darts, best)
            _merge_cells(reach, cold_count, cold, darts, best)
            worst = best.max()
            if worst >> _U16 <= reach:
                break
            if reach == _LAST_RANK:
                return doc
            grown = reach + (reach >> _U2) + (reach >> _U3) + _U1
            reach = min(grown, worst >> _U16, _LAST_RANK)  # when all slots are filled, the worst rank suffices
            first = False
        for value in range(SIGNATURE_VALUES):
            out[doc, value] = np.uint8(best[value] & _BYTE)
    return -1


@inner
def _empty_strips(size: int) -> _Strips:
    """Uninitialised arrays for the strips of the largest document."""
    return _Strips(
        np.empty(size, dtype=np.uint64),
        np.empty(size, dtype=np.uint64),
        np.empty(size, dtype=np.uint8),
        np.empty(size, dtype=np.uint64),
    )


@inner
def _list_strips(
    hashes: UInt64Array, units: UInt8Array, levels: UInt8Array, darts: Darts, hot: _Strips, cold: _Strips
) -> tuple[int, int]:
    """List the strips of a document that are in the table (`hot`) and the others (`cold`); the number of each."""
    hot_count, cold_count = 0, 0
    for token in range(hashes.size):
        unit = units[token]
        if unit == 0:
            continue
        slot = find_token(hashes[token], darts)
        level = np.int64(levels[token])
        kept = min(level, darts.rows.shape[1] - 1) if darts.rows[slot, 0] == unit else 0
        for strip in range(1, kept + 1):
            hot.position[hot_count] = darts.rows[slot, strip]
            hot.key[hot_count] = strip_key(hashes[token], strip, darts.seed)
            hot.unit[hot_count] = unit
            hot.cell[hot_count] = darts.hot_cells[unit]
            hot_count += 1
        for strip in range(kept + 1, level + 1):
            cold.key[cold_count] = strip_key(hashes[token], strip, darts.seed)
            cold.unit[cold_count] = unit
            cold.cell[cold_count] = 0
            cold_count += 1
    return hot_count, cold_count


@inner
def _merge_rows(
    reach: np.uint64, strips: int, positions: UInt64Array, table: UInt64Array, first: bool, best: UInt64Array
) -> None:
    """Merge the darts of strips in the table up to rank `reach`, and at most 4 beyond it."""
    for strip in range(strips):
        position = positions[strip]
        more = first or table[position - _U1] >> _U16 <= reach
        while more:
            for _ in range(READ_DARTS):
                dart = table[position]
                slot = (dart >> _U8) & _BYTE
                best[slot] = min(best[slot], dart)
                position += _U1
            more = table[position - _U1] >> _U16 <= reach
        positions[strip] = position


@inner
def _merge_cells(reach: np.uint64, strips: int, listed: _Strips, darts: Darts, best: UInt64Array) -> None:
    """Draw the cells of strips up to rank `reach` that are not drawn yet, and merge their darts into `best`."""
    thresholds, guides, cell_bits = darts.thresholds, darts.guides, darts.cell_bits
    keys, units, cells = listed.key, listed.unit, listed.cell
    for strip in range(strips):
        unit = np.uint64(units[strip])
        bits = cell_bits[unit]
        cell = cells[strip]
        end = (reach >> bits) + _U1
        while cell < end:
            stream = cell_stream(keys[strip], cell)
            for number in range(cell_count(stream, unit, thresholds, guides)):
                dart = cell_dart(stream, np.uint64(number), cell, bits)
                slot = (dart >> _U8) & _BYTE
                best[slot] = min(best[slot], dart)
            cell += _U1
        cells[strip] = cell
