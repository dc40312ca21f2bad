"""Whether two training runs read the same rows, by the digests that their replicas reported.

Digests are sums over stretches of a blend (`blender_service/wire/read_digest.py`), so runs of different world sizes can
be compared, and those that went back to a checkpoint. What a run read again counts as it read it last; a stretch that
it read again from its middle on, or of which a replica reported nothing, is not compared. Reads of several blends
under one name are told apart; a blend and its updates are one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from blender_service.wire.read_digest import STRETCH_ROWS

if TYPE_CHECKING:
    from blender_service.server.run_register import DigestedRead, RunRegister


@dataclass(frozen=True)
class Comparison:
    """What two runs read of a blend and its updates.

    Attributes:
        equal_rows: how many rows were the same.
        differing: bounds [first, end) of the stretches that differ, ascending.
        left_out: bounds of those that cannot be compared, and why.
        blends: the first blend of the updates that each run read; empty where it read none.
    """

    equal_rows: int
    differing: tuple[tuple[int, int], ...]
    left_out: tuple[tuple[int, int, str], ...]
    blends: tuple[str, str] = ("", "")


class _Stretch(NamedTuple):
    """Rows of a stretch that a run reported, the sum of their digests, and [first, end) of what it read of it."""

    rows: int = 0
    digest: int = 0
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of what was read was reported."""
        return self.rows == sum(end - first for first, end in self.parts)


_Stretches = dict[int, _Stretch]


def compare(register: RunRegister, run: str, other: str) -> list[Comparison]:
    """Compare two runs by the blends that they read, such as one to train on and one to validate by.

    Blends that one of them did not read are paired in the order of the first reads.

    Raises:
        RunNotFoundError: no run has such a name.
        StoredBlendError: an object of the register is damaged.
    """
    of_run, of_other = (_by_blend(register.digests(name)) for name in (run, other))
    pairs = [(blend, blend) for blend in of_run if blend in of_other]
    rest, other_rest = ([blend for blend in mine if blend not in its] for mine, its in
                        ((of_run, of_other), (of_other, of_run)))  # fmt: skip
    pairs += itertools.zip_longest(rest, other_rest, fillvalue="")
    return [
        _compared(run, other, of_run.get(blend, {}), of_other.get(its, {}), (blend, its))
        for blend, its in pairs or [("", "")]
    ]


def _compared(run: str, other: str, of_run: _Stretches, of_other: _Stretches, blends: tuple[str, str]) -> Comparison:
    equal_rows, differing, left_out = 0, [], []
    for number in sorted(of_run.keys() | of_other.keys()):
        bounds = number * STRETCH_ROWS, (number + 1) * STRETCH_ROWS
        read, its = of_run.get(number, _Stretch()), of_other.get(number, _Stretch())
        if max(read.rows, its.rows) > STRETCH_ROWS:
            left_out.append((*bounds, "a part was read twice"))
        elif read[:2] == its[:2]:
            equal_rows += read.rows
        elif read.rows != its.rows:
            left_out.append((*bounds, f"{run} reported {read.rows:,} rows, {other} {its.rows:,}"))
        elif read.parts == its.parts and read.is_whole and its.is_whole:
            differing.append(bounds)
        else:
            left_out.append((*bounds, f"{run} and {other} reported {read.rows:,} rows each, not the same ones"))
    return Comparison(equal_rows, tuple(differing), tuple(left_out), blends)


def _by_blend(reads: list[DigestedRead]) -> dict[str, _Stretches]:
    """Stretches by blend, in the order of the first reads."""
    of_blends: dict[str, list[DigestedRead]] = {}
    for read in reads:
        of_blends.setdefault(read.blend, []).append(read)
    return {blend: _stretches(of_blend) for blend, of_blend in of_blends.items()}


def _stretches(reads: list[DigestedRead]) -> _Stretches:
    """What was read of each stretch, over the last reads of it by each rank."""
    sums: _Stretches = {}
    for at, read in enumerate(reads):
        back = min((again.first for again in reads[at + 1 :] if _replaces(again, read)), default=read.consumed)
        for number, (rows, digest) in read.stretches.items():
            first, end = number * STRETCH_ROWS, min((number + 1) * STRETCH_ROWS, read.consumed)
            if back > first:
                twice = STRETCH_ROWS + 1 if back < end else 0
                before = sums.get(number, _Stretch())
                parts = _joined([*before.parts, (max(first, read.first), end)])
                sums[number] = _Stretch(before.rows + rows + twice, (before.digest + digest) % (1 << 64), parts)
    return sums


def _joined(parts: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Parts [first, end), ascending, those that meet as one."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(parts):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((first, end))
    return tuple(joined)


def _replaces(again: DigestedRead, read: DigestedRead) -> bool:
    """Whether a later read is of the same rank, or of ranks that were dealt the rows anew."""
    dealt = (again.world_size, again.step_rows) == (read.world_size, read.step_rows)
    return again.rank == read.rank if dealt else True
