"""What the allocators of a process keep: free memory where there is much, nothing where it is scarce."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc, and /proc")
# Sets the allocators as on a machine with so much free memory, then takes and frees 20 MiB; prints what is still held.
_PROGRAM = """
import ctypes, os, sys
from headrace.process import allocation, memory_limit
free = int(sys.argv[1]) << 30
memory_limit.memory_limit = lambda: memory_limit.Memory(free, free, "")
allocation.set_allocators()
libc, size = ctypes.CDLL(None), 20 << 20
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
before = memory_limit.resident_bytes()
block = libc.malloc(ctypes.c_size_t(size))
ctypes.memset(block, 1, size)
libc.free(block)
kept = memory_limit.resident_bytes() - before
print(os.environ["MIMALLOC_PURGE_DELAY"], kept > size // 2)
"""


@pytest.mark.parametrize(
    ("free_gib", "settings", "printed"),
    [
        (2, {}, "0 False"),
        (16, {}, "1000 True"),
        (16, {"HEADRACE_EMBEDDED_MEMORY": "2g"}, "0 False"),
        (16, {"MIMALLOC_PURGE_DELAY": "7"}, "7 True"),
    ],
)
def test_free_memory_is_kept_where_there_is_much(free_gib: int, settings: dict[str, str], printed: str) -> None:
    """A setting of the user stays, and one that bounds the memory of a run counts as little memory."""
    names = ("HEADRACE_EMBEDDED_MEMORY", "MIMALLOC_PURGE_DELAY")
    environment = {name: value for name, value in os.environ.items() if name not in names} | settings
    command = [sys.executable, "-c", _PROGRAM, str(free_gib)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == printed
