"""The check of functions of steps by several threads finds what threads share, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from tests.at_once import compare, names_of, tried_at_once

_ROWS = pa.table({"number": range(64)})
_memory = np.zeros(8, np.int64)


def _summed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sums of batches, each in memory of its own."""
    yield from (pa.RecordBatch.from_pydict({"sum": [sum(batch["number"].to_pylist())]}) for batch in batches)


def _by_shared_memory(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same in memory of the module."""
    for batch in batches:
        _memory[0] = 0
        for number in batch["number"].to_pylist():
            _memory[0] += number
        yield pa.RecordBatch.from_pydict({"sum": [int(_memory[0])]})


def test_memory_that_threads_share_is_found() -> None:
    """Its sums are those of several threads; an error that a part of the rows always gives is an answer."""
    compare(_summed, _ROWS, ("summed",))
    compare(lambda batches: iter([next(iter(batches))["none"]]), _ROWS, ("raises",))
    with pytest.raises(AssertionError, match=r"shared: .* answers to threads at once differ from those to one"):
        for _ in range(100):  # on a busy machine one try may give each thread its turn at a time
            compare(_by_shared_memory, _ROWS, ("shared",))


def test_functions_of_steps_alone_are_tried() -> None:
    """By whatever they are called: those of tests and those that write files are handed on as they are."""
    from spark_jobs.lake.files.data_files import write_task
    from spark_jobs.tokens.tokens import _encode

    assert tried_at_once(_summed) is _summed and tried_at_once(write_task) is write_task  # type: ignore[arg-type]
    assert tried_at_once(_encode) is not _encode  # type: ignore[arg-type]
    assert names_of(partial(_summed, _ROWS))[0].endswith("test_at_once._summed")
