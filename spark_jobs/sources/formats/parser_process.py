"""Run extractors in a process of their own, which ends where a document takes too much time or memory.

Parsers of foreign formats are the part of ingest that a hostile file can break: some are quadratic in the depth of a
page, some end their whole process. So they run in a child, one for each Python process that reads: it is started when
first needed, answers one document after the other, and is replaced when it has ended. Its time is that of its
processor, not of a clock on the wall, so that a busy machine refuses no more documents than an idle one.
"""

from __future__ import annotations

import atexit
import os
import pickle
import platform
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

from spark_jobs.exceptions import InputError
from spark_jobs.sources.refusals import Reason, Refusal

MEMORY_BYTES = 768 << 20
"""Address space of the child; more is refused by the operating system, and the child ends."""
_WORN_BYTES = 256 << 20
"""A child that holds more after an answer is replaced: what it cannot give back must not refuse a later document."""
_LENGTH = struct.Struct("<Q")
_START = "import sys; sys.path[:] = sys.argv[1:]; from spark_jobs.sources.formats.parser_process import serve; serve()"

_children: dict[int, subprocess.Popen[bytes]] = {}  # by the process that started it, for a fork has the entry too


def run_apart(function: Callable[..., Any], seconds: int, *arguments: Any) -> Any:
    """Call a function in the child.

    Args:
        function: a function of a module, which is pickled by its name; it imports the parser when it is called.
        seconds: processor time that it may take.
        arguments: its arguments, which are pickled.

    Returns:
        What it returned, or a refusal: `too_complex` where the child ended, `corrupt_file` where the function raised.

    Raises:
        InputError: a package that it needs is not installed on this machine.
    """
    child = _started()
    try:
        _send(child.stdin, (function, seconds, arguments))
        answer, is_worn = _receive(child.stdout)
    except (EOFError, BrokenPipeError):
        return _why_ended(child, seconds)
    if is_worn:
        stop()
    if isinstance(answer, ImportError):
        raise InputError(f"{answer} on {platform.node()}; pip install 'headrace[ingest]' wherever files are read")
    return answer


def stop() -> None:
    """End the child, if there is one."""
    if found := _children.pop(os.getpid(), None):
        with found as child:
            child.kill()


def serve() -> None:
    """Answer calls from standard input until it ends; what libraries print goes nowhere."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
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
        _send(answers, (answer, _resident_bytes() > _WORN_BYTES))


def _resident_bytes() -> int:
    """Memory that this process holds now; getrusage gives the most it ever held, its parent's before it included."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _started() -> subprocess.Popen[bytes]:
    """The child, started where there is none."""
    own = os.getpid()
    if own not in _children:
        command = [sys.executable, "-c", _START, *sys.path]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        _children[own] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere)
        atexit.register(stop)
    return _children[own]


def _why_ended(child: subprocess.Popen[bytes], seconds: int) -> Refusal:
    """The refusal of the document at which the child ended."""
    child.wait()
    stop()
    if child.returncode == -signal.SIGPROF:
        detail = f"its parser took more than {seconds} seconds of processor time, the extract_seconds"
    else:
        detail = f"its parser needed more than {MEMORY_BYTES >> 20} MB, or crashed (status {child.returncode})"
    return Refusal(Reason.TOO_COMPLEX, detail)


def _send(stream: IO[bytes] | None, value: object) -> None:
    """Write one pickled value with its length before it."""
    assert stream is not None
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: IO[bytes] | None) -> Any:
    """Read one value.

    Raises:
        EOFError: the other side ended.
    """
    assert stream is not None
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(header)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)
