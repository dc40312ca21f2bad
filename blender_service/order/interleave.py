"""Interleave the sources of a blend: weights become a cycle with the source of each row.

Weights are exact fractions, reduced to the smallest integers w with sum P. A cycle of P rows holds w_i rows of source
i, interleaved by Tijdeman's solution of the chairman assignment problem, here as earliest deadline first on integers::

    weights 5:3:2:1      a b a c a b a d b a c      each prefix within one row of its exact share

Row j of source i (from 1) may stand in the 1-based slots from ceil(P(1+(j-1)D) / (w_i D)) to
floor((jD-1)P / (w_i D)) + 1, with D = 2n-2. Tijdeman 1980, "The chairman assignment problem", proves that a schedule
exists, so earliest deadline first finds it; every source stays within 1 - 1/(2n-2) rows of its share.

Where a step shall have rows of one source alone, whole turns of its rows are interleaved in place of rows::

    weights 2:1, turns of 3 rows      a a a b b b a a a
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from headrace.kernels.compiling import compiled

MAX_CYCLE_ROWS: Final = 1 << 20


class Cycle(NamedTuple):
    """One period of a blend.

    Attributes:
        weights: (n,) rows of each source in the cycle.
        source: (P,) the source of each slot, uint16.
        rank: (P,) how many earlier slots of the cycle belong to the same source.
    """

    weights: tuple[int, ...]
    source: NDArray[np.uint16]
    rank: Int32Array

    @property
    def rows(self) -> int:
        """Length P of the cycle."""
        return self.source.size

    def counts_before(self, slot: int) -> Int64Array:
        """Count, per source, the slots before `slot`."""
        return np.bincount(self.source[:slot], minlength=len(self.weights)).astype(np.int64)

    def slot_of(self, source: int, rank: int) -> int:
        """Find the slot of the `rank`-th (from 0) row of a source in the cycle."""
        return int(np.flatnonzero(self.source == source)[rank])


def parse_weight(text: str) -> Fraction:
    """Read a weight: decimal text such as `0.3` or a fraction such as `1/3`, never a binary float.

    Raises:
        ValueError: the text is not a finite positive number.
    """
    if len(text) > 64:
        raise ValueError("weight text is longer than 64 characters; write fewer digits")
    if "e" in text.lower():
        raise ValueError(f"weight {text!r} has an exponent; write a plain decimal (0.3) or a fraction (1/3)")
    try:
        weight = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"weight {text!r} is not a number; write a decimal (0.3) or a fraction (1/3)") from None
    if weight <= 0:
        raise ValueError(f"weight {text} is not above 0; leave the source out, or raise it")
    return weight


def reduce_weights(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """Give the smallest whole numbers in the same proportions.

    Args:
        weights: (n,) each > 0.
    """
    scale = math.lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * scale) for weight in weights]
    # The shortest cycle: a multiple gives the same mix and costs memory.
    divisor = math.gcd(*whole)
    return tuple(weight // divisor for weight in whole)


def quantize(weights: Sequence[Fraction], cycle_rows: int = MAX_CYCLE_ROWS) -> tuple[int, ...]:
    """Give the nearest whole weights with the sum `cycle_rows`, each at least 1 (largest remainder).

    Args:
        weights: (n,) each > 0.
        cycle_rows: the sum wanted, >= n.
    """
    total = sum(weights, Fraction(0))
    exact = [weight * cycle_rows / total for weight in weights]
    whole = [max(1, math.floor(share)) for share in exact]
    by_shortfall = sorted(range(len(whole)), key=lambda i: (whole[i] - exact[i], i))
    for i in by_shortfall[: max(0, cycle_rows - sum(whole))]:
        whole[i] += 1
    while sum(whole) > cycle_rows:  # raising small weights to 1 took rows that the largest must give back
        largest = max(range(len(whole)), key=lambda i: (whole[i] - exact[i] if whole[i] > 1 else -math.inf, -i))
        whole[largest] -= 1
    return tuple(whole)


@functools.lru_cache(maxsize=16)
def build_cycle(weights: tuple[int, ...], turn_rows: int = 1) -> Cycle:
    """Interleave sources so that every prefix keeps their proportions to within one turn.

    Args:
        weights: (n,) rows of each, whole turns, without another common divisor; sum <= 2**20.
        turn_rows: consecutive rows of one source.
    """
    turns = _earliest_deadline_first(np.array(weights, dtype=np.int64) // turn_rows)
    source = np.repeat(turns, turn_rows)
    by_source = np.argsort(source, kind="stable")
    rank = np.empty(source.size, dtype=np.int32)
    rank[by_source] = np.arange(source.size) - np.repeat(np.cumsum(weights) - weights, weights)
    return Cycle(weights, source, rank)


@compiled
def _earliest_deadline_first(weights: Int64Array) -> NDArray[np.uint16]:
    """Give each slot to the source whose next row is released and has the earliest deadline, ties to the lower one.

    Sources wait in a list at the slot of their release, then in a heap by deadline: of hundreds of sources a scan for
    each slot took seconds.
    """
    source_count = weights.size
    cycle_rows = weights.sum()
    schedule = np.zeros(cycle_rows, dtype=np.uint16)
    # The window of a slot divides by 2n - 2, which is 0 for one source.
    if source_count == 1:
        return schedule
    spread = 2 * source_count - 2
    next_row = np.ones(source_count, dtype=np.int64)
    waiting = np.full(cycle_rows + 2, -1, dtype=np.int32)  # first source released at a slot
    behind = np.full(source_count, -1, dtype=np.int32)  # the source after each in such a list
    for i in range(source_count):
        release = (cycle_rows + weights[i] * spread - 1) // (weights[i] * spread)
        behind[i] = waiting[release]
        waiting[release] = i
    ready = [np.int64(0) for _ in range(0)]  # deadline * n + source: ties go to the lower source
    for slot in range(1, cycle_rows + 1):
        i = waiting[slot]
        while i >= 0:
            deadline = ((next_row[i] * spread - 1) * cycle_rows) // (weights[i] * spread) + 1
            heapq.heappush(ready, deadline * source_count + i)
            i = behind[i]
        chosen = heapq.heappop(ready) % source_count
        schedule[slot - 1] = chosen
        next_row[chosen] += 1
        row = next_row[chosen]
        if row <= weights[chosen]:
            divisor = weights[chosen] * spread
            release = max(slot + 1, (cycle_rows * (1 + (row - 1) * spread) + divisor - 1) // divisor)
            behind[chosen] = waiting[release]
            waiting[release] = chosen
    return schedule
