"""Components: documents linked by pairs, directly or through others, at each threshold.

An increment writes a row for every document of each component touched by its pairs, with the present component. So a
document can have several rows, and **the newest counts** (the one of the highest increment); a document without a pair
has none.

Components are extended, not computed again: a document of a new pair gets an edge to its former component,
so the cost is that of the increment's pairs and of the components they touch.

    increment 0   pairs a-c, d-e          rows  a: a of 2, c: a of 2, d: d of 2, e: d of 2
    increment 1   pair  f-e               edges f-e, e-d (known)    component d = {d, e, f}
                                          rows  d: d of 3, e: d of 3, f: d of 3       (a and c get no new row)

A component is named by its least doc_id. That document never leaves it, so all documents that ever had a row with
that name are its members.
"""

from __future__ import annotations

from spark_jobs.dedup.graph.connected_components import connected_components, with_vertex_count
from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.graph.threshold_pairs import (
    DEFAULT_THRESHOLDS,
    Thresholds,
    groups_reached,
    one_group,
    threshold_of,
    with_group,
)
from spark_jobs.dedup.pictures import draw_component_sizes
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F


class ComponentsConfig(ConfigModel):
    """The similarities of linked documents."""

    thresholds: Thresholds = DEFAULT_THRESHOLDS
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES


COMPONENTS = Table(
    name="components",
    comment="One row per threshold and document of a component that a pair of the increment belongs to; of several "
    "rows of a document at a threshold, the one of the highest increment counts.",
    columns=(
        Column("threshold!", "double", "least weighted Jaccard similarity of a link"),
        Column("doc_id!", "string", "identity of the document"),
        Column("component!", "string", "least doc_id of the component"),
        Column("document_count!", "int", "documents of the component"),
    ),
    key=("threshold", "doc_id"),
    partition=("increment",),
    checks=(
        Check("component_is_the_least", "component <= doc_id", "a component is named by its least document"),
        Check("linked", "document_count >= 2", "a component has at least two documents"),
    ),
)


@step(
    version="1",
    scope=Scope.HISTORY,
    tables=(COMPONENTS,),
    plot=Plot(
        "Sizes of components",
        ("increment", "threshold", "doc_id", "component", "document_count"),
        draw_component_sizes,
    ),
)
def components(pairs: DataFrame, components: DataFrame, increment: int, config: ComponentsConfig) -> DataFrame:
    """Find the components touched by the pairs of an increment; one row per threshold and document in them."""
    edges = pairs.where(F.col("increment") == increment).select(
        groups_reached(config.thresholds).alias("groups"),
        F.col("doc_id").alias("left"),
        F.col("better_doc_id").alias("right"),
    )
    if increment == 0:
        linked = connected_components(edges, config.driver_edges)
    else:
        linked = _extended(edges, with_group(components, config.thresholds), config.driver_edges)
    return linked.select(
        threshold_of(F.col("group"), config.thresholds).alias("threshold"),
        F.col("vertex").alias("doc_id"),
        "component",
        F.col("vertex_count").alias("document_count"),
    )


def _extended(edges: DataFrame, components: DataFrame, driver_edges: int) -> DataFrame:
    """The components touched by the new edges, with their former members, as rows of `connected_components`."""
    ends = edges.select("groups", F.explode(F.array("left", "right")).alias("doc_id"))
    met = ends.groupBy("doc_id").agg(F.bit_or("groups").alias("met"))
    links = (
        components.join(met, "doc_id")
        .where(F.expr("getbit(met, group) = 1"))
        .groupBy("group", "doc_id")
        .agg(F.max_by("component", "increment").alias("right"))
        .select(one_group("group").alias("groups"), F.col("doc_id").alias("left"), "right")
    )
    reached = checkpointed(connected_components(edges.unionByName(links), driver_edges).drop("vertex_count"))
    members = (
        components.select("group", F.col("doc_id").alias("vertex"), F.col("component").alias("former"))
        .join(reached.select("group", F.col("vertex").alias("former"), "component"), ["group", "former"])
        .select("group", "vertex", "component")
    )
    return with_vertex_count(checkpointed(reached.unionByName(members).distinct()))
