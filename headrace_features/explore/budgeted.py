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
        CommandError: it took longer, or nobody waits for it any more.
    """
    deadline = time.monotonic() + BUDGET_SECONDS
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as opened:
        opened.row_factory = sqlite3.Row
        for name, other in further.items():
            opened.execute(f"ATTACH ? AS {name}", [f"file:{other}?mode=ro&immutable=1"])
        has_left = HAS_LEFT.get()
        opened.set_progress_handler(lambda: time.monotonic() > deadline or has_left(), _STEPS)
        try:
            return read(opened.execute(query, values))
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise CommandError(
                    f"{dataset}: this takes longer than {BUDGET_SECONDS:g} s; narrow the list by a filter"
                ) from error
            raise


def numbers_of(cursor: sqlite3.Cursor) -> Float64Array:
    """The first column of all rows, NaN where it has no value."""
    return np.fromiter((math.nan if value is None else value for (value,) in cursor), np.float64)
