"""The rule of the embedded engine's threads: what a step hands to the engine gives many threads what it gives one.

Tasks of Sail are threads of one process. So whatever they share by a function of a step (a cache, a child process, a
file, working memory of compiled code) shows where the function gets several inputs at once and gives another answer
than to each of them alone. `watch` has every function tried like that which a step hands to Sail in this process, on
the rows that it gets there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from tests.tiers import is_nightly

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_THREADS = 8
_LEAST_SECONDS = 0.03
_WRITERS = (
    *("spark_jobs.lake.files.data_files", "spark_jobs.lake.files.file_writer"),
    *("spark_jobs.lake.engine.embedded", "spark_jobs.lake.engine.spooled_rows._spool"),
)
"""What they make is files: not a second time."""
_tried: set[tuple[str, ...]] = set()
_lock = threading.Lock()


def watch() -> None:
    """Try each function of a step that Sail gets in this process: its first call with rows, in the long tier all."""
    from pyspark.sql.connect.dataframe import DataFrame

    from spark_jobs.lake.declare.step import ArrowRows

    map_in_arrow, make_rows = DataFrame.mapInArrow, ArrowRows.__init__

    def mapped(self: Any, func: Function, *rest: Any, **options: Any) -> Any:
        return map_in_arrow(self, tried_at_once(func), *rest, **options)

    def made(self: Any, frame: Any, function: Function, ddl: str, calls: Any = None) -> None:
        make_rows(self, frame, tried_at_once(function), ddl, calls)

    DataFrame.mapInArrow = mapped
    ArrowRows.__init__ = made  # type: ignore[method-assign]


def tried_at_once(function: Function) -> Function:
    """The function of a step as one that several threads try first, each with rows of its own; others as they are."""
    names = names_of(function)
    if not names[0].startswith(("spark_jobs.", "headrace_features.")) or any(
        name.startswith(_WRITERS) for name in names
    ):
        return function

    def checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [batch for batch in batches if batch.num_rows]
        if rows and _is_first(names):
            compare(function, pa.Table.from_batches(rows), names)
        yield from function(iter(rows))

    return checked


def compare(function: Function, rows: pa.Table, names: tuple[str, ...]) -> None:
    """Try a function by several threads at once.

    Raises:
        AssertionError: what it gives for some rows, which may be an error, is not what it gives for them alone.
    """
    bounds = [rows.num_rows * part // _THREADS for part in range(_THREADS)]
    parts = [rows.slice(begin, rows.num_rows // _THREADS + 1) for begin in bounds]
    alone = [_answer(function, part) for part in parts]
    barrier, interval, end = threading.Barrier(_THREADS), sys.getswitchinterval(), time.monotonic() + _LEAST_SECONDS

    def work(thread: int) -> list[int]:
        wrong, turn = [], 0
        barrier.wait()
        while turn == 0 or time.monotonic() < end:
            part = (thread + turn) % _THREADS
            wrong += [part] if _answer(function, parts[part]) != alone[part] else []
            turn += 1
        return wrong

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(_THREADS) as threads:
            wrong = [part for parts in threads.map(work, range(_THREADS)) for part in parts]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong, f"{' of '.join(names)}: {len(wrong)} answers to threads at once differ from those to one"


def _answer(function: Function, rows: pa.Table) -> str:
    """What a function gives for some rows."""
    try:
        return repr([row for batch in function(iter(rows.to_batches())) for row in batch.to_pylist()])
    except Exception as error:  # noqa: BLE001 - a part of the rows may be no input of it; it must say so each time
        return f"{type(error).__name__}: {error}"


def names_of(function: Any) -> tuple[str, ...]:
    """The names of a function and of those that it calls by its closure or its arguments."""
    if isinstance(function, partial):
        inner = [function.func, *function.args, *function.keywords.values()]
        return tuple(name for one in inner if callable(one) for name in names_of(one))
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return (name, *(inner for one in cells if callable(one) for inner in names_of(one)))


def _is_first(names: tuple[str, ...]) -> bool:
    with _lock:
        is_first = is_nightly() or names not in _tried
        _tried.add(names)
        return is_first
