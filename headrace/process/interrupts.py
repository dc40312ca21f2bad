"""Hear SIGINT and SIGTERM in a process started with them ignored, as a shell script's background does."""

from __future__ import annotations

import signal
import threading


def heed_interrupts() -> None:
    """Restore SIGINT and SIGTERM where they are ignored; called where a process begins, by its main thread.

    Dagster gives SIGTERM the handler of SIGINT after each step (`dagster._utils.interrupts`). With an ignored SIGINT no
    `kill` would end a run, and what the process starts would inherit both.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for sign, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(sign) is signal.SIG_IGN:
            signal.signal(sign, handler)
