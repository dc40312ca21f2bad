"""Parse in killable child processes: a file hanging or crashing the parser loses only its own result.

    SyntaxParser(SyntaxLimits()).definitions([("Python", b"def area(): ..."), ("Ruby", b"...")])
    # [Definitions(defined=("area",), bound=()), "timeout: more than 2 s of processor time"]

A call has a child of its own; it goes on to the next call (`child_processes`). It is started by exec, so it shares
neither threads nor JVM with the worker. Files are sent in batches, answers come back file by file. When the child dies,
its present file is tried once more, alone, in a fresh child: whoever killed the first one, and whatever it held of the
files before, is no property of the file. Where the second one dies too, that is the reason of the file, and the files
after it go on.

Two limits of time hold for each file. Processor time is limited by the kernel and does not depend on how busy the
machine is, so the answer for a file is nearly always the same, and such a file is not tried again. A child waiting
without computing is killed by the parent after `PATIENCE` times that limit; one that computes slowly, because others do
too, is not. The limit on memory makes the parser fail or abort.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from spark_jobs.child_processes import end_child, idle_child, keep_child, start_child
from spark_jobs.code.syntax.definitions import Definitions
from spark_jobs.code.syntax.syntax_worker import LENGTH_BYTES, OUT_OF_MEMORY
from spark_jobs.exceptions import StepRunError
from spark_jobs.lake.declare.step import ConfigModel

PATIENCE: Final = 10
_START_SECONDS: Final = 120
_READ_BYTES: Final = 1 << 16
_BATCH_BYTES: Final = 8 << 20
_OUT_OF_TIME: Final = "timeout: more than "

File = tuple[str, bytes]
"""Language and source."""


class SyntaxLimits(ConfigModel):
    """Limits of parsing one file."""

    parse_seconds: float = Field(
        2.0, gt=0, le=600, description="processor time per file, after which it is recorded as `timeout`"
    )
    file_bytes: int = Field(4 << 20, gt=0, description="files beyond this are not parsed: `too_large`")
    memory_bytes: int = Field(
        3 << 30, ge=256 << 20, description="address space of the parsing process; a file that needs more is recorded"
    )


@dataclass(frozen=True)
class SyntaxParser:
    """What parses files, for any number of threads at once.

    Attributes:
        limits: see `SyntaxLimits`.
        parser: `module:function` from (language, source) to `Definitions`, imported by the child.
    """

    limits: SyntaxLimits
    parser: str = "spark_jobs.code.syntax.definitions:read_definitions"

    def definitions(self, files: Sequence[File]) -> list[Definitions | str]:
        """Parse files.

        Args:
            files: language and source of each.

        Returns:
            For each its definitions, or one line with the reason why it could not be parsed.

        Raises:
            StepRunError: a child cannot be started.
        """
        answers: list[Definitions | str] = []
        for batch in _batches(files):
            small = [file for file in batch if len(file[1]) <= self.limits.file_bytes]
            parsed = iter(self._parse(small))
            answers += [
                next(parsed)
                if len(source) <= self.limits.file_bytes
                else f"too_large: {len(source)} bytes, at most {self.limits.file_bytes} are parsed"
                for _, source in batch
            ]
        return answers

    def _parse(self, files: Sequence[File]) -> list[Definitions | str]:
        """Parse the files of one batch, with a new child after each death."""
        answers: list[Definitions | str] = []
        again = False  # the next file has ended a child already
        while len(answers) < len(files):
            child = None if again else idle_child(self)
            child = child or self._started()
            tried = files[len(answers) :][: 1 if again else None]
            parsed, end = self._exchange(child, tried)
            answers += parsed
            if end is None:
                keep_child(self, child)
                again = False
            elif again or end.startswith(_OUT_OF_TIME):
                answers.append(end)
                again = False
            else:
                again = True
        return answers

    def _exchange(
        self, child: subprocess.Popen[bytes], files: Sequence[File]
    ) -> tuple[list[Definitions | str], str | None]:
        """Send files and receive answers, until all are answered or the child has ended, and why it has."""
        assert child.stdin is not None and child.stdout is not None
        message = pickle.dumps(list(files))
        unsent = memoryview(len(message).to_bytes(LENGTH_BYTES, "little") + message)
        answers: list[Definitions | str] = []
        received = bytearray()
        is_done = is_late = False
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(child.stdin, selectors.EVENT_WRITE)
                selector.register(child.stdout, selectors.EVENT_READ)
                deadline, spent = time.monotonic() + self._patience, _spent(child)
                while not (is_done or is_late):
                    ready = selector.select(max(deadline - time.monotonic(), 0))
                    if not ready and time.monotonic() >= deadline:
                        is_late = _spent(child) == spent
                        deadline, spent = time.monotonic() + self._patience, _spent(child)
                    for key, _ in ready:
                        if key.fileobj is child.stdin:
                            unsent = unsent[_write(child.stdin.fileno(), unsent) :]
                            if not unsent:
                                selector.unregister(child.stdin)
                            continue
                        piece = os.read(child.stdout.fileno(), _READ_BYTES)
                        if not piece:
                            return answers, self._why_ended(child)
                        received += piece
                        complete = list(_messages(received))
                        answers += complete
                        is_done = len(answers) == len(files)
                        if complete:
                            deadline, spent = time.monotonic() + self._patience, _spent(child)
            return answers, f"timeout: killed after {self._patience:g} s without an answer" if is_late else None
        finally:
            if not is_done:
                end_child(child)

    @property
    def _patience(self) -> float:
        return PATIENCE * self.limits.parse_seconds

    def _started(self) -> subprocess.Popen[bytes]:
        """A new child, started once more where somebody kills it before it is ready."""
        command = [
            *(sys.executable, "-m", "spark_jobs.code.syntax.syntax_worker", self.parser, str(os.getpid())),
            *(str(self.limits.parse_seconds), str(self.limits.memory_bytes)),
        ]
        path = os.pathsep.join(path for path in sys.path if path)
        pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": path}
        for _ in range(2):
            child = start_child(command, stdin=pipe, stdout=pipe, bufsize=0, env=environment)
            if _is_ready(child):
                return child
            reason = self._why_ended(child)
            if child.returncode != -signal.SIGKILL:
                break
        raise StepRunError(
            f"syntax child: {self.parser} did not start ({reason}); its standard error says why, and `memory_bytes` = "
            f"{self.limits.memory_bytes} must hold Python itself"
        )

    def _why_ended(self, child: subprocess.Popen[bytes]) -> str:
        """The reason in one line for the end of a child with its end of the pipe closed; it is waited for."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # it went on, and is killed
            child.wait(1)
        code = end_child(child)
        if code == -signal.SIGPROF:
            return f"{_OUT_OF_TIME}{self.limits.parse_seconds:g} s of processor time"
        if code == OUT_OF_MEMORY:
            return "memory limit"
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"crash: the parser ended by {name}"


def shared_child(limits: SyntaxLimits) -> SyntaxParser:
    """What parses with these limits, in the children shared by all threads of this process, one after the other."""
    return SyntaxParser(limits)


def _spent(child: subprocess.Popen[bytes]) -> int:
    """Processor time of a child so far, in nanoseconds; 0 once it has ended."""
    try:
        return time.clock_gettime_ns(~child.pid << 3 | 2)  # as clock_getcpuclockid(3), which Python lacks, makes it
    except OSError:
        return 0


def _is_ready(child: subprocess.Popen[bytes]) -> bool:
    """Wait for the first message of a child; False where it ends before."""
    assert child.stdin is not None and child.stdout is not None
    received = bytearray()
    deadline = time.monotonic() + _START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while not list(_messages(received)):
            ready = selector.select(max(deadline - time.monotonic(), 0))
            piece = os.read(child.stdout.fileno(), _READ_BYTES) if ready else b""
            if not piece:
                return False
            received += piece
    os.set_blocking(child.stdin.fileno(), False)
    return True


def _batches(files: Sequence[File]) -> Iterator[list[File]]:
    """Files in batches of about 8 MiB, so that little is sent again after a restart."""
    batch: list[File] = []
    size = 0
    for file in files:
        if batch and size + len(file[1]) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += len(file[1])
    if batch:
        yield batch


def _write(pipe: int, message: memoryview) -> int:
    """Write as much as the pipe takes; the bytes written, or all if the child has closed it."""
    try:
        return os.write(pipe, message)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(message)


def _messages(received: bytearray) -> Iterator[Definitions | str]:
    """Remove complete messages from the front of `received` and yield their content."""
    while len(received) >= LENGTH_BYTES:
        end = LENGTH_BYTES + int.from_bytes(received[:LENGTH_BYTES], "little")
        if len(received) < end:
            return
        answer: Definitions | str = pickle.loads(received[LENGTH_BYTES:end])
        del received[:end]
        yield answer
