"""Darts: random points on the weights of tokens, a pure function of a seed, so the same in every process.

The weight of a token is divided into strips: strip n is the part that its n-th occurrence adds. It is `unit` wide and
infinitely long; the position along it is a rank. Darts fall on the strips as a Poisson process of intensity 1; each
gets a uniform slot (8 bits) and a uniform value (8 bits):

    rank (48 bits, 2^35 is 1) << 16 | slot << 8 | value

The rank axis of a strip is divided into cells in which 2 to 4 darts are expected (4 at unit 1). The darts of a cell are
a pure function of (seed, token hash, unit, strip, cell): one hash gives their number, by a table of Poisson thresholds
in 64-bit integers that `decimal` makes (the same bits on every machine), one more hash gives each dart. No float
decides anything. Equal ranks are ordered by slot and value, for all bags alike.

For hot tokens, which occur in many bags, the darts of the first cells are drawn once, sorted by rank and kept in a
table. It is a cache: which tokens it has changes no signature.
"""

from __future__ import annotations

import decimal
from typing import Final, NamedTuple

import numpy as np

from headrace.kernels import mixing
from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import key_slot, slots_for
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import UInt8Array, UInt32Array, UInt64Array
from spark_jobs.threads import made_once

SIGNATURE_VALUES: Final = 256
"""k: slots, and so values in a signature; each has 8 bits."""

SIGNATURE_VERSION: Final = "darts-1:k256:b8"
"""Version of the definition of a signature: k and b, mix64 and G, strips, cells, thresholds, the layout of a dart."""

READ_DARTS: Final = 4
"""Darts that are read from the table at a time; its strips are padded to a multiple of that."""

RANK_BITS: Final = 48
"""Ranks reach to 8192: a bag of weight 1, the lightest, needs about 1,800."""

_ONE_BITS: Final = 35
RANK_ONE: Final = 1 << _ONE_BITS
"""The integer that represents rank 1.0."""

HOT_RANKS: Final = RANK_ONE >> 1
"""The table of hot tokens has ranks below this; bags of weight 3,700 and more seldom need higher ones."""

_CELL_MEAN: Final = 4  # darts expected in a cell at most; 2 and 8 are slower
_CELL_COUNTS: Final = 40  # P[more] < 2^-64 at a mean of 4
_GUIDE_BITS: Final = 6
_MAX_64: Final = (1 << 64) - 1


class Darts(NamedTuple):
    """Tables for drawing darts, and the darts of hot tokens.

    Attributes:
        seed: of the hash family, mixed.
        thresholds: (256, 40) uint64, row q: P[a cell of unit q has at most n darts] * 2^64.
        guides: (256, 64) uint8, row q: least count whose threshold a draw can be under, by the draw's top 6 bits.
        cell_bits: (256,) uint64, row q: a cell of unit q is 2^cell_bits ranks long.
        hot_cells: (256,) uint64, row q: cells of each strip that the table holds.
        slots: (S,) uint64 hashes of hot tokens, open addressing; S is a power of two.
        rows: (S, max_level + 1) uint32 unit of the token (0: the slot is free), then where its strips begin in `table`.
        table: (N,) uint64 darts, strip by strip, ascending; each strip ends with at least one "no dart".
    """

    seed: np.uint64
    thresholds: UInt64Array
    guides: UInt8Array
    cell_bits: UInt64Array
    hot_cells: UInt64Array
    slots: UInt64Array
    rows: UInt32Array
    table: UInt64Array


def make_darts(
    seed: int, max_level: int, hot_hashes: UInt64Array | None = None, hot_units: UInt8Array | None = None
) -> Darts:
    """Make the tables for drawing darts, and draw the darts of hot tokens.

    Args:
        seed: of the hash family; signatures of different seeds are not comparable.
        max_level: most strips of a token that the table holds, usually the cap of the term frequency.
        hot_hashes: (H,) uint64 distinct tokens that many bags have; about 800 bytes each. 10,000 of them suffice.
        hot_units: (H,) uint8 their units. A token with another unit in a bag is drawn, not looked up.
    """
    thresholds, guides, cell_bits = _poisson_tables()
    if hot_hashes is None or hot_units is None:
        hot_hashes, hot_units = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint8)
    hot_hashes, hot_units = hot_hashes[hot_units > 0], hot_units[hot_units > 0]
    slot_count = slots_for.py_func(len(hot_hashes))
    empty = Darts(
        seed=mixing.mix64(np.full(1, seed & _MAX_64, np.uint64))[0],  # a scalar would warn of its overflow
        thresholds=thresholds,
        guides=guides,
        cell_bits=cell_bits,
        hot_cells=np.maximum(np.uint64(1), np.uint64(HOT_RANKS) >> cell_bits),
        slots=np.zeros(slot_count, dtype=np.uint64),
        rows=np.zeros((slot_count, max_level + 1), dtype=np.uint32),
        table=np.full(READ_DARTS, _MAX_64, dtype=np.uint64),
    )
    _enter_tokens(hot_hashes, hot_units, empty)
    table = np.full(_lay_out_strips(hot_hashes, empty), _MAX_64, dtype=np.uint64)
    darts = empty._replace(table=table)
    _draw_table(hot_hashes, darts)
    return darts


@made_once
def _poisson_tables() -> tuple[UInt64Array, UInt8Array, UInt64Array]:
    """Thresholds, guides and cell bits of every unit (see `Darts`), from decimals: no float decides a dart."""
    thresholds = np.full((256, _CELL_COUNTS), _MAX_64, dtype=np.uint64)
    cell_bits = np.full(256, _ONE_BITS + 2, dtype=np.uint64)
    by_mean: dict[decimal.Decimal, list[int]] = {}
    with decimal.localcontext() as context:
        context.prec = 50
        for unit in range(1, 256):
            halvings = max(0, (unit - 1).bit_length())  # the mean is unit * 4 / 2^halvings, in (2, 4]
            cell_bits[unit] = _ONE_BITS + 2 - halvings
            mean = decimal.Decimal(unit * _CELL_MEAN) / (1 << halvings)
            if mean not in by_mean:
                by_mean[mean] = _poisson_thresholds(mean)
            thresholds[unit] = by_mean[mean]
    starts = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
    guides = np.stack([np.searchsorted(row, starts) for row in thresholds]).astype(np.uint8)
    return thresholds, guides, cell_bits


def _poisson_thresholds(mean: decimal.Decimal) -> list[int]:
    """floor(P[Poisson(mean) <= n] * 2^64) for n = 0 .. 39, the last one never exceeded."""
    term = (-mean).exp()
    total, thresholds = decimal.Decimal(0), []
    for count in range(_CELL_COUNTS):
        total += term
        thresholds.append(min(int(total * (1 << 64)), _MAX_64))
        term = term * mean / (count + 1)
    thresholds[-1] = _MAX_64
    return thresholds


_U1: Final = np.uint64(1)
_U16: Final = np.uint64(16)
_U32: Final = np.uint64(32)
_U64: Final = np.uint64(64)
_SLOT_AND_VALUE: Final = np.uint64(0xFFFF)
_GUIDE_SHIFT: Final = np.uint64(64 - _GUIDE_BITS)


mix64 = inner(inline="always")(mixing.mix64)


@inner(inline="always")
def strip_key(token_hash: np.uint64, strip: int, seed: np.uint64) -> np.uint64:
    """Key of a strip, which its cells' streams derive from; a cell uses the low 32 bits of the multiplier of G."""
    return token_hash + seed + GOLDEN * (np.uint64(strip) << _U32)


@inner(inline="always")
def cell_stream(key: np.uint64, cell: np.uint64) -> np.uint64:
    """64 random bits of a cell, which decide its number of darts and seed the darts' hashes."""
    stream: np.uint64 = mix64(key + GOLDEN * cell)
    return stream


@inner(inline="always")
def cell_count(stream: np.uint64, unit: np.uint64, thresholds: UInt64Array, guides: UInt8Array) -> np.uint64:
    """Number of darts in a cell: the least n with stream <= thresholds[unit, n]."""
    count = np.uint64(guides[unit, stream >> _GUIDE_SHIFT])
    while stream > thresholds[unit, count]:
        count += _U1
    return count


@inner(inline="always")
def cell_dart(stream: np.uint64, number: np.uint64, cell: np.uint64, bits: np.uint64) -> np.uint64:
    """Dart `number`, from 0, of a cell of 2^bits ranks: rank << 16 | slot << 8 | value."""
    z = mix64(stream + GOLDEN * (number + _U1))
    dart: np.uint64 = (((cell << bits) + (z >> (_U64 - bits))) << _U16) | (z & _SLOT_AND_VALUE)
    return dart


@inner(inline="always")
def find_token(token_hash: np.uint64, darts: Darts) -> np.uint64:
    """The slot of a hot token; of any other token a free slot."""
    slot: np.uint64 = key_slot(darts.slots, token_hash, token_hash)
    return slot


@compiled
def _enter_tokens(hashes: UInt64Array, units: UInt8Array, darts: Darts) -> None:
    """Give each hot token a slot."""
    for token in range(hashes.size):
        slot = find_token(hashes[token], darts)
        darts.slots[slot] = hashes[token]
        darts.rows[slot, 0] = units[token]


@compiled
def _lay_out_strips(hashes: UInt64Array, darts: Darts) -> int:
    """Give each strip of each hot token its position in the table; the size that the table must have."""
    end = READ_DARTS  # readers look at the dart before a strip, so something must be there before the first
    for token in range(hashes.size):
        slot = find_token(hashes[token], darts)
        unit = np.uint64(darts.rows[slot, 0])
        for strip in range(1, darts.rows.shape[1]):
            key = strip_key(hashes[token], strip, darts.seed)
            count = np.uint64(0)
            for cell in range(darts.hot_cells[unit]):
                count += cell_count(cell_stream(key, np.uint64(cell)), unit, darts.thresholds, darts.guides)
            darts.rows[slot, strip] = end
            end += (int(count) // READ_DARTS + 1) * READ_DARTS
    return end


@compiled
def _draw_table(hashes: UInt64Array, darts: Darts) -> None:
    """Draw the darts of hot tokens and sort each strip by insertion; cells ascend, so a dart moves within its cell."""
    table = darts.table
    for token in range(hashes.size):
        slot = find_token(hashes[token], darts)
        unit = np.uint64(darts.rows[slot, 0])
        bits = darts.cell_bits[unit]
        for strip in range(1, darts.rows.shape[1]):
            key = strip_key(hashes[token], strip, darts.seed)
            end = np.uint64(darts.rows[slot, strip])
            for cell in range(darts.hot_cells[unit]):
                stream = cell_stream(key, np.uint64(cell))
                start = end
                for number in range(cell_count(stream, unit, darts.thresholds, darts.guides)):
                    dart = cell_dart(stream, np.uint64(number), np.uint64(cell), bits)
                    position = end
                    while position > start and table[position - _U1] > dart:
                        table[position] = table[position - _U1]
                        position -= _U1
                    table[position] = dart
                    end += _U1
