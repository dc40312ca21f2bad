"""Repository components: repositories that are linked by pairs, directly or through others, and topics of giant ones.

As with documents, an increment writes the components that its pairs touch, with all their repositories; of several rows
of a repository **the newest counts**, and a repository without a pair has none.

A component may grow to a large share of all repositories, such as forks of one framework, each similar to the next. In
such a giant component communities are found (`topics`) and named by the terms that distinguish them: declared topics
and dependencies, else words of names and paths. A term scores n^2 / N: n repositories of the community have it, of N
in the component. These topics show users what the component consists of, and they can cut it: between a topic of `cut`
and another one only pairs of at least .9 count. The remaining components are *pieces*;
`repository_removals` counts a pair only where both repositories are in one piece.

    component  django-cms ... wagtail ... wordpress-1 ... wordpress-900      topics "cms, django", "php, themes, wp"
    cut: ["php, themes, wp"]                                                 two pieces, if no pair across has .9
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.dedup.graph.components import ComponentsConfig, components
from spark_jobs.dedup.graph.connected_components import connected_components
from spark_jobs.dedup.graph.dense_graph import dense_graph
from spark_jobs.dedup.graph.threshold_pairs import reaches
from spark_jobs.dedup.membership.repository_facts import newest_facts, repository_files
from spark_jobs.dedup.pictures import draw_component_sizes
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

_LABEL_TERMS = 3
_GIANT_REPOSITORIES = 10  # fewest of a giant component, in small lakes: of fewer a reader needs no topics
_CUT_SIMILARITY = 0.9  # least of a pair between a topic of `cut` and another to count still
_WEIGHT_SCALE = 1000
_AS_DOCUMENTS = {"repository_id": "doc_id", "better_repository_id": "better_doc_id"}


class RepositoryComponentsConfig(ConfigModel):
    """The links between repositories, the size of giant components, and where these are cut."""

    threshold: float = Field(0.7, gt=0, le=1, description="as in repository_pairs")
    giant_fraction: float = Field(
        0.05, gt=0, le=1, description="share of all repositories from which on a component is giant and gets topics"
    )
    cut: tuple[str, ...] = Field((), description="topics to be cut off, as the column `topic` writes them")
    driver_edges: int = Field(
        4_000_000,
        ge=1,
        le=50_000_000,
        description="pairs of giant components that the driver looks for topics in, about 200 bytes each; of more, the "
        "most similar",
    )


REPOSITORY_COMPONENTS = Table(
    name="repository_components",
    comment="One row per repository of a component that a pair of the increment belongs to; of several rows of a "
    "repository, the one of the highest increment counts.",
    columns=(
        Column("repository_id!", "string", "identity of the repository"),
        Column("dataset!", "string", "its dataset"),
        Column("repository!", "string", "its name"),
        Column("component!", "string", "least repository_id of the component"),
        Column("repository_count!", "int", "repositories of the component"),
        Column("topic", "string", "in a giant component, the terms that tell its part of it from the others"),
        Column("piece!", "string", "least repository_id of the part that is still connected after the cut"),
    ),
    key=("repository_id",),
    partition=("increment",),
    checks=(
        Check("component_is_the_least", "component <= piece and piece <= repository_id", "named by their least member"),
        Check("linked", "repository_count >= 2", "a component has at least two repositories"),
    ),
)


def _draw(rows: pa.Table) -> bytes:
    """Draw the sizes of components of repositories, as `draw_component_sizes` does for documents; a PNG."""
    named = rows.rename_columns(["increment", "doc_id", "component", "document_count"])
    return draw_component_sizes(named.append_column("threshold", pa.array(np.zeros(rows.num_rows))))


@step(
    version="1",
    scope=Scope.HISTORY,
    tables=(REPOSITORY_COMPONENTS,),
    plot=Plot(
        "Sizes of components of repositories", ("increment", "repository_id", "component", "repository_count"), _draw
    ),
)
def repository_components(
    repository_pairs: DataFrame,
    repository_bags: DataFrame,
    members: DataFrame,
    repository_components: DataFrame,
    increment: int,
    config: RepositoryComponentsConfig,
    repositories: DataFrame | None = None,
) -> DataFrame:
    """Find the components that the pairs of an increment touch, and topics of giant ones; one row per repository."""
    earlier = repository_components.select(
        "increment", F.col("repository_id").alias("doc_id"), "component", F.lit(config.threshold).alias("threshold")
    )
    linking = ComponentsConfig(thresholds=(config.threshold,), driver_edges=config.driver_edges)
    merged = components(repository_pairs.withColumnsRenamed(_AS_DOCUMENTS), earlier, increment, linking)
    names = repository_bags.select("repository_id", "dataset", "repository").distinct()
    linked = checkpointed(
        merged.select(
            F.col("doc_id").alias("repository_id"), "component", F.col("document_count").alias("repository_count")
        ).join(names, "repository_id")
    )
    least = max(_GIANT_REPOSITORIES, config.giant_fraction * names.count())
    giants = linked.where(F.col("repository_count") >= least)
    if not giants.take(1):
        rows = linked.withColumns({"topic": F.lit(None).cast("string"), "piece": F.col("component")})
    else:
        pairs = repository_pairs.join(giants.select("repository_id"), "repository_id", "left_semi")
        topics = checkpointed(_topics(giants, pairs, _terms(giants, members, repositories), config.driver_edges))
        pieces = _pieces(pairs, topics, config)
        rows = (
            linked.join(topics, "repository_id", "left")
            .join(pieces, "repository_id", "left")
            .withColumn("piece", F.coalesce("piece", _alone(config)))
        )
    return rows.select([column.name for column in REPOSITORY_COMPONENTS.columns])


def _topics(giants: DataFrame, pairs: DataFrame, terms: DataFrame, driver_edges: int) -> DataFrame:
    """The topic of each repository in a giant component: rows (repository_id, topic)."""
    from pyspark.sql import Window

    strongest = pairs.select(
        F.lit(1).alias("groups"),
        "repository_id",
        "better_repository_id",
        F.floor(F.col("shared_weight") * _WEIGHT_SCALE / F.col("united_weight")).alias("weight"),
    ).orderBy(F.desc("weight"), "repository_id", "better_repository_id")
    communal = giants.sparkSession.createDataFrame(community_table(strongest.limit(driver_edges).toArrow()))
    placed = giants.select("repository_id", "component").join(communal, "repository_id", "left")
    placed = placed.withColumn("community", F.coalesce("community", "repository_id"))
    with_terms = placed.join(terms, "repository_id")
    counted = with_terms.groupBy("component", "community", "term").agg(F.count("*").alias("count"))
    whole = with_terms.groupBy("component", "term").agg(F.count("*").alias("whole"))
    score = F.col("count") * F.col("count") / F.col("whole")
    best = Window.partitionBy("component", "community").orderBy(F.desc(score), "term")
    ranked = counted.join(whole, ["component", "term"]).withColumn("rank", F.row_number().over(best))
    chosen = F.array_sort(F.collect_list("term"))
    labels = ranked.where(F.col("rank") <= _LABEL_TERMS).groupBy("component", "community").agg(chosen.alias("terms"))
    topic = F.coalesce(F.concat_ws(", ", "terms"), F.col("community"))
    return placed.join(labels, ["component", "community"], "left").select("repository_id", topic.alias("topic"))


def community_table(edges: pa.Table) -> pa.Table:
    """Find communities in memory: rows (groups, one end, other end, weight) to rows (repository_id, community)."""
    from spark_jobs.dedup.repository.topics import communities

    graph = dense_graph(edges)
    weights = edges["weight"].to_numpy().astype(np.int64)
    first, second = graph.first.astype(np.int64), graph.second.astype(np.int64)
    labels = communities(first, second, np.maximum(weights, 1), graph.vertex_count)
    return pa.table({"repository_id": graph.ids, "community": graph.ids.take(pa.array(labels))})


def _terms(giants: DataFrame, members: DataFrame, repositories: DataFrame | None) -> DataFrame:
    """Distinct rows (repository_id, term): declared topics and dependencies, else words of its name and its paths."""
    named = giants.select("repository_id", "dataset", "repository")
    declared = named.withColumn("terms", F.lit(None).cast("array<string>"))
    if repositories is not None:
        facts = newest_facts(repositories).select("dataset", "repository", "terms")
        declared = named.join(facts, ["dataset", "repository"], "left")
    some = declared.select("repository_id", F.explode("terms").alias("term"))
    others = named.join(some.select("repository_id").distinct(), "repository_id", "left_anti")
    paths = repository_files(members).join(others.select("repository_id"), "repository_id", "left_semi")
    texts = (others.select("repository_id", F.col("repository").alias("text")), paths.select("repository_id", "path"))
    words = reduce(lambda words_of_text, other: words_of_text.union(other), texts)
    split = words.select("repository_id", F.explode(F.split(F.lower("text"), "[^\\p{L}]+")).alias("term"))
    return some.unionByName(split.where("length(term) >= 3")).distinct()


def _pieces(pairs: DataFrame, topics: DataFrame, config: RepositoryComponentsConfig) -> DataFrame:
    """Rows (repository_id, piece) of the repositories in giant components that still have a pair after the cut."""
    left = topics.select("repository_id", F.col("topic").alias("left_topic"))
    right = topics.select(F.col("repository_id").alias("better_repository_id"), F.col("topic").alias("right_topic"))
    listed = F.col("left_topic").isin(*config.cut) | F.col("right_topic").isin(*config.cut)
    across = (F.col("left_topic") != F.col("right_topic")) & listed
    left_over = pairs.join(left, "repository_id").join(right, "better_repository_id")
    edges = left_over.where(~across | reaches(_CUT_SIMILARITY)).select(
        F.lit(1).alias("groups"), F.col("repository_id").alias("left"), F.col("better_repository_id").alias("right")
    )
    linked = connected_components(edges, config.driver_edges)
    return linked.select(F.col("vertex").alias("repository_id"), F.col("component").alias("piece"))


def _alone(config: RepositoryComponentsConfig) -> SparkColumn:
    """The piece of a repository that `_pieces` lacks: its component if that is not giant, else itself."""
    return F.when(F.col("topic").isNull(), F.col("component")).otherwise(F.col("repository_id"))
