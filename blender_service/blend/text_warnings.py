"""What to know of a blend of texts before training on it: control tokens as letters, conversations without a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyiceberg.table import Table

from blender_service.blend.config import BlendConfig
from blender_service.blend.store import ObjectStore
from blender_service.exceptions import BlenderError
from blender_service.tables.packed_table import served_snapshot
from blender_service.tables.text_documents import columns_of_pin, names_of
from blender_service.tables.text_table import NAMES, places_of, warning_of


def text_warnings(config: BlendConfig, load: Callable[[str], Table | None], objects: ObjectStore) -> Iterator[str]:
    """Give a line for each source that there is something to know of, as was counted when its texts were measured.

    Args:
        config: of the blend; one of packed tables has no such lines.
        load: gives a table by its identifier; None for a missing one, as the read will tell.
        objects: the store of the blends.
    """
    for source in config.sources if config.texts is not None else ():
        table, rule = load(source.table), config.texts
        try:
            snapshot = served_snapshot(table, source.name, source.pin, None)
            if table is None or snapshot is None or rule is None:
                continue
            columns = columns_of_pin(table, snapshot, names_of(rule), source.generation).of_rows()
        except BlenderError:  # what is wrong with a source is told where its rows are read
            continue
        places = places_of(source.table, snapshot.snapshot_id, columns, config.window, rule)
        counted = objects.read(places[NAMES])
        if counted is not None and (warning := warning_of(counted)):
            yield f"source {source.name}: {source.table}: {warning}"
