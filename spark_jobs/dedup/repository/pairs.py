"""Repository pairs: every two repositories that are at least as similar as a threshold, with the exact J.

They are found in the same way as pairs of documents, by the functions of the steps `signatures`, `background`,
`buckets` and `pairs`. There are few repositories and their bags are small, so one step does it all, and the signatures
of earlier repositories are computed again rather than stored (some 20,000 a second and core).

New repositories are compared with each other and with all earlier ones, by their newest bags. Two earlier ones whose
files became linked later are not compared again: what was kept stays kept. An increment without repositories has no
rows in any of the tables.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, KindThresholds
from spark_jobs.dedup.membership.repository_facts import newest_bags
from spark_jobs.dedup.near.buckets import BANDS, BucketsConfig, buckets
from spark_jobs.dedup.near.large_buckets import LARGE_BUCKETS
from spark_jobs.dedup.near.pairs import PairsConfig, pairs
from spark_jobs.dedup.pictures import draw_bands
from spark_jobs.dedup.sketches.background import BackgroundConfig, background
from spark_jobs.dedup.sketches.signatures import SignaturesConfig, signatures
from spark_jobs.lake.declare.step import ConfigModel, Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, spark_schema
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.spark_sql import DataFrame, F

_KIND = "repository"
_AS_DOCUMENTS = {
    "repository_id": "doc_id",
    "better_repository_id": "better_doc_id",
    "item_count": "token_count",
    "item_hashes": "token_hashes",
    "first_increment": "increment",
}
_NO_VOCABULARY = "token_hash bigint, unit int, document_count bigint"


class RepositoryPairsConfig(ConfigModel):
    """The similarity of pairs of repositories, and the recall of finding them."""

    threshold: float = Field(
        0.7, gt=0, le=1, description="weighted Jaccard similarity of what their files are duplicates of"
    )
    recall: float = Field(0.9999, gt=0, lt=1, description="least share of the pairs at the threshold that are found")
    max_level: int = Field(4, ge=1, le=16, description="as the bags'")
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES


REPOSITORY_PAIRS = Table(
    name="repository_pairs",
    comment="One row per two repositories whose bags have at least the threshold of weighted Jaccard similarity J.",
    columns=(
        Column("dataset!", "string", "dataset of the repository"),
        Column("repository!", "string", "name of the one that comes later in the order (increment, place, id)"),
        Column("repository_id!", "string", "its identity"),
        Column("place!", "long", "its place, as in repository_bags"),
        Column("better_dataset!", "string", "dataset of the other one"),
        Column("better_repository!", "string", "name of the one that comes first"),
        Column("better_repository_id!", "string", "its identity"),
        Column("better_place!", "long", "its place"),
        Column("better_increment!", "int", "increment that brought its files"),
        Column("shared_weight!", "long", "sum over all groups of the lesser weight: the numerator of J"),
        Column("united_weight!", "long", "sum over all groups of the greater weight: the denominator of J"),
        Column("similarity!", "double", "J, rounded to a double"),
        Column("containment!", "double", "share of the lesser repository in the other: shared_weight / its weight"),
    ),
    key=("repository_id", "better_repository_id"),
    partition=("increment",),
    checks=(
        Check("two_repositories", "repository_id <> better_repository_id", "no repository is a pair with itself"),
        Check("fraction", "shared_weight between 1 and united_weight", "J is a fraction above 0 and at most 1"),
        Check("contained_as_much_as_similar", "containment between similarity and 1", "J is never above it"),
        Check("better_is_no_later", "better_increment <= increment", "the better one came in this increment or before"),
    ),
)
REPOSITORY_BANDS = replace(BANDS, name="repository_bands")
REPOSITORY_LARGE_BUCKETS = replace(LARGE_BUCKETS, name="repository_large_buckets")
# Bags of repositories are up to a hundred times those of documents.
_DRIVER_CANDIDATES = 2_000
_TABLES = (REPOSITORY_PAIRS, REPOSITORY_BANDS, REPOSITORY_LARGE_BUCKETS)


@step(
    version="3",
    scope=Scope.HISTORY,
    tables=_TABLES,
    plot=Plot(
        "probability of becoming a candidate",
        ("increment", "similarity", "candidate_probability", "background_fraction", "band_count", "row_count"),
        draw_bands,
        table="repository_bands",
    ),
)
def repository_pairs(
    repository_bags: DataFrame, repository_pairs: DataFrame, increment: int, config: RepositoryPairsConfig
) -> Output:
    """Compare the repositories of an increment with each other and with all earlier ones; one row per pair."""
    spark = repository_bags.sparkSession
    current = persist(newest_bags(repository_bags).withColumns({"kind": F.lit(_KIND), "shard": F.lit(0)}))
    if not current.where(F.col("first_increment") == increment).take(1):
        return Output(
            {table.name: spark.createDataFrame([], spark_schema(table)).drop("increment") for table in _TABLES},
            {},
            (current,),
        )
    as_bags = current.drop("increment").withColumnsRenamed(_AS_DOCUMENTS)
    signing = SignaturesConfig(max_level=config.max_level, hot_tokens=0)
    columns = ["dataset", "shard", "doc_id", "kind", "place", "token_count", "total_weight"]
    unsigned = as_bags.select(*columns, "token_hashes", "units", "levels")
    signed = signatures(unsigned, spark.createDataFrame([], _NO_VOCABULARY), signing)
    placed = persist(signed.join(as_bags.select("doc_id", "increment"), "doc_id"))
    measured = background(as_bags, BackgroundConfig())
    threshold = KindThreshold.model_validate(config.threshold)
    banded = buckets(placed, measured, increment, BucketsConfig(threshold=threshold, recall=config.recall))
    outputs = pairs(
        banded.frames["buckets"].withColumn("increment", F.lit(increment)),
        placed,
        as_bags,
        repository_pairs.withColumnsRenamed(_AS_DOCUMENTS),
        increment,
        PairsConfig(
            thresholds=KindThresholds.model_validate([config.threshold]),
            driver_edges=config.driver_edges,
            driver_candidates=_DRIVER_CANDIDATES,
        ),
    )
    return Output(
        {
            "repository_pairs": _named(outputs.frames["pairs"], current),
            "repository_bands": banded.frames["bands"],
            "repository_large_buckets": outputs.frames["large_buckets"],
        },
        {},
        (*outputs.persisted, placed, current),
    )


def _named(similar: DataFrame, current: DataFrame) -> DataFrame:
    """Turn pairs of documents into rows of the table, with the names of both repositories and their containment."""
    names = current.select("repository_id", "repository", "total_weight")
    better = names.withColumnsRenamed({name: f"better_{name}" for name in names.columns})
    turned = similar.withColumnsRenamed({"doc_id": "repository_id", "better_doc_id": "better_repository_id"})
    joined = turned.join(names, "repository_id").join(better, "better_repository_id")
    lesser = F.least("total_weight", "better_total_weight")
    joined = joined.withColumn("containment", F.col("shared_weight") / lesser)
    return joined.select([column.name for column in REPOSITORY_PAIRS.columns])
