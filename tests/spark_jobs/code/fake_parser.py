"""A parser that does what its source says, for tests of the child process."""

from __future__ import annotations

import os
import signal
import time

from spark_jobs.code.syntax.definitions import Definitions


def parse(language: str, source: bytes) -> Definitions:
    """Hang, wait, crash, exit, raise, print or eat memory, or do one of these at the first try; else define the source.

    `PATH first WORD` does what the word says unless the file is there, which gets the id of the process.
    """
    what = source.decode()
    path, once, word = what.partition(" first ")
    if once and not os.path.exists(path):
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, path)
        what = word
    if what == "hang":
        while True:
            pass
    if what == "wait":
        time.sleep(3600)
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "exit":
        os._exit(7)
    if what == "raise":
        raise ValueError("odd source")
    if what == "print":
        print("not an answer", flush=True)  # noqa: T201
    if what == "eat":
        return Definitions((str(len(bytearray(1 << 34))),), ())
    return Definitions((f"{language}:{'again' if once else what[:20]}",), ())
