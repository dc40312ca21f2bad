"""What the sandbox has to hold beside the checks at the start: attacks that run in it; only tests run them."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_features.synthetic.executed.checks import CheckOutcome
from headrace_features.synthetic.executed.groups import CPU, FILES, MEMORY, read_text
from headrace_features.synthetic.executed.sandbox import IDLE, OUTPUT, Program, ProgramOutcome, interpreter_of, run
from headrace_features.synthetic.execution_config import ExecutionLimits

SCRIPT: Final = Path(__file__).with_name("attack_from_inside.py")
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


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: the function of `attack_from_inside.py`.
        what: what it does, in words for a message.
        stopped: the reason for which the sandbox has to stop it; empty where it ends by itself, without success.
        given: its arguments.
    """

    name: str
    what: str
    stopped: tuple[str, ...] = ()
    given: tuple[str, ...] = ()


def attacks(name: str) -> tuple[Attack, ...]:
    """All attacks; one is given the name of a socket, which it tries to reach."""
    megabytes = (str(_MEGABYTES),)
    return (
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
        Attack("abstract_socket", "reaches an abstract socket", given=(name,)),
    )


def attempts(at_once: int = 4) -> Iterator[CheckOutcome]:
    """Run all attacks, so many at a time; gives a finding for each."""
    name = f"headrace-attack-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as abstract, ThreadPoolExecutor(at_once) as pool:
        abstract.bind(f"\0{name}")
        abstract.listen()
        yield from pool.map(_attempt, attacks(name))


def _attempt(attack: Attack) -> CheckOutcome:
    """Run an attack."""
    mark = uuid.uuid4().hex
    python = interpreter_of(sys.executable)
    words = (python.path, "-I", "-S", "/headrace/attack_from_inside.py", attack.name, mark, *attack.given)
    folders = {"/headrace": str(SCRIPT.parent), **python.folders}
    outcome = run(Program(words, folders, cpu_seconds=_CPU_SECONDS), _LIMITS)
    harm = _harm(attack, outcome)
    if not harm and (left := _left(mark)):
        harm = f"{left} of its processes live on"
    return CheckOutcome(attack.what, harm)


def _harm(attack: Attack, outcome: ProgramOutcome) -> str:
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


def _left(mark: str) -> int:
    """How many processes still have a mark in their command line; it waits up to 5 seconds for none."""
    end, count = time.monotonic() + _GONE_SECONDS, 1
    while count and time.monotonic() < end:
        count = sum(mark in read_text(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit())
        time.sleep(0.02 if count else 0)
    return count
