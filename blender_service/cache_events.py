"""What the cache of blocks and files tells of itself: plain counts that metrics show."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class CacheCounts:
    """Counts since the server's start.

    Attributes:
        hits: blocks found in memory or in the cache's files.
        misses: blocks that had to be read from the lake.
        checksum_failures: reads whose bytes did not have their checksum.
        quarantined: files taken out of use because of that.
    """

    hits: int = 0
    misses: int = 0
    checksum_failures: int = 0
    quarantined: int = 0


class CacheEvents:
    """Counts; safe for many threads."""

    def __init__(self) -> None:
        """Start from zero."""
        self._counts = asdict(CacheCounts())
        self._lock = threading.Lock()

    def hit(self, blocks: int = 1) -> None:
        """Blocks were there."""
        self._add("hits", blocks)

    def miss(self, blocks: int = 1) -> None:
        """Blocks were not there."""
        self._add("misses", blocks)

    def checksum_failure(self) -> None:
        """Bytes did not have their checksum."""
        self._add("checksum_failures", 1)

    def quarantine(self) -> None:
        """A file was taken out of use."""
        self._add("quarantined", 1)

    @property
    def counts(self) -> CacheCounts:
        """The counts now."""
        with self._lock:
            return CacheCounts(**self._counts)

    def _add(self, name: str, count: int) -> None:
        with self._lock:
            self._counts[name] += count
