"""Let a few threads compute at once; the others wait for their turn without cost.

A thread that waits for Python's global lock wakes 200 times a second to ask for it, so a thousand streams that make
their messages at once would spend most of a core on asking. Who waits for something else, such as a file, lends the
turn meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

MOST: Final = 2  # few, for one at most has the lock; more than one, for arrays are copied without it

_free: Final[SimpleQueue[None]] = SimpleQueue()
_of_thread: Final = threading.local()
for _ in range(MOST):
    _free.put(None)


@contextmanager
def turn() -> Iterator[None]:
    """Wait for a turn, and have it while the `with` block runs."""
    _free.get()
    _of_thread.has_turn = True
    try:
        yield
    finally:
        _of_thread.has_turn = False
        _free.put(None)


@contextmanager
def turn_lent() -> Iterator[None]:
    """Lend the turn, where this thread has one, while the `with` block waits for something.

    No lock may be held while somebody waits for it in a turn.
    """
    if not getattr(_of_thread, "has_turn", False):
        yield
        return
    _of_thread.has_turn = False
    _free.put(None)
    try:
        yield
    finally:
        _free.get()
        _of_thread.has_turn = True
