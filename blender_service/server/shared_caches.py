"""Caches shared by all views of one lake, whatever each caller may read: resolved blends, files of tables, blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog

from blender_service.blend.config import BlendConfig
from blender_service.order.resolve import BlendOrder
from blender_service.order.resolved_blend import Head
from blender_service.recently_used import RecentlyUsed
from blender_service.tables.block_cache import BlockCache
from blender_service.tables.block_reader import BlockFetcher, BlockReader
from blender_service.tables.cell_runs import CellRun, RowRuns
from blender_service.tables.mirrors import Mirrors
from blender_service.tables.table_watch import TableWatch
from blender_service.tables.text_documents import RowGroups, row_groups
from blender_service.tables.text_table import TextRows
from headrace.tables.ordinals import OrdinalRun

logger = logging.getLogger(__name__)

BLENDS_AT_HAND: Final = 128
BLENDS_SHOWN: Final = 16_384  # blends with their tables, for namespace rules; some 12 MB
FILES_AT_HAND: Final = 200_000  # of packed tables at a snapshot, some 60 MB
DOCUMENTS_AT_HAND: Final = 100_000_000  # of tables of text at a snapshot, 400 MB


def _locks() -> tuple[threading.Lock, ...]:
    """Locks of keys, shared by their hashes."""
    return tuple(threading.Lock() for _ in range(64))


class OpenedBlend(NamedTuple):
    """A resolved blend; it never changes."""

    config: BlendConfig
    head: Head
    order: BlendOrder


@dataclass
class SharedCaches:
    """Caches of one lake. What they hold is the same for every caller who may see it, so all views share them.

    Each keeps what was used last, and finds the rest again in the lake: a stream holds what it reads itself. `indices`
    are keyed by a table's UUID and the pinned snapshot or `live`, `runs` by manifest. `catalogue` is the
    whole lake: what was excised is looked up there, whatever the caller may read. A table is indexed under its lock
    of `indexing`, so that streams that begin at once index it once; `readers`, of a source by the metadata that they
    were opened with, under their lock of `opening`. `tables_of` serves namespace rules; `cells` are keyed by
    data file, `row_runs` by hash or, of live sources, by table, snapshot and choice.
    """

    catalogue: Catalog
    cache: BlockCache
    watch: TableWatch
    fetcher: BlockFetcher = field(default_factory=BlockFetcher)
    mirrors: Mirrors = field(default_factory=Mirrors.of_environment)
    opened: RecentlyUsed[str, OpenedBlend] = field(default_factory=lambda: RecentlyUsed(BLENDS_AT_HAND))
    indices: RecentlyUsed[tuple[str, str], tuple[int, tuple[OrdinalRun, ...]]] = field(
        default_factory=lambda: RecentlyUsed(FILES_AT_HAND, weigh=lambda index: 1 + len(index[1]))
    )
    runs: RecentlyUsed[str, tuple[OrdinalRun, ...]] = field(
        default_factory=lambda: RecentlyUsed(FILES_AT_HAND, weigh=lambda runs: 1 + len(runs))
    )
    indexing: tuple[threading.Lock, ...] = field(default_factory=_locks)
    readers: RecentlyUsed[tuple[Hashable, ...], BlockReader] = field(
        default_factory=lambda: RecentlyUsed(FILES_AT_HAND, weigh=lambda reader: 1 + len(reader.table.runs))
    )
    opening: tuple[threading.Lock, ...] = field(default_factory=_locks)
    texts: RecentlyUsed[str, TextRows] = field(
        default_factory=lambda: RecentlyUsed(DOCUMENTS_AT_HAND, weigh=lambda rows: 1 + rows.lengths.size)
    )
    cells: RecentlyUsed[str, tuple[CellRun, ...]] = field(
        default_factory=lambda: RecentlyUsed(FILES_AT_HAND, weigh=lambda runs: 1 + len(runs))
    )
    row_runs: RecentlyUsed[str, RowRuns] = field(
        default_factory=lambda: RecentlyUsed(FILES_AT_HAND, weigh=lambda runs: 1 + len(runs.ranges))
    )
    row_groups: RowGroups = field(default_factory=row_groups)
    tables_of: RecentlyUsed[str, frozenset[str]] = field(default_factory=lambda: RecentlyUsed(BLENDS_SHOWN))


def warn_of_small_cache(config: BlendConfig, max_bytes: int) -> None:
    """Warn where the blocks kept in use by a blend do not fit into the cache."""
    row_bytes = config.window.window_tokens * config.window.token_bytes
    group_rows = config.block_rows * config.group_blocks
    in_use = sum(min(source.rows or group_rows, group_rows) for source in config.sources) * row_bytes
    if in_use > max_bytes:
        logger.warning(
            "blend %s keeps %d MiB of blocks in use, the cache holds %d MiB, so files are decoded again and again; "
            "raise --cache-memory, or create the blend with fewer block_rows",
            config.blend_id, in_use >> 20, max_bytes >> 20,
        )  # fmt: skip
