"""Plan a mix: from a curve, repeats or shares to the weight and the passes of each cell, and the blend that it is.

A cell that is to be read r times gives r * rows of its windows, so its weight is that in proportion to the others'. A
cycle has at most 2^20 rows; a longer plan is rounded to it, and what is printed is what the rounded weights give. No
cell is passed over more often than r rounded up, so the blend ends with the first that has no further row, at the
planned number of rows or behind it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.blend.validation import name_of
from blender_service.order.interleave import MAX_CYCLE_ROWS, quantize
from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace.tables.cells import CELL_COLUMN, cell_label, cell_values, parse_choice
from headrace.tables.exceptions import CellsError
from headrace_features.composition.mix_config import MixConfig
from spark_jobs.arrays import Float64Array
from spark_jobs.exceptions import nearest
from spark_jobs.lake.files.scans import scan_of

_PACKED: Final = re.compile(r"packed_.+_(\d+)")
_PLAIN: Final = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
_NAME_LETTERS: Final = 110
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a packed table, and how much of it is read.

    Attributes:
        table: identifier.
        snapshot: that was counted.
        cell: canonical.
        rows: its windows.
        tokens: in them, without padding.
        wanted: how often it is to be read.
        weight: rows of it in one cycle of the blend.
    """

    table: str
    snapshot: int
    cell: str
    rows: int
    tokens: int
    wanted: float = 0
    weight: int = 0


@dataclass(frozen=True)
class MixPlan:
    """A planned mix.

    Attributes:
        cells: by table and cell; those of weight 0 are never read.
        rows: planned rows of the blend.
        max_repeats: how often a cell may be read.
        seed: of the blend.
    """

    cells: tuple[PlannedCell, ...]
    rows: int
    max_repeats: float
    seed: int

    @cached_property
    def cycle_rows(self) -> int:
        """Rows of one cycle of the blend, before its weights are reduced."""
        return sum(cell.weight for cell in self.cells)

    def planned_rows(self, cell: PlannedCell) -> Fraction:
        """The exact share of a cell in the planned rows."""
        return Fraction(self.rows * cell.weight, self.cycle_rows)

    def facts(self) -> list[dict[str, Any]]:
        """What is planned of each cell: those that are read first, the lowest values first."""
        repeats = {cell: self.planned_rows(cell) / cell.rows for cell in self.cells}
        planned = {cell: round(repeats[cell] * cell.tokens) for cell in self.cells}
        total, bound = sum(planned.values()) or 1, self.max_repeats
        return [
            {
                "table": cell.table, "cell": cell_label(cell.cell), "windows": cell.rows, "unique_tokens": cell.tokens,
                "wanted": cell.wanted, "repeats": float(repeats[cell]), "planned_tokens": planned[cell],
                "share": planned[cell] / total,
                "lacks_tokens": math.ceil(max(cell.wanted / bound - 1 - _ROUNDING, 0) * bound * cell.tokens),
            }
            for cell in sorted(self.cells, key=_rank)
        ]  # fmt: skip

    @property
    def spec(self) -> BlendSpec:
        """The blend: a source for each cell that is read."""
        sources = [
            SourceSpec(
                f"{cell.table}[{cell_label(cell.cell)}]", str(cell.weight), _name(cell), str(cell.snapshot),
                max_epochs=max(1, math.ceil(cell.wanted - _ROUNDING)), on_exhausted="END",
            )
            for cell in self.cells
            if cell.weight
        ]  # fmt: skip
        return BlendSpec(tuple(sources), seed=self.seed)


def _name(cell: PlannedCell) -> str:
    """The name of the source of a cell: none where the default tells it from all others, as it does not C from C++."""
    texts = [value for value in cell_values(cell.cell).values() if isinstance(value, str)]
    if all(_PLAIN.fullmatch(text) and text != "none" for text in texts):
        return ""
    default = name_of(SourceSpec(f"{cell.table}[{cell_label(cell.cell)}]"))
    return f"{default[:_NAME_LETTERS]}-{hashlib.sha256(cell.cell.encode()).hexdigest()[:12]}"


def _rank(cell: PlannedCell) -> tuple[Any, ...]:
    """Sort key: cells that are read, their values, where there is none last."""
    values = cell_values(cell.cell).values()
    return not cell.weight, *((value is None, 0 if value is None else value) for value in values), cell.table


def packed_cells(catalogue: Catalog, corpus: str, table: str | None) -> list[PlannedCell]:
    """Count windows and tokens of each cell of a corpus's packed tables.

    Raises:
        CommandError: no table has cells, or tables of several lengths do.
    """
    tables = catalogue.list_tables(corpus) if (corpus,) in catalogue.list_namespaces() else []
    there = sorted(name for _, name in tables if _PACKED.fullmatch(name))
    chosen = there if table is None else [table.removeprefix(f"{corpus}.")]
    if not set(chosen) <= set(there):
        raise CommandError(f"{corpus} has no packed table {chosen[0]}{nearest(chosen[0], there)}")
    counted = {name: _counted(catalogue, f"{corpus}.{name}") for name in chosen}
    lengths = {_PACKED.sub(r"\1", name) for name, cells in counted.items() if cells}
    if len(lengths) > 1:
        listed = ", ".join(sorted(lengths, key=int))
        raise CommandError(f"{corpus} has cells in windows of {listed} tokens; name a --table")
    if not lengths:
        raise CommandError(f"corpus {corpus} has no packed table with cells; declare cells: {{by: ..}} and run it")
    return [cell for cells in counted.values() for cell in cells]


def _counted(catalogue: Catalog, identifier: str) -> list[PlannedCell]:
    """The cells of a packed table, ascending; none of one without."""
    table = load_table(catalogue, identifier)
    snapshot = table.current_snapshot() if table is not None else None
    if table is None or snapshot is None or CELL_COLUMN not in table.schema().column_names:
        return []
    rows, tokens = Counter[str](), Counter[str]()
    scan = scan_of(table, columns=(CELL_COLUMN, "token_count"), snapshot_id=snapshot.snapshot_id)
    for batch in scan.to_arrow_batch_reader():
        grouped = pa.table(batch).group_by(CELL_COLUMN).aggregate([("token_count", how) for how in ("count", "sum")])
        for cell, count, total in zip(*(grouped[at].to_pylist() for at in range(3)), strict=True):
            rows[cell] += count
            tokens[cell] += total
    there = [cell for cell in sorted(rows) if tokens[cell]]  # of some all documents may have been excised
    return [PlannedCell(identifier, snapshot.snapshot_id, cell, rows[cell], tokens[cell]) for cell in there]


def plan_mix(cells: Sequence[PlannedCell], config: MixConfig) -> MixPlan:
    """Plan how often each cell is read.

    Raises:
        CommandError: the config names cells that are not there, or too few rows for the cells.
    """
    wanted, written = np.zeros(len(cells)), _written(cells, config)
    for members, tokens in _groups(cells, config):
        counts = np.array([cells[at].tokens for at in members])
        repeats = _by_curve([cells[at] for at in members], config, tokens) if config.curve else written[members]
        written_tokens = float(repeats @ counts)
        if tokens is not None and written_tokens <= 0:
            raise CommandError("mix plan: nothing is read of some cells that are to give tokens; raise their repeats")
        wanted[members] = repeats if tokens is None else repeats * tokens / written_tokens
    rows = [Fraction(times) * cell.rows for times, cell in zip(wanted.tolist(), cells, strict=True)]
    total, read = round(sum(rows)), [at for at, times in enumerate(rows) if times]
    if total < max(1, len(read)):
        raise CommandError(f"mix plan: {total:,} rows for {len(read):,} cells; raise tokens, or choose fewer cells")
    weights = dict(zip(read, quantize([rows[at] for at in read], min(total, MAX_CYCLE_ROWS)), strict=True))
    planned = [replace(cell, wanted=float(wanted[at]), weight=weights.get(at, 0)) for at, cell in enumerate(cells)]
    return MixPlan(tuple(planned), total, config.bound, config.seed)


def _groups(cells: Sequence[PlannedCell], config: MixConfig) -> Iterator[tuple[list[int], float | None]]:
    """The cells, by number, that share tokens; those that no share names are in none."""
    if not config.shares:
        yield [*range(len(cells))], config.tokens
        return
    total = sum(config.shares.values())
    for text, members in _chosen(cells, config.shares, "shares").items():
        yield members, (config.tokens or 0) * config.shares[text] / total


def _chosen(cells: Sequence[PlannedCell], choices: Mapping[str, float], key: str) -> dict[str, list[int]]:
    """The numbers of the cells of each choice.

    Raises:
        CommandError: a choice has none, or two have one.
    """
    chosen: dict[str, list[int]] = {}
    by_cell: dict[str, str] = {}
    for text in choices:
        try:
            names = set(parse_choice(text).select(dict.fromkeys(cell.cell for cell in cells), key))
        except CellsError as error:
            raise CommandError(str(error)) from error
        for cell in sorted(names):
            other = by_cell.setdefault(cell, text)
            if other != text:
                raise CommandError(f"{key}: {cell_label(cell)} is in {other!r} and {text!r}; let each cell be in one")
        chosen[text] = [at for at, cell in enumerate(cells) if cell.cell in names]
    return chosen


def _written(cells: Sequence[PlannedCell], config: MixConfig) -> Float64Array:
    """(N,) repeats of cells as they are written; 1 of all where none are."""
    repeats = np.zeros(len(cells)) if config.repeats else np.ones(len(cells))
    for text, members in _chosen(cells, config.repeats, "repeats").items():
        repeats[members] = config.repeats[text]
    return repeats


def _by_curve(cells: Sequence[PlannedCell], config: MixConfig, tokens: float | None) -> Float64Array:
    """(N,) repeats of cells by the curve.

    Raises:
        CommandError: the cells have no such dimension, or its values are in no order.
    """
    ((dimension, curve),) = config.curve.items()
    values = [cell_values(cell.cell) for cell in cells]
    if dimension not in values[0]:
        dimensions = ", ".join(values[0])
        raise CommandError(f"curve: cells are by {dimensions}, not by {dimension}{nearest(dimension, values[0])}")
    bins = [value[dimension] for value in values]
    if any(isinstance(value, str) for value in bins):
        raise CommandError(f"curve: {dimension} has texts, which are in no order; write repeats or shares of it")
    counts = Counter[Any]()
    for value, cell in zip(bins, cells, strict=True):
        counts[value] += cell.tokens
    left = None if tokens is None else max(tokens - curve.none * counts[None], 0.0)
    ascending = sorted(value for value in counts if value is not None)
    of_bin: dict[Any, float] = {None: curve.none}
    if ascending:
        of_bins = curve.repeats(np.array([counts[value] for value in ascending]), left)
        of_bin |= dict(zip(ascending, of_bins.tolist(), strict=True))
    return np.array([of_bin[value] for value in bins])
