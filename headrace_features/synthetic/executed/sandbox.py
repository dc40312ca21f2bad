"""Run a command line in bubblewrap: no network, no root, nothing of the worker's, limits for all its processes.

    a worker as root: bwrap (the folders) -> setpriv (a uid) -> bwrap (namespaces) -> prlimit -> program
    another:                                                         bwrap (namespaces) -> prlimit -> program

The first bwrap of a worker as root builds the folder tree as root, which the uid may not be able to reach, such as
an interpreter below /root. Limits are set inside, by prlimit in the last user namespace: set outside, the number of
processes would be one count for all sandboxes of a user. The clock on the wall is never a limit by itself: a program is
stopped for its CPU seconds, or for using none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Final

from headrace_features.synthetic.executed.groups import CPU, CgroupLayout, Group, Watched, find_cgroups, group_for
from headrace_features.synthetic.executed.system_calls import seccomp_filter
from headrace_features.synthetic.execution_config import ExecutionLimits
from spark_jobs.exceptions import SetupError

IDLE, OUTPUT = "idle", "too_long"
"""Further reasons for which a program is stopped: it uses no CPU, or it writes too much."""

TOOLS: Final = {"bwrap": "bubblewrap", "prlimit": "util-linux", "setpriv": "util-linux"}
"""Commands that the sandbox is made with, and the packages that bring them."""

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SYSTEM_FILES: Final = ("/etc/ld.so.cache", "/etc/alternatives")
_UIDS: Final = range(60800, 61056)  # no user of a usual system, and below the 65,536 that a container has
_INSIDE: Final = "1000"
_LOOK_SECONDS: Final = 0.05
_WALL_OF_CPU: Final = 200  # last resort: wall-clock seconds for each CPU second
_READ_BYTES: Final = 1 << 16
_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Program:
    """A program to run.

    Attributes:
        command: the command line, with paths as they are in the sandbox.
        folders: folders and files readable beside the system: path in the sandbox to path outside.
        variables: its environment, beside PATH, HOME, TMPDIR and LANG.
        given: its standard input.
        output_bytes: most bytes of standard output and error together; with more it is stopped.
        cpu_seconds: most CPU time of all its processes together.
    """

    command: tuple[str, ...]
    folders: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    given: bytes = b""
    output_bytes: int = 1 << 20
    cpu_seconds: float = 5


@dataclass(frozen=True)
class ProgramOutcome:
    """How a program ended.

    Attributes:
        status: exit status; minus the number of the ending signal.
        output: what it wrote to standard output.
        errors: what it wrote to standard error.
        reason: why it was stopped: time_out, idle, memory, files, too_long; empty where it ended by itself.
        cpu_seconds: CPU time of all its processes.
    """

    status: int
    output: bytes
    errors: bytes
    reason: str
    cpu_seconds: float


def run(program: Program, limits: ExecutionLimits, *, isolated: bool = True) -> ProgramOutcome:
    """Run a program to its end, or until it is over a limit; the calling thread has to live as long.

    Raises:
        SetupError: the machine lacks bubblewrap, or another tool.
    """
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise SetupError(f"{missing[0]} is not installed, and code is run by it: apt install {TOOLS[missing[0]]}")
    with contextlib.ExitStack() as stack:
        stdin = stack.enter_context(_sealed(program.given))
        descriptors = list[int]()
        if isolated:
            group = group_for(limits, _layout())
            stack.callback(group.close)
            data = seccomp_filter()
            if data is not None:
                descriptors.append(stack.enter_context(_sealed(data)))
            uid = stack.enter_context(_own_uid())
            command = _join(group, _bubblewrap(program, limits, uid, descriptors))
            variables = dict[str, str]()
        else:
            group = Watched(limits, looks_inside=False)
            command = [*_limited(program, limits), "--", *program.command]
            variables = {**_ENVIRONMENT, **program.variables}
        process = subprocess.Popen(
            command,
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=variables, pass_fds=descriptors, start_new_session=True,
        )  # fmt: skip
        try:
            return _watch(process, group, program, limits)
        finally:
            _kill(process)
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()


def _watch(process: subprocess.Popen[bytes], group: Group, program: Program, limits: ExecutionLimits) -> ProgramOutcome:
    """Read what a program writes while it runs, and stop it where it is over a limit."""
    written: dict[str, list[bytes]] = {"output": [], "errors": []}
    count, reason, cpu = 0, "", 0.0
    progress_at, progress_cpu = time.monotonic(), 0.0
    look_at, last = 0.0, progress_at + program.cpu_seconds * _WALL_OF_CPU + limits.idle_seconds
    with selectors.DefaultSelector() as selector:
        for name, stream in (("output", process.stdout), ("errors", process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, name)
        while not reason and (selector.get_map() or process.poll() is None):
            ended, ready = process.poll() is not None, selector.select(_LOOK_SECONDS)
            if ended and not ready:  # without a sandbox what it started may live on and hold its output
                break
            for key, _ in ready:
                data = os.read(key.fd, _READ_BYTES)
                written[key.data].append(data)
                count += len(data)
                if not data:
                    selector.unregister(key.fileobj)
            now = time.monotonic()
            if count > program.output_bytes:
                reason = OUTPUT
            elif now >= look_at:
                look_at, cpu = now + _LOOK_SECONDS, max(cpu, group.cpu_seconds(process.pid))
                if cpu - progress_cpu > 0.01 * (now - progress_at) and cpu > progress_cpu:
                    progress_at, progress_cpu = now, cpu
                stuck = now - progress_at > limits.idle_seconds or now > last
                reason = CPU if cpu > program.cpu_seconds else IDLE if stuck else group.over(process.pid)
    cpu = max(cpu, group.cpu_seconds(process.pid))
    reason = reason or (CPU if cpu > program.cpu_seconds else group.over(process.pid))
    if reason:
        _kill(process)
    status = process.wait()
    output, errors = (b"".join(written[name])[: program.output_bytes] for name in ("output", "errors"))
    return ProgramOutcome(status if status < 128 else 128 - status, output, errors, reason, cpu)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a program; with bubblewrap all of its processes go with the first one of their namespace."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _bubblewrap(program: Program, limits: ExecutionLimits, uid: int, descriptors: list[int]) -> list[str]:
    """The command line of a program in the sandbox, as a uid other than root."""
    parents = {above for inside in ("/etc/x", *program.folders) for above in [*PurePosixPath(inside).parents][:-1]}
    parent_options = [
        ("--perms", "0755", "--dir", str(path)) for path in sorted(parents)
    ]  # else as private as what is bound
    bound = [("--ro-bind", path, path) for path in _SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    linked = [("--symlink", os.readlink(path), path) for path in _SYSTEM if os.path.islink(path)]
    files = [("--ro-bind", path, path) for path in _SYSTEM_FILES if os.path.exists(path)]
    folders = [("--ro-bind", outside, inside) for inside, outside in program.folders.items()]
    command = list[str]()
    if os.geteuid() == 0:
        tree = [part for option in (*parent_options, *bound, *linked, *files, *folders) for part in option]
        # A parent without capabilities may send no signal to another uid, not even by its death: so the first bwrap has
        # a namespace of processes too, which ends with it.
        command = ["bwrap", "--die-with-parent", "--unshare-pid", "--dev-bind", "/proc", "/proc", "--dev", "/dev"]
        command += ["--dir", "/tmp", *tree, "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
        folders = [("--ro-bind", inside, inside) for inside in program.folders]
    size = str(limits.folder_bytes)
    variables = {**_ENVIRONMENT, **program.variables}
    options = [
        ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--clearenv"),
        ("--uid", _INSIDE, "--gid", _INSIDE, "--hostname", "sandbox", "--cap-drop", "ALL"),
        ("--proc", "/proc", "--remount-ro", "/proc"),
        ("--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        ("--size", size, "--tmpfs", "/tmp"),
        *(*parent_options, *bound, *linked, *files, *folders),
        ("--remount-ro", "/", "--chdir", "/tmp"),
        *(("--seccomp", str(descriptor)) for descriptor in descriptors),
        *(("--setenv", name, value) for name, value in variables.items()),
    ]
    command += ["bwrap", *(part for option in options for part in option)]
    return [*command, "--", *_limited(program, limits), f"--nproc={limits.processes}", "--", *program.command]


def _limited(program: Program, limits: ExecutionLimits) -> list[str]:
    """The command `prlimit` with the limits of each process."""
    values = {
        "as": limits.address_bytes or limits.memory_bytes,
        "cpu": math.ceil(program.cpu_seconds) + 1,  # a backstop: what stops first says why
        "fsize": limits.file_bytes,
        "nofile": limits.open_files,
        "core": 0,
        "memlock": 0,
        "msgqueue": 0,
    }
    return ["prlimit", *(f"--{name}={value}" for name, value in values.items())]


def _join(group: Group, command: list[str]) -> list[str]:
    """A command line to enter its group before anything else is started."""
    if not group.joins:
        return command
    writes = "; ".join(f'echo $$ > "${number}" || exit 125' for number in range(1, len(group.joins) + 1))
    return ["/bin/sh", "-c", f'{writes}; shift {len(group.joins)}; exec "$@"', "sh", *group.joins, *command]


@contextlib.contextmanager
def _own_uid() -> Iterator[int]:
    """The uid of this sandbox: for root one of a range, used by no other sandbox of the machine, else the worker's.

    An abstract socket named after the uid marks it as used; the kernel frees that name however the worker ends.

    Raises:
        SetupError: all are taken.
    """
    if os.geteuid() != 0:
        yield os.geteuid()
        return
    with socket.socket(socket.AF_UNIX) as lock:
        for uid in _UIDS:
            try:
                lock.bind(f"\0headrace-sandbox-{uid}")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                break
        else:
            raise SetupError(f"{len(_UIDS)} sandboxes run on this machine, which are all there can be; lower at_once")
        yield uid


@contextlib.contextmanager
def _sealed(data: bytes) -> Iterator[int]:
    """A file descriptor of some immutable bytes in memory, at its beginning."""
    number = os.memfd_create("headrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(number, view) :]
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, seals)
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)


@cache
def _layout() -> CgroupLayout | None:
    """Where this process can make cgroups; looked up once."""
    return find_cgroups(ExecutionLimits())


@dataclass(frozen=True)
class Interpreter:
    """An interpreter of Python, as it is found inside.

    Attributes:
        path: of the program; not that of a virtual environment.
        folders: what it needs to be seen, beside the system.
        version: as `sys.version` begins.
    """

    path: str
    folders: Mapping[str, str]
    version: str


@cache
def interpreter_of(python: str) -> Interpreter:
    """Ask the interpreter at a path what it is.

    Raises:
        SetupError: it does not run.
    """
    program = (
        "import platform, sys; print(sys.base_prefix, platform.python_implementation(), platform.python_version())"
    )
    try:
        answer = subprocess.run([python, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(
            f"python: {python} does not run ({error}); name an interpreter of Python 3.9 or newer"
        ) from error
    prefix, name, version = answer.stdout.rstrip().rsplit(" ", 2)
    path = os.path.realpath(python)
    needed = {folder for folder in (prefix, os.path.dirname(path)) if not folder.startswith("/usr")}
    folders = {
        folder: folder for folder in sorted(needed) if not any(folder.startswith(f"{other}/") for other in needed)
    }
    return Interpreter(path, folders, f"{name} {version}")
