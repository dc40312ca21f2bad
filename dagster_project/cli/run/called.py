"""`headrace.run`: the command `headrace run`, called from Python.

The command runs in a process of its own, as in a shell: neither Dagster nor an engine is loaded by whoever calls, the
command may go on with another engine, and its environment, its note of a run with nothing to do and its statuses are
those of the command.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from dagster_project.cli.run.step_lines import StepLine
from dagster_project.exceptions import CheckFailedError, CommandError, DagsterProjectError, RunFailedError

_ERRORS = {2: CommandError, 3: CheckFailedError, 4: RunFailedError}  # by exit status of the command
_PREFIX = "headrace: "
_NAMED = 8  # failed tables that the value names


@dataclass(frozen=True, repr=False)
class Ran:
    """What a run did, table by table.

    Attributes:
        tables: a line for each, as `headrace run` prints them.
        error: why it did not end well, in a line; empty where it did.
    """

    tables: tuple[StepLine, ...]
    error: str = ""

    def __len__(self) -> int:
        return len(self.tables)

    def __repr__(self) -> str:
        counts = Counter({"computed": 0, "unchanged": 0, "failed": 0})
        counts.update(line.status for line in self.tables)
        texts = ", ".join(f"{count:,} {status}" for status, count in counts.items())
        failures = [f"{line.label}: {line.detail}" for line in self.failed[:_NAMED]]
        return "\n".join([f"{len(self):,} tables: {texts}", *failures])

    @property
    def computed(self) -> tuple[StepLine, ...]:
        """Computed tables."""
        return self._of("computed")

    @property
    def unchanged(self) -> tuple[StepLine, ...]:
        """Tables without anything to do."""
        return self._of("unchanged")

    @property
    def failed(self) -> tuple[StepLine, ...]:
        """Tables of failed steps; those depending on them are `left`."""
        return self._of("failed")

    def _of(self, status: str) -> tuple[StepLine, ...]:
        return tuple(line for line in self.tables if line.status == status)


def run(*selection: str, partition: str | None = None, check: bool = True) -> Ran:
    """Bring tables of the project of the working directory up to date, as the command `headrace run`.

    Args:
        selection: datasets, corpora, experiments, tables, or Dagster's syntax; none for all tables.
        partition: the only one to run, where assets have partitions.
        check: whether failed tables are an error; if not, they are in what is returned.

    Raises:
        CommandError: there is no project, the selection does not exist, or a declaration is wrong.
        RunFailedError: a step failed; the tables independent of it were computed. Of these is CheckFailedError.
    """
    options = [word for word in selection if word.startswith("-")]
    if options:
        raise CommandError(f"run: {options[0]} is no selection; name datasets, corpora or tables")
    words = ["run", "--json", *selection, *(["--partition", partition] if partition is not None else [])]
    with tempfile.TemporaryFile() as errors:
        status, lines = _ended([sys.executable, "-m", "dagster_project.cli", *words], errors)
        errors.seek(0)
        message = _message(errors.read().decode("utf-8", "replace"))
    ran = Ran(tuple(lines), message if status else "")
    failed = bool(ran.failed)
    if status and (check or not failed):
        cause = f"{ran.failed[0].label}: {ran.failed[0].detail}; " if failed else ""
        raise _ERRORS.get(status, DagsterProjectError)(" ".join(f"{cause}{message}".split()))
    return ran


def _ended(command: Sequence[str], errors: IO[bytes]) -> tuple[int, list[StepLine]]:
    """Run the command to its end; gives its status and its lines. An interruption ends it as Ctrl-C does."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        try:
            lines = dict[str, StepLine]()
            for line in _lines(process.stdout):  # a run that went on with another engine says some tables twice
                if line.status != "unchanged" or line.label not in lines:
                    lines[line.label] = line
            return process.wait(), list(lines.values())
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def _lines(output: IO[bytes]) -> Iterator[StepLine]:
    for line in output:
        if line.startswith(b"{"):
            yield StepLine(**json.loads(line))


def _message(errors: str) -> str:
    """The last line with the command's reason for its end; the last of all where there is no such line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    messages = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
    return (messages or lines or ["run: it ended without a word"])[-1]
