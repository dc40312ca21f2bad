"""A command whose process the kernel ends for memory starts again by itself; what else happens to it is passed on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dagster_project.restarts import kill_count

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux alone")
# A command that notes its start, then does what its place among the starts says; each kill counts as the kernel's.
_COMMAND = """
import os, signal, sys, time
from pathlib import Path
from dagster_project import restarts
folder, free, counted, *acts = sys.argv[1:]
starts = Path(folder, "starts")
restarts.has_much = lambda: int(free) >= 8 << 30
restarts.kill_count = lambda: len(starts.read_text().split()) if counted == "counted" and starts.exists() else 0
restarts.restart_when_killed("run")
with starts.open("a") as file:
    print(os.getpid(), file=file)
act = acts[min(len(starts.read_text().split()), len(acts)) - 1]
if act == "wait":
    Path(folder, "waits").touch()
    time.sleep(60)
os.kill(os.getpid(), signal.SIGKILL) if act == "killed" else sys.exit(int(act))
"""
SMALL, LARGE = str(1 << 30), str(16 << 30)


def command(folder: Path, *words: str) -> Sequence[str]:
    """The words of a command whose acts at each start are the last of `words`."""
    return [sys.executable, "-c", _COMMAND, str(folder), *words]


@pytest.mark.parametrize(
    ("words", "status", "starts"),
    [
        ([SMALL, "counted", "0"], 0, 1),
        ([SMALL, "counted", "4"], 4, 1),
        ([SMALL, "counted", "killed", "killed", "3"], 3, 3),
        ([SMALL, "counted", "killed"], 137, 5),  # not for ever
        ([SMALL, "by hand", "killed", "0"], 137, 1),  # somebody wants it to end
        ([LARGE, "counted", "killed", "0"], -9, 1),  # no parent
    ],
)
def test_what_the_kernel_ends_is_started_again(tmp_path: Path, words: list[str], status: int, starts: int) -> None:
    """With one line each time; the status is that of the last start."""
    done = subprocess.run(command(tmp_path, *words), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status, done.stderr
    processes = (tmp_path / "starts").read_text().split()
    assert len(processes) == len(set(processes)) == starts
    said = done.stderr.splitlines()
    assert said == ["headrace run: the kernel ended it for memory; it goes on by itself, in another way"] * (starts - 1)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_parent_ends_the_child(tmp_path: Path, told: signal.Signals) -> None:
    """SIGKILL too, which cannot be passed on: a child does not outlive its parent."""
    with subprocess.Popen(command(tmp_path, SMALL, "counted", "wait"), stderr=subprocess.DEVNULL) as running:
        while not (tmp_path / "waits").exists():
            time.sleep(0.02)
        running.send_signal(told)
        assert running.wait(20) == -told
    child = int((tmp_path / "starts").read_text())
    for _ in range(200):
        if not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child goes on")


def test_kills_are_counted_where_the_kernel_tells(tmp_path: Path) -> None:
    """`oom_kill` of /proc/vmstat; another name that begins alike is another thing."""
    (tmp_path / "vmstat").write_text("pgfault 12\noom_kill_disable 9\noom_kill 5\n")
    assert kill_count(tmp_path) == 5
    assert kill_count(tmp_path / "none") == 0
