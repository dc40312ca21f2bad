"""What the interpreter in the sandbox runs: read what is asked from standard input, answer in lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from .clock import move_clock
from .collecting import collect
from .loading import load_module
from .running import run_calls


def main() -> None:
    """Import a module, and collect its calls or make them."""
    asked: dict[str, Any] = json.load(sys.stdin)
    answers = asked["answers"] = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)

    def tell(answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(answers, data) :]

    held = _differ(asked)
    if asked["packages"]:
        sys.path.append(asked["packages"])
    os.makedirs(asked["folder"], exist_ok=True)
    os.chdir(asked["folder"])
    path = os.path.join(asked["root"], asked["path"])
    try:
        module = load_module(asked["root"], asked["path"])
    except BaseException as error:  # noqa: BLE001 - whatever a module does
        said = f"{type(error).__name__}: {error}"[:300]
        tell({"error": said, "reason": "not_importable", "detail": said})
        os._exit(0)
    if asked["mode"] == "collect":
        tell(collect(module, path, asked["kinds"], asked["each"], asked["tools"]))
    else:
        tell({})  # from here on it is a call that fails
        run_calls(module, asked, tell)
    del held
    os._exit(0)  # whatever the module wants at its end


def _differ(asked: dict[str, Any]) -> list[object]:
    """Let this run differ from the others: clock, numbers of processes, addresses of objects, cores."""
    move_clock(asked["clock_seconds"])
    for _ in range(asked["earlier_processes"]):  # a thread takes a number as a process does
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
    if asked["one_core"]:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        cores = 1 if (os.cpu_count() or 1) > 1 else 3
        os.cpu_count = lambda: cores
    return [object() if number % 3 else bytearray(number % 512) for number in range(asked["earlier_objects"])]
