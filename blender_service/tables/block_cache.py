"""Keep block files in a folder that processes share: the least recently used go first, never those in use.

    <folder>/<hash of the block's key>.block         complete or absent: written under another name, then renamed
    <folder>/.<name>.<random>.tmp                    being written; removed after an hour if its process was killed
    <folder>/quarantine/<name>                       failed its checksum three times; a new file takes its name

Any number of processes may use one folder: names depend on the content alone, a rename is atomic, and a mapped file
that another process deletes stays readable until it is unmapped. So there is no lock between processes, and two that
build the same block lose time only. A reader pins a block by holding the `PinnedBlock` it was given; this process does
not delete a block that is pinned here.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from blender_service.exceptions import BlockCacheError, DamagedBlockError
from blender_service.tables.block_file import Block, BlockKey, decode_block_file, encode_block

DEFAULT_CACHE_BYTES: Final = 8 << 30
USED_BLOCKS: Final = 1 << 16  # whose last use is known better than by the time stamp of their file
MAPPED_BLOCKS: Final = 512  # each holds a file descriptor, of which a process often may have 1,024
READ_ATTEMPTS: Final = 3
STALE_SECONDS: Final = 3600.0
TRIM_FRACTION: Final = 1 / 16  # dropped below the bound, so that not every block that is added lists the folder
QUARANTINE: Final = "quarantine"
LOCK_COUNT: Final = 64

logger = logging.getLogger(__name__)


class PinnedBlock:
    """A block in use: while this object is referenced, the block's file is not deleted."""

    __slots__ = ("__weakref__", "block")

    def __init__(self, block: Block) -> None:
        """Hold a block."""
        self.block = block


class BlockCache:
    """Blocks by key, in a folder of at most so many bytes; safe for many threads and processes."""

    def __init__(self, folder: Path | None = None, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Use a folder, made if it is not there.

        Args:
            folder: shared with other processes, kept when they end; None for a temporary one of this cache.
            max_bytes: bound of its files; pinned ones stay beyond it.

        Raises:
            BlockCacheError: the folder cannot be made.
        """
        try:
            if folder is None:
                folder = Path(tempfile.mkdtemp(prefix="headrace-blocks-"))
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BlockCacheError(f"cache folder {folder}: {error.strerror}; choose another --cache-folder") from error
        self.folder = folder
        self.max_bytes = max_bytes
        self.events = CacheEvents()
        self._lock = threading.Lock()
        self._mapped: OrderedDict[str, Block] = OrderedDict()
        self._pins: weakref.WeakValueDictionary[str, PinnedBlock] = weakref.WeakValueDictionary()
        self._used: OrderedDict[str, float] = OrderedDict()
        self._building = [threading.Lock() for _ in range(LOCK_COUNT)]
        self.byte_count = self._trim()

    def pin(self, key: BlockKey) -> PinnedBlock | None:
        """Find a block and keep it from being deleted while the pin is held; None if it must be built.

        A file that is damaged is put aside, so that its block is built again.
        """
        name = key.name
        with self._lock:
            pin = self._pins.get(name)
            if pin is None and (block := self._mapped.get(name)) is not None:
                pin = self._pins[name] = PinnedBlock(block)
            if pin is not None:
                self.events.hit()
                return self._touch(name, pin)
        read = self._read(name, key)
        if read is None:
            return None
        with self._lock:
            pin = self._pins.get(name) or PinnedBlock(read)
            self._pins[name] = pin
            self.events.hit()
            return self._touch(name, pin)

    def forget(self, key: BlockKey, damaged: PinnedBlock) -> None:
        """Drop a block that was damaged after it was mapped; its file is checked when it is read again."""
        logger.warning("block file %s: was damaged after it was mapped; it is checked again", self.folder / key.name)
        self.events.checksum_failure()
        with self._lock:
            if self._mapped.get(key.name) is damaged.block:
                del self._mapped[key.name]
            if self._pins.get(key.name) is damaged:
                del self._pins[key.name]

    def __contains__(self, key: BlockKey) -> bool:
        """Whether the block is built already."""
        name = key.name
        return name in self._mapped or name in self._pins or (self.folder / name).exists()

    def put(self, key: BlockKey, block: Block) -> PinnedBlock:
        """Write a block's file, completely or not at all, read it back, then delete files beyond the bound.

        Raises:
            BlockCacheError: the folder is full or cannot be written, or what was written does not read back.
        """
        name = key.name
        temporary = self.folder / f".{name}.{secrets.token_hex(8)}.tmp"
        try:
            with temporary.open("xb") as file:
                written = sum(file.write(piece) for piece in encode_block(block, key))
            mapped = _map_block(temporary, key)
            temporary.rename(self.folder / name)
        except (OSError, DamagedBlockError) as error:
            temporary.unlink(missing_ok=True)
            raise BlockCacheError(
                f"cache folder {self.folder}: cannot write a block of {key.path}: {error}; free some space, or choose "
                "another --cache-folder or a lower --cache-bytes"
            ) from error
        self.events.miss()
        with self._lock:
            pin = self._pins[name] = PinnedBlock(mapped)
            self._touch(name, pin)
            self.byte_count += written
            if self.byte_count > self.max_bytes:
                self.byte_count = self._trim()
        return pin

    @contextmanager
    def building(self, path: str) -> Iterator[None]:
        """Hold the lock under which one data file is decoded, so that readers that need one block decode it once."""
        with self._building[hash(path) % LOCK_COUNT]:
            yield

    def _touch(self, name: str, pin: PinnedBlock) -> PinnedBlock:
        """Mark a block as used; under the lock."""
        self._mapped[name] = pin.block
        self._mapped.move_to_end(name)
        while len(self._mapped) > MAPPED_BLOCKS:
            self._mapped.popitem(last=False)
        self._used[name] = time.time()
        self._used.move_to_end(name)
        while len(self._used) > USED_BLOCKS:
            self._used.popitem(last=False)
        return pin

    def _read(self, name: str, key: BlockKey) -> Block | None:
        """Map a file and check it; None if there is none, or if it failed three times and was moved to quarantine."""
        path = self.folder / name
        for _ in range(READ_ATTEMPTS):
            try:
                return _map_block(path, key)
            except FileNotFoundError:
                return None
            except (OSError, DamagedBlockError) as error:
                logger.warning("block file %s: %s", path, error)
                self.events.checksum_failure()
        aside = self.folder / QUARANTINE / name
        with suppress(OSError):  # another process may have put it aside, or the disk may be gone altogether
            aside.parent.mkdir(exist_ok=True)
            path.rename(aside)
        self.events.quarantine()
        logger.error(
            "block file %s: was damaged in %d attempts; it was moved to %s and is built again from %s: check the disk",
            path, READ_ATTEMPTS, aside, key.path,
        )  # fmt: skip
        return None

    def _trim(self) -> int:
        """Delete the least recently used files until the rest fits; give the bytes left. Under the lock."""
        files: list[tuple[float, int, str]] = []
        now = time.time()
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process has deleted it
                    status = entry.stat()
                    if entry.name.endswith(".block"):
                        files.append(
                            (max(status.st_mtime, self._used.get(entry.name, 0.0)), status.st_size, entry.name)
                        )
                    elif entry.name.endswith(".tmp") and now - status.st_mtime > STALE_SECONDS:
                        os.unlink(entry.path)
        total = sum(size for _, size, _ in files)
        if total <= self.max_bytes:
            return total
        for _, size, name in sorted(files):
            if total <= self.max_bytes * (1 - TRIM_FRACTION):
                break
            if name not in self._pins:
                (self.folder / name).unlink(missing_ok=True)
                self._mapped.pop(name, None)
                self._used.pop(name, None)
                total -= size
        return total


def _map_block(path: Path, key: BlockKey) -> Block:
    """Map a block's file and check it; the file lives as long as the arrays do."""
    with path.open("rb") as file:
        os.utime(file.fileno())  # the time stamp tells other processes that the block is in use
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise DamagedBlockError("is empty")
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    return decode_block_file(memoryview(mapped), key)


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
    """Counts what the cache does, for metrics; safe for many threads."""

    def __init__(self) -> None:
        """Start from zero."""
        self._counts = asdict(CacheCounts())
        self._lock = threading.Lock()

    def hit(self) -> None:
        """Count a block that was found."""
        self._add("hits")

    def miss(self) -> None:
        """Count a block that had to be built."""
        self._add("misses")

    def checksum_failure(self) -> None:
        """Count bytes that did not have their checksum."""
        self._add("checksum_failures")

    def quarantine(self) -> None:
        """Count a file that was taken out of use."""
        self._add("quarantined")

    @property
    def counts(self) -> CacheCounts:
        """The counts now."""
        with self._lock:
            return CacheCounts(**self._counts)

    def _add(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
