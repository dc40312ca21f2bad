"""Which blends read a window, at which offsets, how often, and which training runs did: from orders and register."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.catalog import Catalog

from dagster_project.inspect.lake.training_runs import has_read, named_reads
from headrace.tables.catalogue import load_table
from spark_jobs.packing.generations import served_heads

if TYPE_CHECKING:
    from blender_service.arrays import Int64Array
    from blender_service.order.resolve import BlendOrder
    from blender_service.order.resolved_blend import Head
    from blender_service.server.blender import Blender
    from blender_service.server.run_register import RunRead
    from blender_service.tables.cell_runs import RowRuns

_MOST_READS = 4  # of one window by one blend: a source that goes round for ever reads it for ever


@dataclass(frozen=True)
class WindowRead:
    """A row of a blend that is the window.

    Attributes:
        table: the packed table.
        ordinal: the window.
        blend_id: full id.
        names: of the blend.
        source: of the blend.
        offset: row of the blend.
        epoch: pass over the source, from 0.
        runs: training runs with a read of this row of this blend.
    """

    table: str
    ordinal: int
    blend_id: str
    names: tuple[str, ...]
    source: str
    offset: int
    epoch: int
    runs: tuple[str, ...]


@dataclass(frozen=True)
class TimesRead:
    """How often a blend reads a document.

    Attributes:
        blend_id: full id.
        names: of the blend.
        before: row of the blend up to which reads count: its end, or that of what runs have read of one without end.
        whole: times all windows of the document are read.
        in_part: times one of them is.
    """

    blend_id: str
    names: tuple[str, ...]
    before: int
    whole: int
    in_part: int

    def __str__(self) -> str:
        """Write it as `doc why` has it."""
        partly = f" ({self.in_part:,} in part)" if self.in_part != self.whole else ""
        return f"{', '.join(self.names) or self.blend_id[:12]} {self.whole:,} times{partly} before row {self.before:,}"


def times_read(catalogue: Catalog, windows: Mapping[str, Sequence[int]]) -> list[TimesRead]:
    """How often each blend reads a document, by reads; blends that never do are left out.

    Args:
        catalogue: of the lake.
        windows: newest ordinals of its parts, by packed table.
    """
    if not windows:
        return []
    from blender_service.order.offsets import reads_before
    from blender_service.server.blender import Blender

    blender = Blender(catalogue)
    training, hold_same_rows = named_reads(catalogue), cache(partial(_hold_same_rows, catalogue))
    times = []
    for blend_id, head, order, cells in _sound_blends(blender):
        trained = max((_end(read) for read in training if read.blend_id == blend_id), default=0)
        before = trained if head.end is None else head.end
        counts = {table: np.zeros(len(ordinals), np.int64) for table, ordinals in windows.items()}
        for source, pin in head.pins().items():
            rows = _rows_of(cells, source, windows.get(pin.table, ()))
            if (rows >= 0).any() and hold_same_rows(pin.table, None, pin.snapshot_number):
                counts[pin.table] += reads_before(order, source, before, rows)
        parts = [count for count in counts.values() if count.size]
        in_part = sum(int(count.max()) for count in parts)
        if in_part:
            whole = sum(int(count.min()) for count in parts)
            times.append(TimesRead(blend_id, tuple(blender.names_of(blend_id)), before, whole, in_part))
    return sorted(times, key=lambda read: (-read.in_part, read.blend_id))


@dataclass(frozen=True)
class BlendReads:
    """Windows of a packed table that a blend can serve, and how often runs read them.

    Attributes:
        blend_id: full id.
        names: of the blend.
        table: the packed table.
        snapshot_id: the served snapshot that was looked through.
        ordinals: (R,) the windows.
        runs: name, first row, row after the last one that was read, (R,) how often each window was read in between.
    """

    blend_id: str
    names: tuple[str, ...]
    table: str
    snapshot_id: int
    ordinals: Int64Array
    runs: tuple[tuple[str, int, int, Int64Array], ...]


def reads_of_runs(catalogue: Catalog, windows: Mapping[tuple[str, int], Int64Array]) -> Iterator[BlendReads]:
    """What blends and runs read of windows, by (packed table, served snapshot); many windows take one pass."""
    if not windows:
        return
    from blender_service.order.offsets import reads_before
    from blender_service.server.blender import Blender

    blender = Blender(catalogue)
    training, hold_same_rows = named_reads(catalogue), cache(partial(_hold_same_rows, catalogue))
    for blend_id, head, order, cells in _sound_blends(blender):
        mine = [read for read in training if read.blend_id == blend_id]
        for (table, snapshot_id), ordinals in windows.items():
            counts = np.zeros((len(mine), len(ordinals)), np.int64)
            served = False
            for source, pin in head.pins().items():
                if pin.table == table and hold_same_rows(table, snapshot_id, pin.snapshot_number):
                    rows, served = _rows_of(cells, source, ordinals.tolist()), True
                    for number, read in enumerate(mine):
                        counts[number] += reads_before(order, source, _end(read), rows)
                        counts[number] -= reads_before(order, source, read.first, rows)
            if served:
                by = tuple(
                    (read.run, read.first, _end(read), times)
                    for read, times in zip(mine, counts, strict=True)
                    if times.any()
                )
                yield BlendReads(blend_id, tuple(blender.names_of(blend_id)), table, snapshot_id, ordinals, by)


def _end(read: RunRead) -> int:
    """The row after the last one that a run read, as far as it is known."""
    return read.end if read.consumed is None else read.consumed


def reads_of(
    catalogue: Catalog, blender: Blender, windows: Collection[tuple[str, int | None, int]]
) -> list[WindowRead]:
    """The first reads of each window by each blend whose pinned snapshot has it, by blend and offset.

    Args:
        catalogue: of the lake.
        blender: shows the searched blends.
        windows: (packed table, snapshot or None for the newest, ordinal) of each.
    """
    from blender_service.order.offsets import offsets_of

    training, hold_same_rows = named_reads(catalogue), cache(partial(_hold_same_rows, catalogue))
    reads = []
    for blend_id in blender.list_ids():
        order, runs = blender.order(blend_id), _runs_of_cells(blender, blend_id)
        names = tuple(blender.names_of(blend_id))
        for source, pin in blender.head(blend_id).pins().items():
            for table, snapshot_id, ordinal in windows:
                (row,) = _rows_of(runs, source, [ordinal]).tolist() if table == pin.table else [-1]
                if row < 0 or not hold_same_rows(table, snapshot_id, pin.snapshot_number):
                    continue
                for offset, epoch in itertools.islice(offsets_of(order, source, row), _MOST_READS):
                    by = (training_run.run for training_run in training if has_read(training_run, blend_id, offset))
                    reads.append(
                        WindowRead(table, ordinal, blend_id, names, source, offset, epoch, tuple(dict.fromkeys(by)))
                    )
    return sorted(reads, key=lambda read: (read.blend_id, read.offset))


def _sound_blends(blender: Blender) -> Iterator[tuple[str, Head, BlendOrder, dict[str, RowRuns]]]:
    """Id, head, order and runs of cells of each blend; one that is damaged hides no other."""
    from blender_service.exceptions import BlenderError

    for blend_id in blender.list_ids():
        try:
            parts = blender.head(blend_id), blender.order(blend_id), _runs_of_cells(blender, blend_id)
        except BlenderError:
            continue
        yield blend_id, *parts


def _runs_of_cells(blender: Blender, blend_id: str) -> dict[str, RowRuns]:
    """The runs of the sources of cells of a blend, by name; none of rows where its tables are not as they were."""
    from blender_service.exceptions import BlenderError
    from blender_service.tables.cell_runs import RowRuns

    names = [name for name, pin in blender.head(blend_id).pins().items() if pin.cells is not None]
    runs = dict.fromkeys(names, RowRuns(()))
    with contextlib.suppress(BlenderError):
        rows = blender.source_rows(blend_id) if names else {}
        runs |= {name: rows[name].runs or runs[name] for name in names}
    return runs


def _rows_of(runs: Mapping[str, RowRuns], source: str, ordinals: Sequence[int]) -> Int64Array:
    """(R,) the rows of a source that windows are; -1 where a source of cells has other cells."""
    rows = [runs[source].row_of(ordinal) if source in runs else ordinal for ordinal in ordinals]
    return np.array([-1 if row is None else row for row in rows], np.int64)


def _hold_same_rows(catalogue: Catalog, identifier: str, snapshot_id: int | None, pinned: int | None) -> bool:
    """Whether ordinals mean the same rows in a snapshot (None: the newest) and in a blend's pin (None: live)."""
    table = load_table(catalogue, identifier)
    if table is None:
        return False
    snapshots = [snapshot for snapshot in (snapshot_id, pinned) if snapshot is not None]
    for head in served_heads(table, snapshots):
        if all(head.is_main if snapshot is None else snapshot in head.covered for snapshot in (snapshot_id, pinned)):
            return True
    return False
