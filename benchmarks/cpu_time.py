"""What benchmarks measure by: seconds of the processor, megabytes of text, and memory."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


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

    spent = 0.0
    for process in tree(os.getpid()):
        with contextlib.suppress(psutil.Error):  # a worker may end while it is asked
            spent += sum(process.cpu_times()[:4])  # user and system, of its own and of children that have ended
    return spent


def tree(root: int) -> list[psutil.Process]:
    """A process and all below it; none where it has ended."""
    import psutil

    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def anonymous_bytes(pid: int) -> int:
    """Its share of anonymous pages: what no file gives back, shared pages once."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    matched = re.search(r"^Pss_Anon:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(matched[1]) << 10 if matched else 0


def megabytes(texts: Iterable[str]) -> float:
    """Of UTF-8."""
    return sum(len(text.encode()) for text in texts) / 1e6


def peak_mib() -> int:
    """MiB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
