"""The parsing child process: one batch of files in, one small answer out for each.

    python -m spark_jobs.code.syntax.syntax_worker PARSER PARENT_PID CPU_SECONDS MEMORY_BYTES

Nothing inside a process can stop a parser looping in compiled code. So before each file the child sets a timer of the
kernel on its own processor time; the signal (SIGPROF, not caught) ends the process; the parent sees that and knows the
file. The kernel also ends the child with its parent, and refuses memory beyond the limit.

Messages on both pipes are a length of 4 bytes (little-endian) and a pickle. In: a list of (language, source). Out:
first `None`, once the child is ready; then for each file the parser's result, or the reason why there is none.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import sys
from typing import BinaryIO, Final

from spark_jobs.child_processes import end_with_parent
from spark_jobs.messages import kept_message

LENGTH_BYTES: Final = 4
OUT_OF_MEMORY: Final = 80
"""Status with which the child ends where a file needs more memory than is left: that depends on the files before."""


def main(arguments: list[str]) -> int:
    """Answer batches until the parent closes the pipe."""
    parser, parent, cpu_seconds, memory_bytes = arguments[0], int(arguments[1]), float(arguments[2]), int(arguments[3])
    end_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt goes to the whole group; the parent ends this process
    module, _, function = parser.partition(":")
    parse = getattr(importlib.import_module(module), function)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that what a parser prints does not get between the answers
    _send(answers, None)
    while (batch := _receive(sys.stdin.buffer)) is not None:
        for language, source in batch:
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            try:
                answer = parse(language, source)
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except Exception as error:  # noqa: BLE001 - any error of a grammar loses its file and no other
                answer = kept_message(f"{type(error).__name__}: {error}")[:200]
            signal.setitimer(signal.ITIMER_PROF, 0)
            _send(answers, answer)
    return 0


def _send(pipe: BinaryIO, answer: object) -> None:
    message = pickle.dumps(answer)
    pipe.write(len(message).to_bytes(LENGTH_BYTES, "little") + message)
    pipe.flush()


def _receive(pipe: BinaryIO) -> list[tuple[str, bytes]] | None:
    """The next batch; None once the parent has closed the pipe."""
    length = pipe.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    batch: list[tuple[str, bytes]] = pickle.loads(pipe.read(int.from_bytes(length, "little")))
    return batch


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
