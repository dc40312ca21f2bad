"""Keep decoded blocks in memory, up to so many bytes: the least recently used go first.

A team may have a share of it. A block is of the team whose stream decoded it; while a team's blocks are within its
share, those of others go first, so no other team's reads push them out. What a team does not use, others may.

Streams that need one block at once decode it once: the first claims it, the others wait for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from typing import Final

from blender_service.recently_used import RecentlyUsed
from blender_service.tables.block import BlockKey, RowBlock
from headrace.process.memory_limit import memory_limit

DEFAULT_CACHE_BYTES: Final = 1 << 30


def default_cache_bytes() -> int:
    """A third of the free memory when the server starts, 1 GiB at most."""
    return min(DEFAULT_CACHE_BYTES, memory_limit().free // 3)


class BlockCache:
    """Blocks by key; safe for many threads.

    Attributes:
        max_bytes: bound of the kept blocks.
        hits: blocks in the cache.
        misses: blocks to decode.
        share_of: the share of a team, 0 to 1.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Keep blocks of `max_bytes` in all, and always the last one."""
        self.max_bytes = max_bytes
        self.hits = self.misses = 0
        self.share_of: Callable[[str], float] = lambda team: 0.0
        self._teams: dict[BlockKey, tuple[str, int]] = {}
        self._team_bytes: Counter[str] = Counter()
        self._kept = RecentlyUsed[BlockKey, RowBlock](
            max_bytes, weigh=lambda block: block.byte_count, forgotten=self._disown, stays=self._is_within_share
        )
        self._claimed: dict[BlockKey, Future[RowBlock]] = {}
        self._lock = threading.Lock()

    @property
    def byte_count(self) -> int:
        """Bytes of the kept blocks."""
        return self._kept.weight

    def get(self, key: BlockKey) -> RowBlock | None:
        """Give a block, None if it is not kept; the caller counts its hits afterwards, by `count_hits`."""
        return self._kept.get(key)

    def count_hits(self, count: int) -> None:
        """Count blocks taken from the cache."""
        with self._lock:
            self.hits += count

    def __contains__(self, key: BlockKey) -> bool:
        """Whether a block is kept, or is being decoded."""
        return key in self._kept or key in self._claimed

    def claim(self, keys: Iterable[BlockKey]) -> tuple[list[BlockKey], dict[BlockKey, Future[RowBlock]]]:
        """Claim blocks for decoding.

        Returns:
            Those that the caller must now decode (`decoded`), and those that are there or that others decode. Such a
            future raises what the other met, and is cancelled where the other gave up; the block may be claimed again.
        """
        claimed: list[BlockKey] = []
        others: dict[BlockKey, Future[RowBlock]] = {}
        with self._lock:
            for key in keys:
                future = self._claimed.get(key)
                if future is None:
                    future = Future()
                    if (block := self._kept.get(key)) is not None:
                        future.set_result(block)
                    else:
                        self._claimed[key] = future
                        claimed.append(key)
                        continue
                self.hits += 1
                others[key] = future
        return claimed, others

    def decoded(
        self, claimed: Collection[BlockKey], blocks: Iterator[RowBlock], team: str = ""
    ) -> Iterator[tuple[BlockKey, RowBlock]]:
        """Keep claimed blocks for a team and pass each on, as they are decoded; others who wait are given them too."""
        waiting = list(claimed)
        try:
            for block in blocks:
                key = waiting[0]
                with self._lock:
                    self.misses += 1
                    self._own(key, team, block.byte_count)
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
        """Drop the blocks of data files no longer served."""
        if paths:
            with self._lock:
                self._kept.forget(lambda key: key.path in paths)

    def team_bytes(self) -> dict[str, int]:
        """Bytes kept for each team."""
        return {team: size for team, size in self._team_bytes.items() if size}

    def _own(self, key: BlockKey, team: str, size: int) -> None:
        self._disown(key)
        self._teams[key] = (team, size)
        self._team_bytes[team] += size

    def _disown(self, key: BlockKey) -> None:
        team, size = self._teams.pop(key, ("", 0))
        self._team_bytes[team] -= size

    def _is_within_share(self, key: BlockKey) -> bool:
        team, _ = self._teams[key]
        return bool(team) and self._team_bytes[team] <= self.share_of(team) * self.max_bytes

    def _unclaim(self, keys: list[BlockKey]) -> list[Future[RowBlock]]:
        with self._lock:
            futures = [self._claimed.pop(key) for key in keys]
        keys.clear()
        return futures
