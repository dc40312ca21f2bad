"""What benchmarks of kernels measure by: seconds of the processor, and megabytes of text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds, the best of some tries."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def megabytes(texts: Iterable[str]) -> float:
    """Of UTF-8."""
    return sum(len(text.encode()) for text in texts) / 1e6
