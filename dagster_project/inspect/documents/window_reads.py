"""Which blends read a window, at which offsets, and which training runs did: from orders and the register alone."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from dagster_project.inspect.lake.training_runs import has_read, named_reads
from headrace.tables.catalogue import load_table
from spark_jobs.packing.generations import served_heads

if TYPE_CHECKING:
    from blender_service.server.blender import Blender

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

    training = named_reads(catalogue)
    reads = []
    same_rows: dict[tuple[str, int | None, int | None], bool] = {}
    for blend_id in blender.list_ids():
        order = blender.order(blend_id)
        names = tuple(blender.names_of(blend_id))
        for source, pin in blender.head(blend_id).pins().items():
            pinned = int(pin.snapshot_id) if pin.snapshot_id is not None else None
            for table, snapshot_id, ordinal in windows:
                if table != pin.table:
                    continue
                key = (table, snapshot_id, pinned)
                if key not in same_rows:
                    same_rows[key] = _hold_same_rows(catalogue, *key)
                if not same_rows[key]:
                    continue
                for offset, epoch in itertools.islice(offsets_of(order, source, ordinal), _MOST_READS):
                    runs = (training_run.run for training_run in training if has_read(training_run, blend_id, offset))
                    reads.append(
                        WindowRead(table, ordinal, blend_id, names, source, offset, epoch, tuple(dict.fromkeys(runs)))
                    )
    return sorted(reads, key=lambda read: (read.blend_id, read.offset))


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
