"""Run extractors in a process of their own, which ends where a document takes too much time or memory.

Parsers of foreign formats are the part of ingest that a hostile file can break: some are quadratic in the depth of a
page, some end their whole process. So they run in a child, one for each Python process that reads: it is started when
first needed, answers one document after the other, and is replaced when it has ended. Its time is that of its
processor, not of a clock on the wall, so that a busy machine refuses no more documents than an idle one. What needs
another limit of memory has a child of its own; libraries run one thread there, whatever cores the machine has.
"""

from __future__ import annotations

import atexit
import os
import pickle
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

from spark_jobs.exceptions import InputError
from spark_jobs.sources.refusals import Reason, Refusal

MEMORY_BYTES = 704 << 20
"""Address space of the child; more is refused by the operating system, and the child ends."""
_WORN_FRACTION = 1 / 3
"""A child that holds more of it after an answer is replaced: what it cannot give back must not refuse a later one."""
_START = "import sys; sys.path[:] = sys.argv[2:]; from spark_jobs.sources.formats.parser_process import serve; "
_START += "serve(int(sys.argv[1]))"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_THREAD_LIMIT"), "1")

# By the process that started it, for a fork has the entry too, and by its address space.
_children: dict[tuple[int, int], subprocess.Popen[bytes]] = {}


def run_apart(function: Callable[..., Any], seconds: int, *arguments: Any, memory_bytes: int = MEMORY_BYTES) -> Any:
    """Call a function in the child.

    Args:
        function: a function of a module, which is pickled by its name; it imports the parser when it is called.
        seconds: processor time that it may take.
        arguments: its arguments, which are pickled.
        memory_bytes: address space of the child.

    Returns:
        What it returned, or a refusal: `too_complex` where the child ended, `corrupt_file` where the function raised.

    Raises:
        InputError: a package that it needs is not installed on this machine.
    """
    child = _started(memory_bytes)
    try:
        _send(child.stdin, (function, seconds, arguments))
        answer, is_worn = _receive(child.stdout)
    except (EOFError, pickle.UnpicklingError, BrokenPipeError):
        return _why_ended(child, seconds, memory_bytes)
    if is_worn:
        _end(memory_bytes)
    if isinstance(answer, ImportError):
        raise InputError(f"{answer} on {platform.node()}; pip install 'headrace[ingest,ocr]' wherever files are read")
    return answer


def stop() -> None:
    """End the children of this process."""
    for own, memory_bytes in list(_children):
        if own == os.getpid():
            _end(memory_bytes)


def _end(memory_bytes: int) -> None:
    """End the child with this address space, if there is one."""
    if found := _children.pop((os.getpid(), memory_bytes), None):
        with found as child:
            child.kill()


def serve(memory_bytes: int) -> None:
    """Answer calls from standard input until it ends; what libraries print goes nowhere."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            function, seconds, arguments = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends a process that does not handle it
            answer = function(*arguments)
        except ImportError as error:
            answer = error
        except BaseException as error:  # noqa: BLE001 - pyo3 raises its panics as BaseException
            if isinstance(error, MemoryError):
                os.abort()  # what is left of the memory is not fit for another document
            message = (str(error) or "no message").splitlines()[0][:200]
            answer = Refusal(Reason.CORRUPT_FILE, f"its parser failed: {type(error).__name__}: {message}")
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(answers, (answer, _resident_bytes() > memory_bytes * _WORN_FRACTION))


def _resident_bytes() -> int:
    """Memory that this process holds now; getrusage gives the most it ever held, its parent's before it included."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _started(memory_bytes: int) -> subprocess.Popen[bytes]:
    """The child with this address space, started where there is none."""
    own = (os.getpid(), memory_bytes)
    if own not in _children:
        command = [sys.executable, "-c", _START, str(memory_bytes), *sys.path]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        environment = {**os.environ, **_ONE_THREAD}
        _children[own] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=environment)
        atexit.register(stop)
    return _children[own]


def _why_ended(child: subprocess.Popen[bytes], seconds: int, memory_bytes: int) -> Refusal:
    """The refusal of the document at which the child ended."""
    child.wait()
    _end(memory_bytes)
    if child.returncode == -signal.SIGPROF:
        detail = f"its parser took more than {seconds} seconds of processor time, the extract_seconds"
    else:
        detail = f"its parser needed more than {memory_bytes >> 20} MB, or crashed (status {child.returncode})"
    return Refusal(Reason.TOO_COMPLEX, detail)


def _send(stream: IO[bytes] | None, value: object) -> None:
    """Write one pickled value; large bytes in it are not copied."""
    assert stream is not None
    pickle.dump(value, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _receive(stream: IO[bytes] | None) -> Any:
    """Read one value.

    Raises:
        EOFError, UnpicklingError: the other side ended.
    """
    assert stream is not None
    return pickle.load(stream)
