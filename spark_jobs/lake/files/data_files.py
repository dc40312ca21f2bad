"""Data files of Python workers, and the commit of them as a snapshot; on both engines.

    worker    batches -> checks counted and rows hashed -> row groups of one Parquet file per partition value
    driver    footers and counts of all tasks that ended -> one snapshot on the branch, by PyIceberg

So the rows of a table are hashed by one kernel in the pass that writes them, whichever engine made them. A task that
failed, or ran twice, leaves files that no snapshot names.

The rows are those of a frame, with the checks as columns computed by the engine. Where a Python function makes them
in the last stage of a step, its worker writes them at once: Spark takes lists from Python element by element, some 140
ns an element measured, where Arrow and a compiled hash take 25. That needs rows in the table's order already, and
checks with an Arrow form.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.lake.declare.tables import GROUP_BYTES, Table
from spark_jobs.lake.files.audit import REQUIRED
from spark_jobs.lake.files.file_writer import (
    RESULT_DDL,
    FileRules,
    Holds,
    PartitionField,
    write_checked_task,
    write_task,
)
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.session.pyiceberg_core import holds_only, overwrite
from spark_jobs.spark_sql import DataFrame

Batches = Iterable[pa.RecordBatch]


def file_rules(table: IcebergTable, declared: Table, laid_out: bool) -> FileRules | None:
    """How workers write the rows of their functions; None where an engine must sort or check them first."""
    if (declared.sort and not laid_out) or any(check.holds is None for check in declared.checks):
        return None
    return rules_of(table, {check.name: check.holds for check in declared.checks if check.holds is not None})


def rules_of(table: IcebergTable, checks: Mapping[str, Holds] = MappingProxyType({})) -> FileRules:
    """The rules of a table's files, from its schema, location, partitions and properties; `checks` of `FileRules`."""
    schema, properties = table.schema(), table.properties
    return FileRules(
        schema=file_schema(schema_to_pyarrow(schema)),
        folder=properties.get("write.data.path", f"{table.location().rstrip('/')}/data"),
        partition=tuple(
            PartitionField(
                part.name, schema.find_column_name(part.source_id) or "", isinstance(part.transform, DayTransform)
            )
            for part in table.spec().fields
        ),
        compression=properties.get("write.parquet.compression-codec", "zstd"),
        group_rows=int(properties.get("write.parquet.row-group-limit", 1 << 20)),
        group_bytes=int(properties.get(GROUP_BYTES, properties.get("write.parquet.row-group-size-bytes", 128 << 20))),
        file_bytes=int(properties.get("write.target-file-size-bytes", 256 << 20)),
        properties={str(key): str(value) for key, value in table.io.properties.items()},
        checks=checks,
    )


def file_schema(schema: pa.Schema) -> pa.Schema:
    """PyIceberg's Arrow schema with strings and lists of 32-bit offsets, as in Spark's batches."""
    return pa.schema([_small(field) for field in schema])


def _small(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_map(kind):
        kind = pa.map_(_small(kind.key_field), _small(kind.item_field))
    elif pa.types.is_large_list(kind) or pa.types.is_list(kind):
        kind = pa.list_(_small(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_small(part) for part in kind])
    return field.with_type(kind)


def with_constant(rows_of: ArrowRows, name: str, value: int) -> ArrowRows:
    """The rows with one more column in front, the same int in all of them."""
    make = rows_of.function

    def function(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in make(batches):
            column = pa.array(np.full(batch.num_rows, value, dtype=np.int32))
            rows = pa.RecordBatch.from_arrays([column, *batch.columns], names=[name, *batch.schema.names])
            yield rows.replace_schema_metadata(batch.schema.metadata)

    return replace(rows_of, function=function, ddl=f"{name} int, {rows_of.ddl}")


def write_data_files(
    table: IcebergTable,
    rules: FileRules,
    source: ArrowRows,
    branch: str,
    replaced: BooleanExpression,
    properties: Mapping[str, str],
) -> tuple[DataVersion, dict[str, int], int]:
    """Have workers write rows, and commit their files as one snapshot of a branch.

    Returns:
        Data version of the rows, bad rows by check, and their balance.
    """
    make = source.function
    rows = source.map(lambda batches: write_task(make(batches), rules), RESULT_DDL).collect()
    names = (REQUIRED, *rules.checks)
    version, (*bad, balance) = _commit(table, rows, len(names) + 1, branch, replaced, properties)
    return version, dict(zip(names, bad, strict=True)), balance


def write_frame(
    table: IcebergTable,
    rows: DataFrame,
    order: tuple[str, ...],
    checks: int,
    branch: str,
    replaced: BooleanExpression,
    properties: Mapping[str, str],
) -> tuple[DataVersion, list[int]]:
    """Have Python write rows with checks computed by an engine, as one snapshot of a branch.

    Args:
        table: where they go.
        rows: with a column `BAD` and a number for each check.
        order: columns of the sort still due for the rows of a task.
        checks: how many there are.
        branch: of the table.
        replaced: the rows replaced by them.
        properties: of the snapshot.

    Returns:
        Data version of the rows, and bad rows by check.
    """
    write = functools.partial(write_checked_task, rules=rules_of(table), order=order, checks=checks)
    return _commit(table, rows.mapInArrow(write, RESULT_DDL).collect(), checks, branch, replaced, properties)


def _commit(
    table: IcebergTable,
    written: Iterable[Any],
    checks: int,
    branch: str,
    replaced: BooleanExpression,
    properties: Mapping[str, str],
) -> tuple[DataVersion, list[int]]:
    """Commit what tasks wrote as one snapshot of a branch, in place of a part of the table; sums what they counted.

    Raises:
        TableMismatchError: a file holds both replaced and other rows.
    """
    version, bad, files = DataVersion(), np.zeros(checks, np.int64), list[DataFile]()
    for task in written:
        version += DataVersion.parse(task["version"])
        bad += np.array(task["bad_rows"], np.int64)
        files.extend(data_files(table, task["files"]))
    gone = list(_replaced_files(table, branch, replaced))
    if files or gone:
        with table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(properties), branch=branch)
            with overwrite(table, transaction, branch, properties) if gone else update.merge_append() as snapshot:
                for file in gone:
                    snapshot.delete_data_file(file)
                for file in files:
                    snapshot.append_data_file(file)
    return version, bad.tolist()


def _replaced_files(table: IcebergTable, branch: str, replaced: BooleanExpression) -> Iterator[DataFile]:
    whole = holds_only(table.schema(), replaced)
    for task in table.scan(replaced).use_ref(branch).plan_files():
        if not isinstance(task.residual, AlwaysTrue) and not whole(task.file):
            raise TableMismatchError(
                f"{'.'.join(table.name())}: {task.file.file_path} holds rows that are replaced, and others; partition "
                "the table so that a file has rows of one partition alone"
            )
        yield task.file


def data_files(table: IcebergTable, written: Iterable[Any], partition: Record | None = None) -> Iterator[DataFile]:
    """Iceberg's manifest entries of files as `RESULT_SCHEMA` has them, whose partition may be given for all of them."""
    plan = compute_statistics_plan(table.schema(), table.properties)
    field_ids = parquet_path_to_id_mapping(table.schema())
    for file in written:
        footer = pq.read_metadata(io.BytesIO(file["footer"]))
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file["path"],
            file_format=FileFormat.PARQUET,
            # of our own workers
            partition=Record(*pickle.loads(file["partition"])) if partition is None else partition,
            file_size_in_bytes=file["size"],
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **data_file_statistics_from_parquet_metadata(footer, plan, field_ids).to_serialized_dict(),
        )
