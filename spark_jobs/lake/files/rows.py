"""Rows of a table at a snapshot, on either engine: Spark reads Iceberg itself, Sail the files of PyIceberg's plan.

Spark's Python workers import this module, so what knows the catalogue is imported where rows are read: SQLAlchemy and
the rest take half a second of each worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.lake.engine.embedded import file_url, is_embedded, parallelism, read_files, spark_alone
from spark_jobs.lake.files.file_writer import with_optional_parts
from spark_jobs.spark_sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table as IcebergTable

FILE, ROW = "data_file", "data_row"
_LATE = ("input_ids", "trainable", "mask_rule", "content")  # columns that `located_rows` leaves out, to be side reads
_LOCATED = "_headrace_located"
_READ_ROWS = 8_192


def table_rows(
    spark: SparkSession,
    identifier: str,
    snapshot_id: int | None = None,
    condition: BooleanExpression | None = None,
    dressed: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    branch: str | None = None,
) -> DataFrame:
    """Rows of a table.

    Args:
        spark: session of the lake.
        identifier: the table.
        snapshot_id: the snapshot; the head of main, or of the branch, by default.
        condition: files without any row of it are not read; rows breaking it may be among those returned.
        dressed: further transformation of the rows; given here, so that `located_rows` applies it too.
        branch: the branch to read.
    """
    from spark_jobs.lake.session.catalogue import spark_identifier
    from spark_jobs.lake.session.session import catalogue_of

    if not is_embedded(spark):
        reader = spark.read if snapshot_id is None else spark.read.option("versionAsOf", str(snapshot_id))
        return dressed(reader.table(spark_identifier(identifier, branch)))
    table = catalogue_of(spark).load_table(identifier)
    schema = _spark_schema(table)
    files = _files(table, snapshot_id, condition, branch)
    frame = dressed(read_files(spark, files, schema))
    setattr(frame, _LOCATED, lambda: dressed(_located(spark, files, schema)))
    return frame


def path_rows(spark: SparkSession, path: str) -> DataFrame:
    """Rows of the Parquet files of a folder, a file or a glob."""
    frame = spark.read.parquet(file_url(path) if is_embedded(spark) and Path(path).exists() else path)
    if is_embedded(spark):
        files = sorted(map(str, Path(path).rglob("*.parquet"))) if Path(path).is_dir() else sorted(glob(path))
        setattr(frame, _LOCATED, lambda: _located(spark, files, frame.schema))
    return frame


def table_exists(spark: SparkSession, identifier: str) -> bool:
    """Whether the lake of a session has a table."""
    from headrace.tables.catalogue import load_table
    from spark_jobs.lake.session.catalogue import spark_identifier
    from spark_jobs.lake.session.session import catalogue_of

    if is_embedded(spark):
        return load_table(catalogue_of(spark), identifier) is not None
    return spark.catalog.tableExists(spark_identifier(identifier))


def located_rows(frame: DataFrame) -> DataFrame | None:
    """The rows of `table_rows` on Sail without their long columns, with `data_file` and `data_row` instead."""
    make = getattr(frame, _LOCATED, None)
    return None if make is None else make()


def _spark_schema(table: IcebergTable) -> Any:
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # which loads pandas, where no declaration needs it
    from pyspark.sql.pandas.types import from_arrow_schema

    arrow = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return from_arrow_schema(pa.schema(map(with_optional_parts, arrow)), prefer_timestamp_ntz=True)


def _files(
    table: IcebergTable,
    snapshot_id: int | None,
    condition: BooleanExpression | None,
    branch: str | None,
) -> list[str]:
    """Paths of the data files of a snapshot, in the order of their names.

    Raises:
        InputError: they are not on this machine, or hold rows deleted by another writer.
    """
    from pyiceberg.expressions import AlwaysTrue

    if snapshot_id is not None:
        snapshot = table.snapshot_by_id(snapshot_id)
    else:
        snapshot = table.current_snapshot() if branch is None else table.snapshot_by_name(branch)
    if snapshot is None:
        return []
    tasks = list(table.scan(condition or AlwaysTrue(), snapshot_id=snapshot.snapshot_id).plan_files())
    name = ".".join(table.name())
    if any(task.delete_files for task in tasks):
        raise spark_alone(f"{name}: reading deletes that stand beside its files")
    paths = sorted(task.file.file_path.removeprefix("file://") for task in tasks)
    if far := next((path for path in paths if "://" in path), None):
        raise spark_alone(f"{name}: reading files in {far.partition('://')[0]}://")
    return paths


def _located(spark: SparkSession, files: Sequence[str], schema: Any) -> DataFrame:
    """The narrow columns of files and the position of each row, read by Python."""
    from pyspark.sql import types as T

    fields = [field for field in schema.fields if field.name not in _LATE]
    place = [T.StructField(FILE, T.StringType()), T.StructField(ROW, T.LongType())]
    names = [field.name for field in fields]
    paths = spark.createDataFrame(pa.table({"path": pa.array(files, pa.string())}))
    spread = paths.repartition(min(parallelism(), len(files)), "path") if len(files) > 1 else paths
    return spread.mapInArrow(functools.partial(_read_located, names=names), T.StructType([*fields, *place]))


def _read_located(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for path in (path for batch in batches for path in batch.column("path").to_pylist()):
        file, first = pq.ParquetFile(path, page_checksum_verification=True), 0
        there = set(file.schema_arrow.names)
        for part in file.iter_batches(_READ_ROWS, columns=[name for name in names if name in there]):
            count = part.num_rows
            columns = [part.column(name) if name in there else pa.nulls(count) for name in names]
            columns += [pa.array([path] * count, pa.string()), pa.array(np.arange(first, first + count))]
            first += count
            yield pa.RecordBatch.from_arrays(columns, names=[*names, FILE, ROW])
