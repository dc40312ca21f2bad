"""How much memory and how many cores this process may use: what its control groups and the machine have left.

A container's limit is that of a cgroup, v1 or v2, and each group above may have a lower one; `/proc/meminfo` tells of
the machine alone. The least of all counts:

    /proc/self/cgroup   0::/pods/a/run
    /sys/fs/cgroup/pods/a       memory.max 2147483648   memory.current 734003200   memory.stat inactive_file 4194304
    /sys/fs/cgroup/pods         memory.max max
    /proc/meminfo       MemAvailable: 20971520 kB       ->  1.7 GiB, by memory.max of /sys/fs/cgroup/pods/a

Pages of files read by a group count as used there, and the kernel takes them back before it kills: they are free,
as in `MemAvailable`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

_LIMITS = (("memory.max", "memory.current"), ("memory.high", "memory.current"))
_LIMITS_V1 = (("memory.limit_in_bytes", "memory.usage_in_bytes"),)
_MUCH_BYTES = 8 << 30  # no run of Sail takes half of that


@dataclass(frozen=True)
class Memory:
    """Memory of this process.

    Attributes:
        limit: bytes that it and what shares its limit may use.
        free: bytes of them left.
        source: what says so, for people: a file of a cgroup, or `/proc/meminfo`.
    """

    limit: int
    free: int
    source: str


def memory_limit(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> Memory:
    """The least memory left to a cgroup of this process, or to the machine.

    Args:
        root: where cgroups are mounted.
        proc: where the kernel tells of processes.
    """
    return min((_of_machine(proc), *_of_groups(root, proc)), key=lambda memory: memory.free)


def has_much() -> bool:
    """Whether so much memory is free that a run need not save any."""
    return memory_limit().free >= _MUCH_BYTES


def resident_bytes() -> int:
    """Memory of this process now, 0 where the system does not say.

    `getrusage` gives the most it ever held, and of a child its parent's before it.
    """
    return max(_number(*_read(Path("/proc/self/statm")).split()[1:2]), 0) * os.sysconf("SC_PAGE_SIZE")


def core_count(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> int:
    """Cores for this process to keep busy: those it may run on, or less by the quota of a cgroup; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder, is_v2 in _groups(root, proc, "cpu"):
        words = _read(folder / "cpu.max").split() if is_v2 else [_read(folder / f"cpu.cfs_{n}_us") for n in _QUOTA]
        quota, period = (*map(_number, words), 0, 0)[:2]
        if quota > 0 and period > 0:
            cores = min(cores, ceil(quota / period))
    return max(cores, 1)


_QUOTA = ("quota", "period")


def _of_machine(proc: Path) -> Memory:
    facts = dict(line.split(":", 1) for line in _read(proc / "meminfo").splitlines() if ":" in line)
    total, free = (_number(*facts.get(name, "").split()[:1]) * 1024 for name in ("MemTotal", "MemAvailable"))
    if total > 0:
        return Memory(total, max(free, 0), str(proc / "meminfo"))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # no Linux: half of the machine, at a guess
    return Memory(total, total // 2, "half of the machine's memory")


def _of_groups(root: Path, proc: Path) -> Iterator[Memory]:
    for folder, is_v2 in _groups(root, proc, "memory"):
        stat = dict(line.split() for line in _read(folder / "memory.stat").splitlines() if line.count(" ") == 1)
        names = ("inactive_file", "active_file") if is_v2 else ("total_inactive_file", "total_active_file")
        files = sum(max(_number(stat.get(name, "0")), 0) for name in names)
        for limit_file, used_file in _LIMITS if is_v2 else _LIMITS_V1:
            limit, used = _number(_read(folder / limit_file)), _number(_read(folder / used_file))
            if limit >= 0:  # without one it is `max`, or in v1 a number beyond any machine's memory
                yield Memory(limit, max(limit - max(used - files, 0), 0), str(folder / limit_file))


def _groups(root: Path, proc: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Folders of this process's groups, each before those above it, and whether they are of v2.

    In a container without a namespace of its own the path is the host's and its last part is not there; the folder at
    the mount is the container's own group then.
    """
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and controller not in names.split(","):
            continue
        tops = (root / names, root / controller) if names else (root, root / "unified")
        top = next((folder for folder in tops if folder.is_dir()), None)
        if top is None:
            continue
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        for count in range(len(parts), -1, -1):
            yield top.joinpath(*parts[:count]), not names


def _read(path: Path) -> str:
    """The text of a file of the kernel; empty where there is none or it may not be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(text: str = "") -> int:
    """A number of the kernel; -1 where there is none, as for `max`."""
    return int(text) if text.isdecimal() else -1
