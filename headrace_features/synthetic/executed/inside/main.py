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
    request: dict[str, Any] = json.load(sys.stdin)
    answers = request["answers"] = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)

    def tell(answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(answers, data) :]

    kept_alive = _differ(request)
    if request["packages"]:
        sys.path.append(request["packages"])
    os.makedirs(request["folder"], exist_ok=True)
    os.chdir(request["folder"])
    path = os.path.join(request["root"], request["path"])
    try:
        module = load_module(request["root"], request["path"])
    except BaseException as error:  # noqa: BLE001 - whatever a module does
        words = f"{type(error).__name__}: {error}"[:300]
        tell({"error": words, "reason": "not_importable", "detail": words})
        os._exit(0)
    if request["mode"] == "collect":
        tell(collect(module, path, request["kinds"], request["each"], request["tools"]))
    else:
        tell({})  # from here on it is a call that fails
        run_calls(module, request, tell)
    del kept_alive
    os._exit(0)  # whatever the module wants at its end


def _differ(request: dict[str, Any]) -> list[object]:
    """Let this run differ from the others: clock, numbers of processes, addresses of objects, cores."""
    move_clock(request["clock_seconds"])
    for _ in range(request["earlier_processes"]):  # a thread takes a number as a process does
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
    if request["one_core"]:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        cores = 1 if (os.cpu_count() or 1) > 1 else 3
        os.cpu_count = lambda: cores
    return [object() if number % 3 else bytearray(number % 512) for number in range(request["earlier_objects"])]
