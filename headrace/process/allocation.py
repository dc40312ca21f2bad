"""Whether this process keeps the free memory of its allocators, or gives it back to the machine.

A returned page costs a fault when it is taken again, and the kernel zeroes it: where a run gives back all
at once that was a third of its processor time. So where there is much memory, what is free is kept for a while, since
the next batch will take it. Where memory is scarce, it goes back at once.

Three allocators have a part of it: mimalloc in Arrow and another one in Sail, reading the environment when they are
loaded, and the C library's malloc, the source of Python's own pools and larger objects.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from headrace.process.memory_limit import has_much

BOUND = "HEADRACE_EMBEDDED_MEMORY"
"""The setting by which a user bounds what a process that runs Sail may hold."""
_PURGE_DELAY = "MIMALLOC_PURGE_DELAY"
_KEPT_MILLISECONDS = "1000"
# Options of glibc's mallopt(3): what is free at the top of a heap before it is trimmed, what more a heap takes at once,
# and the size from which on memory has a mapping of its own, which goes back whenever it is free (32 MiB at most).
_GLIBC_OPTIONS = {-1: 512 << 20, -2: 4 << 20, -3: 32 << 20}


def keeps_free_memory() -> bool:
    """Whether free memory is kept for a while: there is much, and no user bounds it."""
    return not os.environ.get(BOUND) and has_much()


def set_allocators() -> None:
    """Choose what the allocators do with free memory; before Arrow and Sail are loaded. A user's setting stays."""
    if not keeps_free_memory():
        os.environ.setdefault(_PURGE_DELAY, "0")
        return
    os.environ.setdefault(_PURGE_DELAY, _KEPT_MILLISECONDS)
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        for option, value in _GLIBC_OPTIONS.items():
            ctypes.CDLL(None).mallopt(option, value)
