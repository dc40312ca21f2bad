"""Run extractors in a process of their own, ended where a document takes too much time or memory.

Parsers of foreign formats are the part of ingest breakable by a hostile file: some are quadratic in the depth of a
page, some end their whole process. So they run in a child, reserved for one call at a time (`child_processes`): it
answers one document after the other, and is replaced when it has ended. Its time is that of its processor, not of a
clock on the wall, so that a busy machine refuses no more documents than an idle one. What needs another limit of memory
has a child of its own; libraries run one thread there, whatever cores the machine has. Where a child ends of anything
but its time, the call is made once more in a fresh one: whoever killed it, and what it held of documents before, is no
property of this document.

    parent -> child    a pickle: what to call; then, where the child asks for them, bytes of the parent's file
    child  -> parent   messages: a line of JSON, and bytes beside it that the JSON refers to

What the child writes is data and never code: whoever takes it over by a file can answer falsely about that file, but
makes nothing run here. Its environment is empty but for where programs and libraries are found, so it holds no secret
of the worker's; it is no sandbox: it runs as the same user, with access to files of the machine.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import platform
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import IO, Any

from headrace.process.memory_limit import resident_bytes
from spark_jobs.child_processes import end_child, end_with_parent, idle_child, keep_child, start_child
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError, first_line

MEMORY_BYTES = 704 << 20
"""Address space of the child; more is refused by the operating system, and the child ends."""
_WORN_FRACTION = 1 / 3
"""A child that holds more of it after an answer is replaced: what it cannot give back must not refuse a later one."""
_START = "import sys; sys.path[:] = sys.argv[3:]; from spark_jobs.sources.opening.parser_process import serve; "
_START += "serve(int(sys.argv[1]), int(sys.argv[2]))"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_THREAD_LIMIT"), "1")
_INHERITED = ("LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "TESSDATA_PREFIX", "TMPDIR")
# Arrow's own pool reserves a gigabyte of addresses, which the limit counts. The system's gives the pages of a batch to
# the next one instead of asking for new ones. The order of a set must not depend on the run.
_ALLOCATION = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": str(16 << 20)}
_ALLOCATION |= {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
_SET = {**_ONE_THREAD, **_ALLOCATION, "PYTHONHASHSEED": "0"}
_LENGTH = struct.Struct("<Q")
_PIPE_BYTES = 1 << 20  # as much as any user may have: the two wait for each other less often
_JSON_BYTES = 64 << 20  # most of one message, beside its bytes and long texts
_LONG_CHARACTERS = 200  # a longer text is sent as bytes, so that its size bounds the memory that it takes


class ChildEndedError(RefusedError):
    """The child ended in the middle of a file; the refusal says why.

    Attributes:
        out_of_time: whether it took more processor time than it was given.
        status: of its end, as `subprocess.Popen` has it.
    """

    def __init__(self, refusal: Refusal, status: int) -> None:
        super().__init__(refusal.reason, refusal.detail)
        self.out_of_time = status == -signal.SIGPROF
        self.status = status


def run_apart(function: Callable[..., Any], seconds: int, *arguments: Any, memory_bytes: int = MEMORY_BYTES) -> Any:
    """Call a function in the child.

    Args:
        function: a function of a module, pickled by its name; it imports the parser when it is called.
        seconds: processor time allowed to it.
        arguments: its arguments, pickled.
        memory_bytes: address space of the child.

    Returns:
        What it returned, as JSON has it with bytes and refusals besides: a tuple, named or not, is a list. Or a
        refusal: `too_complex` where the child ended, `corrupt_file` where the function raised, `not_installed` where a
            needed package is not there.
    """
    try:
        (answer,) = _answers(function, seconds, arguments, None, memory_bytes)
    except ChildEndedError as error:
        return error.refusal
    return answer


def read_apart(
    function: Callable[..., Iterator[Any]], seconds: int, file: IO[bytes], *arguments: Any, memory_bytes: int
) -> Iterator[Any]:
    """Call a generator function in the child on a file open here; the child asks for its bytes.

    Args:
        function: as of `run_apart`; its first argument is the file, to be read at any offset.
        seconds: processor time for each yielded thing.
        file: the file, seekable.
        arguments: the other arguments, pickled.
        memory_bytes: address space of the child.

    Yields:
        What it yields, as of `run_apart`; at last a refusal, `corrupt_file`, where it raised.

    Raises:
        ChildEndedError: the child ended.
        OSError: the file cannot be read.
    """
    return _answers(function, seconds, arguments, file, memory_bytes)


def _answers(
    function: Callable[..., Any], seconds: int, arguments: tuple[Any, ...], file: IO[bytes] | None, memory_bytes: int
) -> Iterator[Any]:
    """What a child answers, of a fresh one again from where the first one was ended by no fault of the document.

    A document alone may need more memory than its first child had left. What a file needs is for its reader to judge:
    there only a child killed by somebody is replaced.
    """
    call, count = (_kind(memory_bytes), function, seconds, arguments, file, memory_bytes), 0
    try:
        for answer in _answers_of(idle_child(call[0]) or _started(memory_bytes), *call):
            yield answer
            count += 1
    except ChildEndedError as error:
        if error.out_of_time or (file is not None and error.status != -signal.SIGKILL):
            raise
        yield from islice(_answers_of(_started(memory_bytes), *call), count, None)


def _answers_of(
    child: subprocess.Popen[bytes],
    kind: Hashable,
    function: Callable[..., Any],
    seconds: int,
    arguments: tuple[Any, ...],
    file: IO[bytes] | None,
    memory_bytes: int,
) -> Iterator[Any]:
    """What a child answers; no other call uses it meanwhile, and it is kept for the next call if it ends well."""
    is_kept = False
    try:
        _send(child.stdin, (function, seconds, arguments, None if file is None else file.seek(0, os.SEEK_END)))
        while (message := _receive(child.stdout, memory_bytes))[0] != "end":
            what, value = message
            if what == "missing":
                yield Refusal(Reason.NOT_INSTALLED, lacking(value))
            elif what == "read" and file is not None:
                _give(child.stdin, file, value, memory_bytes)
            else:
                yield value
        is_kept = message[1] is not True
    except (EOFError, BrokenPipeError, _NoMessageError) as error:
        end_child(child)
        raise _why_ended(child, seconds, memory_bytes) from error
    finally:
        if is_kept:
            keep_child(kind, child)
        else:
            end_child(child)


def lacking(error: object) -> str:
    """The message about a package not importable on this machine."""
    mend = "pip install 'headrace[ingest,ocr]' where files are read, or what headrace doctor names there"
    return f"{first_line(error)} on {platform.node()}; {mend}"


def serve(parent: int, memory_bytes: int) -> None:
    """Answer calls from standard input until it ends; what libraries print goes nowhere."""
    end_with_parent(parent)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            function, seconds, arguments, size = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends a process that does not handle it
            if size is None:
                _answer(answers, "item", function(*arguments))
            else:
                for item in function(_ParentFile(answers, size), *arguments):
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    _answer(answers, "item", item)
                    signal.setitimer(signal.ITIMER_PROF, seconds)
        except ImportError as error:
            _answer(answers, "missing", str(error))
        except BrokenPipeError:
            return  # nobody listens any more
        except BaseException as error:  # noqa: BLE001 - pyo3 raises its panics as BaseException
            if isinstance(error, MemoryError):
                os.abort()  # what is left of the memory is not fit for another document
            message = (str(error) or "no message").splitlines()[0][:200]
            _answer(
                answers, "item", Refusal(Reason.CORRUPT_FILE, f"its parser failed: {type(error).__name__}: {message}")
            )
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(answers, "end", resident_bytes() > memory_bytes * _WORN_FRACTION)


class _ParentFile(io.RawIOBase):
    """The parent's file, in the child: every reading is a question."""

    def __init__(self, answers: IO[bytes], size: int) -> None:
        super().__init__()
        self._answers, self._size, self._position = answers, size, 0

    def readable(self) -> bool:
        """Always true; the base class requires it."""
        return True

    def seekable(self) -> bool:
        """Always true; the base class requires it."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to an offset of the file; nothing is read."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        """The offset in the file."""
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; fewer than asked for only at the end."""
        left = max(0, self._size - self._position)
        _answer(self._answers, "read", [self._position, left if size < 0 else min(size, left)])
        data = _exactly(sys.stdin.buffer, *_LENGTH.unpack(_exactly(sys.stdin.buffer, _LENGTH.size)))
        self._position += len(data)
        return data


def _give(stream: IO[bytes] | None, file: IO[bytes], request: Any, most: int) -> None:
    """Answer a question of the child for bytes of a file."""
    match request:
        case [int(offset), int(size)] if offset >= 0 and 0 <= size <= most:
            pass
        case _:
            raise _NoMessageError
    assert stream is not None
    file.seek(offset)
    pieces, left = list[bytes](), size
    while left > 0 and (piece := file.read(left)):
        pieces.append(piece)
        left -= len(piece)
    stream.write(_LENGTH.pack(size - left))
    stream.writelines(pieces)
    stream.flush()


def _kind(memory_bytes: int) -> Hashable:
    """What all children with this address space have in common that find modules where this process does now."""
    return serve, memory_bytes, *sys.path


def _started(memory_bytes: int) -> subprocess.Popen[bytes]:
    """A new child with this address space."""
    command = [sys.executable, "-c", _START, str(os.getpid()), str(memory_bytes), *sys.path]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    environment = {**{name: os.environ[name] for name in _INHERITED if name in os.environ}, **_SET}
    return start_child(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=environment, pipesize=_PIPE_BYTES)


def _why_ended(child: subprocess.Popen[bytes], seconds: int, memory_bytes: int) -> ChildEndedError:
    """Why a stopped child had ended."""
    if child.returncode == -signal.SIGPROF:
        detail = f"its parser took more than {seconds} seconds of processor time, the extract_seconds"
    else:
        detail = f"its parser needed more than {memory_bytes >> 20} MB, or crashed (status {child.returncode})"
    return ChildEndedError(Refusal(Reason.TOO_COMPLEX, detail), child.returncode)


class _NoMessageError(Exception):
    """What the child wrote is no message."""


def _send(stream: IO[bytes] | None, value: object) -> None:
    """Write one pickled value to the child; large bytes in it are not copied."""
    assert stream is not None
    pickle.dump(value, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _answer(stream: IO[bytes], kind: str, value: object) -> None:
    """Write one message to the parent."""
    beside = list[Any]()
    text = json.dumps([kind, _sent(value, beside)]).encode()
    stream.write(_LENGTH.pack(len(text)))
    stream.write(text)
    stream.writelines(beside)
    stream.flush()


def _sent(value: Any, beside: list[Any]) -> Any:
    """A value as JSON; bytes, long texts, mappings and refusals are objects with one key that says which."""
    if isinstance(value, str) and len(value) > _LONG_CHARACTERS:
        beside.append(value.encode("utf-8", "surrogatepass"))
        return {"text": len(beside[-1])}
    if isinstance(value, bytes | memoryview):
        beside.append(value)
        return {"bytes": memoryview(value).nbytes}
    if isinstance(value, Refusal):
        return {"refusal": [str(value.reason), value.detail]}
    if isinstance(value, dict):
        return {"mapping": [[key, _sent(inner, beside)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        return [_sent(inner, beside) for inner in value]
    return value


def _receive(stream: IO[bytes] | None, most: int) -> tuple[str, Any]:
    """Read one message of the child: its kind and its value.

    Raises:
        EOFError: the child ended.
        _NoMessageError: it is no message, or larger than the child's memory.
    """
    assert stream is not None
    (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if size > _JSON_BYTES:
        raise _NoMessageError
    try:
        kind, value = json.loads(_exactly(stream, size))
        return str(kind), _Received(stream, most).value(value)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _NoMessageError from error


class _Received:
    """Values of a message; what stands beside its JSON is read in the order of writing."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._left = stream, most

    def value(self, value: Any) -> Any:
        """The value turned into this JSON by `_sent`."""
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind == "mapping":
            return {str(key): self.value(item) for key, item in inner}
        if kind == "refusal":
            reason, detail = inner
            return Refusal(Reason(reason), str(detail))
        if not 0 <= inner <= self._left:
            raise _NoMessageError
        self._left -= inner
        data = _exactly(self._stream, inner)
        return data.decode("utf-8", "surrogatepass") if kind == "text" else data


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """Exactly so many bytes.

    Raises:
        EOFError: the other side ended.
    """
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
