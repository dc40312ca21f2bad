"""What each engine takes of this process's memory.

    HEADRACE_EMBEDDED_MEMORY=4g   what a process that runs Sail may hold, its Python and its children included;
                                  default seven eighths of what it has and what is free, 4g at most
    HEADRACE_EMBEDDED_BYTES=2g    how much text a step of a run on Sail may read; default five times that memory where
                                  it is the 4g that it takes at most, else half of it
    HEADRACE_SPARK_MEMORY=3g      the heap of a Spark on this machine; default three quarters of what is free beside its
                                  workers

What is free is the least of cgroups and machine (`memory_limit`), as it is when an engine is chosen. Sail's pool
counts what its operators hold. Rows on their way to and from Python, tables collected by the driver, compiled
code and the parsing children are outside of it, so the pool is at most half of the memory.
"""

from __future__ import annotations

import os
import re

from headrace.process.allocation import BOUND
from headrace.process.memory_limit import memory_limit, resident_bytes
from spark_jobs.exceptions import SetupError

MOST_BYTES, MEMORY, SPARK_MEMORY = "HEADRACE_EMBEDDED_BYTES", BOUND, "HEADRACE_SPARK_MEMORY"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MIB = 1 << 20
_MOST = 4 << 30
_TEXTS_OF_MEMORY = 5  # 20 GB ended in these 4 GiB (docs/start/performance.md); in less, half of it was tried
# Of a process that runs Sail: Python with Dagster .3 GiB, compiled code .1, two children that parse .15 each, and what
# two tasks hold between Sail and Python .5 (`benchmarks/bench_memory.py`).
_BESIDE_POOL = 11 << 27
_LEAST_POOL = 192 << 20
# Of a local Spark: its JVM beyond the heap .4 GiB, Python's driver .35, two workers .2 each.
BESIDE_HEAP = 1152 * _MIB
_LEAST_HEAP, _MOST_HEAP = 512 * _MIB, 3 << 30
_GOOD_HEAP = 3 << 29
_STEP = 3 << 29  # of a step that runs beside others


def embedded_memory() -> int:
    """Bytes a process with Sail may hold."""
    return size_setting(MEMORY, min(_MOST, (memory_limit().free + resident_bytes()) * 7 // 8))


def pool_bytes(part: float = 1) -> int:
    """Bytes of Sail's pool, or of a part of it; at most half of the memory."""
    memory = embedded_memory()
    whole = max(_LEAST_POOL, min(memory // 2, memory - _BESIDE_POOL))
    return max(_LEAST_POOL, min(memory // 2, int(whole * part)))


def most_text_bytes() -> int:
    """Bytes of text a step of a run on Sail may read."""
    memory = embedded_memory()
    return size_setting(MOST_BYTES, _TEXTS_OF_MEMORY * memory if memory >= _MOST else memory // 2)


def spark_heap() -> str:
    """The heap of a Spark doing all work on this machine, as Spark writes sizes."""
    if heap := os.environ.get(SPARK_MEMORY):
        return heap
    free = max(0, memory_limit().free - BESIDE_HEAP)
    return f"{min(_MOST_HEAP, max(_LEAST_HEAP, free * 3 // 4)) // _MIB}m"


def spark_fits() -> bool:
    """Whether a Spark on this machine would have a heap worth its name."""
    return not little_for_spark()


def little_for_spark() -> str:
    """How much memory a Spark on this machine lacks, and the mend; empty where it has enough.

    With less of a heap than 1.5 GiB it failed at 1 GB of text.
    """
    free, wanted = memory_limit().free, BESIDE_HEAP + _GOOD_HEAP
    if os.environ.get(SPARK_MEMORY) or free >= wanted:
        return ""
    free_gib, wanted_gib = (f"{size / (1 << 30):.1f}" for size in (free, wanted))
    return (
        f"{free_gib} GiB are free, Spark needs {wanted_gib}; free some, or set {SPARK_MEMORY} to the heap it shall have"
    )


def steps_at_once(most: int) -> int:
    """How many steps may run side by side, at most `most`: each has some memory for itself."""
    return max(1, min(most, memory_limit().free // _STEP))


def size_setting(name: str, default: int) -> int:
    """The bytes in a variable of the environment.

    Raises:
        SetupError: it is no size.
    """
    text = os.environ.get(name, "").strip()
    match = re.fullmatch(r"(\d+)([kmg]?)b?", text.lower())
    if text and match is None:
        raise SetupError(f"{name}={text}: it is no size; write e.g. 512m or 2g")
    return int(match[1]) * _UNITS[match[2]] if match else default


def shown(byte_count: int) -> str:
    """A number of bytes for people: 1.2 GB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if byte_count >= size:
            return f"{byte_count / size:.3g} {unit}"
    return f"{byte_count} bytes"
