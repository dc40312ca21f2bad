"""Data files that Python workers write themselves, and the commit that makes them a snapshot.

Spark takes lists from Python, hashes and writes them element by element: some 140 ns an element measured, where Arrow
and a compiled hash take 25. So rows that a Python function makes in the last stage of a step are written by its worker:

    worker    batches -> checks and row hashes counted -> row groups of one Parquet file per partition value
    driver    footers and counts of all tasks that ended -> one snapshot on the branch, by PyIceberg

A task that failed, or ran twice, leaves files that no snapshot names. A table is written this way only where the result
is known to equal Spark's: identity partitions, rows already in the table's order, types that `row_hashes` takes, and
checks with an Arrow form. Other tables are written by Spark.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.lake.declare.tables import GROUP_BYTES, Table
from spark_jobs.lake.engine.embedded import spark_alone
from spark_jobs.lake.files.audit import REQUIRED
from spark_jobs.lake.files.file_writer import RESULT_DDL, FileRules, Holds, write_hashed_task, write_task
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.session.tidiness import overwrite
from spark_jobs.spark_sql import DataFrame

Batches = Iterable[pa.RecordBatch]


def file_rules(table: IcebergTable, declared: Table, laid_out: bool) -> FileRules | None:
    """How workers write the files of a table; None where Spark must write them."""
    schema = table.schema()
    arrow = file_schema(schema_to_pyarrow(schema))
    if (
        (declared.sort and not laid_out)
        or any(check.holds is None for check in declared.checks)
        or any(not isinstance(part.transform, IdentityTransform) for part in table.spec().fields)
        or not can_hash(arrow)
    ):
        return None
    return rules_of(table, arrow, {check.name: check.holds for check in declared.checks if check.holds is not None})


def rules_of(table: IcebergTable, arrow: pa.Schema, checks: Mapping[str, Holds]) -> FileRules:
    """The rules of a table's files, from its location, partitions and properties; arguments as in `FileRules`."""
    schema, properties = table.schema(), table.properties
    return FileRules(
        schema=arrow,
        folder=properties.get("write.data.path", f"{table.location().rstrip('/')}/data"),
        partition=tuple(schema.find_column_name(part.source_id) or "" for part in table.spec().fields),
        compression=properties.get("write.parquet.compression-codec", "zstd"),
        group_rows=int(properties.get("write.parquet.row-group-limit", 1 << 20)),
        group_bytes=int(properties.get(GROUP_BYTES, properties.get("write.parquet.row-group-size-bytes", 128 << 20))),
        file_bytes=int(properties.get("write.target-file-size-bytes", 256 << 20)),
        properties={str(key): str(value) for key, value in table.io.properties.items()},
        checks=checks,
    )


def file_schema(schema: pa.Schema) -> pa.Schema:
    """PyIceberg's Arrow schema with strings and lists of 32-bit offsets, which is what Spark's batches have."""
    return pa.schema([_small(field) for field in schema])


def _small(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_list(kind) or pa.types.is_list(kind):
        kind = pa.list_(_small(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_small(part) for part in kind])
    return field.with_type(kind)


def can_hash(schema: pa.Schema) -> bool:
    """Whether `row_hashes` takes these columns: flat ones, required lists of numbers or of structs of flat values."""
    return all(
        _is_flat(field.type) or (not field.nullable and pa.types.is_list(field.type) and _is_plain(field.type))
        for field in schema
    )


def _is_flat(kind: pa.DataType) -> bool:
    checks = (pa.types.is_boolean, pa.types.is_int32, pa.types.is_int64, pa.types.is_string)
    return any(check(kind) for check in checks)


def _is_plain(kind: pa.ListType) -> bool:
    value = kind.value_field
    if value.nullable:
        return False
    if pa.types.is_struct(value.type):
        return all(not part.nullable and _is_flat(part.type) for part in value.type)
    return bool(pa.types.is_int32(value.type) or pa.types.is_int64(value.type))


def with_constant(made: ArrowRows, name: str, value: int) -> ArrowRows:
    """The rows with one more column in front, an int that is the same in all of them."""
    make = made.function

    def function(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in make(batches):
            column = pa.array(np.full(batch.num_rows, value, dtype=np.int32))
            yield pa.RecordBatch.from_arrays([column, *batch.columns], names=[name, *batch.schema.names])

    return replace(made, function=function, ddl=f"{name} int, {made.ddl}")


def write_data_files(
    table: IcebergTable,
    rules: FileRules,
    made: ArrowRows,
    branch: str,
    replaced: BooleanExpression,
    properties: Mapping[str, str],
) -> tuple[DataVersion, dict[str, int]]:
    """Have workers write rows, and commit their files as one snapshot of a branch.

    Returns:
        Data version of the rows, and bad rows by check.
    """
    make = made.function
    rows = made.frame.mapInArrow(lambda batches: write_task(make(batches), rules), RESULT_DDL).collect()
    names = (REQUIRED, *rules.checks)
    version, bad = _commit(table, rows, len(names), branch, replaced, properties)
    return version, dict(zip(names, bad, strict=True))


def write_hashed_files(
    table: IcebergTable,
    rows: DataFrame,
    order: tuple[str, ...],
    checks: int,
    branch: str,
    replaced: BooleanExpression,
    properties: Mapping[str, str],
) -> tuple[DataVersion, list[int]]:
    """Have Python write rows whose hashes and checks another engine has computed, as one snapshot of a branch.

    Args:
        table: where they go.
        rows: with the columns `HASH`, and `BAD` and a number for each check.
        order: columns by which the rows of a task are sorted.
        checks: how many there are.
        branch: of the table.
        replaced: which rows they replace.
        properties: of the snapshot.

    Returns:
        Data version of the rows, and bad rows by check.
    """
    if odd := next((p for p in table.spec().fields if not isinstance(p.transform, IdentityTransform)), None):
        raise spark_alone(f"{'.'.join(table.name())}: writing partitions by {odd.transform}")
    rules = rules_of(table, file_schema(schema_to_pyarrow(table.schema())), {})
    write = functools.partial(write_hashed_task, rules=rules, order=order, checks=checks)
    found = rows.mapInArrow(write, RESULT_DDL).collect()
    return _commit(table, found, checks, branch, replaced, properties)


def _commit(
    table: IcebergTable,
    written: Iterable[Any],
    checks: int,
    branch: str,
    replaced: BooleanExpression,
    properties: Mapping[str, str],
) -> tuple[DataVersion, list[int]]:
    """Commit what tasks wrote as one snapshot of a branch, in place of a part of the table; sums what they counted."""
    version, bad, files = DataVersion(), np.zeros(checks, np.int64), list[DataFile]()
    for task in written:
        version += DataVersion.parse(task["version"])
        bad += np.array(task["bad_rows"], np.int64)
        files.extend(data_files(table, task["files"]))
    gone = [task.file for task in table.scan(replaced).use_ref(branch).plan_files()]
    if files or gone:
        with table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(properties), branch=branch)
            with overwrite(transaction, branch, properties) if gone else update.merge_append() as snapshot:
                for file in gone:
                    snapshot.delete_data_file(file)
                for file in files:
                    snapshot.append_data_file(file)
    return version, bad.tolist()


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
            partition=Record(*json.loads(file["partition"])) if partition is None else partition,
            file_size_in_bytes=file["size"],
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **data_file_statistics_from_parquet_metadata(footer, plan, field_ids).to_serialized_dict(),
        )
