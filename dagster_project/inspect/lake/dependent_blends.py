"""Find the blends that read a table, and the snapshots that they pin."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class DependentBlend:
    """A blend with a source in the table.

    Attributes:
        blend: its names, or the first digits of its id.
        snapshot_id: the pinned snapshot; None where it follows the table.
        doc_id_column: of a blend of texts, the table's column of doc_ids; empty for a packed table.
    """

    blend: str
    snapshot_id: int | None
    doc_id_column: str = ""


def dependent_blends(catalogue: Catalog, tables: Collection[str] | None) -> Mapping[str, list[DependentBlend]]:
    """Blends by table, of all tables that a blend reads where `tables` is None; each stored blend is read once."""
    dependents: dict[str, list[DependentBlend]] = {table: [] for table in tables or ()}
    if tables is not None and not dependents:
        return dependents
    from blender_service.blend.store import open_store

    store = open_store(catalogue)
    names = store.names()
    for blend_id in store.list_ids():
        called = ", ".join(sorted(names.get(blend_id, []))) or blend_id[:12]
        config = store.get(blend_id)
        doc_id_column = config.texts.doc_id if config.texts is not None else ""
        for pin in dict.fromkeys(store.head(config).pins().values()):
            if tables is None or pin.table in dependents:
                blend = DependentBlend(called, pin.snapshot_number, doc_id_column)
                dependents.setdefault(pin.table, []).append(blend)
    return dependents


def pinned_snapshots(blends: Collection[DependentBlend]) -> list[int]:
    """Ids of the snapshots pinned by blends, ascending."""
    return sorted({blend.snapshot_id for blend in blends if blend.snapshot_id is not None})


def effect_of_repacking(blends: Collection[DependentBlend]) -> str:
    """One sentence about what happens to blends when their table is packed anew; empty where there are none."""
    pinned = sorted({blend.blend for blend in blends if blend.snapshot_id is not None})
    live = sorted({blend.blend for blend in blends if blend.snapshot_id is None})
    parts = [f"{_some(pinned)} go on with the rows that they pinned"] if pinned else []
    parts += [f"{_some(live)} follow it live and end there"] if live else []
    return "; ".join(parts)


def _some(names: list[str], most: int = 10) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"blends {', '.join(names[:most])}{more}"
