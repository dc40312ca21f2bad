"""Survivors: the members of a corpus that no level of deduplication removed."""

from __future__ import annotations

from pydantic import Field

from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.spark_sql import DataFrame, F


class SurvivorsConfig(ConfigModel):
    """The threshold that is applied."""

    threshold: float = Field(0.8, gt=0, le=1, description="weighted Jaccard similarity, one of the thresholds compared")


SURVIVORS = Table(
    name="survivors",
    comment="One row per document that goes on: a member of the corpus that repeats no other.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
)


@step(version="4", scope=Scope.INCREMENT, tables=(SURVIVORS,))
def survivors(
    members: DataFrame,
    exact_duplicates: DataFrame,
    config: SurvivorsConfig,
    removals: DataFrame | None = None,
) -> DataFrame:
    """Select the members that no level of deduplication removed; one row per document.

    `removals` is None where near-duplicates stay. An exact duplicate that is the witness of a removal is kept in the
    place of the one that it repeats (`stand_ins`).
    """
    left = members.select("dataset", "shard", "doc_id")
    repeats = exact_duplicates.select("doc_id")
    if removals is not None:
        applied = removals.where(F.col("threshold") == config.threshold)
        left = left.join(applied.select("doc_id"), "doc_id", "left_anti")
        repeats = repeats.join(applied.select(F.col("witness_doc_id").alias("doc_id")), "doc_id", "left_anti")
    left = left.join(repeats, "doc_id", "left_anti")
    return left.select("dataset", "shard", "doc_id")
