"""Start the command `headrace`, or say what to install where only the client of a training job is installed."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.util import find_spec
from typing import Final

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
    from dagster_project.cli import main as run

    run()


def spare_collector() -> None:
    """Have Python search for garbage more seldom, and not at the exit, where the system takes all back.

    A third of the time of a small command was this search among the half a million lasting objects of imports and
    catalogues.
    """
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)
