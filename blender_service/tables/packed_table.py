"""A packed table pinned to a snapshot: its windows' facts, its files by ordinals, the columns read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.snapshots import Snapshot

from blender_service.exceptions import PackedTableError, SourceChangedError
from blender_service.order.segments import Pin
from blender_service.tables.block import RowBlock
from blender_service.tables.file_columns import FileColumn, find_column
from blender_service.tables.left_off import LeftOff
from blender_service.tables.mirrors import NO_MIRRORS, Mirrors
from blender_service.tables.token_columns import TokenColumn
from headrace.tables import catalogue as tables
from headrace.tables.exceptions import LakeError
from headrace.tables.generations import successor_of
from headrace.tables.ordinals import OrdinalRun
from headrace.tables.quarantine import quarantine_that_holds
from headrace.tables.window_facts import (
    GENERATION_PROPERTY,
    PROPERTY_OF_FACT,
    WindowFacts,
    describing_snapshot,
    properties_at,
    read_window_facts,
)

COLUMNS: Final = ("ordinal", "token_count", "input_ids", "segments")
EVALS: Final = "headrace.evals"  # digest of the benchmarks that its documents were searched for


class PackedTable(NamedTuple):
    """A packed table pinned to a snapshot.

    Attributes:
        identifier: namespace.table.
        window: facts of its rows.
        runs: its files, ascending, covering [0, rows) without gap.
        io: how its files are opened.
        most_rows: served rows; None for all. The last file may have more.
        mirrors: other places of its files.
        decode: makes blocks of ranges of ordinals, where rows do not lie in Parquet as they are served; else None.
        columns: that are read beside the ids, in the order of the blocks' `columns`.
        fields: what is read of a file, by the name it has in rows (`columns_read`).
        mapping: which names of files without field ids are which columns.
        left_off: rules of masks whose tokens its rows lack; None for no rule.
    """

    identifier: str
    window: WindowFacts
    runs: tuple[OrdinalRun, ...]
    io: FileIO
    most_rows: int | None = None
    mirrors: Mirrors = NO_MIRRORS
    decode: Callable[[Sequence[tuple[int, int]]], Iterator[RowBlock]] | None = None
    columns: tuple[TokenColumn, ...] = ()
    fields: Mapping[str, FileColumn] = MappingProxyType({})
    mapping: NameMapping | None = None
    left_off: LeftOff | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        rows = self.runs[-1].end if self.runs else 0
        return rows if self.most_rows is None else min(rows, self.most_rows)


def schema_at(table: Table, snapshot: Snapshot) -> Schema:
    """Give the schema a snapshot was written with; the present one where it is not known any more."""
    return table.schemas().get(-1 if snapshot.schema_id is None else snapshot.schema_id, table.schema())


def columns_read(table: Table, snapshot: Snapshot, columns: Sequence[TokenColumn]) -> dict[str, FileColumn]:
    """Find what is read of a packed table's files: rows by their names at a snapshot, columns by their ids.

    Raises:
        PackedTableError: the table has no such column.
    """
    schemas = (schema_at(table, snapshot), table.schema())
    wanted = {**{name: name for name in COLUMNS}, **{each.name: each.field_id for each in columns if each.field_id}}
    by_name = {
        name: next(filter(None, (find_column(schema, key) for schema in schemas)), None) for name, key in wanted.items()
    }
    missing = [name for name, column in by_name.items() if column is None]
    if missing:
        raise PackedTableError(
            f"table {'.'.join(table.name())}: has no column {missing[0]}; name a packed_<dataset>_<length> table"
        )
    return {name: column for name, column in by_name.items() if column is not None}


def row_bytes_of(window: WindowFacts, columns: Sequence[TokenColumn]) -> int:
    """Bytes of a row's ids and columns."""
    return window.window_tokens * sum((window.token_bytes, *(np.dtype(column.dtype).itemsize for column in columns)))


def load_table(catalogue: Catalog, identifier: str) -> Table | None:
    """Load a table's metadata, None if there is none; a quarantined table does not exist, whatever it is called now."""
    table = tables.load_table(catalogue, identifier)
    return None if table is None else if_shown(identifier, table)


def if_shown(identifier: str, table: Table) -> Table | None:
    """Give a table, None for a quarantined one."""
    return None if quarantine_that_holds(identifier, table.properties) else table


def served_snapshot(table: Table | None, name: str, pin: Pin, window: WindowFacts | None) -> Snapshot | None:
    """Find the snapshot that is served for a source, and check that table and snapshot are those the blend pinned.

    Where documents were excised since, the pinned snapshot has a successor of the same ordinals, which is given.

    Args:
        table: as it is now; None if there is none.
        name: of the source, for messages.
        pin: what the blend pinned; a live source gives its current snapshot, None while there is none.
        window: facts of the blend's rows; None for a table of text, which states none.

    Raises:
        SourceChangedError: the table was dropped, made again, repacked, or its snapshot expired.
    """
    where = f"source {name}: table {pin.table}"
    if table is None:
        raise SourceChangedError(f"{where} does not exist any more; restore it, or create a blend without it")
    if str(table.metadata.table_uuid) != pin.table_uuid:
        raise SourceChangedError(
            f"{where} has UUID {table.metadata.table_uuid}, the blend pinned {pin.table_uuid}: it was dropped and "
            "made again; create a new blend"
        )
    if pin.snapshot_number is None:
        snapshot = table.current_snapshot()
    else:
        try:
            snapshot = table.snapshot_by_id(successor_of(table, pin.snapshot_number))
        except LakeError as error:
            raise SourceChangedError(f"source {name}: {error}") from error
        if snapshot is None:
            raise SourceChangedError(
                f"{where} has no snapshot {pin.snapshot_id} any more, its tag was removed; create a new blend"
            )
    # Where the describing snapshot has expired, nothing is left to compare with; the blend holds the facts it pinned.
    if window is not None and (snapshot is None or describing_snapshot(table, snapshot) is not None):
        _require_same(table, snapshot, where, pin, window)
    return snapshot


def _require_same(table: Table, snapshot: Snapshot | None, where: str, pin: Pin, window: WindowFacts) -> None:
    """Check that a snapshot has the generation pinned by the blend and the blend's window facts.

    Raises:
        SourceChangedError: names the differing property.
    """
    generation = properties_at(table, snapshot).get(GENERATION_PROPERTY, "")
    if generation != pin.generation:
        at = f"at snapshot {pin.snapshot_id}" if pin.snapshot_id is not None else "now"
        raise SourceChangedError(
            f"{where} is generation {generation} {at}, the blend pinned {pin.generation}: it was packed again; create "
            "a new blend"
        )
    try:
        facts = read_window_facts(table, pin.table, snapshot)
    except LakeError as error:
        raise SourceChangedError(f"{where} changed: {error}") from error
    for fact, property_name in PROPERTY_OF_FACT.items():
        if getattr(facts, fact) != getattr(window, fact):
            raise SourceChangedError(
                f"{where} says {property_name} = {getattr(facts, fact)}, the blend was made for "
                f"{getattr(window, fact)}; create a new blend, and start training with its tokenizer"
            )
