"""Connected components of graphs of any size: every vertex learns the least vertex of its component.

Sail's process solves every graph itself (`components_batches`): edges stay in mapped files, and what is held are 12
bytes of each and 60 of a vertex. Spark's driver takes at most `driver_edge_limit` edges so. More go through large-star
and small-star in turn (Kiveris et al. 2014, "Connected Components in MapReduce and Beyond"), one Spark job per round,
and to the driver as soon as few enough are left. Each edge is kept once, as (high, low) with high > low; least(v) is
the lowest of v's lower neighbours, or v itself:

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
a join, for adaptive execution to split.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_jobs.dedup.graph.dense_graph import dense_graph, from_driver
from spark_jobs.dedup.graph.threshold_pairs import group_numbers, one_group
from spark_jobs.lake.engine.embedded import is_embedded, keep_batches
from spark_jobs.lake.engine.spooled_rows import mapped_rows
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F

_log = logging.getLogger(__name__)
_BATCH_ROWS = 65_536


def connected_components(edges: DataFrame, driver_edge_limit: int) -> DataFrame:
    """Find the component of every vertex with an edge.

    Args:
        edges: rows (groups int, left, right), no nulls; bit g of `groups`, 0 to 30, is set if the edge is in group g.
            The ends are both strings or both longs, in any order, and edges may repeat. Every group is a graph of its
            own. A vertex with no edge but to itself is left out.
        driver_edge_limit: most edges to solve in the memory of Spark's driver (about 200 bytes each for ids of
            32 digits); 0 for none.

    Returns:
        Rows (group, vertex, component, vertex_count int), one per group and vertex; component is the least vertex in
        the order of the ids' type (strings by their UTF-8 bytes), and vertex_count its number of vertices.
    """
    ends = (F.greatest("left", "right").alias("high"), F.least("left", "right").alias("low"))
    links = edges.where("left <> right and groups <> 0").select("groups", *ends)
    if is_embedded(edges):
        with mapped_rows(links) as rows:
            return keep_batches(edges.sparkSession, components_batches(rows), _schema(links)[1])
    all_edges = checkpointed(links)
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
        sums = flagged.agg(F.count("*").alias("edges"), F.max("moved").alias("moved")).first()
        moved, edge_count = (bool(sums["moved"]), int(sums["edges"])) if sums else (False, 0)
        rest = flagged.drop("moved")
        rounds += 1
        _log.info("connected components: round %d: %d edges, %s", rounds, edge_count, "moved" if moved else "at rest")
        if moved and edge_count <= driver_edge_limit:
            return _on_driver(rest.select(one_group("group").alias("groups"), "high", "low"))
    leaves = rest.select("group", F.col("high").alias("vertex"), F.col("low").alias("component"))
    centres = rest.select("group", F.col("low").alias("vertex"), F.col("low").alias("component")).distinct()
    return with_vertex_count(leaves.unionByName(centres))


def with_vertex_count(components: DataFrame) -> DataFrame:
    """Add `vertex_count`, the size of the component, to rows (group, vertex, component)."""
    sizes = components.groupBy("group", "component").agg(F.count("*").cast("int").alias("vertex_count"))
    return components.join(sizes, ["group", "component"]).select("group", "vertex", "component", "vertex_count")


def _on_driver(edges: DataFrame) -> DataFrame:
    schema, ddl = _schema(edges)
    return from_driver(edges.sparkSession, pa.Table.from_batches(components_batches(edges.toArrow()), schema), ddl)


def _schema(edges: DataFrame) -> tuple[pa.Schema, str]:
    """Of the rows (group, vertex, component, vertex_count) of edges with an end `high`: Arrow's, and in Spark's DDL."""
    kind = edges.schema["high"].dataType.simpleString()
    ids = pa.string() if kind == "string" else pa.int64()
    schema = pa.schema([("group", pa.int32()), ("vertex", ids), ("component", ids), ("vertex_count", pa.int32())])
    return schema, f"group int, vertex {kind}, component {kind}, vertex_count int"


def components_batches(edges: pa.Table) -> Iterator[pa.RecordBatch]:
    """Solve graphs in memory: rows (groups, one end, other end) to rows (group, vertex, component, vertex_count)."""
    from spark_jobs.dedup.graph.in_memory import component_labels

    graph = dense_graph(edges)
    kind = edges.schema.field(1).type
    for group, first, second in graph.by_group():
        labels = component_labels(first, second, graph.vertex_count)
        counts = np.bincount(labels, minlength=graph.vertex_count)
        linked = np.flatnonzero(counts[labels] > 1)
        for start in range(0, len(linked), _BATCH_ROWS):
            vertices = linked[start : start + _BATCH_ROWS]
            components = labels[vertices]
            yield pa.RecordBatch.from_pydict(
                {
                    "group": np.full(len(vertices), group, np.int32),
                    "vertex": graph.ids.take(pa.array(vertices)).cast(kind),
                    "component": graph.ids.take(pa.array(components)).cast(kind),
                    "vertex_count": counts[components].astype(np.int32),
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
