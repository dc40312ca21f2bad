"""Make calls of a module, each in a process of its own, starting from the module as it was imported.

What a call leaves behind (processes, files) is gone before the next. A line of JSON for each call says what it gave.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from itertools import zip_longest
from types import ModuleType
from typing import Any

from .shown import Shown
from .stating import Session, future_flags
from .tracing import CallTracer

_LOOK_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_DEPTH = 50  # nesting up to which a value is written


def run_calls(module: ModuleType, request: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Make the requested calls, one after the other."""
    for number, statements, stated in request["calls"]:
        folder = os.path.join(request["folder"], "call")
        os.makedirs(folder, exist_ok=True)
        result = _in_child(module, list(zip_longest(statements, stated)), request, folder)
        tell({"call": number, **result})
        if request["isolated"]:
            _clear()
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _in_child(
    module: ModuleType, statements: list[tuple[str, Any]], request: dict[str, Any], folder: str
) -> dict[str, Any]:
    """Make a call in a child, and wait for what it gives or a reason to stop it."""
    results, prints = os.pipe(), os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            parent = os.getpid()
            os.setsid()
            os.close(results[0])
            os.close(request["answers"])
            for number in (1, 2):
                os.dup2(prints[1], number)
            bound = int(request["cpu_seconds"]) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (bound, bound))
            os.chdir(folder)
            outcome = _made(module, statements, request)
            data = (
                json.dumps(outcome).encode() if os.getpid() == parent else b""
            )  # a fork by the program writes nothing
            while data:
                data = data[os.write(results[1], data) :]
        os._exit(0)
    os.close(results[1])
    os.close(prints[1])
    streams, reason = _watched(child, results[0], prints[0], request)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if request["isolated"]:
        _end_others()
    for number in (results[0], prints[0]):
        os.close(number)
    if reason:
        return {"reason": reason, "detail": ""}
    try:
        result: dict[str, Any] = json.loads(streams[results[0]])
    except ValueError:
        code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        why = signal.Signals(code).name if code else f"ended with status {os.WEXITSTATUS(status)}"
        return {"reason": "died", "detail": why}
    result["printed_elsewhere"] = streams[prints[0]].decode("utf-8", "backslashreplace")
    return result


def _end_others() -> None:
    """End all processes of the namespace but this one and the first, and wait for their end."""
    if os.getppid() != 1:  # in no namespace of its own these would be all that the user has
        return
    end = time.monotonic() + 1
    while time.monotonic() < end:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.001)


def _watched(child: int, results: int, prints: int, request: dict[str, Any]) -> tuple[dict[int, bytes], str]:
    """Read two pipes until the first is closed; gives the bytes of each, and why to stop the child, if so."""
    streams = {results: b"", prints: b""}
    begin = _cpu_seconds(child, request["isolated"])
    progress_at, progress_cpu = time.monotonic(), 0.0
    wanted = [results, prints]
    while results in wanted:
        for number in select.select(wanted, [], [], _LOOK_SECONDS)[0]:
            data = os.read(number, 1 << 16)
            streams[number] += data
            if not data:
                wanted.remove(number)
        if len(streams[prints]) > request["output_bytes"] or len(streams[results]) > request["result_bytes"]:
            return streams, "too_long"
        cpu, now = _cpu_seconds(child, request["isolated"]) - begin, time.monotonic()
        if cpu > request["cpu_seconds"]:
            return streams, "time_out"
        if cpu - progress_cpu > 0.01 * (now - progress_at) and cpu > progress_cpu:
            progress_at, progress_cpu = now, cpu
        if now - progress_at > request["idle_seconds"]:
            return streams, "idle"
    while prints in wanted and select.select([prints], [], [], 0)[0]:
        data = os.read(prints, 1 << 16)
        streams[prints] += data
        if not data:
            break
    return streams, ""


def _cpu_seconds(child: int, isolated: bool) -> float:
    """CPU seconds of the other processes of the namespace, ended ones too; only differences mean something.

    What its parent does not wait for is waited for by the first process, so nothing is lost at an end. Without a
    namespace those of the child alone.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = 0
    for name in os.listdir("/proc") if isolated else [str(child)]:
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                total += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return total / _TICKS + used.ru_utime + used.ru_stime


def _clear() -> None:
    """Remove all that a call wrote to /tmp and /dev/shm."""
    for top in ("/tmp", "/dev/shm"):
        for entry in os.listdir(top):
            path = os.path.join(top, entry)
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


def _made(module: ModuleType, statements: list[tuple[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    """In the child: execute statements in the names of a module, and note what each gives.

    What its file states of a statement, if anything, is beside it, and is compared with what it gave.
    """
    names, flags = dict(vars(module)), future_flags(module)
    tracer = CallTracer(request["root"], request["trace_steps"], request["trace_characters"])
    done, as_stated, printed_bytes = list[dict[str, Any]](), list[bool](), 0
    for statement, stated in statements:
        written = _Printed(request["output_bytes"] - printed_bytes)
        session = Session()
        sys.displayhook = session.show
        sys.stdin = io.StringIO()
        sys.stdout = sys.stderr = _stream(written)
        if stated:
            sys.stdout = _stream(_Copied(written, session.printed))
        shown = Shown(request["output_bytes"], calls_repr=True, depth=_DEPTH)
        exception = value = None
        try:
            code = compile(statement + "\n", "<call>", "single", flags, dont_inherit=True)
            tracer.start()
            exec(code, names)
            tracer.stop()
            value = next((shown.text(value_shown) for value_shown in reversed(session.values)), None)
        except BaseException as error:  # noqa: BLE001 - it is what the record says
            tracer.stop()
            exception = error
        tracer.stop()
        printed = written.getvalue()
        printed_bytes += len(printed)
        reason = "too_long" if written.was_cut or shown.was_cut else _reason_of(exception)
        raised = None if exception is None else _exception_text(exception, request["output_bytes"])
        text = printed.decode("utf-8", "backslashreplace")
        done.append({"input": statement, "printed": text, "value": value, "exception": raised})
        if reason:
            return {"reason": reason, "detail": raised or ""}
        if stated:
            as_stated.append(session.is_as_stated(stated, exception))
    cut = {"trace_was_cut": tracer.was_cut, "values_were_cut": tracer.shown.was_cut}
    whole = all(as_stated) if as_stated else None
    return {"reason": "", "detail": "", "statements": done, "trace": tracer.events, "as_stated": whole, **cut}


def _stream(buffer: io.BytesIO) -> io.TextIOWrapper:
    """A stream of text with its bytes written at once."""
    return io.TextIOWrapper(buffer, "utf-8", "backslashreplace", "", write_through=True)


class _Printed(io.BytesIO):
    """What a statement prints, up to a limit."""

    was_cut = False

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        """Take some bytes; too many end the statement.

        Raises:
            SystemExit: there were too many.
        """
        if self.tell() + len(data) > self._most:
            self.was_cut = True
            raise SystemExit("it prints too much")
        return super().write(data)


class _Copied(io.BytesIO):
    """What a statement prints on its standard output; it goes into a copy too."""

    def __init__(self, printed: _Printed, copy: io.BytesIO) -> None:
        super().__init__()
        self._printed, self._copy = printed, copy

    def write(self, data: Any) -> int:
        """Take some bytes; too many end the statement."""
        self._copy.write(data)
        return self._printed.write(data)


def _reason_of(error: BaseException | None) -> str:
    """Why an exception is the sandbox's and not the program's; empty where it is the program's."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError) and error.errno in (27, 28, 122):  # EFBIG, ENOSPC, EDQUOT
        return "files"
    if isinstance(error, BlockingIOError) or (type(error) is RuntimeError and "can't start new thread" in str(error)):
        return "processes"
    return ""


def _exception_text(error: BaseException, most: int) -> str:
    """The last line of a traceback."""
    try:
        words = str(error)
    except Exception as other:  # noqa: BLE001
        words = f"<its text raised {type(other).__name__}>"
    module, name = type(error).__module__, type(error).__qualname__
    name = name if module == "builtins" else f"{module}.{name}"
    return (f"{name}: {words}" if words else name)[:most]
