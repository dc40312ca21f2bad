"""Find the rows of cells of a packed table: runs of ordinals, and a source's rows counted along them.

In an increment the windows of a cell are one run of ordinals. So some cells of a table are a few runs, and a source of
them numbers its rows from 0 along these; what an increment appends comes at the end, so no number ever changes::

    ordinals   0 1 2 | 3 4 | 5 6 7 8 | 9 ..        increments 0 and 1, cells a b c, then a ..
    cells      a a a   b b   c c c c   a
    rows of a  0 1 2                   3 ..        runs [0, 3), [9, ..)

The column `cell` says the cell of each row. A data file never changes, so its runs are read once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from blender_service.arrays import Int64Array
from blender_service.tables.data_file import FAULTS, StoreError, opened_parquet, told
from blender_service.tables.file_columns import FileColumns, find_column
from headrace.tables.cells import CELL_COLUMN
from headrace.tables.ordinals import OrdinalRun, index_snapshot

RUNS: Final = "ordinals"  # folder of the blends' objects; `runs` has those of the register
_BATCH_ROWS: Final = 1 << 16
_NONE: Final = ""  # no cell: a table packed without them after it had some keeps the column


class CellRun(NamedTuple):
    """Rows [start, end) of one cell, by their ordinals."""

    cell: str
    start: int
    end: int


class KnownCells(Protocol):
    """Runs of cells of data files read so far, by path, counted from the first row of the file."""

    def get(self, path: str) -> tuple[CellRun, ...] | None:
        """Those of a file, None where it was not read."""

    def put(self, path: str, runs: tuple[CellRun, ...]) -> None:
        """Keep those of a file."""


class RowRuns:
    """The rows of a source, numbered from 0 along runs of ordinals.

    Attributes:
        ranges: [start, end) of each run, ascending, apart.
        numbers: (G,) number of the first row of each.
        starts: (G,) ordinal of it.
        rows: how many.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Number the rows of `ranges`."""
        self.ranges = tuple(ranges)
        sizes = [end - start for start, end in self.ranges]
        self.numbers = np.array([0, *accumulate(sizes)][:-1], dtype=np.int64)
        self.starts = np.array([start for start, _ in self.ranges], dtype=np.int64)
        self.rows = sum(sizes)

    def first(self, rows: int) -> RowRuns:
        """Give the first `rows` of them."""
        kept, left = [], rows
        for start, end in self.ranges:
            if left <= 0:
                break
            kept.append((start, min(end, start + left)))
            left -= end - start
        return RowRuns(kept)

    def below(self, ordinal: int) -> RowRuns:
        """Give those below an ordinal."""
        return RowRuns([(start, min(end, ordinal)) for start, end in self.ranges if start < ordinal])

    def ordinals(self, rows: Int64Array) -> Int64Array:
        """(R,) ordinals of rows."""
        return ordinals_along(self.numbers, self.starts, rows)

    def row_of(self, ordinal: int) -> int | None:
        """Give the number of an ordinal's row, None where it is none of them."""
        run = int(np.searchsorted(self.starts, ordinal, side="right")) - 1
        if run < 0 or ordinal >= self.ranges[run][1]:
            return None
        return int(self.numbers[run]) + ordinal - self.ranges[run][0]

    def to_bytes(self) -> bytes:
        """Write them, as they are kept with blends."""
        return json.dumps(self.ranges, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of what is written."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def ordinals_along(numbers: Int64Array, starts: Int64Array, rows: Int64Array) -> Int64Array:
    """(R,) ordinals of rows, by the (G,) number of the first row of each run and its ordinal."""
    run = np.searchsorted(numbers, rows, side="right") - 1
    ordinals: Int64Array = starts[run] + rows - numbers[run]
    return ordinals


def read_runs(content: bytes) -> RowRuns:
    """Read what `RowRuns.to_bytes` wrote."""
    return RowRuns([(start, end) for start, end in json.loads(content)])


def runs_of(cells: Sequence[CellRun], chosen: Container[str]) -> RowRuns:
    """Give the rows of the chosen cells of a table."""
    ranges: list[tuple[int, int]] = []
    for cell, start, end in cells:
        if cell in chosen:
            before = ranges.pop() if ranges and ranges[-1][1] == start else (start, start)
            ranges.append((before[0], end))
    return RowRuns(ranges)


def cell_runs(
    table: Table,
    identifier: str,
    snapshot: Snapshot,
    files: Sequence[OrdinalRun] | None = None,
    known: KnownCells | None = None,
) -> tuple[CellRun, ...]:
    """List the runs of all cells of a packed table at a snapshot, ascending; none of a table without cells.

    Args:
        table: packed.
        identifier: its name, for messages.
        snapshot: of the table.
        files: its files at the snapshot; looked up if None.
        known: runs of files read so far.

    Raises:
        PackedTableError: a file cannot be read.
        ServerUnavailableError: its store does not answer.
    """
    column = find_column(table.schema(), CELL_COLUMN)
    if column is None:
        return ()
    runs: list[CellRun] = []
    for file in index_snapshot(table, identifier, snapshot) if files is None else files:
        of_file = known.get(file.path) if known is not None else None
        if of_file is None:
            where = f"table {identifier}: file {file.path}"
            try:
                with opened_parquet(table.io, file.path) as (opened, _):
                    columns = FileColumns(opened, where, {CELL_COLUMN: column}, table.name_mapping())
                    batches = opened.iter_batches(_BATCH_ROWS, columns=columns.names, use_threads=False)
                    of_file = _runs_of([columns.select(batch)[CELL_COLUMN] for batch in batches])
            except (StoreError, *FAULTS) as error:
                raise told(where, error) from error
            if known is not None:
                known.put(file.path, of_file)
        for cell, start, end in of_file:
            runs.append(CellRun(cell, file.start + start, file.start + end))
            if len(runs) > 1 and runs[-2].cell == cell and runs[-2].end == runs[-1].start:  # it went on in this file
                runs[-2:] = [CellRun(cell, runs[-2].start, runs[-1].end)]
    return tuple(runs)


def _runs_of(parts: Sequence[pa.Array]) -> tuple[CellRun, ...]:
    """Runs of equal values, by their places in the file; rows packed without cells are left out."""
    texts = pa.chunked_array([part.cast(pa.string()) for part in parts], pa.string())
    encoded = pc.fill_null(texts, _NONE).combine_chunks().dictionary_encode()
    numbers = encoded.indices.to_numpy()
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [len(numbers)]])
    cells = encoded.dictionary.to_pylist()
    return tuple(
        CellRun(cells[numbers[start]], start, end)
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        if end > start and cells[numbers[start]] != _NONE
    )
