"""The cells of a corpus as a list: what each holds, over all increments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog import Catalog

from blender_service.tables.cell_runs import cell_runs
from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table, tables_in
from headrace.tables.cells import CELL_COLUMN, Value, cell_label, cell_values
from headrace_features.composition.statistics import CELL_STATISTICS
from spark_jobs.exceptions import nearest
from spark_jobs.packing.ordinals import packed_facts

_COUNTS = ("documents", "bytes", "tokens")
TOTAL = "all"


def listed_cells(catalogue: Catalog, corpus: str) -> list[dict[str, Any]]:
    """One row for each cell, ascending by its values, and one for all.

    Raises:
        CommandError: the corpus has no cells.
    """
    table = load_table(catalogue, f"{corpus}.{CELL_STATISTICS.name}")
    if table is None:
        names = [".".join(name) for name in catalogue.list_namespaces()]
        raise CommandError(
            f"{corpus} has no table {CELL_STATISTICS.name}{nearest(corpus, [one for one in names if one != corpus])}; "
            "declare cells: {by: ..} of the corpus and run it"
        )
    windows = dict[str, dict[str, int]]()
    for length, cell, count in _windows(catalogue, corpus):
        windows.setdefault(length, {})[cell] = windows.get(length, {}).get(cell, 0) + count
    by_cell = dict[str, list[dict[str, Any]]]()
    for row in table.scan().to_arrow().to_pylist():
        by_cell.setdefault(row["cell"], []).append(row)
    dimensions = sorted({name for rows in by_cell.values() for row in rows for name, _ in row["means"]})
    rows = [
        {
            "cell": cell_label(cell),
            **_summed(by_cell[cell], dimensions),
            **{length: of_length.get(cell, 0) for length, of_length in sorted(windows.items())},
        }
        for cell in sorted(by_cell, key=_order)
    ]
    every = [row for of_cell in by_cell.values() for row in of_cell]
    total = {
        "cell": TOTAL,
        **_summed(every, dimensions),
        **{name: sum(one.values()) for name, one in sorted(windows.items())},
    }
    return [*rows, total] if rows else []


def _windows(catalogue: Catalog, corpus: str) -> Iterator[tuple[str, str, int]]:
    """(column of the list, cell, windows) of each run of the packed tables."""
    for identifier in tables_in(catalogue, corpus):
        table = load_table(catalogue, identifier) if ".packed_" in identifier else None
        snapshot = table.current_snapshot() if table is not None else None
        if table is not None and snapshot is not None and CELL_COLUMN in table.schema().column_names:
            length = f"windows of {packed_facts(identifier, table).window_tokens}"
            for run in cell_runs(table, identifier, snapshot):
                yield length, run.cell, run.end - run.start


def _summed(rows: list[dict[str, Any]], dimensions: list[str]) -> dict[str, Any]:
    """Sums, and means weighted by documents: a cell whose mean is null has no document with a value."""
    means = dict[str, float | None]()
    for name in dimensions:
        parts = [(dict(row["means"]).get(name), row["documents"]) for row in rows]
        present = [(mean, count) for mean, count in parts if mean is not None]
        total = sum(count for _, count in present)
        means[f"mean {name}"] = sum(mean * count for mean, count in present) / total if total else None
    return {name: sum(row[name] for row in rows) for name in _COUNTS} | means


def _order(cell: str) -> list[tuple[bool, bool, Value]]:
    """Numbers before texts, none behind both."""
    return [
        (value is None, isinstance(value, str), 0 if value is None else value) for value in cell_values(cell).values()
    ]
