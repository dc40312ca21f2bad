"""Start the command `headrace`, or say what to install where only the client of a training job is installed."""

from __future__ import annotations

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
    from dagster_project.cli import main as run

    run()
