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

Neither step links what was not linked, parts what was, or adds edges (the paper proves it). **The end is proven, not
guessed**: every edge carries whether its round found a reason to move it, that is, a lower neighbour of its `low`
(large-star) or a second lower neighbour of its `high` (small-star). A round in which no edge was moved has shown that
no vertex is both a high and a low end and that every high end has one low end: the graph is a forest of stars with the
least vertex in the middle, which is the answer. O(log^2 n) rounds are proven in the paper, O(log n) are observed.

No task holds a component: minima are combined before they are shuffled, and the edges of one vertex meet its minimum in
a join that adaptive execution may split.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from spark_jobs.dedup.dense_graph import cut, dense_graph, vertex_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)


def connected_components(edges: DataFrame, driver_edge_limit: int) -> DataFrame:
    """Find the component of every vertex that has an edge.

    Args:
        edges: rows (group int, left, right), no nulls; the ends are both strings or both longs, in any order, and edges
            may repeat. Every group is a graph of its own. A vertex with no edge but to itself is left out.
        driver_edge_limit: most edges that are solved in the driver's memory (about 200 bytes each for ids of
            32 digits); 0 for none.

    Returns:
        Rows (group, vertex, component), one per group and vertex; component is the least vertex in the order of the
        ids' type (strings by their UTF-8 bytes).
    """
    from pyspark.sql import functions as F

    spark = edges.sparkSession
    rest = cut(
        edges.where("left <> right").select(
            "group", F.greatest("left", "right").alias("high"), F.least("left", "right").alias("low")
        )
    )
    edge_count = rest.count()
    rounds = 0
    moved = True
    while moved and edge_count > driver_edge_limit:
        flagged = cut(_small_star(_large_star(rest)))
        found = flagged.agg(F.count("*").alias("edges"), F.max("moved").alias("moved")).first()
        moved, edge_count = (bool(found["moved"]), int(found["edges"])) if found else (False, 0)
        rest = flagged.drop("moved")
        rounds += 1
        _log.info("connected components: round %d: %d edges, %s", rounds, edge_count, "moved" if moved else "at rest")
    if moved:
        return spark.createDataFrame(components_table(rest.toArrow()), _schema(edges))
    leaves = rest.select("group", F.col("high").alias("vertex"), F.col("low").alias("component"))
    centres = rest.select("group", F.col("low").alias("vertex"), F.col("low").alias("component")).distinct()
    return leaves.unionByName(centres)


def components_table(edges: pa.Table) -> pa.Table:
    """Components in memory: from rows (group, one end, other end) to rows (group, vertex, component)."""
    import pyarrow as pa

    graph = dense_graph(edges)
    from spark_jobs.dedup.union_find import least_linked

    labels = least_linked(graph.first, graph.second, graph.vertex_count)
    return vertex_table(graph).append_column("component", graph.ids.take(pa.array(labels)))


def _large_star(edges: DataFrame) -> DataFrame:
    """Rows (group, high, low) to (group, high, least(low), moved)."""
    from pyspark.sql import functions as F

    least = edges.groupBy("group", F.col("high").alias("low")).agg(F.min("low").alias("least"))
    return edges.join(least, ["group", "low"], "left").select(
        "group", "high", F.coalesce("least", "low").alias("low"), F.col("least").isNotNull().alias("moved")
    )


def _small_star(edges: DataFrame) -> DataFrame:
    """Rows (group, high, low, moved), repeats among them, to distinct (group, least(high), low or high, moved)."""
    from pyspark.sql import functions as F

    least = edges.groupBy("group", "high").agg(F.min("low").alias("least"))
    met = edges.join(least, ["group", "high"]).withColumn("beside", F.col("low") > F.col("least"))
    # An edge to the least end stays; any other is handed down to its low end.
    handed = F.when(F.col("beside"), F.col("low")).otherwise(F.col("high"))
    return (
        met.groupBy("group", handed.alias("high"), F.col("least").alias("low"))
        .agg(F.max(F.col("moved") | F.col("beside")).alias("moved"))
        .select("group", "high", "low", "moved")
    )


def _schema(edges: DataFrame) -> str:
    """DDL of the result, with the type of the ids."""
    kind = edges.schema["left"].dataType.simpleString()
    return f"group int, vertex {kind}, component {kind}"
