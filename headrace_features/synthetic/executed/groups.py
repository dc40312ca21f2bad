"""What the processes of a sandbox use together: counted by a cgroup where one can be made, else by looking at them.

A limit of a process (setrlimit) does not bound its children. A cgroup, v1 or v2, counts and stops them in the kernel.
Without one, `Watched` sums memory, CPU seconds and files a few times a second; what grows between two looks is bounded
by the limits of each process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from headrace_features.synthetic.execution_config import ExecutionLimits

CPU, MEMORY, FILES = "time_out", "memory", "files"
"""Reasons for which a group is stopped."""

_ROOT: Final = Path("/sys/fs/cgroup")
_NAME: Final = "headrace"
_OWN_PROCESSES: Final = 4  # of bubblewrap itself
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_numbers = itertools.count()


class Group(Protocol):
    """Processes counted together."""

    joins: tuple[str, ...]
    """Files into which a process writes its number to become part of the group."""

    def cpu_seconds(self, pid: int) -> float:
        """CPU seconds of all processes of the group so far, ended ones too; pid is their first."""
        ...

    def over(self, pid: int) -> str:
        """The reason to stop the group, or of its stop by the kernel; else empty."""
        ...

    def close(self) -> None:
        """Remove what was made for the group."""
        ...


class Watched:
    """A group counted by looking at its processes a few times a second."""

    joins: tuple[str, ...] = ()

    def __init__(self, limits: ExecutionLimits, *, looks_inside: bool = True) -> None:
        self._limits, self._last, self._lost = limits, 0.0, 0.0
        self._looks_inside = looks_inside

    def cpu_seconds(self, pid: int) -> float:
        """See `Group`; a child ended unnoticed by its parent counts with what the last look saw of it."""
        now = sum(_cpu_seconds(process) for process in descendants(pid))
        self._lost += max(0.0, self._last - now)
        self._last = now
        return now + self._lost

    def over(self, pid: int) -> str:
        """Whether memory or files are more than the limits."""
        processes = list(descendants(pid))
        files, stored = _stored(processes) if self._looks_inside else (0, 0)
        if files > self._limits.files:
            return FILES
        if stored + sum(map(_resident_bytes, processes)) <= self._limits.memory_bytes:
            return ""
        return MEMORY if stored + sum(map(_own_bytes, processes)) > self._limits.memory_bytes else ""

    def close(self) -> None:
        """Do nothing: there is nothing to remove."""


@dataclass(frozen=True)
class CgroupLayout:
    """Where a group is made, and the files to limit and count it."""

    folders: tuple[Path, ...]
    is_v2: bool


class Cgroup:
    """A group counted by the kernel; files are looked at, as no controller counts them."""

    def __init__(self, limits: ExecutionLimits, layout: CgroupLayout) -> None:
        name = f"{_NAME}-{os.getpid()}-{next(_numbers)}"
        self._limits, self._v2 = limits, layout.is_v2
        self._folders = [folder / name for folder in layout.folders]
        try:
            for folder in self._folders:
                folder.mkdir()
            self._memory, self._pids, self._cpu = self._folders * 3 if self._v2 else self._folders
            (self._pids / "pids.max").write_text(str(limits.processes + _OWN_PROCESSES))
            names = ("memory.max", "memory.swap.max") if self._v2 else _V1_MEMORY
            (self._memory / names[0]).write_text(str(limits.memory_bytes))
            with contextlib.suppress(OSError):  # a kernel may not count swap
                (self._memory / names[1]).write_text("0" if self._v2 else str(limits.memory_bytes))
        except OSError:
            self.close()
            raise
        self.joins = tuple(str(folder / "cgroup.procs") for folder in self._folders)

    def cpu_seconds(self, pid: int) -> float:
        """See `Group`."""
        if self._v2:
            return _numbers_in(self._cpu / "cpu.stat").get("usage_usec", 0) / 1e6
        return int((self._cpu / "cpuacct.usage").read_text()) / 1e9

    def over(self, pid: int) -> str:
        """Whether the kernel stopped a process for memory, or there are too many files."""
        events = _numbers_in(self._memory / ("memory.events" if self._v2 else "memory.oom_control"))
        if events.get("oom_kill", 0):
            return MEMORY
        return FILES if _stored(list(descendants(pid)))[0] > self._limits.files else ""

    def close(self) -> None:
        """Remove the group; its processes take a moment to go."""
        for folder in self._folders:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.01)


_V1_MEMORY: Final = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")


def group_for(limits: ExecutionLimits, layout: CgroupLayout | None) -> Group:
    """A group with these limits: a `Cgroup` where it can be made, else `Watched`."""
    if layout is not None:
        with contextlib.suppress(OSError):
            return Cgroup(limits, layout)
    return Watched(limits)


def find_cgroups(
    limits: ExecutionLimits, root: Path = _ROOT, membership: Path = Path("/proc/self/cgroup")
) -> CgroupLayout | None:
    """Where groups can be made below that of this process, which is tried out; None where they cannot."""
    lines = [line.split(":", 2) for line in read_text(membership).splitlines()]
    paths = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    layouts = []
    if {"memory", "pids", "cpuacct"} <= paths.keys():
        layouts.append(CgroupLayout(tuple(root / name / paths[name] for name in ("memory", "pids", "cpuacct")), False))
    if "" in paths:  # with v2 a group with processes cannot hold others, so the nearest above that has controllers
        folder = root / paths[""]
        for above in (folder, *folder.parents):
            if {"memory", "pids"} <= set(read_text(above / "cgroup.subtree_control").split()):
                layouts.append(CgroupLayout((above,), True))
                break
            if above == root:
                break
    for layout in layouts:
        with contextlib.suppress(OSError):
            _sweep(layout)
            group = Cgroup(limits, layout)
            try:
                enters = ["/bin/sh", "-c", 'for file; do echo $$ > "$file" || exit 1; done', "sh", *group.joins]
                if subprocess.run(enters, capture_output=True, check=False).returncode == 0:
                    return layout
            finally:
                group.close()
    return None


def _sweep(layout: CgroupLayout) -> None:
    """Remove groups of killed workers."""
    for folder in layout.folders:
        for left in folder.glob(f"{_NAME}-*-*"):
            if not Path("/proc", left.name.split("-")[1]).exists():
                with contextlib.suppress(OSError):
                    left.rmdir()


def descendants(pid: int) -> Iterator[int]:
    """A process and all of its descendants, each after its parent."""
    waiting = [pid]
    while waiting:
        process = waiting.pop(0)
        yield process
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):
                waiting += map(int, read_text(f"/proc/{process}/task/{task}/children").split())


def read_text(path: Path | str) -> str:
    """The text of a file of the kernel; empty where there is none, as of an ended process."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, and of its ended children, as far as it waited for them."""
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _resident_bytes(pid: int) -> int:
    fields = read_text(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _own_bytes(pid: int) -> int:
    """Memory of a process, of shared pages only its share; slower than `_resident_bytes`."""
    lines = read_text(f"/proc/{pid}/smaps_rollup").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), _resident_bytes(pid))


def _stored(processes: list[int]) -> tuple[int, int]:
    """Files and bytes in the folders that the last process may write to; the first two are bubblewrap, outside."""
    files = size = 0
    for folder in ("tmp", "dev/shm") if len(processes) > 2 else ():
        with contextlib.suppress(OSError):
            volume = os.statvfs(f"/proc/{processes[-1]}/root/{folder}")
            files += volume.f_files - volume.f_ffree
            size += (volume.f_blocks - volume.f_bfree) * volume.f_frsize
    return files, size


def _numbers_in(path: Path) -> dict[str, int]:
    """The lines `name number` of a file."""
    pairs = (line.split() for line in read_text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
