"""Survivors: the members of a corpus that every level of deduplication has left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.lake.tables import Column, Table
from spark_jobs.step import NoConfig, Scope, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


@step(version="1", scope=Scope.INCREMENT, tables=(SURVIVORS,))
def survivors(members: DataFrame, exact_duplicates: DataFrame, config: NoConfig) -> DataFrame:
    """Members less those that were removed; one row per document.

    Args:
        members: rows of `members` of the increment.
        exact_duplicates: rows of `exact_duplicates` of the same increment.
        config: nothing to configure.

    Returns:
        Rows of the table `survivors`.
    """
    identity = ["dataset", "doc_id"]
    removed = exact_duplicates.select(*identity)
    return (
        members.select("dataset", "shard", "doc_id")
        .join(removed, identity, "left_anti")
        .select("dataset", "shard", "doc_id")
    )
