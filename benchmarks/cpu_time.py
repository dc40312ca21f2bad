"""What benchmarks measure by: seconds of the processor, megabytes of text, and memory."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterable


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of this process, the best of some tries."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def of_all_processes() -> float:
    """CPU seconds so far of this process and all that it started, Java and Python workers."""
    import psutil

    me = psutil.Process()
    spent = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # a worker may end while it is asked
            spent += sum(process.cpu_times()[:4])  # user and system, of its own and of children that have ended
    return spent


def megabytes(texts: Iterable[str]) -> float:
    """Of UTF-8."""
    return sum(len(text.encode()) for text in texts) / 1e6


def peak_mib() -> int:
    """MiB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
