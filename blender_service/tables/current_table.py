"""Load a table for reading, at a cost that does not grow with its history.

Which metadata is the current one is asked first, so that a table nobody has written to since is not loaded again. Of
metadata that is new, snapshots that no branch or tag names stay unparsed until somebody asks for them: a table of
10,000 snapshots is read in a tenth of the time that PyIceberg takes for it. A REST catalogue cannot be asked for the
place of the metadata alone: it is asked for the metadata without those snapshots, and some send them all the same.
"""

from __future__ import annotations

import copy
import gzip
from typing import Any, Final

from pydantic_core import from_json
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import SNAPSHOT_LOADING_MODE, RestCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from blender_service.tables.packed_table import if_shown, load_table
from headrace.tables.catalogue import SqlLake

GZIPPED: Final = ".gz.metadata.json"
LOGS: Final = ("snapshot-log", "metadata-log", "statistics", "partition-statistics")  # a line a commit, read by nobody


def load_current(catalogue: Catalog, identifier: str, before: Table | None = None) -> Table | None:
    """Give a table as it is now, None if there is none; `before` itself where it is still the same.

    A table with credentials of its own, which expire, is always a new one. It is for reading: its `metadata` lacks
    some snapshots, available from `snapshot_by_id` alone.
    """
    if isinstance(catalogue, SqlLake):
        location = catalogue.metadata_location(identifier)
        if location is None or (before is not None and before.metadata_location == location):
            return before if location is not None else None
        return if_shown(identifier, _read(catalogue, identifier, location))
    table = load_table(_without_history(catalogue), identifier)
    if table is not None and isinstance(catalogue, RestCatalog):
        table = _ReadTable(
            identifier=table.name(), metadata=table.metadata, metadata_location=table.metadata_location, io=table.io,
            catalog=catalogue, config=table.config,
        )  # fmt: skip
    is_same = table is not None and before is not None and table.metadata_location == before.metadata_location
    return before if is_same and table is not None and not table.config else table


def _without_history(catalogue: Catalog) -> Catalog:
    """Give a catalogue as it is, of a REST catalogue a view asking for few snapshots."""
    if not isinstance(catalogue, RestCatalog):
        return catalogue
    view = copy.copy(catalogue)
    view.properties = {**catalogue.properties, SNAPSHOT_LOADING_MODE: "refs"}
    return view


class _ReadTable(Table):
    """A table with few parsed snapshots; the others are looked up in its metadata's file."""

    def __init__(self, **of_table: Any) -> None:
        super().__init__(**of_table)
        self._others: dict[int, Snapshot | None] = {}

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        """Give a snapshot, None if it is not there; one without a branch or tag is read now."""
        named = super().snapshot_by_id(snapshot_id)
        if named is not None:
            return named
        if snapshot_id not in self._others:  # threads that meet here read the same twice, which does no harm
            listed = _read_json(self.io, self.metadata_location).get("snapshots") or []
            raw = next((snapshot for snapshot in listed if snapshot["snapshot-id"] == snapshot_id), None)
            self._others[snapshot_id] = Snapshot.model_validate(raw) if raw is not None else None
        return self._others[snapshot_id]


def _read(catalogue: SqlLake, identifier: str, location: str) -> Table:
    """Read metadata, and parse the snapshots named by branches and tags."""
    raw = _read_json(load_file_io(catalogue.properties, location), location)
    named = {raw.get("current-snapshot-id"), *(ref["snapshot-id"] for ref in (raw.get("refs") or {}).values())}
    raw["snapshots"] = [snapshot for snapshot in raw.get("snapshots") or [] if snapshot["snapshot-id"] in named]
    metadata = TableMetadataUtil.parse_obj({name: value for name, value in raw.items() if name not in LOGS})
    io = load_file_io({**catalogue.properties, **metadata.properties}, location)
    name = Catalog.identifier_to_tuple(identifier)
    return _ReadTable(identifier=name, metadata=metadata, metadata_location=location, io=io, catalog=catalogue)


def _read_json(io: FileIO, location: str) -> dict[str, Any]:
    with io.new_input(location).open() as stream:
        content = stream.read()
    raw: dict[str, Any] = from_json(gzip.decompress(content) if location.endswith(GZIPPED) else content)
    return raw
