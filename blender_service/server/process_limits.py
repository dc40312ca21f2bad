"""What a server asks of its operating system: one heap for all threads, and open files for its connections."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from typing import Final

MOST_OPEN_FILES, KEPT_OPEN_FILES = 1 << 16, 512  # of a process; of these for others than connections
M_ARENA_MAX: Final = -8  # of malloc.h


def use_one_heap() -> None:
    """Make all threads of this process allocate from one heap, where the C library is glibc.

    A message is made in one thread and freed in another. By default glibc gives threads heaps of their own, which keep
    freed memory: with 64 readers some 10 MiB unused by any thread.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Give the free memory of the heap back to the machine, where the C library is glibc."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def allow_open_files() -> None:
    """Raise this process's limit of open files to what it may have: each connection is one, and 1,024 is common."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (_bounded(hard), hard))


def most_connections() -> int:
    """Give the number of connections within the limit of open files, files of tables left out."""
    limit = _bounded(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return limit - min(KEPT_OPEN_FILES, limit // 2)


def _bounded(limit: int) -> int:
    return MOST_OPEN_FILES if limit == resource.RLIM_INFINITY else min(limit, MOST_OPEN_FILES)
