"""What the sandbox of a machine has to hold before code is executed in it, and the sentence to mend a failure.

Three checks run in it at the start: privileges, files, network (`inside/checks.py`). The tests attack the rest, its
limits among them.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from headrace_features.synthetic.executed.groups import read_text
from headrace_features.synthetic.executed.sandbox import TOOLS, Program, ProgramOutcome, interpreter_of, run
from headrace_features.synthetic.execution_config import ExecutionLimits
from spark_jobs.exceptions import SetupError

CHECKS: Final = {
    "privileges": "is root, or has a capability",
    "read_files": "reads the worker's keys, home and lake",
    "network": "reaches the network",
}
_INSIDE: Final = Path(__file__).with_name("inside")
_LIMITS: Final = ExecutionLimits(idle_seconds=10)  # longer than the check of the network waits
_CPU_SECONDS: Final = 5.0  # a Python starts in .02


@dataclass(frozen=True)
class CheckOutcome:
    """The result of a check.

    Attributes:
        what: what the program does.
        harm: what it could do; empty where the sandbox held.
        mend: what to do about it.
    """

    what: str
    harm: str = ""
    mend: str = ""


def check(folders: tuple[str, ...] = ()) -> Iterator[CheckOutcome]:
    """Run all checks; gives a finding for each, or the first alone where the sandbox does not start.

    Args:
        folders: which code must not reach, such as the lake; the home and the folder of this process are among them.
    """
    first = CHECKS["privileges"]
    if (missing := _missing()) is not None:
        yield CheckOutcome(first, "the sandbox does not start", missing)
        return
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.NamedTemporaryFile(prefix="headrace-key-") as key:
        files = [entry for folder in (Path.home(), Path.cwd(), *map(Path, folders)) for entry in _entries(folder)]
        outcome = _run(str(server.getsockname()[1]), key.name, *files)
    try:
        reached = json.loads(outcome.output)
    except ValueError:
        lines = outcome.errors.decode(errors="replace").strip().splitlines()
        cause = lines[-1] if lines else outcome.reason or f"status {outcome.status}"
        yield CheckOutcome(first, f"the sandbox does not start: {cause}", _mend(outcome))
        return
    for name, what in CHECKS.items():
        yield CheckOutcome(what, ", ".join(reached[name]), _mend(outcome) if reached[name] else "")


def _run(*arguments: str) -> ProgramOutcome:
    """Run the checks in the sandbox."""
    python = interpreter_of(sys.executable)
    words = (python.path, "-I", "-S", "/headrace/checks.py", *arguments)
    folders = {"/headrace": str(_INSIDE), **python.folders}
    return run(Program(words, folders, cpu_seconds=_CPU_SECONDS), _LIMITS)


def _entries(folder: Path) -> list[str]:
    """At most 50 entries of a folder, without those leading to the interpreter, visible to code."""
    shown = interpreter_of(sys.executable).folders
    with suppress(OSError):
        entries = sorted(map(str, folder.iterdir()))[:50]
        return [entry for entry in entries if not any(f"{path}/".startswith(f"{entry}/") for path in shown)]
    return []


def _missing() -> str | None:
    """The command to install a missing tool; None where all are there."""
    return next((f"apt install {package}" for tool, package in TOOLS.items() if shutil.which(tool) is None), None)


def _mend(outcome: ProgramOutcome) -> str:
    """What to do where a check fails."""
    if b"bwrap: Unknown option" in outcome.errors:
        return "bubblewrap is older than 0.8: install a newer one"
    if b"bwrap:" in outcome.errors:
        return _mend_start()
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
    """Refuse to execute code where a check fails; they are run once in a process.

    Raises:
        SetupError: names the first that does, and what mends it.
    """
    for finding in check():
        if finding.harm:
            raise SetupError(
                f"code is not executed on this machine: a program that {finding.what} is not held ({finding.harm}); "
                f"{finding.mend}; `headrace worker --check` says all"
            )
