"""Children that wait for calls: each is had by one call at a time, and they are few."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_jobs import child_processes
from spark_jobs.child_processes import (
    end_child,
    end_idle_children,
    idle_child,
    idle_children,
    keep_child,
    start_child,
)

_COMMAND = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Children end with each test."""
    end_idle_children()
    yield
    end_idle_children()


def started() -> subprocess.Popen[bytes]:
    """A child that waits for the end of its input."""
    return start_child(_COMMAND, stdin=subprocess.PIPE)


def test_no_two_threads_have_a_child_at_once() -> None:
    """However they take and keep it, of two kinds; none is lost, none is there twice."""
    lock, had = threading.Lock(), Counter[int]()

    def work(call: int) -> None:
        kind = call % 2
        for _ in range(100):
            child = idle_child(kind)
            if child is None:
                continue
            with lock:
                had[child.pid] += 1
                assert had[child.pid] == 1
            with lock:
                had[child.pid] -= 1
            keep_child(kind, child)

    children = [started() for _ in range(4)]
    for number, child in enumerate(children):
        keep_child(number % 2, child)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert {*idle_children(0), *idle_children(1)} == set(children)


def test_no_more_wait_than_ran_at_once() -> None:
    """Of three at once three wait; then the newest three, of whichever kind."""
    children = [started() for _ in range(3)]
    for number, child in enumerate(children):
        keep_child(number, child)
    later = [started() for _ in range(2)]
    for number, child in enumerate(later):
        keep_child(number, child)
    assert [child.poll() is None for child in children] == [False, False, True]
    assert [idle_children(number) for number in range(3)] == [[later[0]], [later[1]], [children[2]]]


def test_a_child_that_cannot_be_started_is_the_callers_error() -> None:
    """The thread that starts them goes on."""
    with pytest.raises(FileNotFoundError):
        start_child(["/no/such/program"])
    end_child(started())


def test_a_process_that_may_have_no_more_threads_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call fails; the next one starts the thread, and does not wait for one that never was."""
    monkeypatch.setattr(child_processes, "_children", child_processes._Children())
    with monkeypatch.context() as full:

        def refused(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        full.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            started()
    children: list[subprocess.Popen[bytes]] = []
    asking = threading.Thread(target=lambda: children.append(started()), daemon=True)
    asking.start()
    asking.join(20)
    assert children
    end_child(children[0])
