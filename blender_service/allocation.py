"""Keeps freed memory from staying with the process, where the C library is glibc.

Each message is made in one thread, copied by gRPC, and freed in another. glibc gives threads heaps ("arenas") of their
own, up to eight a core, and a heap gives back only what is free at its end: with 64 readers the server held 50 to 150
MiB that nobody used, for good. With one heap, what one stream frees the next one takes; and what is free in its middle
goes back to the kernel when many streams have left. Elsewhere than on glibc nothing is done.

Source: https://man7.org/linux/man-pages/man3/mallopt.3.html, malloc_trim(3)
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

M_ARENA_MAX: Final = -8
FEW_STREAMS: Final = 8  # what so many leave behind is not worth a look over the heap, some milliseconds


def use_one_heap() -> bool:
    """Have all threads of this process allocate from one heap, from now on; say whether the C library can.

    For a process that serves and does nothing else: it holds for everything in it.
    """
    library = _glibc()
    return library is not None and library.mallopt(M_ARENA_MAX, 1) == 1


def give_back() -> bool:
    """Give memory that is free to the kernel; say whether there was any."""
    library = _glibc()
    return library is not None and library.malloc_trim(0) == 1


class OpenStreams:
    """Counts streams for as long as they hold anything, and gives memory back whenever half of many have left."""

    def __init__(self) -> None:
        """Start with none."""
        self.count = 0
        self._most = 0
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a stream."""
        with self._lock:
            self.count += 1
            self._most = max(self._most, self.count)
        try:
            yield
        finally:
            with self._lock:
                self.count -= 1
                have_left = self._most > FEW_STREAMS and 2 * self.count <= self._most
                if have_left:
                    self._most = self.count
            if have_left:
                give_back()


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    """Open the C library of this process if it is glibc."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # there is none to open, as on Windows
        return None
    return library if hasattr(library, "gnu_get_libc_version") else None
