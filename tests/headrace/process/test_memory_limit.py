"""What cgroups and the machine leave to a process, on folders as the kernel has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.process.memory_limit import Memory, core_count, memory_limit

_MIB = 1 << 20
_MEMINFO = "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n"
_UNLIMITED_V1 = str((1 << 63) - 4096)


def tree(root: Path, groups: Mapping[str, Mapping[str, object]], own: str) -> tuple[Path, Path]:
    """Folders of cgroups with their files, and of a process in the group that `own` says; gives both roots."""
    for group, files in groups.items():
        (root / "cgroup" / group).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / "cgroup" / group / name).write_text(f"{text}\n")
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(f"{own}\n")
    (root / "proc" / "meminfo").write_text(_MEMINFO)
    return root / "cgroup", root / "proc"


def v2(limit: object, used: int = 0, files: int = 0, **others: object) -> dict[str, object]:
    """Files of a group of v2, in MiB."""
    stat = f"anon 5\ninactive_file {files * _MIB // 2}\nactive_file {files * _MIB // 2}"
    high = {"memory.high": others.get("high", "max")}
    size = limit * _MIB if isinstance(limit, int) else limit
    return {"memory.max": size, "memory.current": used * _MIB, "memory.stat": stat, **high}


def v1(limit: object, used: int = 0, files: int = 0) -> dict[str, object]:
    """Files of a group of v1, in MiB."""
    stat = f"inactive_file 0\ntotal_inactive_file {files * _MIB}\ntotal_active_file 0"
    size = limit * _MIB if isinstance(limit, int) else limit
    return {"memory.limit_in_bytes": size, "memory.usage_in_bytes": used * _MIB, "memory.stat": stat}


@pytest.mark.parametrize(
    ("groups", "own", "limit", "free", "source"),
    [
        ({}, "0::/", 8192, 6144, "meminfo"),
        ({"a": v2("max")}, "0::/a", 8192, 6144, "meminfo"),
        ({"a": v2(2048)}, "0::/a", 2048, 2048, "a/memory.max"),
        ({"a": v2(2048, 700, 400)}, "0::/a", 2048, 1748, "a/memory.max"),
        ({"a": v2(2048, 2048, 0)}, "0::/a", 2048, 0, "a/memory.max"),
        ({"a": v2(2048, 100, 400)}, "0::/a", 2048, 2048, "a/memory.max"),  # its files were read by another group
        ({"a": v2(2048, high=1024 * _MIB)}, "0::/a", 1024, 1024, "a/memory.high"),
        ({"a": v2(1024), "a/b/c": v2("max")}, "0::/a/b/c", 1024, 1024, "a/memory.max"),
        ({"a": v2(4096, 3900), "a/b": v2(2048)}, "0::/a/b", 4096, 196, "a/memory.max"),
        ({".": v2(512)}, "0::/", 512, 512, "cgroup/memory.max"),  # a namespace's own root
        ({".": v2(512)}, "0::/docker/id", 512, 512, "cgroup/memory.max"),  # the host's path in a container
        ({".": v2(512), "../outside": v2(1)}, "0::/../outside", 512, 512, "cgroup/memory.max"),
        ({"unified": {}, "memory/a": v1(2048, 700, 400)}, "4:memory:/a\n0::/", 2048, 1748, "a/memory.limit_in_bytes"),
        ({"memory/a": v1(1024), "memory/a/b": v1(_UNLIMITED_V1)}, "4:memory:/a/b", 1024, 1024, "memory.limit_in_bytes"),
        ({"memory": v1(256)}, "4:memory:/docker/id", 256, 256, "memory/memory.limit_in_bytes"),
        ({"memory/a": v1(_UNLIMITED_V1)}, "4:cpu,memory:/a", 8192, 6144, "meminfo"),
        ({"a": {"memory.max": "nonsense", "memory.current": ""}}, "0::/a", 8192, 6144, "meminfo"),
        ({"a": v2(2048)}, "0:broken\n\n7:x", 8192, 6144, "meminfo"),
        ({"a": v2(16384)}, "0::/a", 8192, 6144, "meminfo"),
    ],
)
def test_the_least_of_all_groups_and_the_machine_counts(
    tmp_path: Path, groups: Mapping[str, Mapping[str, object]], own: str, limit: int, free: int, source: str
) -> None:
    """Of nested ones any may be it; files that a group has read are free."""
    found = memory_limit(*tree(tmp_path, groups, own))
    assert (found.limit, found.free) == (limit * _MIB, free * _MIB) and found.source.endswith(source)


def test_a_group_that_may_not_be_read_says_nothing(tmp_path: Path) -> None:
    """A folder in place of a file cannot be read even by root."""
    root, proc = tree(tmp_path, {"a": {}}, "0::/a")
    (root / "a" / "memory.max").mkdir()
    assert memory_limit(root, proc).free == 6 << 30


def test_without_the_kernels_files_half_of_the_machine_is_taken(tmp_path: Path) -> None:
    """As on a system that is no Linux."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_limit(tmp_path, tmp_path) == Memory(total, total // 2, "half of the machine's memory")


@pytest.mark.parametrize(
    ("groups", "own", "cores"),
    [
        ({"a": {"cpu.max": "100000 100000"}}, "0::/a", 1),
        ({"a": {"cpu.max": "max 100000"}}, "0::/a", None),
        ({"a": {"cpu.max": "1000 100000"}, "a/b": {"cpu.max": "max 100000"}}, "0::/a/b", 1),
        ({"cpu/a": {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}}, "3:cpu:/a", 1),
        ({"cpu/a": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}}, "3:cpu:/a", None),
        ({}, "0::/", None),
    ],
)
def test_a_quota_of_cores_counts(
    tmp_path: Path, groups: Mapping[str, Mapping[str, object]], own: str, cores: int | None
) -> None:
    """A part of a core is one."""
    assert core_count(*tree(tmp_path, groups, own)) == (cores or len(os.sched_getaffinity(0)))
