"""Open the sources of a blend's readers at the files served now, and again where their tables change."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pyiceberg.expressions import EqualTo, IsNull, Or
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from blender_service.blend.config import BlendConfig
from blender_service.blend.store import ObjectStore
from blender_service.catalogue import lake_errors
from blender_service.exceptions import SourceChangedError
from blender_service.order.segments import Pin
from blender_service.rows.blend_reader import Readers
from blender_service.server.shared_caches import SharedCaches
from blender_service.tables.block_reader import BlockReader
from blender_service.tables.cell_runs import RUNS, RowRuns, cell_runs, read_runs, runs_of
from blender_service.tables.data_file import OF_PACKED, OF_TEXTS, warn_without_checksums
from blender_service.tables.left_off import left_off_of
from blender_service.tables.packed_table import PackedTable, columns_read, schema_at, served_snapshot
from blender_service.tables.source_rows import SourceRows
from blender_service.tables.text_documents import columns_of_pin, names_of
from blender_service.tables.text_table import TextRows, open_text_rows
from blender_service.tables.token_columns import TokenColumn, columns_of
from blender_service.turns import turn_lent
from headrace.tables.cells import parse_choice
from headrace.tables.ordinals import OrdinalRun, index_snapshot
from headrace.tables.window_facts import mask_rules, properties_at

EXCISIONS: Final = "system.excisions"  # documents excised from one table, or from all

logger = logging.getLogger(__name__)


class Followed(NamedTuple):
    """The sources of a reader.

    Attributes:
        readers: by index into the order's names.
        changed: gives all readers again once a table has changed, else None; with True the catalogue is asked first.
        columns: that rows have beside their ids.
    """

    readers: Readers
    changed: Callable[[bool], Readers | None]
    columns: tuple[TokenColumn, ...]


class SourceReaders:
    """Opens sources for one caller; what streams read alike they share."""

    def __init__(
        self, shared: SharedCaches, objects: ObjectStore, load: Callable[[str], Table | None], team: str
    ) -> None:
        """Read tables from `load`, as a team; tokenizers lie in `objects`."""
        self._shared = shared
        self._objects = objects
        self._load = load
        self._team = team

    def index(self, config: BlendConfig) -> None:
        """Open the tables of a new blend, so that warnings about them come when it is created."""
        for source in config.sources:
            self._packed_rows(source.name, source.pin, config, self._load(source.table))

    def follow(self, config: BlendConfig, sources: Mapping[int, tuple[str, Pin]], wanted: tuple[str, ...]) -> Followed:
        """Open the sources of a reader, by index into the order's names, with the columns for its rows.

        Raises:
            InvalidReadError: a source has no such column.
            SourceChangedError: a table is not as the blend pinned it.
        """
        watch = self._shared.watch
        generation = watch.generation
        tables = {table: self._load(table) for table in {pin.table: None for _, pin in sources.values()}}
        if config.texts is not None:
            tables[EXCISIONS] = watch.load(EXCISIONS)  # also where the caller may not read it
        columns = columns_of(
            {name: tables[pin.table] for name, pin in sources.values()}, wanted, config.texts is not None
        )
        blend_id = config.blend_id  # hashed anew each time it is asked
        readers = {
            index: self._reader(name, pin, config, blend_id, tables, columns.get(name, ()))
            for index, (name, pin) in sources.items()
        }
        follower = watch.follow(tables)

        def changed(at_once: bool) -> Readers | None:
            nonlocal generation
            if not at_once and watch.generation == generation:
                return None
            with turn_lent():
                if at_once:
                    watch.look(follower.tables)
                if watch.generation == generation:
                    return None
                generation = watch.generation
                return again()

        def again() -> Readers | None:
            changed = {}
            newest = {name: watch.table(name) for name in tables}
            excised = EXCISIONS in tables and newest[EXCISIONS] is not tables[EXCISIONS]
            for index, (name, pin) in sources.items():
                if excised or newest[pin.table] is not tables[pin.table]:
                    reader = self._reader(name, pin, config, blend_id, newest, columns.get(name, ()))
                    before, after = _files_of(readers[index]), _files_of(reader)
                    if before != after:
                        changed[index] = reader
                        self._shared.cache.forget(_paths_that_went(before, after))
            tables.update(newest)
            readers.update(changed)
            return dict(readers) if changed else None

        return Followed(dict(readers), changed, next(iter(columns.values()), ()))

    def _reader(
        self,
        name: str,
        pin: Pin,
        config: BlendConfig,
        blend_id: str,
        tables: Mapping[str, Table | None],
        columns: tuple[TokenColumn, ...],
    ) -> SourceRows:
        """Open one source, whose table is given; sources and streams that read the same of it share one reader."""
        table, excisions = tables[pin.table], tables.get(EXCISIONS)
        places = [(place.metadata_location, id(place.io)) for place in (table, excisions) if place is not None]
        of_table = pin if config.texts or not pin.cells else (*pin[:3], pin.generation)
        key = (blend_id, of_table, columns, self._team, *places)
        with self._shared.opening[hash(key) % len(self._shared.opening)]:
            reader = self._shared.readers.get(key)
            if reader is None:
                reader = self._packed_rows(name, pin, config, table, columns, excisions)
                if reader is not None:
                    self._shared.readers.put(key, reader)
        source = SourceRows(name, reader, None if config.texts else self._runs(pin, table, reader), pin.rows is None)
        pinned = None if pin.rows is None else pin.rows + (pin.unread_rows or 0)
        if pinned is not None and (source.row_count != pinned or reader is None or not source.is_there):
            there = f"snapshot {pin.snapshot_id} of {pin.table} has {reader.table.rows if reader else 0} rows"
            raise SourceChangedError(f"source {name}: {there}, the blend pinned {pinned}; create a new blend")
        return source

    def _runs(self, pin: Pin, table: Table | None, reader: BlockReader | None) -> RowRuns | None:
        """The rows of a source of cells: as they were pinned, of a live one as they are now.

        Raises:
            SourceChangedError: what was pinned is not kept any more.
        """
        if pin.cells is None:
            return None
        snapshot = table.current_snapshot() if table is not None else None
        key = pin.runs or f"{pin.table_uuid} {snapshot.snapshot_id if snapshot else None} {pin.cells}"
        runs = self._shared.row_runs.get(key)
        if runs is None:
            if pin.runs is not None:
                runs = self._pinned_runs(pin)
            elif table is None or snapshot is None or reader is None:
                return RowRuns(())
            else:
                cells = cell_runs(table, pin.table, snapshot, reader.table.runs, self._shared.cells)
                choice = parse_choice(pin.cells)
                runs = runs_of(cells, {cell for cell in {run.cell for run in cells} if choice.takes(cell)})
            self._shared.row_runs.put(key, runs)
        return runs

    def _pinned_runs(self, pin: Pin) -> RowRuns:
        content = self._objects.read(f"{RUNS}/{pin.runs}")
        if content is None or hashlib.sha256(content).hexdigest() != pin.runs:
            raise SourceChangedError(
                f"cells {pin.cells} of {pin.table}: their runs {pin.runs} are lost or damaged beside the blends; "
                "restore the object, or create the blend again"
            )
        return read_runs(content)

    def _packed_rows(
        self,
        name: str,
        pin: Pin,
        config: BlendConfig,
        table: Table | None,
        columns: tuple[TokenColumn, ...] = (),
        excisions: Table | None = None,
    ) -> BlockReader | None:
        """Open a table at the pinned snapshot, a live one at its current snapshot; None while it has no row."""
        if config.texts is not None:
            return self._text_rows(name, pin, config, table, columns, excisions)
        snapshot = served_snapshot(table, name, pin, config.window)
        if snapshot is None or table is None:
            return None
        key = (pin.table_uuid, pin.snapshot_id or "live")
        with self._shared.indexing[hash(key) % len(self._shared.indexing)]:
            indexed_id, runs = self._shared.indices.get(key) or (None, ())
            is_new, before = indexed_id is None, runs
            if indexed_id != snapshot.snapshot_id:
                with lake_errors():
                    runs = index_snapshot(table, pin.table, snapshot, self._shared.runs)
                self._shared.indices.put(key, (snapshot.snapshot_id, runs))
                self._shared.cache.forget({run.path for run in before} - {run.path for run in runs})
        most_rows = pin.rows if pin.cells is None else None
        if most_rows is not None:  # the successor of an excised snapshot may hold later increments as well
            runs = tuple(run for run in runs if run.start < most_rows)
        rules = mask_rules(properties_at(table, snapshot))
        left_off = left_off_of(rules, schema_at(table, snapshot), config.spans[-1].leave_off or ())
        read = columns if left_off is None else (*columns, left_off.column)
        packed = PackedTable(
            pin.table, config.window, runs, table.io, most_rows, self._shared.mirrors, columns=columns,
            fields=columns_read(table, snapshot, read), mapping=table.name_mapping(), left_off=left_off,
        )  # fmt: skip
        if is_new:
            warn_without_checksums(f"source {name}: {pin.table}", table.io, [run.path for run in runs], OF_PACKED)
        return BlockReader(packed, config.block_rows, self._shared.cache, self._team)

    def _text_rows(
        self,
        name: str,
        pin: Pin,
        config: BlendConfig,
        table: Table | None,
        of_tokens: tuple[TokenColumn, ...],
        excisions: Table | None,
    ) -> BlockReader | None:
        """Open a table of text at the pinned snapshot."""
        snapshot, rule = served_snapshot(table, name, pin, None), config.texts
        if table is None or snapshot is None or rule is None:
            return None
        key = f"{pin} {rule!r} {config.window!r}"
        with self._shared.indexing[hash(key) % len(self._shared.indexing)]:
            rows = self._shared.texts.get(key)
            if rows is None:
                columns = columns_of_pin(table, snapshot, names_of(rule), pin.generation)
                kept = (self._objects, self._shared.row_groups, pin.cells, pin.unread)
                rows = open_text_rows(table, pin.table, snapshot, columns, config.window, rule, *kept)
                self._shared.texts.put(key, rows)
                _log_warnings(f"source {name}: {pin.table}", rows, table.io)
        chosen = Or(IsNull("table"), EqualTo("table", pin.table))
        excised = [] if excisions is None else excisions.scan(chosen, ("doc_id",)).to_arrow()["doc_id"].to_pylist()

        def reader(epoch: int) -> BlockReader:
            packed = rows.table(table.io, excised, of_tokens, epoch)
            of_epoch = reader if rows.differ_by_epoch and not epoch else None
            return BlockReader(packed, config.block_rows, self._shared.cache, self._team, of_epoch)

        return reader(0)


def _log_warnings(where: str, rows: TextRows, file_io: FileIO) -> None:
    """Log what to know of a source with opened rows."""
    if rows.warning:
        logger.warning("%s: %s", where, rows.warning)
    warn_without_checksums(where, file_io, [file.path for file in rows.documents.files], OF_TEXTS)


@functools.lru_cache(maxsize=8)  # all streams of a table come from the same to the same
def _paths_that_went(before: tuple[OrdinalRun, ...], after: tuple[OrdinalRun, ...]) -> frozenset[str]:
    return frozenset(run.path for run in before) - {run.path for run in after}


def _files_of(source: SourceRows) -> tuple[OrdinalRun, ...]:
    """Give the files of a source."""
    return source.reader.table.runs if source.reader is not None else ()
