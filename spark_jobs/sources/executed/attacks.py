"""What the sandbox has to hold: attacks that are run in it, and the sentence that mends a machine where one succeeds.

Code is executed only where all hold. What one attack of each kind is, `inside/attack.py` says.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from spark_jobs.exceptions import SetupError
from spark_jobs.sources.config.execution_config import ExecutionLimits
from spark_jobs.sources.executed.groups import CPU, FILES, MEMORY, read_text
from spark_jobs.sources.executed.sandbox import IDLE, OUTPUT, TOOLS, Outcome, Program, interpreter_of, run

INSIDE: Final = Path(__file__).with_name("inside")
_MEGABYTES, _FOLDER_MEGABYTES, _PROCESSES = 192, 8, 24
_CPU_SECONDS: Final = 1.0
_LIMITS: Final = ExecutionLimits(
    idle_seconds=2,
    memory_bytes=_MEGABYTES << 20,
    processes=_PROCESSES,
    folder_bytes=_FOLDER_MEGABYTES << 20,
    files=2000,
)
_GONE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: the function of `inside/attack.py`.
        what: what it does, in words for a message.
        stopped: the reason for which the sandbox has to stop it; empty where it ends by itself, without success.
        given: its arguments.
    """

    name: str
    what: str
    stopped: tuple[str, ...] = ()
    given: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The result of an attack.

    Attributes:
        what: what the attack does.
        harm: what it could do; empty where the sandbox held.
        mend: what to do about it.
    """

    what: str
    harm: str = ""
    mend: str = ""


def attacks(port: int, name: str, files: tuple[str, ...]) -> tuple[Attack, ...]:
    """All attacks; some are given a port, a socket and files of the worker, which they try to reach."""
    megabytes = (str(_MEGABYTES),)
    return (
        Attack("privileges", "is root, or has a capability"),
        Attack("user_namespace", "makes a user namespace"),
        Attack("fork_bomb", "forks without end", given=(str(_PROCESSES),)),
        Attack("fork_each_its_limit", "forks children that each use their CPU limit", (CPU,)),
        Attack("endless_loop", "loops without end", (CPU,)),
        Attack("ignore_sigterm", "ignores SIGTERM", (CPU,)),
        Attack("sleep", "sleeps", (IDLE,)),
        Attack("own_session", "leaves a process in its own session"),
        Attack("allocate", "allocates 10 GB", given=megabytes),
        Attack("allocate_together", "allocates in many processes", (MEMORY,), megabytes),
        Attack("hidden_memory", "allocates outside of processes (memfd, System V)"),
        Attack("fill", "fills /tmp", given=("/tmp", str(_FOLDER_MEGABYTES))),
        Attack("fill", "fills /dev/shm", given=("/dev/shm", str(_FOLDER_MEGABYTES))),
        Attack("fill", "fills /dev", given=("/dev", "0")),
        Attack("many_files", "makes a million files", (FILES, MEMORY)),
        Attack("print_much", "prints 10 GB", (OUTPUT,)),
        Attack("write_kernel_files", "writes to /proc and /sys"),
        Attack("write_root", "writes outside of its folders"),
        Attack("environment", "reads the worker's environment, descriptors, processes"),
        Attack("read_files", "reads the worker's keys, home and lake", given=files),
        Attack("network", "reaches the network", given=(str(port),)),
        Attack("abstract_socket", "reaches an abstract socket", given=(name,)),
    )


def check(folders: tuple[str, ...] = (), at_once: int = 4) -> Iterator[Finding]:
    """Run all attacks; gives a finding for each, or the first alone where the sandbox does not start.

    Args:
        folders: which code must not reach, such as the lake; the home and the folder of this process are among them.
        at_once: attacks at a time.
    """
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        name = f"headrace-attack-{uuid.uuid4().hex}"
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        abstract.listen()
        secret = stack.enter_context(tempfile.NamedTemporaryFile(prefix="headrace-key-"))
        own = [entry for folder in (Path.home(), Path.cwd(), *map(Path, folders)) for entry in _entries(folder)]
        chosen = attacks(server.getsockname()[1], name, (secret.name, *own))
        first = _attempt(chosen[0])
        yield first
        if first.harm:
            return
        pool = stack.enter_context(ThreadPoolExecutor(at_once))
        yield from pool.map(_attempt, chosen[1:])


def _attempt(attack: Attack) -> Finding:
    """Run an attack."""
    if (missing := _missing()) is not None:
        return Finding(attack.what, "the sandbox does not start", missing)
    mark = uuid.uuid4().hex
    python = interpreter_of(sys.executable)
    words = (python.path, "-I", "-S", "/headrace/attack.py", attack.name, mark, *attack.given)
    folders = {"/headrace": str(INSIDE), **python.folders}
    outcome = run(Program(words, folders, cpu_seconds=_CPU_SECONDS), _LIMITS)
    harm = _harm(attack, outcome)
    if not harm and (left := _left(mark)):
        harm = f"{left} of its processes live on"
    return Finding(attack.what, harm, _mend(attack, outcome) if harm else "")


def _harm(attack: Attack, outcome: Outcome) -> str:
    """What an attack could do; empty where it was held."""
    if attack.stopped and outcome.reason in attack.stopped:
        over = outcome.cpu_seconds > _CPU_SECONDS + 0.25 * (os.cpu_count() or 1) + 1
        return f"it used {outcome.cpu_seconds:.1f} CPU seconds, {_CPU_SECONDS:g} were its limit" if over else ""
    try:
        done = json.loads(outcome.output)
    except ValueError:
        if outcome.reason or outcome.status == -9:
            return "" if not attack.stopped else f"it was stopped for {outcome.reason or 'an unknown reason'} alone"
        said = outcome.errors.decode(errors="replace").strip().splitlines()
        return f"the sandbox does not start: {said[-1] if said else f'status {outcome.status}'}"
    return ", ".join(done)


def _entries(folder: Path) -> list[str]:
    """At most 50 entries of a folder, without those that lead to the interpreter, which code may see."""
    shown = interpreter_of(sys.executable).folders
    with suppress(OSError):
        found = sorted(map(str, folder.iterdir()))[:50]
        return [one for one in found if not any(f"{path}/".startswith(f"{one}/") for path in shown)]
    return []


def _left(mark: str) -> int:
    """How many processes still have a mark in their command line; it waits up to 5 seconds for none."""
    end, count = time.monotonic() + _GONE_SECONDS, 1
    while count and time.monotonic() < end:
        count = sum(mark in read_text(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit())
        time.sleep(0.02 if count else 0)
    return count


def _missing() -> str | None:
    """The command that installs a missing tool; None where all are there."""
    return next((f"apt install {package}" for tool, package in TOOLS.items() if shutil.which(tool) is None), None)


def _mend(attack: Attack, outcome: Outcome) -> str:
    """What to do where an attack was not held."""
    if b"bwrap: Unknown option" in outcome.errors:
        return "bubblewrap is older than 0.8: install a newer one"
    if b"bwrap:" in outcome.errors:
        return _mend_start()
    if attack.name == "hidden_memory":
        return "let the worker make cgroups (run it as root, or with Delegate=yes in its systemd unit)"
    return "update bubblewrap (0.8 or newer) and Linux (5.14 or newer), or run the worker on another machine"


def _mend_start() -> str:
    """Why bubblewrap may not make namespaces here, and what allows it."""
    if read_text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == "1":
        return (
            "AppArmor forbids user namespaces, as on Ubuntu 24.04: give /usr/bin/bwrap a profile with `userns,`, or "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if read_text("/proc/sys/kernel/unprivileged_userns_clone").strip() == "0":
        return "this kernel forbids user namespaces: sysctl -w kernel.unprivileged_userns_clone=1"
    if read_text("/proc/sys/user/max_user_namespaces").strip() == "0":
        return "this kernel forbids user namespaces: sysctl -w user.max_user_namespaces=15000"
    return (
        "a container's seccomp or AppArmor forbids namespaces, or its /proc is masked: start it with --security-opt "
        "seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined (in Kubernetes "
        "seccompProfile and appArmorProfile Unconfined, procMount Unmasked), or run the worker outside of it"
    )


@cache
def require_sandbox() -> None:
    """Refuse to execute code where an attack is not held; they are run once in a process.

    Raises:
        SetupError: names the first that is not, and what mends it.
    """
    for finding in check():
        if finding.harm:
            raise SetupError(
                f"code is not executed on this machine: a program that {finding.what} is not held ({finding.harm}); "
                f"{finding.mend}; `headrace worker --check` tries all attacks"
            )
