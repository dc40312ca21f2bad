"""Survivors: the members of a corpus that no level of deduplication removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SurvivorsConfig(BaseModel):
    """The threshold that is applied."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


@step(version="3", scope=Scope.INCREMENT, tables=(SURVIVORS,))
def survivors(
    members: DataFrame,
    exact_duplicates: DataFrame,
    config: SurvivorsConfig,
    removals: DataFrame | None = None,
) -> DataFrame:
    """Select the members that no level of deduplication removed; one row per document.

    Args:
        members: rows of `members` of the increment.
        exact_duplicates: rows of `exact_duplicates` of the same increment.
        config: the threshold that is applied.
        removals: rows of `removals` of the same increment; None where near-duplicates stay.

    Returns:
        Rows of the table `survivors`.
    """
    from pyspark.sql import functions as F

    gone = [exact_duplicates.select("doc_id")]
    if removals is not None:
        gone.append(removals.where(F.col("threshold") == config.threshold).select("doc_id"))
    left = members.select("dataset", "shard", "doc_id")
    for removed in gone:
        left = left.join(removed, "doc_id", "left_anti")
    return left.select("dataset", "shard", "doc_id")
