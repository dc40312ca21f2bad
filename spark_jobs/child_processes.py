"""Child processes that answer one call at a time, whichever thread makes it, and wait for the next call in between.

    process = idle_child(kind) or start_child(command, ...)
    ...                            no other call has it meanwhile
    keep_child(kind, process)      the call ended well: for the next one of this kind
    end_child(process)             or it did not

Tasks of the embedded engine are threads of one process, and they come and go: a child belongs to a call, and never to a
thread. As many run as there are calls at once, and no more ever wait than ran: the newest. The kernel ends a child when
the thread that started it ends (`end_with_parent`). So one thread starts them all, which lives as long as this process
does, however that ends. A process that was forked begins with none.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1  # <sys/prctl.h>: asks the kernel for a signal when the thread that started this one ends
_Start = tuple["Future[subprocess.Popen[bytes]]", Sequence[str], dict[str, Any]]


class _Children:
    """The children of this process, and the thread that starts them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.idle: list[tuple[Hashable, subprocess.Popen[bytes]]] = []  # the newest at the end
        self.busy: set[subprocess.Popen[bytes]] = set()
        self.most_busy = 0
        self.starts: SimpleQueue[_Start] | None = None

    def use(self, child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Note that a call has a child now; with the lock held."""
        self.busy.add(child)
        self.most_busy = max(self.most_busy, len(self.busy))
        return child


_children = _Children()


def _forget() -> None:
    """Begin anew in a forked process: the children are its parent's, and its parent's threads are not there."""
    global _children  # noqa: PLW0603  once, when the process begins; its lock may be held by a thread that is not there
    _children = _Children()


os.register_at_fork(after_in_child=_forget)


def idle_child(kind: Hashable) -> subprocess.Popen[bytes] | None:
    """A child of this kind that waits, which nobody else gets until it is kept again; None where there is none."""
    ended = []
    try:
        with _children.lock:
            for at in reversed(range(len(_children.idle))):
                if _children.idle[at][0] == kind:
                    _, child = _children.idle.pop(at)
                    if child.poll() is None:
                        return _children.use(child)
                    ended.append(child)
        return None
    finally:
        for child in ended:
            end_child(child)


def start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child that lives until it is ended, or this process ends; not only as long as this thread.

    Args:
        command: the program, which calls `end_with_parent`.
        options: of `subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
        RuntimeError: this process may have no more threads.
    """
    with _children.lock:
        if _children.starts is None:
            starts: SimpleQueue[_Start] = SimpleQueue()
            threading.Thread(target=_start, args=(starts,), name="start-children", daemon=True).start()
            _children.starts = starts  # not where no thread could be started: a call would wait for it for ever
    started: Future[subprocess.Popen[bytes]] = Future()
    _children.starts.put((started, command, options))
    child = started.result()
    with _children.lock:
        return _children.use(child)


def keep_child(kind: Hashable, child: subprocess.Popen[bytes]) -> None:
    """Keep a child for the next call of its kind; where more wait than ever ran at once, the oldest one ends."""
    with _children.lock:
        _children.busy.discard(child)
        _children.idle.append((kind, child))
        surplus = _children.idle[: -_children.most_busy]
        del _children.idle[: len(surplus)]
    for _, older in surplus:
        end_child(older)


def end_child(child: subprocess.Popen[bytes]) -> int:
    """Kill a child, which may have ended; gives its status."""
    with _children.lock:
        _children.busy.discard(child)
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # what it had not read is lost with it
                pipe.close()
    return child.wait()


def idle_children(kind: Hashable) -> list[subprocess.Popen[bytes]]:
    """The children of this kind that wait for a call, the newest last; for those who measure them."""
    with _children.lock:
        return [child for other, child in _children.idle if other == kind]


def end_idle_children() -> None:
    """End the children that wait for a call."""
    with _children.lock:
        ended, _children.idle, _children.most_busy = _children.idle, [], len(_children.busy)
    for _, child in ended:
        end_child(child)


atexit.register(end_idle_children)


def end_with_parent(parent: int) -> None:
    """In a child: have the kernel kill it with the process that started it, of that id.

    Raises:
        SystemExit: that process has ended.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)  # it ended before the line above, so no signal will come


def _start(starts: SimpleQueue[_Start]) -> None:
    """Start what is asked for, until the process ends."""
    while True:
        started, command, options = starts.get()
        try:
            child: Any = subprocess.Popen(command, **options)
            started.set_result(child)
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits for it
            started.set_exception(error)
