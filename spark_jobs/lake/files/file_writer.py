"""The worker's half of `data_files`: write rows as Parquet files, and check and hash them on the way.

The files of a task are each of one value of the table's partition, which is told to the driver as Iceberg holds it: a
date in days, a time in microseconds. Of floats one NaN and one zero are partitions, as readers compare them.

Memory: the row group being written, and at most 128 MiB of rows waiting in all open files together.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.engine.sorted_rows import in_order
from spark_jobs.lake.files.storage import create, remove
from spark_jobs.lake.ledger.data_version import DataVersion

Batches = Iterable[pa.RecordBatch]
Holds = Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]

RESULT_DDL = (
    "version string, bad_rows array<bigint>, "
    "files array<struct<path: string, size: bigint, partition: binary, footer: binary>>"
)
RESULT_SCHEMA = pa.schema(
    [
        pa.field("version", pa.string()),
        pa.field("bad_rows", pa.list_(pa.int64())),
        pa.field(
            "files",
            pa.list_(
                pa.struct({"path": pa.string(), "size": pa.int64(), "partition": pa.binary(), "footer": pa.binary()})
            ),
        ),
    ]
)
BALANCE = b"headrace.balance"
"""Name, in the metadata of a batch, of a sum that a proof of the table compares (`tables.Proof`)."""
BAD = "__bad_"
"""Name, before a number, of the columns of rows whose checks the engine has computed."""
_WAITING_BYTES = 128 << 20
_MOST_OPEN = 32  # files of a task; tasks of Sail are threads of one process, which may often have 1,024 open
_PATH_CHARACTERS = 120  # of a value in the name of a folder, which says it to people alone
_DAY = 24 * 3600 * 10**6  # in microseconds
# Rows as a file has them, how many break each check, and their data version.
_Measured = tuple[pa.RecordBatch, list[int], DataVersion]


@dataclass(frozen=True)
class PartitionField:
    """A field of a table's partition: its name, its column, and whether it is the column's day in UTC."""

    name: str
    column: str
    by_day: bool


@dataclass(frozen=True)
class FileRules:
    """What a worker needs to write data files of a table.

    Attributes:
        schema: of the files, with Iceberg's field ids.
        folder: path or URI of the table's data.
        partition: what each file has one value of.
        compression: codec.
        group_rows: most rows of a row group.
        group_bytes: most bytes of a row group, as Arrow holds them.
        file_bytes: a file of this size is closed.
        properties: of PyIceberg's FileIO.
        checks: by name, what holds for every row.
    """

    schema: pa.Schema
    folder: str
    partition: tuple[PartitionField, ...]
    compression: str
    group_rows: int
    group_bytes: int
    file_bytes: int
    properties: Mapping[str, str]
    checks: Mapping[str, Holds]

    @functools.cached_property
    def stored(self) -> pa.Schema:
        """The schema as files have it: in a nullable struct a required field is optional.

        Arrow takes a null struct for one whose fields are null, which it refuses where they are required.
        """
        return pa.schema([with_optional_parts(part) for part in self.schema])


def write_task(batches: Batches, rules: FileRules) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task.

    Yields:
        One row of `RESULT_SCHEMA`: data version, bad rows by check and then the balance of all batches, and the files
        with their footers.
    """
    from spark_jobs.lake.ledger.row_hashes import version_of_batch

    def measured(batch: pa.RecordBatch) -> _Measured:
        rows = _as_in_files(_with_required(batch, rules.schema), rules)
        broken = (rows.num_rows - int(np.count_nonzero(holds(rows))) for holds in rules.checks.values())
        balance = int((batch.schema.metadata or {}).get(BALANCE, 0))
        return rows, [batch.num_rows - rows.num_rows, *broken, balance], version_of_batch(rows)

    return write_measured(map(measured, batches), 2 + len(rules.checks), rules)


def write_checked_task(
    batches: Batches, rules: FileRules, order: tuple[str, ...], checks: int
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, each with its failed checks.

    Args:
        batches: the rows, with a column `BAD` and a number for each check.
        rules: of the files.
        order: columns of the sort still due for the rows.
        checks: how many there are.

    Yields:
        As `write_task`.
    """
    from spark_jobs.lake.ledger.row_hashes import version_of_batch

    def measured(batch: pa.RecordBatch) -> _Measured:
        broken = [batch.column(f"{BAD}{number}").true_count for number in range(checks)]
        rows = _as_in_files(_with_required(batch, rules.schema), rules)
        return rows, broken, version_of_batch(rows)

    return write_measured(map(measured, in_order(batches, order) if order else batches), checks, rules)


def write_measured(measured: Iterable[_Measured], checks: int, rules: FileRules) -> Iterator[pa.RecordBatch]:
    """Write rows coming with what each batch counts of the checks, and its data version; gives as `write_task`."""
    version, bad = DataVersion(), np.zeros(checks, dtype=np.int64)
    files = _TaskFiles(rules)
    try:
        for rows, broken, part_version in measured:
            version += part_version
            bad += np.array(broken, dtype=np.int64)
            files.add(rows)
        written = files.close()
    except BaseException:  # an interrupt too: no snapshot will name these files, so nothing else removes them
        files.remove()
        raise
    result = {"version": str(version), "bad_rows": bad.tolist(), "files": written}
    yield pa.RecordBatch.from_pylist([result], schema=RESULT_SCHEMA)


def with_optional_parts(part: pa.Field) -> pa.Field:
    """The field as files have it (`FileRules.stored`)."""
    kind = part.type
    if pa.types.is_struct(kind):
        inner = (field_.with_nullable(field_.nullable or part.nullable) for field_ in kind)
        return part.with_type(pa.struct([with_optional_parts(field_) for field_ in inner]))
    if pa.types.is_map(kind):
        return part.with_type(pa.map_(kind.key_field, with_optional_parts(kind.item_field)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return part.with_type(make(with_optional_parts(kind.value_field)))
    return part


def _as_in_files(rows: pa.RecordBatch, rules: FileRules) -> pa.RecordBatch:
    """The rows with the columns of a file, cast to its types.

    Raises:
        TableMismatchError: a value inside of a column is null though required by the table; Arrow would write it.
    """
    rows = rows.select(rules.schema.names)
    for column, field_ in zip(rows.columns, rules.schema, strict=True):
        if _lacks_a_part(column, field_.type):
            raise TableMismatchError(f"column {field_.name}: a value inside is null, {field_.type} does not allow it")
    return rows.cast(rules.stored)


def _lacks_a_part(values: pa.Array, kind: pa.DataType) -> bool:
    """Whether a required part of nested values is null inside a present value."""
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_struct(kind):
        there = values.drop_null() if values.null_count else values
        parts = [(there.field(part.name), part) for part in kind]
    elif pa.types.is_map(kind):
        there = values.drop_null() if values.null_count else values
        bounds = there.offsets
        first, count = bounds[0].as_py(), bounds[-1].as_py() - bounds[0].as_py()
        parts = [(there.keys.slice(first, count), kind.key_field), (there.items.slice(first, count), kind.item_field)]
    else:
        parts = [(values.flatten(), kind.value_field)]
    return any((not part.nullable and inner.null_count > 0) or _lacks_a_part(inner, part.type) for inner, part in parts)


def _with_required(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with all required values."""
    required = [batch.column(field.name) for field in schema if not field.nullable]
    if any(column.null_count for column in required):
        there = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in required])
        return batch.filter(pa.array(there))
    return batch


@dataclass
class _DataFile:
    """A data file under way, and the rows for its next row group."""

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

    def flush(self, row_count: int, group_rows: int | None = None) -> None:
        """Write the first `row_count` of the waiting rows as one row group, or in groups of `group_rows`."""
        if not row_count:
            return
        table = pa.Table.from_batches(self.waiting)
        self.writer.write_table(table.slice(0, row_count), row_group_size=group_rows or row_count)
        rest = table.slice(row_count)
        self.waiting, self.waiting_rows, self.waiting_bytes = rest.to_batches(), rest.num_rows, rest.nbytes


class _TaskFiles:
    """The files of a task, one at a time for each partition value.

    Of more than `_MOST_OPEN` values the one with the oldest rows is closed: of sorted rows, a complete one.
    """

    def __init__(self, rules: FileRules) -> None:
        self._rules = rules
        self._open: dict[str, _DataFile] = {}
        self._done: list[dict[str, Any]] = []
        self._paths: list[str] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows into the files of their partition values."""
        for values, part in _by_value(rows, self._rules.partition):
            key = repr(values)
            file = self._open.pop(key, None) or self._new(values)
            self._open[key] = file  # at the end: the first is the one that was used longest ago
            if len(self._open) > _MOST_OPEN:
                self._finish(next(iter(self._open)))
            file.add(part)
            group_rows = self._rules.group_rows
            file.flush(file.waiting_rows // group_rows * group_rows, group_rows)
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

    def _new(self, values: list[Any]) -> _DataFile:
        rules = self._rules
        parts = [
            f"{part.name}={'null' if value is None else urllib.parse.quote_plus(str(value))[:_PATH_CHARACTERS]}"
            for part, value in zip(rules.partition, values, strict=True)
        ]
        path = "/".join([rules.folder, *parts, f"{uuid.uuid4().hex}.parquet"])
        self._paths.append(path)
        sink = create(path, rules.properties)
        # Token ids are smaller without a dictionary once compressed, and faster to write; strings that repeat need one.
        strings = [field.name for field in rules.stored if pa.types.is_string(field.type)]
        writer = pq.ParquetWriter(
            sink,
            rules.stored,
            compression=rules.compression,
            use_dictionary=strings,
            store_schema=False,
            write_page_checksum=True,
        )
        return _DataFile(path, values, writer, sink)

    def _finish(self, key: str) -> None:
        file = self._open[key]
        file.flush(file.waiting_rows)
        file.writer.close()
        size = file.sink.tell()
        file.sink.close()
        footer = io.BytesIO()
        file.writer.writer.metadata.write_metadata_file(footer)
        partition = pickle.dumps(file.partition)
        self._done.append({"path": file.path, "size": size, "partition": partition, "footer": footer.getvalue()})
        del self._open[key]


def _by_value(
    rows: pa.RecordBatch, partition: tuple[PartitionField, ...]
) -> Iterator[tuple[list[Any], pa.RecordBatch]]:
    """Split rows by their values of a partition."""
    if not rows.num_rows:
        return
    columns = [_partition_values(rows.column(part.column), part.by_day) for part in partition]
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for column in columns:
        coded = column.dictionary_encode(null_encoding="encode")
        codes = np.unique(codes * len(coded.dictionary) + coded.indices.to_numpy(), return_inverse=True)[1]
    distinct, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    for number, first in enumerate(firsts.tolist()):
        values = [column[first].as_py() for column in columns]
        yield values, rows if len(distinct) == 1 else rows.filter(pa.array(codes == number))


def _partition_values(column: pa.Array, by_day: bool) -> pa.Array:
    """The values of a column as Iceberg has them in a partition."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), pc.add(column, pa.scalar(0.0, kind)))
    if pa.types.is_date(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        moments = column.cast(pa.int64())
        if not by_day:
            return moments
        days = np.floor_divide(pc.fill_null(moments, 0).to_numpy(), _DAY)
        return pa.array(days, mask=moments.is_null().to_numpy(zero_copy_only=False))
    return column
