"""Run a command in a child of this process, and again where the kernel ends the child for memory.

    pid 40  waits, 15 MB          headrace run: the kernel ended it for memory; it goes on by itself
      pid 41  Sail: killed at `pairs`, whose note stays (`ledger.attempts`)
      pid 57  reads the note, takes Spark, computes what is missing, ends

The child is forked before anything is loaded, so the parent holds next to nothing, and the kernel takes the child. What
it does is passed on: signals to the child, its exit status to whoever waits.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from headrace.process.memory_limit import has_much

_MOST_STARTS = 5
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def restart_when_killed(name: str) -> None:
    """Return in a child that does the command; the parent starts another where the kernel ends it, and never returns.

    Where much memory is free, or the system is not Linux, nothing is forked.
    """
    if not hasattr(signal, "sigwaitinfo") or has_much():
        return
    signals = {*_PASSED_ON, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # one that is ignored takes the status of children with it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    for start in range(_MOST_STARTS):
        kills, parent = kill_count(), os.getpid()
        child = os.fork()
        if not child:
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the call
                os._exit(1)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return
        status = _wait(child, signals)
        if status != -signal.SIGKILL:
            break
        if start == _MOST_STARTS - 1 or kill_count() == kills:
            break
        sys.stderr.write(f"headrace {name}: the kernel ended it for memory; it goes on by itself, in another way\n")
        sys.stderr.flush()
    _end_as(status)


def kill_count(proc: Path = Path("/proc")) -> int:
    """How many processes the kernel of this machine has ended for memory; 0 where it does not say."""
    try:
        lines = (proc / "vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _wait(child: int, signals: set[signal.Signals]) -> int:
    """The exit status of a child, less than 0 by a signal; signals that somebody sends this process go to it."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        received = signal.sigwaitinfo(signals)
        if received.si_signo != signal.SIGCHLD and received.si_code <= 0:  # of a terminal the child has it already
            os.kill(child, received.si_signo)


def _end_as(status: int) -> None:
    """End this process as its child ended."""
    if status < 0 and status != -signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)
