"""The worker's half of `data_files`: write rows as Parquet files, and check and hash them on the way.

Memory: the row group that is written, and at most 128 MiB of rows that wait in all open files together.
"""

from __future__ import annotations

import contextlib
import io
import json
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.lake.engine.embedded import in_order
from spark_jobs.lake.files.storage import create, remove
from spark_jobs.lake.ledger.data_version import DataVersion

Batches = Iterable[pa.RecordBatch]
Holds = Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]

RESULT_DDL = (
    "version string, bad_rows array<bigint>, "
    "files array<struct<path: string, size: bigint, partition: string, footer: binary>>"
)
RESULT_SCHEMA = pa.schema(
    [
        pa.field("version", pa.string()),
        pa.field("bad_rows", pa.list_(pa.int64())),
        pa.field(
            "files",
            pa.list_(
                pa.struct({"path": pa.string(), "size": pa.int64(), "partition": pa.string(), "footer": pa.binary()})
            ),
        ),
    ]
)
HASH, BAD = "__hash", "__bad_"
"""Columns of rows whose hashes and checks are computed before they are written."""
_WAITING_BYTES = 128 << 20
# Rows as a file has them, how many break each check, and their data version.
_Measured = tuple[pa.RecordBatch, list[int], DataVersion]


@dataclass(frozen=True)
class FileRules:
    """What a worker needs to write data files of a table.

    Attributes:
        schema: of the files, with Iceberg's field ids.
        folder: path or URI of the table's data.
        partition: columns that each file has one value of.
        compression: codec.
        group_rows: most rows of a row group.
        group_bytes: most bytes of a row group, as Arrow holds them.
        file_bytes: a file that has reached this size is closed.
        properties: of PyIceberg's FileIO.
        checks: by name, what holds for every row.
    """

    schema: pa.Schema
    folder: str
    partition: tuple[str, ...]
    compression: str
    group_rows: int
    group_bytes: int
    file_bytes: int
    properties: Mapping[str, str]
    checks: Mapping[str, Holds]


def write_task(batches: Batches, rules: FileRules) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task.

    Yields:
        One row of `RESULT_SCHEMA`: data version, bad rows by check, and the files with their footers.
    """
    from spark_jobs.lake.files.row_hashes import version_of_batch

    def measured(batch: pa.RecordBatch) -> _Measured:
        rows = _as_in_files(_with_required(batch, rules.schema), rules.schema)
        broken = (rows.num_rows - int(np.count_nonzero(holds(rows))) for holds in rules.checks.values())
        return rows, [batch.num_rows - rows.num_rows, *broken], version_of_batch(rows)

    return write_measured(map(measured, batches), 1 + len(rules.checks), rules)


def write_hashed_task(
    batches: Batches, rules: FileRules, order: tuple[str, ...], checks: int
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, which come with their hashes and with the checks that they break.

    Yields:
        As `write_task`.
    """

    def measured(batch: pa.RecordBatch) -> _Measured:
        broken = [batch.column(f"{BAD}{number}").true_count for number in range(checks)]
        there = _with_required(batch, rules.schema)
        return _as_in_files(there, rules.schema), broken, DataVersion.of_hashes(there.column(HASH).to_numpy())

    return write_measured(map(measured, in_order(batches, order)), checks, rules)


def write_measured(measured: Iterable[_Measured], checks: int, rules: FileRules) -> Iterator[pa.RecordBatch]:
    """Write rows that come with what each batch counts of the checks, and its data version; gives as `write_task`."""
    version, bad = DataVersion(), np.zeros(checks, dtype=np.int64)
    files = _Files(rules)
    try:
        for rows, broken, own in measured:
            version += own
            bad += np.array(broken, dtype=np.int64)
            files.add(rows)
        written = files.close()
    except BaseException:  # an interrupt too: no snapshot will name these files, so nothing else removes them
        files.remove()
        raise
    result = {"version": str(version), "bad_rows": bad.tolist(), "files": written}
    yield pa.RecordBatch.from_pylist([result], schema=RESULT_SCHEMA)


def _as_in_files(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of a file, cast to its types."""
    return rows.select(schema.names).cast(schema)


def _with_required(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows that have all required values."""
    required = [batch.column(field.name) for field in schema if not field.nullable]
    if any(column.null_count for column in required):
        there = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in required])
        return batch.filter(pa.array(there))
    return batch


@dataclass
class _File:
    """A data file that is being written, and the rows that wait for its next row group."""

    path: str
    partition: list[Any]
    writer: pq.ParquetWriter
    sink: pa.NativeFile
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Keep rows for the next row group."""
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes

    def flush(self, row_count: int) -> None:
        """Write the first `row_count` of the waiting rows as one row group."""
        if not row_count:
            return
        table = pa.Table.from_batches(self.waiting)
        self.writer.write_table(table.slice(0, row_count), row_group_size=row_count)
        rest = table.slice(row_count)
        self.waiting, self.waiting_rows, self.waiting_bytes = rest.to_batches(), rest.num_rows, rest.nbytes


class _Files:
    """The files that a task writes, one at a time for each partition value."""

    def __init__(self, rules: FileRules) -> None:
        self._rules = rules
        self._open: dict[str, _File] = {}
        self._done: list[dict[str, Any]] = []
        self._paths: list[str] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows into the files of their partition values."""
        for values, part in _by_value(rows, self._rules.partition):
            key = json.dumps(values)
            file = self._open.get(key)
            if file is None:
                file = self._open[key] = self._new(values)
            file.add(part)
            while file.waiting_rows >= self._rules.group_rows:
                file.flush(self._rules.group_rows)
            if file.waiting_bytes >= self._rules.group_bytes:
                file.flush(file.waiting_rows)
            if file.sink.tell() >= self._rules.file_bytes:
                self._finish(key)
        while sum(file.waiting_bytes for file in self._open.values()) > _WAITING_BYTES:
            largest = max(self._open.values(), key=lambda file: file.waiting_bytes)
            largest.flush(largest.waiting_rows)

    def close(self) -> list[dict[str, Any]]:
        """Finish all files; gives path, size, partition and footer of each for the driver."""
        for key in list(self._open):
            self._finish(key)
        return self._done

    def remove(self) -> None:
        """Remove what was written; errors are ignored, since another one is being raised already."""
        for file in self._open.values():
            for part in (file.writer, file.sink):
                with contextlib.suppress(OSError, pa.ArrowException):
                    part.close()
        for path in self._paths:
            with contextlib.suppress(OSError):
                remove(path, self._rules.properties)

    def _new(self, values: list[Any]) -> _File:
        rules = self._rules
        parts = [
            f"{name}={'null' if value is None else urllib.parse.quote_plus(str(value))}"
            for name, value in zip(rules.partition, values, strict=True)
        ]
        path = "/".join([rules.folder, *parts, f"{uuid.uuid4().hex}.parquet"])
        self._paths.append(path)
        sink = create(path, rules.properties)
        # Token ids are smaller without a dictionary once compressed, and faster to write; strings that repeat need one.
        strings = [field.name for field in rules.schema if pa.types.is_string(field.type)]
        writer = pq.ParquetWriter(
            sink,
            rules.schema,
            compression=rules.compression,
            use_dictionary=strings,
            store_schema=False,
            write_page_checksum=True,
        )
        return _File(path, values, writer, sink)

    def _finish(self, key: str) -> None:
        file = self._open[key]
        file.flush(file.waiting_rows)
        file.writer.close()
        size = file.sink.tell()
        file.sink.close()
        footer = io.BytesIO()
        file.writer.writer.metadata.write_metadata_file(footer)
        partition = json.dumps(file.partition)
        self._done.append({"path": file.path, "size": size, "partition": partition, "footer": footer.getvalue()})
        del self._open[key]


def _by_value(rows: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[list[Any], pa.RecordBatch]]:
    """Split rows by their values in some columns."""
    if not rows.num_rows:
        return
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        found = rows.column(name).dictionary_encode(null_encoding="encode")
        codes = codes * len(found.dictionary) + found.indices.to_numpy()
    distinct, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    for number, first in enumerate(firsts.tolist()):
        values = [rows.column(name)[first].as_py() for name in columns]
        yield values, rows if len(distinct) == 1 else rows.filter(pa.array(codes == number))
