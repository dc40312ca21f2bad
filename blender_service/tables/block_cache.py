"""Keep decoded blocks in memory, up to so many bytes: the least recently used go first.

Streams that need one block at once decode it once: the first claims it, the others wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future
from typing import Final

from blender_service.recently_used import RecentlyUsed
from blender_service.tables.block import Block, BlockKey

DEFAULT_CACHE_BYTES: Final = 1 << 30


class BlockCache:
    """Blocks by key; safe for many threads.

    Attributes:
        max_bytes: bound of the blocks that are kept.
        hits: blocks that were found.
        misses: blocks that were decoded.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Keep blocks of `max_bytes` in all, and always the last one."""
        self.max_bytes = max_bytes
        self.hits = self.misses = 0
        self._kept = RecentlyUsed[BlockKey, Block](max_bytes, weigh=lambda block: block.byte_count)
        self._claimed: dict[BlockKey, Future[Block]] = {}
        self._lock = threading.Lock()

    @property
    def byte_count(self) -> int:
        """Bytes of the blocks that are kept."""
        return self._kept.weight

    def get(self, key: BlockKey) -> Block | None:
        """Give a block, None if it is not kept."""
        block = self._kept.get(key)
        if block is not None:
            with self._lock:
                self.hits += 1
        return block

    def __contains__(self, key: BlockKey) -> bool:
        """Whether a block is kept, or is being decoded."""
        return key in self._kept or key in self._claimed

    def claim(self, keys: Iterable[BlockKey]) -> tuple[list[BlockKey], dict[BlockKey, Future[Block]]]:
        """Claim blocks that are to be decoded.

        Returns:
            Those that the caller must now decode (`decoded`), and those that are there or that others decode. Such a
            future raises what the other met, and is cancelled where the other gave up; the block may be claimed again.
        """
        own: list[BlockKey] = []
        others: dict[BlockKey, Future[Block]] = {}
        with self._lock:
            for key in keys:
                future = self._claimed.get(key)
                if future is None:
                    future = Future()
                    if (block := self._kept.get(key)) is not None:
                        future.set_result(block)
                    else:
                        self._claimed[key] = future
                        own.append(key)
                        continue
                self.hits += 1
                others[key] = future
        return own, others

    def decoded(self, claimed: Collection[BlockKey], blocks: Iterator[Block]) -> Iterator[tuple[BlockKey, Block]]:
        """Keep claimed blocks and pass each on, as they are decoded; what others wait for is given to them too."""
        waiting = list(claimed)
        try:
            for block in blocks:
                key = waiting[0]
                with self._lock:
                    self.misses += 1
                    self._kept.put(key, block)
                    future = self._claimed.pop(key)
                del waiting[0]
                future.set_result(block)
                yield key, block
        except Exception as error:
            for future in self._unclaim(waiting):
                future.set_exception(error)
            raise
        finally:
            for future in self._unclaim(waiting):
                future.cancel()

    def forget(self, paths: Collection[str]) -> None:
        """Drop the blocks of data files that are not served any more."""
        if paths:
            self._kept.forget(lambda key: key.path in paths)

    def _unclaim(self, keys: list[BlockKey]) -> list[Future[Block]]:
        with self._lock:
            futures = [self._claimed.pop(key) for key in keys]
        keys.clear()
        return futures
