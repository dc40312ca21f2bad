"""Freed memory goes back to the kernel: measured in a process of its own, since it holds for a whole process."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from blender_service import allocation
from blender_service.allocation import FEW_STREAMS, OpenStreams

on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere nothing is done")

# 24 threads, as many as streams, each hold 1 MiB in pieces that no mapping of its own is made for, and let it go; every
# heap keeps a little at its end, so that none can be cut there.
THREADS = """
import threading
from pathlib import Path
from blender_service import allocation

def held_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

def hold(barrier, kept):
    pieces = [bytes(16 << 10) for _ in range(64)]
    kept.append(bytes(1 << 10))
    barrier.wait()

def run():
    barrier, kept = threading.Barrier(25), []
    threads = [threading.Thread(target=hold, args=(barrier, kept)) for _ in range(24)]
    for thread in threads:
        thread.start()
    barrier.wait()
    for thread in threads:
        thread.join()
    return kept

{first}
before = held_bytes()
kept = run()
{then}
print(held_bytes() - before)
"""


def growth(first: str = "", then: str = "") -> int:
    """Give what a process holds more of after its threads held 24 MiB and let it go."""
    code = THREADS.format(first=first, then=then)
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    return int(done.stdout)


@on_glibc
def test_what_threads_held_is_given_back() -> None:
    """Of 24 MiB that many threads held, 8 MiB at most stay, where they would all stay otherwise."""
    use, give = "assert allocation.use_one_heap()", "assert allocation.give_back()"
    assert growth(use, give) < 8 << 20 < growth()


def test_memory_is_given_back_when_half_of_many_streams_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every halving down to a few, and never for a few streams that come and go."""
    counts: list[int] = []
    streams = OpenStreams()
    monkeypatch.setattr(allocation, "give_back", lambda: counts.append(streams.count))
    for _ in range(100):
        with streams.one_more(), streams.one_more():
            assert streams.count == 2
    assert counts == []
    many = [streams.one_more() for _ in range(4 * FEW_STREAMS)]
    for each in many:
        each.__enter__()
    assert streams.count == 4 * FEW_STREAMS
    for each in many:
        each.__exit__(None, None, None)
    assert streams.count == 0
    assert counts == [2 * FEW_STREAMS, FEW_STREAMS]


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another C library than glibc, or none, is left as it is."""
    monkeypatch.setattr(allocation, "_glibc", lambda: None)
    assert not allocation.use_one_heap()
    assert not allocation.give_back()
