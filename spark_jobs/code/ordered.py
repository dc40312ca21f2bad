"""Ordered: in which order the documents of a repository are read, so that packing can put neighbours together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.lake.tables import Check, Column, Table
from spark_jobs.step import NoConfig, Scope, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERED = Table(
    name="ordered",
    comment="One row per surviving document: its place among those of its repository.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("repository", "string", "repository of the document; null where it has none"),
        Column("package", "string", "directory of its path; null at the top"),
        Column("rank!", "long", "place in the repository, from 0 without gaps; 0 for a document without repository"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        Check("rank_not_negative", "rank >= 0", "ranks count from 0"),
        Check("alone_without_repository", "repository is not null or rank = 0", "without repository there is no order"),
    ),
)


@step(version="1", scope=Scope.INCREMENT, tables=(ORDERED,))
def ordered(survivors: DataFrame, members: DataFrame, config: NoConfig) -> DataFrame:
    """Rank the documents of each repository by path, in the order of its UTF-8 bytes; one row per document.

    Args:
        survivors: rows of `survivors` of the increment.
        members: rows of `members` of the same increment.
        config: nothing to configure.

    Returns:
        Rows of the table `ordered`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    about = members.select("dataset", "doc_id", "repository", "path")
    found = survivors.select("dataset", "shard", "doc_id").join(about, ["dataset", "doc_id"])
    # A document without repository is alone in its group, so none of them wait for each other in one task.
    has_none = F.col("repository").isNull()
    group = Window.partitionBy("dataset", has_none, F.coalesce("repository", "doc_id")).orderBy("path", "doc_id")
    return found.select(
        "dataset",
        "shard",
        "doc_id",
        "repository",
        F.nullif(F.regexp_extract("path", r"^(.*)/[^/]*$", 1), F.lit("")).alias("package"),
        (F.row_number().over(group) - 1).cast("long").alias("rank"),
    )
