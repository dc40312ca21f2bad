"""Survivors: the members of a corpus that no level of deduplication removed."""

from __future__ import annotations

import dataclasses
import functools
import operator

from pydantic import Field

from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.lake.declare.step import ConfigModel, Scope, renamed, step
from spark_jobs.lake.declare.tables import Table
from spark_jobs.selection.kept import IDENTITY
from spark_jobs.spark_sql import DataFrame, F


class SurvivorsConfig(ConfigModel):
    """The threshold that is applied."""

    threshold: KindThreshold = Field(
        KindThreshold(),
        description="one of the compared thresholds, at which documents are removed; for all kinds, or by kind",
    )


SURVIVORS = Table(
    name="survivors",
    comment="One row per document that goes on: a member of the corpus that repeats no other.",
    columns=IDENTITY,
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

    `removals` is None where near-duplicates are kept. An exact duplicate that is the witness of a removal is kept
    instead of the one that it repeats (`stand_ins`).
    """
    left = members.select("dataset", "shard", "doc_id")
    repeats = exact_duplicates.select("doc_id")
    if removals is not None:
        applied = applied_removals(removals, members, config.threshold)
        left = left.join(applied.select("doc_id"), "doc_id", "left_anti")
        repeats = repeats.join(applied.select(F.col("witness_doc_id").alias("doc_id")), "doc_id", "left_anti")
    return left.join(repeats, "doc_id", "left_anti").select("dataset", "shard", "doc_id")


distinct = dataclasses.replace(renamed(survivors, "distinct"), name="distinct")
"""The same documents, where selections of further duplicates leave the table `survivors` after it."""


def applied_removals(removals: DataFrame, members: DataFrame, threshold: KindThreshold) -> DataFrame:
    """Rows of `removals` at the threshold that applies to the kind of the removed document."""
    applied = removals.where(F.col("threshold").isin(list(threshold.distinct)))
    if threshold.is_one:
        return applied
    of_kind = [(F.col("kind") == kind) & (F.col("threshold") == value) for kind, value in threshold.values.items()]
    joined = applied.join(members.select("doc_id", "kind"), "doc_id")
    return joined.where(functools.reduce(operator.or_, of_kind)).select(*removals.columns)
