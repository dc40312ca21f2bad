"""Parse in a child process that can be killed: a file that hangs or crashes the parser loses only its own result.

    with SyntaxChild(SyntaxLimits()) as child:
        child.definitions([("Python", b"def area(): ..."), ("Ruby", b"...")])
        # [Definitions(defined=("area",), bound=()), "timeout: more than 2 s of processor time"]

One child serves a worker for its life (`shared_child`). It is started by exec, so it shares neither threads nor JVM
with the worker. Files are sent in batches, answers come back file by file. When the child dies, the file that it was
parsing gets the reason as its answer, and another child gets the files after it.

Two limits of time hold for each file. Processor time is limited by the kernel and does not depend on how busy the
machine is, so the answer for a file is nearly always the same. A child that waits instead of computing is killed by the
parent after `PATIENCE` times that limit. The limit on memory makes the parser fail or abort.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from types import TracebackType
from typing import Final

from pydantic import Field

from spark_jobs.code.syntax.definitions import Definitions
from spark_jobs.code.syntax.syntax_worker import LENGTH_BYTES
from spark_jobs.exceptions import StepRunError
from spark_jobs.lake.declare.step import ConfigModel

PATIENCE: Final = 10
_START_SECONDS: Final = 120
_READ_BYTES: Final = 1 << 16
_BATCH_BYTES: Final = 8 << 20

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


class SyntaxChild:
    """A child process and the pipes to it; started when first needed, and again after every death.

    To be used by one thread, which must live as long as the child is needed: the kernel kills the child with the thread
    that started it.
    """

    def __init__(
        self, limits: SyntaxLimits, parser: str = "spark_jobs.code.syntax.definitions:read_definitions"
    ) -> None:
        """Make a child that is not started yet.

        Args:
            limits: see `SyntaxLimits`.
            parser: `module:function` from (language, source) to `Definitions`, imported by the child.
        """
        self.limits = limits
        self.parser = parser
        self._process: subprocess.Popen[bytes] | None = None
        self._kept_waiting = False

    def __enter__(self) -> SyntaxChild:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def definitions(self, files: Sequence[File]) -> list[Definitions | str]:
        """Parse files.

        Args:
            files: language and source of each.

        Returns:
            For each its definitions, or one line with the reason why it could not be parsed.

        Raises:
            StepRunError: the child cannot be started.
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

    def close(self) -> None:
        """Kill the child."""
        if self._process is not None:
            self._process.kill()
            self._end_of_child()

    def _parse(self, files: Sequence[File]) -> list[Definitions | str]:
        """Parse the files of one batch, with a new child after each death."""
        answers: list[Definitions | str] = []
        while len(answers) < len(files):
            waiting = files[len(answers) :]
            answers += self._exchange(waiting)
            if len(answers) < len(files):
                answers.append(self._end_of_child())
        return answers

    def _exchange(self, files: Sequence[File]) -> list[Definitions | str]:
        """Send files and receive answers, until all are answered or the child died or was killed."""
        process = self._started()
        message = pickle.dumps(list(files))
        unsent = memoryview(len(message).to_bytes(LENGTH_BYTES, "little") + message)
        answers: list[Definitions | str] = []
        received = bytearray()
        deadline = time.monotonic() + self._patience
        with selectors.DefaultSelector() as selector:
            assert process.stdin is not None and process.stdout is not None
            selector.register(process.stdin, selectors.EVENT_WRITE)
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(answers) < len(files):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready and time.monotonic() >= deadline:
                    process.kill()
                    self._kept_waiting = True
                    return answers
                for key, _ in ready:
                    if key.fileobj is process.stdin:
                        unsent = unsent[_write(process.stdin.fileno(), unsent) :]
                        if not unsent:
                            selector.unregister(process.stdin)
                        continue
                    piece = os.read(process.stdout.fileno(), _READ_BYTES)
                    if not piece:
                        return answers
                    received += piece
                    found = list(_messages(received))
                    if found:
                        answers += found
                        deadline = time.monotonic() + self._patience
        return answers

    @property
    def _patience(self) -> float:
        return PATIENCE * self.limits.parse_seconds

    def _started(self) -> subprocess.Popen[bytes]:
        """The running child; starts it if necessary."""
        if self._process is not None:
            return self._process
        limits = self.limits
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "spark_jobs.code.syntax.syntax_worker", self.parser, str(os.getpid())),
                *(str(limits.parse_seconds), str(limits.memory_bytes)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            received = bytearray()
            deadline = time.monotonic() + _START_SECONDS
            while not list(_messages(received)):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                piece = os.read(process.stdout.fileno(), _READ_BYTES) if ready else b""
                if not piece:
                    process.kill()
                    raise StepRunError(
                        f"syntax child: {self.parser} did not start ({self._end_of_child()}); its standard error says "
                        f"why, and `memory_bytes` = {limits.memory_bytes} must hold Python itself"
                    )
                received += piece
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _end_of_child(self) -> str:
        """Wait for a child that ends or was killed; returns the reason in one line."""
        process, self._process = self._process, None
        kept_waiting, self._kept_waiting = self._kept_waiting, False
        assert process is not None
        try:
            code = process.wait(1)
        except subprocess.TimeoutExpired:  # it closed its end of the pipe and went on
            process.kill()
            code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        if code == -signal.SIGPROF:
            return f"timeout: more than {self.limits.parse_seconds:g} s of processor time"
        if kept_waiting:
            return f"timeout: killed after {self._patience:g} s without an answer"
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"crash: the parser ended by {name}"


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


@cache
def _child_of(process: int, limits: SyntaxLimits) -> SyntaxChild:
    return SyntaxChild(limits)


def shared_child(limits: SyntaxLimits) -> SyntaxChild:
    """The child of this process with these limits; it stays until the process ends."""
    return _child_of(os.getpid(), limits)
