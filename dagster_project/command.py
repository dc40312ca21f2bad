"""Start the command `headrace`, or say what to install where only the client of a training job is installed."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from importlib.util import find_spec
from typing import Final

from headrace.process.interrupts import heed_interrupts

PLATFORM: Final = ("click", "dagster", "pyiceberg", "pyspark")  # each is imported by one command or another


def main() -> None:
    """Run the command line; never returns."""
    missing = [name for name in PLATFORM if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"headrace: {', '.join(missing)} not found: this is the client alone; for the commands run: "
            "pip install 'headrace[platform]'\n"
        )
        sys.exit(2)
    spare_collector()
    heed_interrupts()
    statuses: list[int] = []
    atexit.register(_end_at_once, statuses)  # the first to be registered is called last
    from dagster_project.cli import main as run

    try:
        run()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            statuses.append(ended.code)
        raise


def spare_collector() -> None:
    """Have Python search more seldom for unreachable objects: imports alone make half a million lasting ones."""
    gc.set_threshold(100_000, 50, 50)


def _end_at_once(statuses: list[int]) -> None:
    """End the process after all exit functions, without Python's two seconds to free every object.

    Args:
        statuses: the exit status; empty where an error ended the command.
    """
    if statuses:
        with contextlib.suppress(OSError):  # whoever reads has gone; Python says so in its own way
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(statuses[0])
