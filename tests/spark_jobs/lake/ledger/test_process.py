"""Who a process is, and what can be said of whether it lives."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.lake.ledger import process
from spark_jobs.lake.ledger.process import Process, this_process

ME = this_process()


def test_this_process_lives_and_one_that_ended_does_not() -> None:
    """A killed child is gone while it waits for its parent, and after that."""
    assert this_process() == ME and ME.pid == os.getpid() and ME.lives() is True
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen = Process(ME.host, ME.scope, child.pid, process._start_of(child.pid) or 0)
    assert seen.lives() is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert seen.lives() is False
    child.communicate()
    assert seen.lives() is False


@pytest.mark.parametrize(
    ("other", "lives"),
    [
        ({"start": ME.start + 1}, False),
        ({"start": 0}, None),
        ({"scope": ""}, None),
        ({"scope": f"{ME.scope}1"}, None),
        ({"scope": f"x{ME.scope}"}, None),
        ({"host": "elsewhere"}, True),
    ],
)
def test_a_process_is_its_pid_and_start_in_its_boot_and_namespace(other: dict[str, str | int], lives: bool) -> None:
    """A reused pid is another process; in another boot or namespace nothing can be said; a host's name says nothing."""
    assert dataclasses.replace(ME, **other).lives() is lives  # type: ignore[arg-type]


def test_a_proc_of_another_namespace_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`unshare --pid` alone leaves a /proc in which our pid is somebody else's."""
    process._scope.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "readlink", lambda path: "7")
            assert this_process().scope == "" and this_process().lives() is None
    finally:
        process._scope.cache_clear()
    assert this_process() == ME


@pytest.mark.parametrize(("error", "lives"), [(PermissionError, None), (ProcessLookupError, False)])
def test_a_process_that_proc_hides_is_not_gone(
    error: type[OSError], lives: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `hidepid` the processes of other users are not in /proc; a signal tells that they are there."""

    def unreadable(path: Path) -> str:
        raise FileNotFoundError(path)

    def refuse(pid: int, signal: int) -> None:
        raise error

    read: Callable[..., str] = unreadable
    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(os, "kill", refuse)
    assert ME.lives() is lives


@pytest.mark.parametrize(("state", "start"), [("S", 22), ("R", 22), ("Z", 0), ("X", 0)])
def test_the_start_is_the_twenty_second_field(state: str, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As proc(5) counts them; the name before them may hold spaces and parentheses. One that ended has none."""
    line = " ".join(["7", "(a) b (c))", state, *map(str, range(4, 53))])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", lambda path: line)
        assert process._start_of(7) == start


def test_where_nothing_can_be_looked_up_a_process_has_no_scope_and_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc; a signal that is asked for is none."""
    asked: list[tuple[int, int]] = []

    def gone(pid: int, signal: int) -> None:
        asked.append((pid, signal))
        raise ProcessLookupError

    def unreadable(path: Path) -> str:
        raise FileNotFoundError(path)

    process._scope.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_text", unreadable)
            patched.setattr(os, "kill", gone)
            assert process._start_of(7) == 0 and asked == [(7, 0)]
            patched.setattr(process, "_start_of", lambda pid: None)
            assert (process._scope(), this_process().scope, this_process().start) == ("", "", 0)
    finally:
        process._scope.cache_clear()
    assert this_process() == ME


def test_people_read_a_process_as_its_pid_and_host() -> None:
    """What a waiting writer is told."""
    assert str(Process("there", "scope", 7, 1)) == "process 7 on there"
