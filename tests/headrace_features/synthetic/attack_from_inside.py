"""Attacks on the sandbox, from inside: `NAME MARK [ARGUMENT ..]` prints a JSON list of what one could do.

Each ends by itself soon after what the sandbox should have stopped, so that it does no harm where nothing stops it.
The mark is in the command line of every process, by which those that are left are found.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

_LONGEST_SECONDS = 20
_MEGABYTE = 1 << 20
_OWN_VARIABLES = {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "LC_CTYPE"}
_KERNEL_FILES = (
    *("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sysrq-trigger", "/proc/self/oom_score_adj"),
    *("/proc/sys/user/max_user_namespaces", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs"),
)


def _fork() -> int:
    """Start a child that ends by an alarm, whatever it does."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(_LONGEST_SECONDS)
    return pid


def fork_bomb(processes: str) -> Iterator[str]:
    """Start many processes that stay."""
    count = 0
    while count < 300:
        try:
            if _fork() == 0:
                time.sleep(3)
                os._exit(0)
        except OSError:
            break
        count += 1
    if count > int(processes):
        yield f"{count} processes at {processes} that may be"


def fork_each_its_limit() -> Iterator[str]:
    """Start processes that each use as much CPU as one may."""
    for _ in range(12):
        if _fork() == 0:
            _loop()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    yield "12 processes used the CPU limit each"


def _loop() -> None:
    end = time.process_time() + 10
    while time.process_time() < end:
        pass
    os._exit(0)


def endless_loop() -> Iterator[str]:
    """Use CPU for ever."""
    _loop()
    yield "it was not stopped"


def allocate(megabytes: str) -> Iterator[str]:
    """Take 10 GB in one process; ends at 1 GB."""
    held = list[bytes]()
    while len(held) < 1024:
        try:
            held.append(b"x" * _MEGABYTE)
        except MemoryError:
            break
    if len(held) > int(megabytes):
        yield f"{len(held)} MB at {megabytes} that may be"


def allocate_together(megabytes: str) -> Iterator[str]:
    """Take memory in many processes, each below the limit of one."""
    count = int(megabytes) // 2
    for _ in range(6):
        if _fork() == 0:
            held = mmap.mmap(-1, count * _MEGABYTE)
            for at in range(0, len(held), 4096):
                held[at] = 1
            time.sleep(5)
            os._exit(0)
    time.sleep(5)
    yield f"6 processes with {count} MB each at {megabytes} that all may have"


def hidden_memory() -> Iterator[str]:
    """Take memory that belongs to no process: memfd, and segments of System V."""
    library = ctypes.CDLL(None, use_errno=True)
    for _ in range(6):
        try:
            number = os.memfd_create("attack")
            for _ in range(64):
                os.write(number, b"x" * _MEGABYTE)
        except OSError:
            break
    else:
        yield "384 MB in memfd"
    segments = [library.shmget(0, 64 * _MEGABYTE, 0o1600) for _ in range(6)]
    if min(segments) >= 0:
        yield "segments of System V"


def fill(folder: str, megabytes: str) -> Iterator[str]:
    """Write up to 256 MB into a folder; more than `megabytes` must not fit."""
    written = 0
    for number in range(64):
        try:
            with open(f"{folder}/{number}", "wb", buffering=0) as file:
                for _ in range(4):
                    written += file.write(b"x" * _MEGABYTE)
        except OSError:
            break
    if written > int(megabytes) * _MEGABYTE:
        yield f"{written // _MEGABYTE} MB in {folder} at {megabytes} that may be"


def many_files() -> Iterator[str]:
    """Make a million files; ends at 100,000."""
    for number in range(100_000):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT))
    yield "100,000 files"


def print_much() -> Iterator[str]:
    """Print 10 GB; ends at 512 MB."""
    for _ in range(512):
        os.write(1, b"x" * _MEGABYTE)
    yield "512 MB printed"


def own_session() -> Iterator[str]:
    """Leave a process behind in a session of its own."""
    if _fork() == 0:
        os.setsid()
        if _fork() == 0:
            for number in range(3):
                os.close(number)
            time.sleep(_LONGEST_SECONDS)
        os._exit(0)
    time.sleep(0.2)
    yield from ()


def ignore_sigterm() -> Iterator[str]:
    """Ignore what asks it to end."""
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGALRM):
        signal.signal(one, signal.SIG_IGN)
    return endless_loop()


def sleep() -> Iterator[str]:
    """Sleep for ever."""
    time.sleep(_LONGEST_SECONDS / 2)
    yield "it was not stopped"


def write_kernel_files() -> Iterator[str]:
    """Open settings of the kernel for writing; nothing is written."""
    return (path for path in _KERNEL_FILES if _opens(path, os.O_WRONLY))


def write_root() -> Iterator[str]:
    """Make a file outside of the folders that are for it."""
    for folder in ("/", "/usr", "/usr/bin", "/etc", "/dev", "/proc", "/home", "/var", os.path.dirname(__file__)):
        path = f"{folder}/headrace-attack"
        if _opens(path, os.O_CREAT | os.O_WRONLY):
            os.unlink(path)
            yield folder


def _opens(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


def environment() -> Iterator[str]:
    """Find variables of the worker, its open files and processes."""
    yield from (f"variable {name}" for name in os.environ if name not in _OWN_VARIABLES)
    yield from (f"descriptor {name}" for name in os.listdir("/proc/self/fd") if int(name) > 3)  # 3 lists them
    yield from (f"process {name}" for name in os.listdir("/proc") if name.isdigit() and int(name) > os.getpid())


def abstract_socket(name: str) -> Iterator[str]:
    """Reach an abstract socket of the host."""
    with socket.socket(socket.AF_UNIX) as connection:
        if connection.connect_ex(f"\0{name}") == 0:
            yield "connected to an abstract socket of the host"


def user_namespace() -> Iterator[str]:
    """Become root in a user namespace, where more of the kernel can be reached."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0:  # CLONE_NEWUSER
        yield "a user namespace was made"


def main() -> None:
    """Run the attack that the command line names, and print what it could do."""
    signal.alarm(_LONGEST_SECONDS)
    for limit, bound in ((resource.RLIMIT_AS, 2 << 30), (resource.RLIMIT_CPU, _LONGEST_SECONDS)):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (bound if hard < 0 else min(bound, hard),) * 2)
    attack: Callable[..., Iterator[str]] = globals()[sys.argv[1]]
    sys.stdout.write(json.dumps(list(attack(*sys.argv[3:]))))


main()
