"""The DataFrames of what a step reads, each pinned to the snapshot that was found (`reads`)."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pyiceberg.expressions import AlwaysFalse, In

from spark_jobs.exceptions import InputError
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.engine.united import united
from spark_jobs.lake.files.rows import path_rows, table_exists, table_rows
from spark_jobs.lake.plan.binding import Binding, tables_of
from spark_jobs.lake.plan.reads import LeftOut, Read, Reads, is_path
from spark_jobs.lake.session.catalogue import spark_identifier
from spark_jobs.spark_sql import Column, DataFrame, F, SparkSession


def frames(spark: SparkSession, binding: Binding, reads: Reads) -> dict[str, DataFrame]:
    """The DataFrames of all inputs, each pinned to its snapshot.

    Raises:
        InputError: tables that one parameter reads together have not the same columns.
    """
    by_parameter = {}
    for parameter, parts in reads.items():
        tables = [_frame(spark, part) for part in parts]
        for part, other in zip(parts[1:], tables[1:], strict=True):
            if apart := sorted(set(tables[0].columns) ^ set(other.columns)):
                raise InputError(
                    f"{binding.tables[0]}: input {parameter}: {parts[0].table} and {part.table} have not the same "
                    f"columns ({', '.join(apart)}); read them as two inputs"
                )
        by_parameter[parameter] = united(tables) if tables else _empty(spark, binding, parameter)
    return by_parameter


def _frame(spark: SparkSession, read: Read) -> DataFrame:
    if is_path(read.table):
        return path_rows(spark, read.table)
    condition = None if read.increments is None else In("increment", set(read.increments))
    return table_rows(spark, read.table, read.snapshot_id, condition, functools.partial(_dressed, spark, read))


def _dressed(spark: SparkSession, read: Read, frame: DataFrame) -> DataFrame:
    """The rows of a snapshot that are read, with the reader's labels and increment numbers."""
    if read.grown:  # what Iceberg reads lacks the columns that came since; they are null in it
        for field in table_rows(spark, read.table).schema.fields:
            if field.name not in frame.columns:
                frame = frame.withColumn(field.name, F.lit(None).cast(field.dataType))
    if read.predicate is not None:
        frame = frame.where(read.predicate)
    if read.left_out is not None:
        frame = _without(spark, read.left_out, frame)
    if read.increments is not None:
        frame = frame.where(F.col("increment").isin(*read.increments)) if read.increments else frame.where("false")
    if read.labelled:
        frame = frame.withColumn("dataset", F.lit(read.table.split(".")[0]))
        if read.increments is not None:
            frame = frame.withColumn("dataset_increment", F.col("increment"))
    if read.increments is not None and any(theirs != ours for theirs, ours in read.increments.items()):
        frame = frame.withColumn("increment", _renumbered(read.increments))
    return frame


def _without(spark: SparkSession, left_out: LeftOut, frame: DataFrame) -> DataFrame:
    """The rows whose documents a list does not name; on Spark by a condition: rows of a join have no file position."""
    if not is_embedded(spark):
        return frame.where(
            f"doc_id NOT IN (SELECT doc_id FROM {spark_identifier(left_out.listed)} "
            f"VERSION AS OF {left_out.snapshot_id} WHERE `table` IS NULL OR `table` = '{left_out.table}')"
        )
    named = F.col("table").isNull() | (F.col("table") == left_out.table)
    gone = table_rows(spark, left_out.listed, left_out.snapshot_id).where(named).select("doc_id")
    return frame.join(F.broadcast(gone), "doc_id", "left_anti").select(*frame.columns)


def _renumbered(increments: Mapping[int, int]) -> Column:
    """The column `increment`, from the table's numbers to the reader's."""
    if len(set(increments.values())) == 1:
        return F.lit(next(iter(increments.values())))
    pairs = [F.lit(number) for pair in increments.items() for number in pair]
    return F.element_at(F.create_map(*pairs), F.col("increment"))


def _empty(spark: SparkSession, binding: Binding, parameter: str) -> DataFrame:
    """No rows, with the columns of the table that the parameter is bound to."""
    if parameter in {history_table.name for history_table in binding.step.own_history}:
        return table_rows(spark, f"{binding.namespace}.{parameter}", condition=AlwaysFalse()).where("false")
    source = binding.inputs[parameter]
    names = tables_of(source)
    there = next((name for name in names if table_exists(spark, name)), names[0])
    frame = table_rows(spark, there, condition=AlwaysFalse()).where("false")
    if isinstance(source, tuple):
        frame = frame.withColumn("dataset", F.lit("")).withColumn("dataset_increment", F.lit(0))
    return frame
