"""The step `increments`: each increment of a corpus, and the increments of datasets taken in by it."""

from __future__ import annotations

from spark_jobs.lake.declare.step import NoConfig, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.spark_sql import DataFrame, F

INCREMENTS = Table(
    name="increments",
    comment="One row per dataset increment that the corpus took in.",
    columns=(
        Column("dataset!", "string", "dataset that the increment belongs to"),
        Column("dataset_increment!", "int", "number of the increment in its dataset"),
        Column("arrival_count!", "long", "files that came, changed or went in it, and records refused"),
    ),
    key=("dataset", "dataset_increment"),
    sort=("dataset", "dataset_increment"),
    partition=("increment",),
    checks=(Check("numbered_from_0", "dataset_increment >= 0", "increments count from 0"),),
)


@step(version="1", scope=Scope.INTAKE, tables=(INCREMENTS,))
def increments(arrivals: DataFrame, config: NoConfig) -> DataFrame:
    """List what arrived in the datasets since the corpus last looked; one row per dataset increment."""
    return arrivals.groupBy("dataset", "dataset_increment").agg(F.count("*").alias("arrival_count"))
