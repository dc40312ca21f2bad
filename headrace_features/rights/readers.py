"""Who reads the windows of some documents: blends, and training runs of the register with what they had read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from pyiceberg.catalog import Catalog

from dagster_project.inspect.documents.window_reads import rows_of, runs_of_cells
from dagster_project.inspect.lake.training_runs import named_reads
from headrace.tables.catalogue import load_table
from headrace.tables.exceptions import PackedTableError
from headrace.tables.generations import successor_of
from headrace_features.rights.served import Served

if TYPE_CHECKING:
    from blender_service.order.resolve import BlendOrder

_OFFSETS: Final = 8  # of a window: a source that goes round for ever reads it for ever


class RunReads(NamedTuple):
    """Windows of a table that a run has read.

    Attributes:
        run: its name.
        blend: full id of the blend.
        table: the packed table.
        until: row of the blend up to which the run has read.
        reads: how often each window was read, by ordinal; windows that were not are left out.
        offsets: the rows of the blend that these reads were, the first of each window.
    """

    run: str
    blend: str
    table: str
    until: int
    reads: Mapping[int, int]
    offsets: Mapping[int, tuple[int, ...]] = MappingProxyType({})


def run_reads(catalogue: Catalog, served: Iterable[Served]) -> list[RunReads]:
    """The reads of windows that hold documents, by runs that the register knows."""
    from blender_service.exceptions import BlenderError
    from blender_service.order.offsets import reads_before
    from blender_service.server.blender import Blender

    held = {(part.table, part.snapshot_id): sorted({row for row, _ in part.holding}) for part in served if part.holding}
    if not held:
        return []
    blender, found = Blender(catalogue), list[RunReads]()
    for read in named_reads(catalogue):
        end = read.end if read.consumed is None else read.consumed
        try:
            pins, order = blender.head(read.blend_id).pins(), blender.order(read.blend_id)
            cells = runs_of_cells(blender, read.blend_id)
        except BlenderError:  # a blend that is damaged or was deleted hides no other
            continue
        for source, pin in pins.items():
            served_id = _served_for(catalogue, pin.table, pin.snapshot_id)
            ordinals = [] if served_id is None else held.get((pin.table, served_id), [])
            rows = rows_of(cells, source, ordinals)
            counts = reads_before(order, source, end, rows) - reads_before(order, source, read.first, rows)
            counted = {ordinals[at]: int(counts[at]) for at in np.flatnonzero((counts > 0) & (rows >= 0)).tolist()}
            if counted:
                row_of = dict(zip(ordinals, rows.tolist(), strict=True))
                offsets = {at: _offsets(order, source, row_of[at], read.first, end) for at in counted}
                found.append(RunReads(read.run, read.blend_id, pin.table, end, counted, offsets))
    return found


def _offsets(order: BlendOrder, source: str, row: int, first: int, end: int) -> tuple[int, ...]:
    """The first offsets in [first, end) at which a blend reads a row of a source."""
    from blender_service.order.offsets import offsets_of

    before = itertools.takewhile(lambda offset: offset < end, (offset for offset, _ in offsets_of(order, source, row)))
    return tuple(itertools.islice((offset for offset in before if offset >= first), _OFFSETS))


def _served_for(catalogue: Catalog, identifier: str, pinned: object) -> int | None:
    """The snapshot that is served for a pin; None where none is."""
    table = load_table(catalogue, identifier)
    head = table.current_snapshot() if table is not None else None
    if table is None or head is None:
        return None
    try:
        return head.snapshot_id if pinned is None else successor_of(table, int(str(pinned)))
    except PackedTableError:
        return None
