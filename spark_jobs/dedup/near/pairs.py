"""Pairs: every two documents of the corpus with a J of at least the lowest threshold of their kind, with exact J.

Candidates come from the buckets, each once. They are verified by their bags, so the stored J is exact, and all
thresholds are read from this one table. A pair leads from a document to the *better* one, which comes first in the
order (increment, place, doc_id) and is kept if only one of them can be.

Buckets of boilerplate can hold a hundred thousand members, which would be billions of pairs. Their members are compared
by an exact join instead, until no pair is left that could change which documents are kept: see `large_buckets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.graph.threshold_pairs import KindThresholds
from spark_jobs.dedup.near.bucket_members import (
    DEFAULT_MAX_BUCKET_PAIRS,
    MaxBucketPairs,
    with_pair_count,
)
from spark_jobs.dedup.near.large_buckets import LARGE_BUCKETS, BucketCounts, compare_large
from spark_jobs.dedup.near.verification import PAIR_COLUMNS, SignatureIndex, verified_buckets
from spark_jobs.dedup.pictures import draw_pair_similarities
from spark_jobs.lake.declare.step import ConfigModel, Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.spark_sql import DataFrame, F


class PairsConfig(ConfigModel):
    """The stored pairs, and the least size of a large bucket."""

    thresholds: KindThresholds = Field(
        KindThresholds(), description="similarities from which on two documents are duplicates, the lowest first"
    )
    max_bucket_pairs: MaxBucketPairs = DEFAULT_MAX_BUCKET_PAIRS
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES
    driver_candidates: int = Field(
        32_768,
        ge=0,
        description="candidates up to which they are verified in the driver's memory, about 5 KB each",
        json_schema_extra={"affects_rows": False},
    )


PAIRS = Table(
    name="pairs",
    comment="One row per two documents whose bags have at least the lowest threshold of weighted Jaccard similarity J.",
    columns=(
        Column("kind!", "string", "code, prose, markup or data"),
        Column("dataset!", "string", "dataset of the document"),
        Column("doc_id!", "string", "the document that comes later in the order (increment, place, doc_id)"),
        Column("place!", "long", "its place, as in members"),
        Column("better_dataset!", "string", "dataset of the other document"),
        Column("better_doc_id!", "string", "the document that comes first"),
        Column("better_place!", "long", "its place"),
        Column("better_increment!", "int", "increment that brought it"),
        Column("shared_weight!", "long", "sum over all tokens of the lesser weight: the numerator of J"),
        Column("united_weight!", "long", "sum over all tokens of the greater weight: the denominator of J"),
        Column("similarity!", "double", "J, rounded to a double"),
    ),
    key=("doc_id", "better_doc_id"),
    partition=("increment",),
    checks=(
        Check("two_documents", "doc_id <> better_doc_id", "no document is a pair with itself"),
        Check("fraction", "shared_weight between 1 and united_weight", "it is a fraction above 0 and at most 1"),
        Check("better_is_no_later", "better_increment <= increment", "the better one came in this increment or before"),
    ),
)


@step(
    version="6",
    scope=Scope.HISTORY,
    tables=(PAIRS, LARGE_BUCKETS),
    plot=Plot("similarity of pairs", ("similarity",), draw_pair_similarities),
)
def pairs(
    buckets: DataFrame,
    signatures: DataFrame,
    bags: DataFrame,
    pairs: DataFrame,
    increment: int,
    config: PairsConfig,
    revisions: DataFrame | None = None,
) -> Output:
    """Verify the candidates in the buckets of an increment; one row per pair."""
    here = buckets.where(F.col("increment") == increment).select("members", "earlier")
    sized = with_pair_count(here)
    small = sized.where(F.col("pair_count") <= config.max_bucket_pairs)
    is_large = F.col("pair_count") > config.max_bucket_pairs
    sums = sized.agg(
        F.sum(F.when(~is_large, F.col("pair_count"))).alias("small_pairs"),
        F.count_if(is_large).alias("large"),
        F.sum(F.when(is_large, F.size("members").cast("long") + F.size("earlier"))).alias("large_members"),
    ).collect()[0]
    counts = BucketCounts(int(sums["small_pairs"] or 0), sums["large"], sums["large_members"] or 0)
    index = SignatureIndex(signatures, bags, config.driver_candidates)
    if counts.large:
        by_size = (small.drop("pair_count"), sized.where(is_large).drop("pair_count"))
        verified, facts, persisted = compare_large(by_size, counts, (pairs, revisions), index, config, increment)
    else:
        verified, persisted = verified_buckets(small, counts.small_pairs, index, config.thresholds.lowest, increment)
        facts = []
    return Output({"pairs": _rows(verified), "large_buckets": _large_bucket_rows(verified, facts)}, {}, persisted)


def _rows(verified: DataFrame) -> DataFrame:
    """Rows of `pairs` from verified pairs."""
    similarity = F.col("shared_weight").cast("double") / F.col("united_weight").cast("double")
    return verified.selectExpr(*PAIR_COLUMNS).withColumn("similarity", similarity)


def _large_bucket_rows(like: DataFrame, facts: Sequence[dict[str, Any]]) -> DataFrame:
    """Rows of `large_buckets`, in the session of another DataFrame."""
    ddl = (
        "threshold double, bucket_count bigint, document_count bigint, rounds int, candidate_count bigint, "
        "kept_count bigint"
    )
    return like.sparkSession.createDataFrame([tuple(row.values()) for row in facts], ddl)
