"""What a server serves, without the wire: blends of one lake, opened and checked at every read.

Replicas share nothing but the lake; those of one machine may share a folder of blocks.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog

from blender_service.auth.visible_lake import MayRead, VisibleBlends, visible_catalogue
from blender_service.blend.config import BLEND_ID, BlendConfig
from blender_service.blend.create import Draft, create_blend, draft_blend, draft_update, update_blend
from blender_service.blend.describe import BlendDescription, describe
from blender_service.blend.requests import BlendSpec, UpdateSpec
from blender_service.blend.store import not_found, open_store
from blender_service.exceptions import InvalidReadError, OffsetOutOfRangeError, SourceChangedError, StateError
from blender_service.order.resolve import BlendOrder
from blender_service.order.resolved_blend import Head
from blender_service.order.segments import Pin
from blender_service.rows.blend_reader import BlendReader
from blender_service.tables.block_cache import DEFAULT_CACHE_BYTES, BlockCache, CacheEvents
from blender_service.tables.block_reader import BlockFetcher, BlockReader
from blender_service.tables.live_table import LiveRows
from blender_service.tables.packed_table import (
    EXCISED,
    OrdinalRun,
    PackedTable,
    WindowFacts,
    index_snapshot,
    load_table,
    open_source,
)
from blender_service.tables.parquet_to_block import has_page_checksums

DEFAULT_PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 1000
BLENDS_AT_HAND: Final = 128

logger = logging.getLogger(__name__)


class Page(NamedTuple):
    """Some of the blends.

    Attributes:
        blend_ids: ascending.
        next_token: gives the page after this one, empty if there is none.
    """

    blend_ids: tuple[str, ...]
    next_token: str


class _Opened(NamedTuple):
    """A blend that was resolved; it never changes."""

    config: BlendConfig
    head: Head
    order: BlendOrder


class Blender:
    """Creates, lists and opens the blends of one lake; the CLI and the server both stand on it."""

    def __init__(
        self, catalogue: Catalog, cache_bytes: int = DEFAULT_CACHE_BYTES, cache_folder: Path | None = None
    ) -> None:
        """Serve the blends of a catalogue's warehouse.

        Args:
            catalogue: of the lake.
            cache_bytes: bound of the block files.
            cache_folder: where they lie, shared with other processes; None for a temporary one of its own.

        Raises:
            BlockCacheError: the folder cannot be made.
        """
        self._catalogue = catalogue
        self._store = open_store(catalogue)
        self.cache = BlockCache(cache_folder, cache_bytes)
        self._fetcher = BlockFetcher()
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._indices: dict[tuple[str, str], tuple[int, tuple[OrdinalRun, ...]]] = {}
        self._tables_of: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    @property
    def cache_events(self) -> CacheEvents:
        """What the cache of blocks counts."""
        return self.cache.events

    def within(self, may_read: MayRead | None) -> Blender:
        """Give the same lake as a caller sees it who may read some tables only; the others do not exist there.

        Args:
            may_read: whether a table (namespace.table) may be read; None for all.
        """
        if may_read is None:
            return self
        seen = copy.copy(self)  # caches are shared: what they hold is the same for all who may see it
        seen._catalogue = visible_catalogue(self._catalogue, may_read)
        seen._store = VisibleBlends(self._store, may_read, self._tables_of)
        return seen

    def create(self, spec: BlendSpec) -> BlendConfig:
        """Create a blend, or find the one that is already the same; see `creation.create_blend`."""
        config = create_blend(self._catalogue, self._store, spec)
        self._index_sources(config)
        logger.info("created blend %s of %d sources", config.blend_id, len(config.sources))
        return config

    def update(self, spec: UpdateSpec) -> BlendConfig:
        """Create a child of a blend, or find the one that is already the same; see `creation.update_blend`."""
        config = update_blend(self._catalogue, self._store, spec)
        self._index_sources(config)
        logger.info("created blend %s, which follows %s from %s", config.blend_id, config.parent, config.from_offset)
        return config

    def draft(self, spec: BlendSpec | UpdateSpec) -> Draft:
        """Check a request and give the blend that it would make; nothing is pinned or stored."""
        if isinstance(spec, BlendSpec):
            return draft_blend(self._catalogue, spec)[-1]
        return draft_update(self._catalogue, self._store, spec)[-1]

    def bind(self, name: str, blend_id: str) -> None:
        """Let a name stand for a blend, for good; see `BlendStore.bind`."""
        self._store.bind(name, blend_id)

    def resolve(self, reference: str) -> str:
        """Turn an id, the start of one or a name into the id."""
        return self._store.resolve(reference)

    def config(self, blend_id: str) -> BlendConfig:
        """Give the config of a blend by its full id."""
        return self._open(blend_id).config

    def head(self, blend_id: str) -> Head:
        """Give what a blend resolves to by its full id."""
        return self._open(blend_id).head

    def order(self, blend_id: str) -> BlendOrder:
        """Give the order of a blend's rows by its full id."""
        return self._open(blend_id).order

    def describe(self, blend_id: str, offset: int | None = None) -> BlendDescription:
        """Say what a blend has read at an offset; see `description.describe`."""
        config, head, _ = self._open(blend_id)
        return describe(config, head, offset)

    def prove_continuation(self, from_id: str, to_id: str, offset: int) -> int | None:
        """Prove that a run which has read rows [0, offset) of one blend may go on with another.

        Args:
            from_id: full id of what was read.
            to_id: full id of what to go on with.
            offset: first row that was not read.

        Returns:
            The first offset where the two may differ, None if nowhere.

        Raises:
            InvalidReadError: the offset is below 0.
            OffsetOutOfRangeError: one of the blends ends before the offset.
            StateError: the blends may differ below the offset, so rows would be repeated or skipped.
        """
        if offset < 0:
            raise InvalidReadError(f"continuation: offset is {offset}; give the state's offset, 0 or more")
        heads = (self.head(from_id), self.head(to_id))
        for head in heads:
            if head.end is not None and offset > head.end:
                raise OffsetOutOfRangeError(
                    f"blend {head.blend_id}: offset {offset} is beyond its end {head.end}; load a state of this blend"
                )
        differs_from = heads[1].shares_rows_until(heads[0])
        if differs_from is not None and differs_from < offset:
            raise StateError(
                f"state: a run at offset {offset} of blend {from_id} cannot go on with {to_id}: their rows may differ "
                f"from {differs_from} on, so some would be repeated or skipped; update {from_id[:12]} from offset "
                f"{offset} or later"
            )
        return differs_from

    def excised_documents(self, blend_id: str) -> dict[str, int]:
        """Count the documents taken out of each source's table; sources whose table does not say are left out."""
        counts: dict[str, int] = {}
        for name, pin in self.head(blend_id).pins().items():
            table = load_table(self._catalogue, pin.table)
            count = table.properties.get(EXCISED, "") if table is not None else ""
            if count.isdecimal():
                counts[name] = int(count)
        return counts

    def list_ids(self) -> list[str]:
        """List the ids of all blends, ascending."""
        return self._store.list_ids()

    def list_page(self, page_size: int = 0, token: str = "") -> Page:
        """List some blends, ascending by id; a blend that is created in between comes if its id is still ahead.

        Args:
            page_size: most blends, 0 for 100.
            token: of the page before, empty for the first one.

        Raises:
            InvalidReadError: the page cannot be.
        """
        if not 0 <= page_size <= MAX_PAGE_SIZE:
            raise InvalidReadError(f"list: page_size is {page_size}; give 1 to {MAX_PAGE_SIZE}, or 0 for the default")
        if token and not BLEND_ID.fullmatch(token):
            raise InvalidReadError(f"list: page_token is {token!r}; give next_page_token of the page before")
        ahead = [blend_id for blend_id in self.list_ids() if blend_id > token]
        page = tuple(ahead[: page_size or DEFAULT_PAGE_SIZE])
        return Page(page, page[-1] if len(page) < len(ahead) else "")

    def names(self) -> dict[str, list[str]]:
        """List the names of each blend."""
        return self._store.names()

    def open(self, blend_id: str, offset: int = 0) -> BlendReader:
        """Open a blend for reading; every source that comes from `offset` on must still be what the blend pinned.

        Raises:
            BlendNotFoundError: there is no such blend.
            SourceChangedError: a table is not what it was.
        """
        config, head, order = self._open(blend_id)
        pins = head.pins()
        ahead = [segment for segment in head.segments if segment.end is None or segment.end > offset]
        needed = {part.name for segment in ahead for part in segment.parts}
        readers: dict[int, BlockReader | LiveRows] = {}
        for index, name in enumerate(order.names):
            if name in needed:
                readers[index] = self._reader(name, pins[name], config)
        return BlendReader(config, order, readers, self._fetcher, self.cache.max_bytes // 2)

    def prewarm(self, blend_id: str, offset: int, rows: int) -> None:
        """Build the blocks of some rows, so that reading them waits for nothing; see `BlendReader.prewarm`."""
        self.open(blend_id, offset).prewarm(offset, rows)

    def _reader(self, name: str, pin: Pin, config: BlendConfig) -> BlockReader | LiveRows:
        """Open one source."""
        if pin.rows is None:
            return LiveRows(name, lambda: self._packed_rows(name, pin, config))
        found = self._packed_rows(name, pin, config)
        rows = found.table.rows if found is not None else 0
        if found is None or rows != pin.rows:
            raise SourceChangedError(
                f"source {name}: snapshot {pin.snapshot_id} of {pin.table} has {rows} rows, the blend pinned "
                f"{pin.rows}; create a new blend"
            )
        return found

    def _packed_rows(self, name: str, pin: Pin, config: BlendConfig) -> BlockReader | None:
        """Open a table as the pin says, or as it is now; None while it has no row."""
        window: WindowFacts = config.window
        table, snapshot = open_source(self._catalogue, name, pin, window)
        if snapshot is None:
            return None
        key = (pin.table_uuid, pin.snapshot_id or "live")
        indexed_id, runs = self._indices.get(key, (None, ()))
        is_new = indexed_id is None
        if indexed_id != snapshot.snapshot_id:
            runs = index_snapshot(table, pin.table, snapshot)
            if pin.rows is not None:  # the successor of an excised snapshot may hold later increments as well
                runs = tuple(run._replace(end=min(run.end, pin.rows)) for run in runs if run.start < pin.rows)
            self._indices[key] = (snapshot.snapshot_id, runs)
        packed = PackedTable(pin.table, window, runs, table.io)
        if is_new and not all(has_page_checksums(packed, run) for run in {*runs[:1], *runs[-1:]}):
            logger.warning(
                "source %s: %s has files whose Parquet pages have no checksums, so a bit that flips in the store is "
                "served unnoticed; pack the table again with this version of headrace",
                name, pin.table,
            )  # fmt: skip
        return BlockReader(packed, config.block_rows, self.cache)

    def _index_sources(self, config: BlendConfig) -> None:
        """Open the tables of a new blend, so that what is to be said of them is said when it is made."""
        for source in config.sources:
            self._packed_rows(source.name, source.pin, config)

    def _open(self, blend_id: str) -> _Opened:
        """Read a config and its head, and keep those used last; they never change."""
        if not self._store.shows(blend_id):
            raise not_found(blend_id)
        with self._lock:
            if blend_id in self._opened:
                self._opened.move_to_end(blend_id)
                return self._opened[blend_id]
        config = self._store.get(blend_id)
        head = self._store.head(config)
        opened = _Opened(config, head, config.order(head))
        with self._lock:
            if blend_id not in self._opened:
                self._warn_small_cache(config)
            self._opened[blend_id] = opened
            while len(self._opened) > BLENDS_AT_HAND:
                self._opened.popitem(last=False)
        return opened

    def _warn_small_cache(self, config: BlendConfig) -> None:
        """Say so where the blocks that a blend keeps in use do not fit into the cache."""
        row_bytes = config.window.window_tokens * config.window.token_bytes
        group_rows = config.block_rows * config.group_blocks
        in_use = sum(min(source.rows or group_rows, group_rows) for source in config.sources) * row_bytes
        if in_use > self.cache.max_bytes:
            logger.warning(
                "blend %s keeps %d MiB of blocks in use, the cache holds %d MiB, so files are decoded again and again; "
                "raise --cache-bytes, or create the blend with fewer block_rows",
                config.blend_id, in_use >> 20, self.cache.max_bytes >> 20,
            )  # fmt: skip
