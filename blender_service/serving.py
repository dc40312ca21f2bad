"""What a server serves, without the wire: blends of one lake, opened and checked at every read.

Replicas share nothing but the lake; those of one machine may share a folder of blocks.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from pyiceberg.catalog import Catalog

from blender_service.block_cache import DEFAULT_CACHE_BYTES, BlockCache
from blender_service.blocks import BlockReader
from blender_service.config import BlendConfig
from blender_service.creation import create_blend
from blender_service.exceptions import SourceChangedError
from blender_service.fetching import BlockFetcher
from blender_service.order import BlendOrder
from blender_service.packed_table import OrdinalRun, PackedTable, index_snapshot, open_pinned
from blender_service.reading import BlendReader
from blender_service.specification import BlendSpec
from blender_service.store import open_store

logger = logging.getLogger(__name__)


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
        self._orders: dict[str, tuple[BlendConfig, BlendOrder]] = {}
        self._indices: dict[tuple[str, str, int], tuple[OrdinalRun, ...]] = {}
        self._lock = threading.Lock()

    def create(self, spec: BlendSpec) -> BlendConfig:
        """Create a blend, or find the one that is already the same; see `creation.create_blend`."""
        config = create_blend(self._catalogue, self._store, spec)
        logger.info("created blend %s of %d sources", config.blend_id, len(config.sources))
        return config

    def resolve(self, reference: str) -> str:
        """Turn an id, the start of one or a name into the id."""
        return self._store.resolve(reference)

    def config(self, blend_id: str) -> BlendConfig:
        """Give the config of a blend by its full id."""
        return self._order(blend_id)[0]

    def order(self, blend_id: str) -> BlendOrder:
        """Give the order of a blend's rows by its full id."""
        return self._order(blend_id)[1]

    def list_ids(self) -> list[str]:
        """List the ids of all blends, ascending."""
        return self._store.list_ids()

    def names(self) -> dict[str, list[str]]:
        """List the names of each blend."""
        return self._store.names()

    def open(self, blend_id: str) -> BlendReader:
        """Open a blend for reading; every source must still be what the blend pinned.

        Raises:
            BlendNotFoundError: there is no such blend.
            SourceChangedError: a table is not what it was.
        """
        config, order = self._order(blend_id)
        readers = []
        for source in config.sources:
            table, snapshot = open_pinned(self._catalogue, source, config.window)
            key = (source.table_uuid, str(snapshot.snapshot_id), source.rows)
            runs = self._indices.get(key)
            if runs is None:
                runs = index_snapshot(table, source.table, snapshot)
                if snapshot.snapshot_id != int(source.snapshot_id):  # the successor may hold later increments as well
                    runs = tuple(r._replace(end=min(r.end, source.rows)) for r in runs if r.start < source.rows)
                if not runs or runs[-1].end != source.rows:
                    raise SourceChangedError(
                        f"source {source.name}: snapshot {source.snapshot_id} of {source.table} has "
                        f"{runs[-1].end if runs else 0} rows, the blend pinned {source.rows}; create a new blend"
                    )
                self._indices[key] = runs
            packed = PackedTable(source.table, config.window, runs, table.io)
            readers.append(BlockReader(packed, config.block_rows, self.cache))
        return BlendReader(config, order, readers, self._fetcher, self.cache.max_bytes // 2)

    def prewarm(self, blend_id: str, offset: int, rows: int) -> None:
        """Build the blocks of some rows, so that reading them waits for nothing; see `BlendReader.prewarm`."""
        self.open(blend_id).prewarm(offset, rows)

    def _order(self, blend_id: str) -> tuple[BlendConfig, BlendOrder]:
        """Load a config and resolve its order once; configs never change."""
        known = self._orders.get(blend_id)
        if known is not None:
            return known
        config = self._store.get(blend_id)
        with self._lock:
            if blend_id not in self._orders:
                self._orders[blend_id] = (config, config.order())
                self._warn_small_cache(config)
            return self._orders[blend_id]

    def _warn_small_cache(self, config: BlendConfig) -> None:
        """Say so where the blocks that a blend keeps in use do not fit into the cache."""
        row_bytes = config.window.window_tokens * config.window.token_bytes
        group_rows = config.block_rows * config.group_blocks
        in_use = sum(min(source.rows, group_rows) for source in config.sources) * row_bytes
        if in_use > self.cache.max_bytes:
            logger.warning(
                "blend %s keeps %d MiB of blocks in use, the cache holds %d MiB, so files are decoded again and again; "
                "raise --cache-bytes, or create the blend with fewer block_rows",
                config.blend_id, in_use >> 20, self.cache.max_bytes >> 20,
            )  # fmt: skip
