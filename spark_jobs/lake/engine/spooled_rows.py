"""Rows on disk, mapped, not held: the kernel drops their pages where memory is scarce, and reads them again.

A Python function that looks rows up in no order, or sees many parts of them one after another, has them in files of
Arrow's. What it holds in memory is what it makes of narrow columns.

    two tasks of Sail read          part 1 0 2 1 ..             part 0 0 2 1 ..
    each writes a file              0 .. | 1 .. | 2 ..          0 .. | 1 .. | 2 ..
    two tasks call a function       with part 0 of both files, then with part 2          with part 1
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.lake.engine.embedded import is_embedded, keep_folder, parallelism, read_files
from spark_jobs.lake.engine.scratch import scratch_folder
from spark_jobs.lake.engine.sorted_rows import in_parts
from spark_jobs.spark_sql import Column, DataFrame

_WAITING_BYTES = 32 << 20  # of rows that a task has until it writes them
_PART = "__part"
_PLACES_DDL = "part int, path string, batches array<int>"
_PLACES = pa.schema([("part", pa.int32()), ("path", pa.string()), ("batches", pa.list_(pa.int32()))])


class Spool:
    """A file of rows, written once and then mapped."""

    def __init__(self, path: Path) -> None:
        """A spool without rows; its file is made with the first."""
        self._path = path
        self._writer: Any = None
        self.batch_count = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows; all have the schema of the first."""
        if rows.num_rows:
            self._writer = self._writer or pa.ipc.new_file(str(self._path), rows.schema)
            self._writer.write_batch(rows)
            self.batch_count += 1

    def close(self) -> bool:
        """End the file; gives whether it has rows."""
        if self._writer is not None:
            self._writer.close()
        return self._writer is not None

    def table(self, schema: pa.Schema) -> pa.Table:
        """The rows, mapped; of the given schema where there are none."""
        return mapped([str(self._path)] if self.close() else [], schema)


def mapped(paths: Iterable[str], schema: pa.Schema) -> pa.Table:
    """The rows of files written by spools; of the given schema where there are none."""
    tables = [_opened(path).read_all() for path in paths]
    return pa.concat_tables(tables) if tables else schema.empty_table()


@contextlib.contextmanager
def mapped_rows(frame: DataFrame) -> Iterator[pa.Table]:
    """All rows of a frame, in no order: of Sail's mapped until the context ends, of Spark's in memory."""
    if not is_embedded(frame):
        yield frame.toArrow()
        return
    from pyspark.sql.pandas.types import to_arrow_schema

    folder = scratch_folder() / uuid.uuid4().hex
    folder.mkdir()
    try:
        rows = frame.mapInArrow(partial(_spool, folder=str(folder)), "path string").collect()
        yield mapped(sorted(row["path"] for row in rows), to_arrow_schema(frame.schema))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spooled_by_part(frame: DataFrame, count: int, number: Column) -> DataFrame:
    """Write the rows of Sail's frame to disk by part, now; gives where each part is, for `read_parts`.

    Args:
        frame: the rows.
        count: of parts.
        number: int, the part of a row, from 0 to `count` - 1.

    Returns:
        Rows (part, path, batches), those of a part together, in a partition for each core; released as what
        `persist_in_files` gives.
    """
    folder = scratch_folder() / uuid.uuid4().hex
    folder.mkdir()
    numbered = frame.withColumn(_PART, number.cast("int"))
    rows = numbered.mapInArrow(partial(_spool_by_part, folder=str(folder), count=count), _PLACES_DDL).toArrow()
    places, calls = rows.cast(_PLACES).sort_by([("part", "ascending"), ("path", "ascending")]), parallelism()
    turns = places["part"].to_numpy() % calls
    files = list[str]()
    for call in np.unique(turns):
        files.append(f"{folder}/{call}.parquet")
        pq.write_table(places.filter(pa.array(turns == call)), files[-1])
    return keep_folder(read_files(frame.sparkSession, files, _PLACES_DDL), folder)


def read_parts(
    places: Iterable[pa.RecordBatch], function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Call a function with the rows of each part, one part after another; of parts as `spooled_by_part` gives them."""
    part, ranges = -1, list[tuple[str, list[int]]]()
    for batch in places:
        for row in batch.to_pylist():
            if row["part"] != part and ranges:
                yield from function(_batches(ranges))
                ranges = []
            part = row["part"]
            ranges.append((row["path"], row["batches"]))
    if ranges:
        yield from function(_batches(ranges))


def _batches(ranges: Iterable[tuple[str, list[int]]]) -> Iterator[pa.RecordBatch]:
    for path, numbers in ranges:
        reader = _opened(path)
        yield from map(reader.get_batch, numbers)


def _opened(path: str) -> Any:
    return pa.ipc.open_file(pa.memory_map(path))


def _spool(batches: Iterable[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task; gives its file, if there are any."""
    path = f"{folder}/{uuid.uuid4().hex}"
    spool = Spool(Path(path))
    for rows in in_parts(batches, _WAITING_BYTES):
        for batch in rows.combine_chunks().to_batches():  # long ones: who looks rows up looks into each batch
            spool.add(batch)
    if spool.close():
        yield pa.RecordBatch.from_pydict({"path": [path]})


def _spool_by_part(batches: Iterable[pa.RecordBatch], folder: str, count: int) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, those of a part together as far as its memory goes."""
    path = f"{folder}/{uuid.uuid4().hex}"
    spool = Spool(Path(path))
    batches_of_parts: list[list[int]] = [[] for _ in range(count)]
    for waiting in in_parts(batches, _WAITING_BYTES):
        parts = waiting[_PART].to_numpy()
        order = np.argsort(parts, kind="stable")
        edges = np.searchsorted(parts[order], np.arange(count + 1))
        rows = waiting.drop_columns([_PART])
        for part in np.flatnonzero(np.diff(edges)):
            for batch in rows.take(pa.array(order[edges[part] : edges[part + 1]])).combine_chunks().to_batches():
                batches_of_parts[part].append(spool.batch_count)
                spool.add(batch)
    if spool.close():
        there = [
            {"part": part, "path": path, "batches": numbers} for part, numbers in enumerate(batches_of_parts) if numbers
        ]
        yield pa.RecordBatch.from_pylist(there, schema=_PLACES)
