"""Execute the programs of a model, each in its own sandbox; results are messages for the model."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Final

from headrace_features.synthetic.conversations import Execute
from headrace_features.synthetic.executed.checks import require_sandbox
from headrace_features.synthetic.executed.execution import written
from headrace_features.synthetic.executed.groups import CPU, FILES, MEMORY
from headrace_features.synthetic.executed.records import canonical
from headrace_features.synthetic.executed.rows import package_folder, packages_in
from headrace_features.synthetic.executed.sandbox import IDLE, OUTPUT, Program, ProgramOutcome, interpreter_of, run
from headrace_features.synthetic.execution_config import ProgramExecution

_FILE, _ROOT = "program.py", "/code"
_STOPPED: Final = {
    CPU: "it used its {cpu_seconds:g} CPU seconds",
    IDLE: "it did nothing for {idle_seconds:g} seconds",
    MEMORY: "it used more than {memory_bytes:,} bytes of memory",
    FILES: "it made more than {files:,} files",
    OUTPUT: "it printed more than {output_bytes:,} bytes",
}

_log = logging.getLogger(__name__)


def program_executor(config: ProgramExecution) -> Execute:
    """A function that executes programs as declared; the calling thread has to outlive each program.

    Raises:
        SetupError: the sandbox does not hold on this machine, or the interpreter does not run.
        InputError: the folder of packages is not there.
    """
    if config.isolation == "bubblewrap":
        require_sandbox()
    else:
        _log.warning("execute.isolation: unsafe_local: a model's code runs as this process, with all that it may do")
    packages_in(package_folder(config.environment))
    return functools.partial(_execute, config)


def _execute(config: ProgramExecution, code: str) -> tuple[str, str]:
    """Run a program; gives the message for the model, and the exit status or why it was stopped."""
    isolated = config.isolation == "bubblewrap"
    with written({_FILE: code}) as (folder, _):
        file = f"{_ROOT if isolated else folder}/{_FILE}"
        folders, variables, paths = {_ROOT: folder}, dict[str, str](), {folder: _ROOT}
        if config.command:
            command = tuple(part.replace("{file}", file) for part in config.command)
        else:
            python = interpreter_of(config.python or sys.executable)
            command = (python.path, "-s", "-B", file)
            folders |= python.folders
            paths |= dict.fromkeys(python.folders, "/python")
            if (packages := package_folder(config.environment)) is not None:
                folders["/packages"] = packages
                variables["PYTHONPATH"] = "/packages" if isolated else packages
        program = Program(command, folders, variables, b"", config.output_bytes, config.cpu_seconds)
        outcome = run(program, config, isolated=isolated)
    return _said(outcome, config, paths), outcome.reason or str(outcome.status)


def _said(outcome: ProgramOutcome, config: ProgramExecution, paths: dict[str, str]) -> str:
    """How a program ended, what it printed and its errors, as a message."""
    if outcome.reason:
        ended = f"The program was stopped: {_STOPPED[outcome.reason].format(**config.model_dump())}."
    else:
        ended = f"The program ended with exit status {outcome.status}."
    parts = [ended]
    for name, data in (("Output", outcome.output), ("Errors", outcome.errors)):
        text = canonical(data.decode(errors="backslashreplace").replace("\0", "\\x00"), paths)
        if text.strip():
            parts.append(f"{name}:\n{_shown(text, config.shown_bytes)}")
    return "\n\n".join(parts if len(parts) > 1 else [*parts, "It printed nothing."])


def _shown(text: str, most: int) -> str:
    """The begin and the end of a too long text: an error says at its end what it is."""
    data = text.strip("\n").encode()
    if len(data) <= most:
        return data.decode()
    left, right = data[: most // 2], data[-(most // 2) :]
    return (
        f"{left.decode(errors='ignore')}\n[.. {len(data) - most:,} bytes left out ..]\n{right.decode(errors='ignore')}"
    )
