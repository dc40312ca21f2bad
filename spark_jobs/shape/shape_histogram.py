"""The step `shape_histogram`: how many documents each topic and each length had in the first increment; then frozen.

It is frozen so that a document that stays does not leave because others came after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

NO_CLUSTER: Final = -1

SHAPE_HISTOGRAM = Table(
    name="shape_histogram",
    comment="One row per class of documents: how many the corpus had when it was frozen.",
    columns=(
        Column("classified_by!", "string", "coarse or cluster (then class is its number, -1 for none), or length"),
        Column("class!", "long", "the class; of lengths, L stands for 2^L bytes up to 2^(L + 1)"),
        Column("document_count!", "long", "survivors of the first increment that are in it"),
        Column("byte_count!", "long", "bytes of these documents as they came"),
    ),
    key=("classified_by", "class"),
    partition=("increment",),
    sort=("classified_by", "class"),
    checks=(Check("not_empty", "document_count >= 1", "a class without documents is no row"),),
)


@step(version="1", scope=Scope.FROZEN, tables=(SHAPE_HISTOGRAM,))
def shape_histogram(survivors: DataFrame, members: DataFrame, clusters: DataFrame | None = None) -> DataFrame:
    """Count documents by coarse cluster, cluster and length; one row per class.

    Args:
        survivors: rows of `survivors` of the first increment.
        members: rows of `members` of the same increment.
        clusters: rows of `clusters` of the same increment; None for a corpus without clusters.

    Returns:
        Rows of the table `shape_histogram`.
    """
    from pyspark.sql import functions as F

    found = classified(survivors, members, clusters)
    names = ["length"] if clusters is None else ["length", "coarse", "cluster"]
    classes = [F.struct(F.lit(name).alias("classified_by"), F.col(name).alias("class")) for name in names]
    return (
        found.select("byte_count", F.explode(F.array(*classes)).alias("one"))
        .groupBy("one.classified_by", "one.class")
        .agg(F.count("*").alias("document_count"), F.sum("byte_count").alias("byte_count"))
    )


def classified(survivors: DataFrame, members: DataFrame, clusters: DataFrame | None) -> DataFrame:
    """Survivors (dataset, shard, doc_id) with byte_count and their classes: length, and coarse and cluster if any."""
    from pyspark.sql import functions as F

    keys = ["dataset", "shard", "doc_id"]
    found = survivors.select(keys).join(members.select(*keys, "byte_count"), keys)
    found = found.withColumn("length", _bit_length(F.col("byte_count")))
    if clusters is None:
        return found
    numbers = (F.coalesce(F.col(name), F.lit(NO_CLUSTER)).cast("long").alias(name) for name in ("coarse", "cluster"))
    return found.join(clusters.select(*keys, *numbers), keys)


def _bit_length(byte_count: SparkColumn) -> SparkColumn:
    """The whole part of the logarithm to base 2, 0 for 0, in integers."""
    from pyspark.sql import functions as F

    return (F.length(F.bin(byte_count)) - 1).cast("long")
