"""A slow, obvious simulator of the row order: one row at a time, exact fractions, explicit lists.

Shares no code with the package. It walks a blend row by row: it asks at every slot whose turn it is, and looks the row
up in a fully written-out permutation.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    """splitmix64."""
    word = (word + GOLDEN) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def permute(place: int, word: int, size: int) -> int:
    """Six Feistel rounds on at least 8 bits, walked into [0, size), rotated."""
    if size == 1:
        return 0
    bits = 8
    while 2**bits < size:
        bits += 1
    high_bits = bits // 2
    low_bits = bits - high_bits

    def top(half: int, round_index: int, width: int) -> int:
        mixed = ((half ^ ((word + (round_index + 1) * GOLDEN) & MASK)) * 0xBF58476D1CE4E5B9) & MASK
        mixed ^= mixed >> 32
        return ((mixed * 0x94D049BB133111EB) & MASK) >> (64 - width)

    while True:
        high, low = divmod(place, 2**low_bits)
        for round_index in range(6):
            if round_index % 2 == 0:
                high ^= top(low, round_index, high_bits)
            else:
                low ^= top(high, round_index, low_bits)
        place = high * 2**low_bits + low
        if place < size:
            return (place + mix(word) % size) % size


@cache
def epoch_order(
    seed: int, name: str, epoch: int, size: int, block_rows: int, group_blocks: int, base: int = 0
) -> list[int]:
    """Write out the ordinals of one epoch, less `base`: permute the blocks, then the rows of each group of blocks."""
    key = int.from_bytes(hashlib.sha256(f"headrace.blend.order.1\0{seed}\0{name}".encode()).digest()[:8], "little")
    word = mix((mix((mix(key) + epoch) & MASK) + base) & MASK)
    blocks = [list(range(at, min(at + block_rows, size))) for at in range(0, size, block_rows)]
    slots = [blocks[permute(slot, word ^ 1, len(blocks))] for slot in range(len(blocks))]
    ordinals: list[int] = []
    for group in range(math.ceil(len(slots) / group_blocks)):
        members = slots[group * group_blocks : (group + 1) * group_blocks]
        members.sort(key=lambda block: block is blocks[-1])  # stable: only the last block moves, to the end
        rows = [ordinal for block in members for ordinal in block]
        ordinals += [rows[permute(place, (mix(word ^ 2) + group) & MASK, len(rows))] for place in range(len(rows))]
    return ordinals


@dataclass
class SimulatedSource:
    """A source that gives its rows one by one."""

    name: str
    weight: Fraction
    rows: int
    max_epochs: int
    on_exhausted: str
    taken: int = 0

    @property
    def spent(self) -> bool:
        """Whether no row is left."""
        return self.max_epochs > 0 and self.taken == self.max_epochs * self.rows


@dataclass
class Turn:
    """Whose turn it is: each row of a source has a first and a last slot, the most urgent one goes."""

    sources: list[SimulatedSource]
    given: list[int] = field(default_factory=list)
    slot: int = 0

    def next(self) -> int:
        """Give the index of the source of the next slot."""
        if not self.given:
            self.given = [0] * len(self.sources)
        self.slot += 1
        if len(self.sources) == 1:
            return 0
        total = sum(source.weight for source in self.sources)
        spread = 2 * len(self.sources) - 2
        urgent: list[tuple[int, int]] = []
        for i, source in enumerate(self.sources):
            share = source.weight / total
            j = self.given[i] + 1
            first = math.ceil((1 + Fraction((j - 1) * spread)) / (share * spread))
            last = math.floor((j * spread - 1) / (share * spread)) + 1
            if first <= self.slot:
                urgent.append((last, i))
        chosen = min(urgent)[1]
        self.given[chosen] += 1
        return chosen


def simulate(
    seed: int, sources: list[SimulatedSource], block_rows: int, group_blocks: int, limit: int
) -> tuple[list[tuple[str, int, int]], bool]:
    """Walk a blend row by row.

    Returns:
        (name, epoch, ordinal) of at most `limit` rows, and whether the blend ended before the limit.
    """
    active = list(sources)
    turn = Turn(active)
    rows: list[tuple[str, int, int]] = []
    while len(rows) < limit:
        source = active[turn.next()]
        if source.spent:
            if source.on_exhausted == "END" or any(s.spent and s.on_exhausted == "END" for s in active):
                return rows, True
            active = [s for s in active if not s.spent]
            if not active:
                return rows, True
            turn = Turn(active)
            continue
        epoch, place = divmod(source.taken, source.rows)
        rows.append(
            (source.name, epoch, epoch_order(seed, source.name, epoch, source.rows, block_rows, group_blocks)[place])
        )
        source.taken += 1
    return rows, False
