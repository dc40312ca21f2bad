"""Queries of SQLite files that end when they took too long, or when nobody waits for them any more."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from dagster_project.exceptions import CommandError
from headrace_features.explore.browser_left import HAS_LEFT
from spark_jobs.arrays import Float64Array

BUDGET_SECONDS: Final = 5.0
_STEPS: Final = 20_000  # instructions of SQLite's virtual machine between two looks at the clock
Answer = TypeVar("Answer")


def within_budget(
    dataset: str,
    file: Path,
    further: Mapping[str, Path],
    query: str,
    values: Sequence[Any],
    read: Callable[[sqlite3.Cursor], Answer],
) -> Answer:
    """What `read` makes of the rows of a query, `sqlite3.Row` each.

    Args:
        dataset: whose rows they are, for the error.
        file: the database.
        further: databases that are attached, by name.
        query: in SQL.
        values: for its `?`.
        read: called with the rows.

    Raises:
        CommandError: it took longer, nobody waits for it any more, or a file is damaged, and deleted then.
    """
    deadline = time.monotonic() + BUDGET_SECONDS
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as opened:
        opened.row_factory = sqlite3.Row
        has_left = HAS_LEFT.get()
        try:
            for name, other in further.items():
                opened.execute(f"ATTACH ? AS {name}", [f"file:{other}?mode=ro&immutable=1"])
            opened.set_progress_handler(lambda: time.monotonic() > deadline or has_left(), _STEPS)
            return read(opened.execute(query, values))
        except sqlite3.DatabaseError as error:
            if "interrupted" in str(error):
                raise CommandError(
                    f"{dataset}: this takes longer than {BUDGET_SECONDS:g} s; narrow the list by a filter"
                ) from error
            # an empty file has no table; the other subclasses are mistakes of a query
            if type(error) is not sqlite3.DatabaseError and "no such table" not in str(error):
                raise
            raise damaged(dataset, file, *further.values()) from error


def damaged(dataset: str, *files: Path) -> CommandError:
    """Delete files that cannot be read, one of which is damaged as by a power cut; the error that says so."""
    for file in files:
        file.unlink(missing_ok=True)
    return CommandError(f"{dataset}: an index was damaged and is built anew; open this page again in a moment")


def numbers_of(cursor: sqlite3.Cursor) -> Float64Array:
    """The first column of all rows, NaN where it has no value."""
    return np.fromiter((math.nan if value is None else value for (value,) in cursor), np.float64)
