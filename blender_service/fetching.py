"""Builds blocks ahead of the readers that will need them, in one background thread."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Iterable
from typing import Final

from blender_service.blocks import BlockReader
from blender_service.exceptions import BlenderError

MAX_WAITING: Final = 4096

logger = logging.getLogger(__name__)

_Wanted = tuple[BlockReader, int]


class BlockFetcher:
    """A queue of blocks to build; what does not fit into it is left to the reader, who then builds it himself."""

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
                self._thread = threading.Thread(target=_fetch, args=(self._queue,), name="block-fetch", daemon=True)
                self._thread.start()
                weakref.finalize(self, _stop, self._queue)


def _fetch(waiting: queue.Queue[_Wanted | None]) -> None:
    """Build what is asked for until None comes, as many blocks of one table at once as there are waiting."""
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
            except (BlenderError, OSError) as error:  # whoever reads the block meets the error, and raises it
                logger.warning("fetching ahead: %s", error)
        if wanted is None:
            return


def _stop(waiting: queue.Queue[_Wanted | None]) -> None:
    """End the thread of a queue, dropping what waits in it."""
    while True:
        try:
            waiting.get_nowait()
        except queue.Empty:
            break
    waiting.put(None)
