"""Whether two training runs read the same rows, by the digests that their replicas reported.

Digests are sums over stretches of a blend (`blender_service/wire/read_digest.py`), so runs of different world sizes can
be compared, and those that went back to a checkpoint. What a run read again counts as it read it last; a stretch that
it read again from its middle on, or of which a replica reported nothing, is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blender_service.wire.read_digest import STRETCH_ROWS

if TYPE_CHECKING:
    from blender_service.server.run_register import DigestedRead, RunRegister


@dataclass(frozen=True)
class Comparison:
    """What two runs read of their blends.

    Attributes:
        equal_rows: how many rows were the same.
        differing: bounds [first, end) of the stretches that differ, ascending.
        left_out: bounds of those that cannot be compared, and why.
    """

    equal_rows: int
    differing: tuple[tuple[int, int], ...]
    left_out: tuple[tuple[int, int, str], ...]


def compare(register: RunRegister, run: str, other: str) -> Comparison:
    """Compare two runs.

    Raises:
        RunNotFoundError: no run has such a name.
        StoredBlendError: an object of the register is damaged.
    """
    of_run, of_other = (_stretches(register.digests(name)) for name in (run, other))
    equal_rows, differing, left_out = 0, [], []
    for number in sorted(of_run.keys() | of_other.keys()):
        bounds = number * STRETCH_ROWS, (number + 1) * STRETCH_ROWS
        (rows, digest), (other_rows, other_digest) = (of.get(number, (0, 0)) for of in (of_run, of_other))
        if max(rows, other_rows) > STRETCH_ROWS:
            left_out.append((*bounds, "a part was read twice"))
        elif rows != other_rows:
            left_out.append((*bounds, f"{run} reported {rows:,} rows, {other} {other_rows:,}"))
        elif digest != other_digest:
            differing.append(bounds)
        else:
            equal_rows += rows
    return Comparison(equal_rows, tuple(differing), tuple(left_out))


def _stretches(reads: list[DigestedRead]) -> dict[int, tuple[int, int]]:
    """Rows and digest of each stretch, over the last reads of it by each rank."""
    sums: dict[int, tuple[int, int]] = {}
    for at, read in enumerate(reads):
        back = min((again.first for again in reads[at + 1 :] if _replaces(again, read)), default=read.consumed)
        for number, (rows, digest) in read.stretches.items():
            first, end = number * STRETCH_ROWS, min((number + 1) * STRETCH_ROWS, read.consumed)
            if back > first:
                twice = STRETCH_ROWS + 1 if back < end else 0
                before = sums.get(number, (0, 0))
                sums[number] = before[0] + rows + twice, (before[1] + digest) % (1 << 64)
    return sums


def _replaces(again: DigestedRead, read: DigestedRead) -> bool:
    """Whether a later read is of the same rank, or of ranks that were dealt the rows anew."""
    dealt = (again.world_size, again.step_rows) == (read.world_size, read.step_rows)
    return again.rank == read.rank if dealt else True
