"""The folder of a process for rows on disk: kept ones, sorted parts. It goes with the process, or with the next one.

    $TMPDIR/headrace-kept-x1/.lock    locked by the process while it lives

A killed process removes nothing, and each kill for memory left gigabytes. Its lock goes with it,
so the next process to start Sail knows the folders without an owner.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from spark_jobs.threads import made_once

_PREFIX, _LOCK = "headrace-kept-", ".lock"


@made_once
def scratch_folder() -> Path:
    """The folder of this process."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    fcntl.flock(os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)  # open until the process ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def remove_scratch() -> None:
    """Remove the folder of this process: it ends without its exit functions."""
    if scratch_folder.count:
        shutil.rmtree(scratch_folder(), ignore_errors=True)


def remove_left_scratch() -> None:
    """Remove the folders of ended processes; a folder without a lock is still being made."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open() as file:  # of another user, or locked: a process has it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
