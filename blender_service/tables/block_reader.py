"""Find the block of an ordinal, and get it from memory or from Parquet, also ahead of its readers.

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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Final

import numpy as np

from blender_service.arrays import Int64Array
from blender_service.tables.block import BlockKey, RowBlock
from blender_service.tables.block_cache import BlockCache
from blender_service.tables.packed_table import PackedTable, row_bytes_of
from blender_service.tables.parquet_to_block import decode_blocks
from blender_service.turns import turn_lent

MAX_BLOCK_BYTES: Final = 16 << 20
KEYS_AT_HAND: Final = 4096  # of a few groups of blocks, for each reader; of hundreds of sources one has them all
MAX_WAITING: Final = 4096

logger = logging.getLogger(__name__)


class BlockReader:
    """Gives the blocks of one packed table at one snapshot; many threads may use it."""

    def __init__(
        self,
        table: PackedTable,
        block_rows: int,
        cache: BlockCache,
        team: str = "",
        of_epoch: Callable[[int], BlockReader] | None = None,
    ) -> None:
        """Read `table` in blocks of at most `block_rows`, keeping them in `cache` for a team.

        `of_epoch` gives the reader of an epoch from 1 on, where rows are others in each; the table is that of epoch 0.
        """
        self.table, self.of_epoch = table, of_epoch
        id_bytes = table.window.window_tokens * table.window.token_bytes
        self.block_rows = min(block_rows, max(1, MAX_BLOCK_BYTES // id_bytes))
        self.block_bytes = self.block_rows * row_bytes_of(table.window, table.columns)
        self._cache = cache
        self._team = team
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

    def blocks(self, numbers: Iterable[int]) -> Iterator[tuple[int, RowBlock]]:
        """Give blocks by number, in any order, decoding those missing from the cache, one at a time.

        Raises:
            PackedTableError: a data file cannot be read or is not what the table promises.
            ServerUnavailableError: its store does not answer.
        """
        missing: list[int] = []
        hits = 0
        for number in numbers:
            block = self._cache.get(self._key(number))
            if block is None:
                missing.append(number)
            else:
                hits += 1
                yield number, block
        self._cache.count_hits(hits)
        for run, absent in self._by_run(missing).items():
            yield from self._decode(run, absent)

    def build(self, numbers: Iterable[int]) -> None:
        """Put blocks into the cache; raises what `blocks` does."""
        for _ in self.blocks(numbers):
            pass

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop all blocks of some blocks' files."""
        self._cache.forget({self._key(number).path for number in numbers})

    def is_cached(self, number: int) -> bool:
        """Whether a block is in the cache, or on its way."""
        return self._key(number) in self._cache

    def _decode(self, run: int, numbers: Iterable[int]) -> Iterator[tuple[int, RowBlock]]:
        """Decode blocks of one file, and wait for those in another thread's decoding."""
        wanted = {self._key(number): number for number in numbers}
        while wanted:
            claimed, others = self._cache.claim(wanted)
            ranges = [(key.start, key.end) for key in claimed]
            decode = self.table.decode or functools.partial(decode_blocks, self.table, self.table.runs[run])
            decoded = decode(ranges) if claimed else iter(())
            pairs = self._cache.decoded(claimed, decoded, self._team)
            while (pair := _next_of(pairs)) is not None:
                yield wanted.pop(pair[0]), pair[1]
            for key, future in others.items():
                with suppress(CancelledError):  # the other thread gave up, so it is claimed anew
                    with turn_lent():
                        block = future.result()
                    yield wanted.pop(key), block

    def _by_run(self, blocks: Iterable[int]) -> dict[int, list[int]]:
        """Sort blocks by the file they lie in, ascending."""
        runs: dict[int, list[int]] = {}
        for block in sorted(blocks):
            runs.setdefault(self._run_of(block), []).append(block)
        return runs

    def _run_of(self, block: int) -> int:
        """Index of a block's file."""
        return int(np.searchsorted(self._first_blocks, block, side="right")) - 1

    def _build_key(self, block: int) -> BlockKey:
        """Give the key of a block."""
        index = self._run_of(block)
        run, window = self.table.runs[index], self.table.window
        first = (int(self._first_multiples[index]) + block - int(self._first_blocks[index])) * self.block_rows
        start, end = max(run.start, first), min(run.end, first + self.block_rows)
        of_window = (window.window_tokens, window.token_bytes, window.vocabulary_size)
        left_off = self.table.left_off.rules if self.table.left_off else ()
        return BlockKey(run.path, start, end, *of_window, self.table.columns, left_off)


def _next_of(pairs: Iterator[tuple[BlockKey, RowBlock]]) -> tuple[BlockKey, RowBlock] | None:
    """Give the next decoded block, None after the last."""
    with turn_lent():
        return next(pairs, None)


_Wanted = tuple[BlockReader, int, Callable[[], bool]]


class BlockFetcher:
    """Builds blocks ahead in one background thread; a reader builds those beyond the queue's room itself."""

    def __init__(self) -> None:
        """Start with an empty queue; the thread starts with the first block, and ends with this object."""
        self._queue: queue.Queue[_Wanted | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def request(self, reader: BlockReader, blocks: Iterable[int], is_served: Callable[[], bool] = lambda: True) -> None:
        """Ask for blocks missing from the cache; returns at once. What `is_served` denies by then is not kept."""
        for block in blocks:
            if reader.is_cached(block):
                continue
            self._start()
            try:
                self._queue.put_nowait((reader, block, is_served))
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
    """Build requested blocks until None comes; those of one table waiting together are built together."""
    while (wanted := waiting.get()) is not None:
        batches: dict[int, tuple[BlockReader, set[int], list[Callable[[], bool]]]] = {}
        while wanted is not None:
            reader, block, is_served = wanted
            if is_served():
                _, blocks, served = batches.setdefault(id(reader), (reader, set(), []))
                blocks.add(block)
                served.append(is_served)
            try:
                wanted = waiting.get_nowait()
            except queue.Empty:
                break
        for reader, blocks, served in batches.values():
            try:
                reader.build(blocks)
                if not all(is_served() for is_served in served):  # an excision may have come meanwhile
                    reader.forget(blocks)
            except Exception as error:  # noqa: BLE001 (the stream that needs the block meets it too, and says it)
                logger.warning("fetching ahead: %s", error)
        if wanted is None:
            return


def _stop(waiting: queue.Queue[_Wanted | None]) -> None:
    """End the thread of a queue, and drop the blocks waiting in it."""
    while True:
        try:
            waiting.get_nowait()
        except queue.Empty:
            break
    waiting.put(None)
