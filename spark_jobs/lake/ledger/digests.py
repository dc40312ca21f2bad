"""Data versions of rows read by an engine: of a frame, or of each of its increments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.spark_sql import DataFrame


def digest(frame: DataFrame) -> DataVersion:
    """Data version of rows read from a table, in a job of its own."""
    rows = frame.mapInArrow(_versions, "version string").collect()
    return sum((DataVersion.parse(row["version"]) for row in rows), DataVersion())


def digests(frame: DataFrame) -> dict[int, DataVersion]:
    """Data versions of rows by their column `increment`, in a job of its own."""
    versions: dict[int, DataVersion] = {}
    for row in frame.mapInArrow(_versions_by_increment, "increment int, version string").collect():
        versions[row["increment"]] = versions.get(row["increment"], DataVersion()) + DataVersion.parse(row["version"])
    return versions


def _versions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The version of the rows of a task, as one row."""
    from spark_jobs.lake.ledger.row_hashes import version_of_batch

    version = sum(map(version_of_batch, batches), DataVersion())
    yield pa.RecordBatch.from_pydict({"version": [str(version)]})


def _versions_by_increment(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The versions of the rows of a task, a row for each increment."""
    from spark_jobs.lake.ledger.row_hashes import versions_by_increment

    versions: dict[int, DataVersion] = {}
    for batch in batches:
        for number, version in versions_by_increment(batch).items():
            versions[number] = versions.get(number, DataVersion()) + version
    schema = pa.schema({"increment": pa.int32(), "version": pa.string()})
    rows = [{"increment": number, "version": str(version)} for number, version in versions.items()]
    yield pa.RecordBatch.from_pylist(rows, schema)
