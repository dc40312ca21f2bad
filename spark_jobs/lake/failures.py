"""What went wrong inside Spark, in one line."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"(?!org\.|java\.|scala\.|py4j\.)[\w.]*(Error|Exception): ")


def failure_line(error: Exception) -> str:
    """The line of a Spark failure that says what happened: a Python worker's own error, or the deepest cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("No space left on device" in line for line in lines):
        return "the disk is full; free some space and run again, nothing was published"
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    chosen = (python[-1:] or causes[-1:] or java[:1] or lines[:1] or [type(error).__name__])[0]
    return f"{chosen[:500]}; the table is as it was, `--debug` shows the whole trace"
