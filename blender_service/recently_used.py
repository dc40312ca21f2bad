"""Keep what was used last, within a bound, so that a server running for months does not grow with all it has seen."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar

MOST_USES: Final = 4096  # that are noted before the order is brought up to date

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """Values by key; what was used least recently is forgotten first. Safe for many threads.

    A look takes no lock: the key is noted, and moves to the end of the order before anything is forgotten. With a lock,
    thousands of streams with what they need would wait for one another.

    >>> kept = RecentlyUsed[str, int](2)
    >>> for name in ("a", "b", "a", "c"):
    ...     _ = kept.find(name, lambda: 0)
    >>> kept.get("b") is None, len(kept)
    (True, 2)
    """

    def __init__(
        self,
        most: int,
        weigh: Callable[[Value], int] = lambda value: 1,
        forgotten: Callable[[Key], object] = lambda key: None,
        stays: Callable[[Key], bool] = lambda key: False,
    ) -> None:
        """Keep values of a weight of `most` in all, and always the last one.

        Args:
            most: bound of the sum of weights.
            weigh: weight of a value; by default values are counted.
            forgotten: called with the key of a forgotten value, under the lock.
            stays: whether others are to be forgotten before a value; asked under the lock.
        """
        self._most = most
        self._weigh = weigh
        self._forgotten = forgotten
        self._stays = stays
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._uses: deque[Key] = deque()  # since the order was brought up to date
        self._weight = 0
        self._lock = threading.RLock()

    def get(self, key: Key) -> Value | None:
        """Give a value, None if it is not kept."""
        value = self._values.get(key)
        if value is not None:
            self._uses.append(key)
            if len(self._uses) > MOST_USES and self._lock.acquire(blocking=False):
                try:
                    self._order_uses()
                finally:
                    self._lock.release()
        return value

    def _order_uses(self) -> None:
        """Move what was used to the end of the order; with the lock."""
        for _ in range(len(self._uses)):
            with suppress(KeyError):  # it was forgotten since
                self._values.move_to_end(self._uses.popleft())

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, in place of an earlier one of its key."""
        with self._lock:
            if key in self._values:
                self._weight -= self._weigh(self._values.pop(key))
            self._values[key] = value
            self._weight += self._weigh(value)
            if self._weight > self._most:
                self._order_uses()
                self._values.move_to_end(key)
            while self._weight > self._most and len(self._values) > 1:
                oldest = next((used for used in self._values if not self._stays(used)), next(iter(self._values)))
                self._weight -= self._weigh(self._values.pop(oldest))
                self._forgotten(oldest)

    def find(self, key: Key, make: Callable[[], Value]) -> Value:
        """Give a value, made under the lock where it is not kept."""
        value = self.get(key)
        if value is None:
            with self._lock:
                value = self._values.get(key)
                if value is None:
                    value = make()
                    self.put(key, value)
        return value

    def forget(self, is_gone: Callable[[Key], bool]) -> None:
        """Forget the values of some keys."""
        with self._lock:
            for key in [key for key in self._values if is_gone(key)]:
                self._weight -= self._weigh(self._values.pop(key))
                self._forgotten(key)

    @property
    def weight(self) -> int:
        """Total weight of the values in the cache."""
        return self._weight

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)
