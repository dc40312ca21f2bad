"""What the embedded engine says of itself, without starting it."""

from __future__ import annotations

import time

from spark_jobs.lake.engine.embedded import processor_seconds


def burn(seconds: float) -> None:
    """Take so much of a processor."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_steps_side_by_side_share_what_the_process_takes() -> None:
    """Each second is counted once: alone it is the one's, at a time half of it is each one's."""
    before = time.process_time()
    with processor_seconds() as first:
        burn(0.1)
        alone = first()
        with processor_seconds() as second:
            burn(0.1)
            inner = second()
        burn(0.05)
        whole = first()
    took = time.process_time() - before
    assert alone >= 0.1 and 0.05 <= inner <= 0.6 * (whole - alone) and whole >= alone + 0.1
    assert inner + whole <= took + 0.001
