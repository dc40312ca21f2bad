"""The cells of a corpus as a map: two dimensions, and a number of each square, also of what a blend reads of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from blender_service.tables.cell_runs import cell_runs
from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace.tables.cells import CELL_COLUMN, CellChoice, Condition, Value, cell_values, parse_choice, value_order
from headrace_features.composition.statistics import CELL_STATISTICS
from spark_jobs.exceptions import nearest

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from blender_service.server.blender import Blender

COUNTS = ("documents", "bytes", "tokens")
OF_BLENDS = ("repeats", "share")


@dataclass(frozen=True)
class CellFacts:
    """What a cell of a corpus holds, and what a blend reads of it.

    Attributes:
        cell: as it is written.
        counts: of COUNTS.
        sums: of each measure: sum over the documents that have a value, and how many these are.
        windows: of the packed tables that the blend reads; 0 without a blend.
        read: rows of these that it reads, from windows of several cells in proportion; 0 without a blend.
    """

    cell: str
    counts: Mapping[str, int]
    sums: Mapping[str, tuple[float, int]]
    windows: int = 0
    read: float = 0.0


class Square(NamedTuple):
    """A square of the map.

    Attributes:
        down: value of the first dimension.
        across: value of the second, None where there is one dimension alone.
        value: its number; None where no document or row has one.
        choice: of the cells that it stands for.
    """

    down: Value
    across: Value
    value: float | None
    choice: str


def cell_facts(catalogue: Catalog, corpus: str) -> dict[str, CellFacts]:
    """What each cell holds over all increments, by cell.

    Raises:
        CommandError: the corpus has no cells.
    """
    table = load_table(catalogue, f"{corpus}.{CELL_STATISTICS.name}")
    if table is None:
        names = [name for name in map(".".join, catalogue.list_namespaces()) if name != corpus]
        raise CommandError(
            f"corpus {corpus} has no cells{nearest(corpus, names)}; declare `cells: {{by: ..}}` and run it"
        )
    facts: dict[str, CellFacts] = {}
    for row in table.scan().to_arrow().to_pylist():
        before = facts.get(row[CELL_COLUMN])
        sums = dict(before.sums) if before else {}
        for name, mean in dict(row["means"]).items():
            total, count = sums.get(name, (0.0, 0))
            if mean is not None:  # of the documents that have a value; how many they are is not kept
                sums[name] = total + mean * row["documents"], count + row["documents"]
        counts = {name: row[name] + (before.counts[name] if before else 0) for name in COUNTS}
        facts[row[CELL_COLUMN]] = CellFacts(row[CELL_COLUMN], counts, sums)
    return facts


def with_reads(
    catalogue: Catalog, blender: Blender, facts: Mapping[str, CellFacts], corpus: str, blend_id: str, at: int | None
) -> dict[str, CellFacts]:
    """The same cells with what a blend reads of each before row `at`, its end by default; whole tables count too."""
    pins = blender.head(blend_id).pins()
    windows, read = dict.fromkeys(facts, 0), dict.fromkeys(facts, 0.0)
    sizes: dict[str, Counter[str]] = {}
    for table in sorted({pin.table for pin in pins.values() if pin.table.startswith(f"{corpus}.")}):
        sizes[table] = windows_by_cell(load_table(catalogue, table), table)
        for cell, count in sizes[table].items():
            windows[cell] = windows.get(cell, 0) + count
    for source in blender.describe(blend_id, at).sources:
        pin = pins[source.name]
        of_table = sizes.get(pin.table, Counter())
        choice = None if pin.cells is None else parse_choice(pin.cells)
        chosen = [cell for cell in of_table if choice is None or choice.takes(cell)]
        total = sum(of_table[cell] for cell in chosen)
        for cell in chosen:
            read[cell] = read.get(cell, 0.0) + source.rows * of_table[cell] / total
    return {cell: CellFacts(cell, known.counts, known.sums, windows[cell], read[cell]) for cell, known in facts.items()}


def windows_by_cell(packed: Table | None, identifier: str) -> Counter[str]:
    """Windows of each cell in the head of a packed table; none where there is no table, no row, or no cell."""
    windows = Counter[str]()
    snapshot = packed.current_snapshot() if packed is not None else None
    if packed is not None and snapshot is not None:
        for run in cell_runs(packed, identifier, snapshot):
            windows[run.cell] += run.end - run.start
    return windows


def dimensions_of(facts: Mapping[str, CellFacts]) -> list[str]:
    """Names of the dimensions, as they stand in the cells."""
    return list(dict.fromkeys(name for cell in facts for name in cell_values(cell)))


def numbers_of(facts: Mapping[str, CellFacts], has_blend: bool) -> list[str]:
    """What a map may show."""
    means = sorted({f"mean {name}" for each in facts.values() for name in each.sums})
    return [*COUNTS, *means, *(OF_BLENDS if has_blend else ())]


def squares(facts: Mapping[str, CellFacts], down: str, across: str | None, number: str) -> list[Square]:
    """The squares of a map, by rows.

    Raises:
        CommandError: there is no such dimension or number.
    """
    there = dimensions_of(facts)
    for name in filter(None, (down, across)):
        if name not in there:
            raise CommandError(f"{name} is no dimension{nearest(name, there)}; there are {', '.join(there)}")
    grouped: dict[tuple[Value, Value], list[CellFacts]] = {}
    for each in facts.values():
        values = cell_values(each.cell)
        grouped.setdefault((values.get(down), values.get(across) if across else None), []).append(each)
    numbers = numbers_of(facts, True)
    if number not in numbers:
        raise CommandError(f"{number} is no number of a cell{nearest(number, numbers)}; give {', '.join(numbers)}")
    all_read = sum(each.read for each in facts.values())
    keys = sorted(grouped, key=lambda key: (value_order(key[0]), value_order(key[1])))
    dimensions = [name for name in (down, across) if name]
    return [
        Square(
            *key,
            _number(grouped[key], number, all_read),
            str(CellChoice(tuple(Condition(name, "in", (of,)) for name, of in zip(dimensions, key, strict=False)))),
        )
        for key in keys
    ]


def _number(cells: Sequence[CellFacts], number: str, all_read: float) -> float | None:
    if number in COUNTS:
        return sum(each.counts[number] for each in cells)
    windows, read = sum(each.windows for each in cells), sum(each.read for each in cells)
    if number == "repeats":
        return read / windows if windows else None
    if number == "share":
        return read / all_read if all_read else None
    return mean_of(cells, number.removeprefix("mean "))


def mean_of(cells: Iterable[CellFacts], measure: str) -> float | None:
    """The mean of a measure over documents of some cells; None where none has a value."""
    sums = [each.sums[measure] for each in cells if measure in each.sums]
    count = sum(count for _, count in sums)
    return math.fsum(total for total, _ in sums) / count if count else None
