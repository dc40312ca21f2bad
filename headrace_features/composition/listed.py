"""The cells of a corpus as a list: what each holds, over all increments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pyiceberg.catalog import Catalog

from headrace.tables.catalogue import load_table, tables_in
from headrace.tables.cells import CELL_COLUMN, cell_label, cell_values, value_order
from headrace_features.composition.cell_map import COUNTS, CellFacts, cell_facts, mean_of, windows_by_cell
from spark_jobs.packing.ordinals import packed_facts

TOTAL = "all"


def listed_cells(catalogue: Catalog, corpus: str) -> list[dict[str, Any]]:
    """One row for each cell, ascending by its values, and one for all.

    Raises:
        CommandError: the corpus has no cells.
    """
    facts = cell_facts(catalogue, corpus)
    windows = _windows(catalogue, corpus)
    measures = sorted({name for each in facts.values() for name in each.sums})

    def row(name: str, cells: Sequence[CellFacts]) -> dict[str, Any]:
        return {
            "cell": name,
            **{count: sum(each.counts[count] for each in cells) for count in COUNTS},
            **{f"mean {measure}": mean_of(cells, measure) for measure in measures},
            **{length: sum(of_length[each.cell] for each in cells) for length, of_length in sorted(windows.items())},
        }

    in_order = sorted(facts.values(), key=lambda each: [*map(value_order, cell_values(each.cell).values())])
    return [*(row(cell_label(each.cell), [each]) for each in in_order), row(TOTAL, in_order)] if in_order else []


def _windows(catalogue: Catalog, corpus: str) -> dict[str, Counter[str]]:
    """Windows by cell in the packed tables, by column of the list."""
    windows: dict[str, Counter[str]] = {}
    for identifier in tables_in(catalogue, corpus):
        table = load_table(catalogue, identifier) if ".packed_" in identifier else None
        if table is not None and CELL_COLUMN in table.schema().column_names:
            length = f"windows of {packed_facts(identifier, table).window_tokens}"
            windows.setdefault(length, Counter()).update(windows_by_cell(table, identifier))
    return windows
