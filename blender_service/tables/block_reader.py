"""Find the block of an ordinal, and get it from the cache or from Parquet, also ahead of its readers.

Blocks lie on multiples of `block_rows` (2,048 by default, fewer where rows are long), as the blend's order does, and
are cut where a file ends. They are numbered one after the other::

    block_rows 4, files 0..5 and 6..11      block 0: 0..3 | block 1: 4..5 || block 2: 6..7 | block 3: 8..11
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import weakref
from collections.abc import Iterable
from typing import Final

import numpy as np

from blender_service.arrays import Int64Array
from blender_service.tables.block_cache import BlockCache, PinnedBlock
from blender_service.tables.block_file import BlockKey
from blender_service.tables.packed_table import PackedTable
from blender_service.tables.parquet_to_block import decode_blocks

MAX_BLOCK_BYTES: Final = 16 << 20
KEYS_AT_HAND: Final = 64  # of a few groups of blocks, for each reader
MAX_WAITING: Final = 4096

logger = logging.getLogger(__name__)


class BlockReader:
    """Gives the blocks of one packed table at one snapshot; many threads may use it."""

    def __init__(self, table: PackedTable, block_rows: int, cache: BlockCache) -> None:
        """Read `table` in blocks of at most `block_rows`, keeping them in `cache`."""
        row_bytes = table.window.window_tokens * table.window.token_bytes
        self.table = table
        self.block_rows = min(block_rows, max(1, MAX_BLOCK_BYTES // row_bytes))
        self.block_bytes = self.block_rows * row_bytes
        self._cache = cache
        self._key = functools.lru_cache(KEYS_AT_HAND)(self._build_key)
        self._starts = np.array([run.start for run in table.runs], dtype=np.int64)
        ends = np.array([run.end for run in table.runs], dtype=np.int64)
        self._first_multiples = self._starts // self.block_rows
        counts = (ends - 1) // self.block_rows - self._first_multiples + 1
        self._first_blocks = np.concatenate([[0], np.cumsum(counts)])

    @property
    def block_count(self) -> int:
        """Number of blocks of the table."""
        return int(self._first_blocks[-1])

    def locate(self, ordinals: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Find where rows are.

        Args:
            ordinals: (R,) each below the number of rows.

        Returns:
            (R,) number of the block, (R,) row inside it.
        """
        run = np.searchsorted(self._starts, ordinals, side="right") - 1
        multiple = ordinals // self.block_rows
        start = np.maximum(self._starts[run], multiple * self.block_rows)
        return self._first_blocks[run] + multiple - self._first_multiples[run], ordinals - start

    def pin(self, blocks: Iterable[int]) -> dict[int, PinnedBlock]:
        """Give blocks by number, building those that are not in the cache, each row group decoded at most once.

        Raises:
            PackedTableError: a data file cannot be read or is not what the table promises.
            BlockCacheError: the cache cannot be written.
        """
        pins: dict[int, PinnedBlock] = {}
        missing: list[int] = []
        for block in blocks:
            pin = self._cache.pin(self._key(block))
            if pin is not None:
                pins[block] = pin
            else:
                missing.append(block)
        for run, absent in self._by_run(missing).items():
            pins.update(self._build(run, absent))
        return pins

    def replace(self, block: int, damaged: PinnedBlock) -> PinnedBlock:
        """Give a block again whose mapped rows were damaged; raises what `pin` does."""
        self._cache.forget(self._key(block), damaged)
        return self.pin([block])[block]

    def build(self, blocks: Iterable[int]) -> None:
        """Put blocks into the cache without pinning them; raises what `pin` does."""
        for run, numbers in self._by_run(blocks).items():
            self._build(run, numbers)

    def is_cached(self, block: int) -> bool:
        """Whether a block is in the cache."""
        return self._key(block) in self._cache

    def _build(self, run: int, blocks: list[int]) -> dict[int, PinnedBlock]:
        """Decode blocks of one file, except those that another thread decoded while this one waited for the lock."""
        with self._cache.building(self.table.runs[run].path):
            pins = {block: pin for block in blocks if (pin := self._cache.pin(self._key(block))) is not None}
            absent = [block for block in blocks if block not in pins]
            ranges = [(key.start, key.end) for key in map(self._key, absent)]
            if absent:
                decoded = decode_blocks(self.table, self.table.runs[run], ranges)
                for block, (_, content) in zip(absent, decoded, strict=True):
                    pins[block] = self._cache.put(self._key(block), content)
        return pins

    def _by_run(self, blocks: Iterable[int]) -> dict[int, list[int]]:
        """Sort blocks by the file they lie in, ascending."""
        runs: dict[int, list[int]] = {}
        for block in sorted(blocks):
            runs.setdefault(self._run_of(block), []).append(block)
        return runs

    def _run_of(self, block: int) -> int:
        """Index of the file that a block lies in."""
        return int(np.searchsorted(self._first_blocks, block, side="right")) - 1

    def _build_key(self, block: int) -> BlockKey:
        """Give the key of a block."""
        index = self._run_of(block)
        run, window = self.table.runs[index], self.table.window
        first = (int(self._first_multiples[index]) + block - int(self._first_blocks[index])) * self.block_rows
        start, end = max(run.start, first), min(run.end, first + self.block_rows)
        return BlockKey(run.path, start, end, window.window_tokens, window.token_bytes, window.vocabulary_size)


_Wanted = tuple[BlockReader, int]


class BlockFetcher:
    """Builds blocks ahead in one background thread; a reader builds those that did not fit into the queue itself."""

    def __init__(self) -> None:
        """Start with an empty queue; the thread starts with the first block, and ends with this object."""
        self._queue: queue.Queue[_Wanted | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def request(self, reader: BlockReader, blocks: Iterable[int]) -> None:
        """Ask for blocks that are not in the cache; returns at once."""
        for block in blocks:
            if reader.is_cached(block):
                continue
            self._start()
            try:
                self._queue.put_nowait((reader, block))
            except queue.Full:
                return

    def _start(self) -> None:
        """Start the thread if there is none."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=_fetch, args=(self._queue,), name="block-fetch", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # readers build their blocks themselves; the next request tries again
                    logger.warning("fetching ahead: %s", error)
                    return
                self._thread = thread
                weakref.finalize(self, _stop, self._queue)


def _fetch(waiting: queue.Queue[_Wanted | None]) -> None:
    """Build requested blocks until None comes; those of one table that wait together are built together."""
    while (wanted := waiting.get()) is not None:
        batches: dict[int, tuple[BlockReader, set[int]]] = {}
        while wanted is not None:
            reader, block = wanted
            batches.setdefault(id(reader), (reader, set()))[1].add(block)
            try:
                wanted = waiting.get_nowait()
            except queue.Empty:
                break
        for reader, blocks in batches.values():
            try:
                reader.build(blocks)
            except Exception as error:  # noqa: BLE001 (the block's reader raises it; this thread serves all others)
                logger.warning("fetching ahead: %s", error)
        if wanted is None:
            return


def _stop(waiting: queue.Queue[_Wanted | None]) -> None:
    """End the thread of a queue, and drop the blocks that wait in it."""
    while True:
        try:
            waiting.get_nowait()
        except queue.Empty:
            break
    waiting.put(None)
