"""The process behind a lease, a branch or a run, and whether it lives: one identity for all three.

    Process(host="dagster-code", scope="a62a442d-..:4026531836", pid=4711, start=8123456)

A pid means something inside one PID namespace of one boot of one machine, so these are part of the identity: containers
may share the name of a host and even the pids of their processes. The moment of the start tells a process from a later
one with its pid. Of a process in another scope nothing can be looked up; there only a clock can decide.
"""

from __future__ import annotations

import functools
import getpass
import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process.

    Attributes:
        host: name of its machine or container, for people.
        scope: the boot and the PID namespace of its pid; empty where they are unknown.
        pid: number of the process there.
        start: when it started, in clock ticks since the boot; 0 where that is unknown.
    """

    host: str
    scope: str
    pid: int
    start: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def lives(self) -> bool | None:
        """Whether the process is there; None where that cannot be looked up from here."""
        if not self.scope or not self.start or self.scope != _scope():
            return None
        start = _start_of(self.pid)
        return None if start is None else start == self.start


def this_process() -> Process:
    """The asking process."""
    return Process(platform.node(), _scope(), os.getpid(), _start_of(os.getpid()) or 0)


@functools.cache
def _scope() -> str:
    """The boot and the PID namespace of this process; empty where there is no /proc, or it is that of another one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # `unshare --pid` without a /proc of its own leaves that of the namespace outside, where pids mean others.
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}" if os.readlink("/proc/self") == str(os.getpid()) else ""
    except OSError:
        return ""


def _start_of(pid: int) -> int | None:
    """Start of a process in clock ticks since the boot, 0 where it is gone; None where it is there and hidden."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _hidden(pid)
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def _hidden(pid: int) -> int | None:
    """None where a process is there though /proc does not show it (`hidepid`), 0 where it is gone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 0
    except OSError:  # it is somebody else's
        return None
    return None


def user_name() -> str:
    """Name of this process's user, for records of people's acts."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "an unknown user"
