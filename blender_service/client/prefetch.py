"""Run an iterator in a thread, a few items ahead of its consumer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

POLL_SECONDS: Final = 0.1

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Holds some items ready; leaving the context ends the thread, whatever it waits for."""

    def __init__(self, items: Iterator[Item], ahead: int, interrupt: Callable[[], None]) -> None:
        """Hold at most `ahead` items of `items` ready; `interrupt` ends a wait inside `items`."""
        self._items = items
        self._interrupt = interrupt
        self._queue: queue.Queue[Item | BaseException | None] = queue.Queue(maxsize=ahead)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blend-prefetch", daemon=True)

    def __enter__(self) -> Iterator[Item]:
        self._thread.start()
        return self._taken()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._interrupt()
        self._thread.join()

    def _taken(self) -> Iterator[Item]:
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    break
            self._put(None)
        except BaseException as error:  # noqa: BLE001 (raised again in the consumer's thread)
            self._put(error)

    def _put(self, item: Item | BaseException | None) -> bool:
        """Queue an item, unless the consumer has left; say whether it was queued."""
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
