"""Thresholds: what each similarity threshold keeps of an increment, side by side, so that one can be chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from spark_jobs.dedup.pictures import draw_kept
from spark_jobs.dedup.threshold_pairs import DEFAULT_THRESHOLDS, Thresholds
from spark_jobs.lake.tables import Check, Column, Table
from spark_jobs.step import Plot, Scope, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ThresholdsConfig(BaseModel):
    """Which thresholds are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    thresholds: Thresholds = DEFAULT_THRESHOLDS


THRESHOLDS = Table(
    name="thresholds",
    comment="One row per increment and threshold: what of the increment's members would go and stay.",
    columns=(
        Column("threshold!", "double", "weighted Jaccard similarity from which on two documents are duplicates"),
        Column("member_count!", "long", "members of the increment"),
        Column("exact_removed_count!", "long", "of them, removed as exact duplicates"),
        Column("near_removed_count!", "long", "of the others, removed as near-duplicates"),
        Column("repository_removed_count!", "long", "of the others, removed with their repositories"),
        Column("kept_count!", "long", "of them, none of these"),
        Column("kept_byte_count!", "long", "bytes of the kept"),
        Column("removed_byte_count!", "long", "bytes of all removed"),
        Column("component_count!", "long", "components that a pair of the increment belongs to"),
        Column("largest_component!", "long", "documents in the largest of these; 0 where there is none"),
    ),
    key=("threshold",),
    partition=("increment",),
    checks=(
        Check(
            "every_member_is_counted_once",
            "kept_count + exact_removed_count + near_removed_count + repository_removed_count = member_count "
            "and kept_count >= 0",
            "a member is kept, or removed as exact, as near, or with its repository",
        ),
    ),
)


@step(
    version="2",
    scope=Scope.INCREMENT,
    tables=(THRESHOLDS,),
    kernels=("spark_jobs.dedup.threshold_pairs",),
    plot=Plot(
        "What each threshold keeps",
        ("threshold", "member_count", "kept_count", "kept_byte_count", "removed_byte_count"),
        draw_kept,
    ),
)
def thresholds(
    members: DataFrame,
    exact_duplicates: DataFrame,
    removals: DataFrame,
    components: DataFrame,
    config: ThresholdsConfig,
) -> DataFrame:
    """Count what every threshold keeps; one row per threshold, also where nothing goes.

    Args:
        members: rows of `members` of the increment.
        exact_duplicates: rows of `exact_duplicates` of the same increment.
        removals: rows of `removals` of the same increment.
        components: rows of `components` of the same increment.
        config: thresholds.

    Returns:
        Rows of the table `thresholds`.
    """
    from pyspark.sql import functions as F

    listed = members.sparkSession.createDataFrame([(value,) for value in config.thresholds], "threshold double")
    exact = exact_duplicates.select("doc_id", F.lit(True).alias("exact"))
    flagged = members.select("doc_id", "byte_count").join(exact, "doc_id", "left")
    total = flagged.agg(
        F.count("*").alias("member_count"),
        F.count("exact").alias("exact_removed_count"),
        F.coalesce(F.sum("byte_count"), F.lit(0)).alias("member_byte_count"),
        F.coalesce(F.sum(F.when(F.col("exact"), F.col("byte_count"))), F.lit(0)).alias("exact_byte_count"),
    )
    gone = (
        flagged.where("exact is null")
        .join(removals.select("threshold", "doc_id", "repository"), "doc_id")
        .groupBy("threshold")
        .agg(
            F.count_if(F.col("repository").isNull()).alias("near_removed_count"),
            F.count("repository").alias("repository_removed_count"),
            F.sum("byte_count").alias("gone_byte_count"),
        )
    )
    linked = (
        components.where("doc_id = component")
        .groupBy("threshold")
        .agg(F.count("*").alias("component_count"), F.max("document_count").cast("long").alias("largest_component"))
    )
    counted = listed.join(gone, "threshold", "left").join(linked, "threshold", "left").fillna(0)
    return counted.crossJoin(total).select(
        "threshold",
        "member_count",
        "exact_removed_count",
        "near_removed_count",
        "repository_removed_count",
        F.expr("member_count - exact_removed_count - near_removed_count - repository_removed_count").alias(
            "kept_count"
        ),
        F.expr("member_byte_count - exact_byte_count - gone_byte_count").alias("kept_byte_count"),
        F.expr("exact_byte_count + gone_byte_count").alias("removed_byte_count"),
        "component_count",
        "largest_component",
    )
