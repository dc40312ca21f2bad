"""Which code made the rows: the commit of the checkout."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path


@functools.cache
def git_commit() -> str | None:
    """Commit of the checkout that this code runs from; None outside of one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
