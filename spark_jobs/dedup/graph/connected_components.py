"""Connected components of graphs of any size: every vertex learns the least vertex of its component.

At most `driver_edge_limit` edges are solved in memory on the driver. More go through large-star and small-star in turn
(Kiveris et al. 2014, "Connected Components in MapReduce and Beyond"), one Spark job per round, and to the driver as
soon as few enough are left. Each edge is kept once, as (high, low) with high > low; least(v) is the lowest of v's lower
neighbours, or v itself:

    large-star    (high, low) becomes (high, least(low)): all higher neighbours of `low` go to its least one
    small-star    (high, low) becomes (low, least(high)), and (high, least(high)) is added: all lower neighbours of
                  `high`, and `high` itself, go to the least of them

    chain 1-2-3-4-5    (2 1) (3 2) (4 3) (5 4)  --large-->  (2 1) (3 1) (4 2) (5 3)  --small-->  the same
                                                --large-->  (2 1) (3 1) (4 1) (5 1)

Neither step connects or separates components, or adds edges (proven in the paper). **Termination is proven, not
guessed**: every edge has a flag whether its round had a reason to move it, that is, a lower neighbour of its `low`
(large-star) or a second lower neighbour of its `high` (small-star). If a round moves no edge, no vertex is both a high
and a low end and every high end has one low end: the graph is a forest of stars with the least vertex in the middle,
which is the answer. The paper proves O(log^2 n) rounds; O(log n) are observed.

No task holds a component: minima are combined before they are shuffled, and the edges of one vertex meet its minimum in
a join that adaptive execution may split.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from spark_jobs.dedup.graph.dense_graph import dense_graph, from_driver
from spark_jobs.dedup.graph.threshold_pairs import group_numbers, one_group
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


def connected_components(edges: DataFrame, driver_edge_limit: int) -> DataFrame:
    """Find the component of every vertex that has an edge.

    Args:
        edges: rows (groups int, left, right), no nulls; bit g of `groups`, 0 to 30, is set if the edge is in group g.
            The ends are both strings or both longs, in any order, and edges may repeat. Every group is a graph of its
            own. A vertex with no edge but to itself is left out.
        driver_edge_limit: most edges that are solved in the driver's memory (about 200 bytes each for ids of
            32 digits); 0 for none.

    Returns:
        Rows (group, vertex, component, vertex_count int), one per group and vertex; component is the least vertex in
        the order of the ids' type (strings by their UTF-8 bytes), and vertex_count its number of vertices.
    """
    ends = (F.greatest("left", "right").alias("high"), F.least("left", "right").alias("low"))
    all_edges = checkpointed(edges.where("left <> right and groups <> 0").select("groups", *ends))
    if all_edges.count() <= driver_edge_limit:
        return _on_driver(all_edges)
    return _in_rounds(
        all_edges.select(F.explode(group_numbers(F.col("groups"))).alias("group"), "high", "low"), driver_edge_limit
    )


def _in_rounds(edges: DataFrame, driver_edge_limit: int) -> DataFrame:
    """Solve edges (group, high, low) by rounds on Spark; an edge of several groups has a row for each."""
    rest, moved, rounds = edges, True, 0
    while moved:
        flagged = checkpointed(_small_star(_large_star(rest)))
        found = flagged.agg(F.count("*").alias("edges"), F.max("moved").alias("moved")).first()
        moved, edge_count = (bool(found["moved"]), int(found["edges"])) if found else (False, 0)
        rest = flagged.drop("moved")
        rounds += 1
        _log.info("connected components: round %d: %d edges, %s", rounds, edge_count, "moved" if moved else "at rest")
        if moved and edge_count <= driver_edge_limit:
            return _on_driver(rest.select(one_group("group").alias("groups"), "high", "low"))
    leaves = rest.select("group", F.col("high").alias("vertex"), F.col("low").alias("component"))
    centres = rest.select("group", F.col("low").alias("vertex"), F.col("low").alias("component")).distinct()
    return with_vertex_count(leaves.unionByName(centres))


def with_vertex_count(found: DataFrame) -> DataFrame:
    """Add `vertex_count`, the size of the component, to rows (group, vertex, component)."""
    sizes = found.groupBy("group", "component").agg(F.count("*").cast("int").alias("vertex_count"))
    return found.join(sizes, ["group", "component"]).select("group", "vertex", "component", "vertex_count")


def _on_driver(edges: DataFrame) -> DataFrame:
    kind = edges.schema["high"].dataType.simpleString()
    ddl = f"group int, vertex {kind}, component {kind}, vertex_count int"
    return from_driver(edges.sparkSession, components_table(edges.toArrow()), ddl)


def components_table(edges: pa.Table) -> pa.Table:
    """Solve graphs in memory: rows (groups, one end, other end) to rows (group, vertex, component, vertex_count)."""
    import pyarrow as pa

    from spark_jobs.dedup.graph.in_memory import component_labels

    graph = dense_graph(edges)
    numbers = np.empty(0, np.int64)
    found = [(numbers, numbers, numbers, numbers)]
    for group, one, other in graph.by_group():
        component = component_labels(one, other, graph.vertex_count)
        linked = np.zeros(graph.vertex_count, np.bool_)
        linked[one] = linked[other] = True
        vertex = np.flatnonzero(linked)
        component = component[vertex]
        found.append((np.full(len(vertex), group), vertex, component, np.bincount(component)[component]))
    groups, vertices, components, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return pa.table(
        {
            "group": groups.astype(np.int32),
            "vertex": graph.ids.take(vertices),
            "component": graph.ids.take(components),
            "vertex_count": counts.astype(np.int32),
        }
    )


def _large_star(edges: DataFrame) -> DataFrame:
    """Turn rows (group, high, low) into rows (group, high, least(low), moved)."""
    least = edges.groupBy("group", F.col("high").alias("low")).agg(F.min("low").alias("least"))
    return edges.join(least, ["group", "low"], "left").select(
        "group", "high", F.coalesce("least", "low").alias("low"), F.col("least").isNotNull().alias("moved")
    )


def _small_star(edges: DataFrame) -> DataFrame:
    """Turn rows (group, high, low, moved) into distinct edges to least(high), from `low`; from `high` if low is it."""
    least = edges.groupBy("group", "high").agg(F.min("low").alias("least"))
    met = edges.join(least, ["group", "high"]).withColumn("beside", F.col("low") > F.col("least"))
    # An edge to the least end stays; any other is handed down to its low end.
    handed = F.when(F.col("beside"), F.col("low")).otherwise(F.col("high"))
    return (
        met.groupBy("group", handed.alias("high"), F.col("least").alias("low"))
        .agg(F.max(F.col("moved") | F.col("beside")).alias("moved"))
        .select("group", "high", "low", "moved")
    )
