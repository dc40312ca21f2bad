"""The kept set of graphs of any size: the complement of the greedy vertex cover, found in parallel rounds.

Every edge leads from a worse document to a better one. Considered one after another, the best first, a document is kept
unless a better neighbour was kept: what is kept is a maximal independent set. Each round decides many at once, with the
same result, since the set is the only one of its kind (see `greedy_cover`):

    1. a vertex that is nobody's worse end waits for nobody: it is kept
    2. its worse neighbours are removed
    3. edges with a decided end go

By an order as good as random (a hash of the id, also behind a few coarse classes) the longest wait is O(log n) rounds
(Fischer and Noever 2018, "Tight Analysis of Parallel Randomized Greedy MIS"), and nearly all edges go in the first two.
An order that follows the graph, such as a chain of versions ranked by date, decides one vertex of every chain a round:
so the driver finishes the rest in one pass as soon as that has at most `driver_edge_limit` edges. A larger rest goes on
in rounds until it has, however large its components are: that always ends, but may take half as many rounds as its
longest chain has vertices. After `max_rounds` every round logs a warning; raise the limit then (about 200 bytes an edge
of the driver's memory).

No task holds a component: what a round knows of a vertex is one row, and joins on a vertex of many edges may be split.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from spark_jobs.dedup.dense_graph import cut, dense_graph, vertex_table
from spark_jobs.exceptions import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_MERGED_ROUNDS = 32


def removed_vertices(edges: DataFrame, driver_edge_limit: int, max_rounds: int = 20) -> DataFrame:
    """Find who is removed: the vertices that have a kept better neighbour.

    Args:
        edges: rows (group int, worse, better), no nulls; the ends are both strings or both longs, and edges may repeat.
            Every group is a graph of its own, and none has a cycle.
        driver_edge_limit: most edges that are finished in the driver's memory; 0 for none.
        max_rounds: rounds that any reasonable order needs less than; each one above logs a warning with the mend.

    Returns:
        Distinct rows (group, vertex).

    Raises:
        InputError: the edges of a group close a cycle.
    """
    rest = cut(edges.select("group", "worse", "better"))
    edge_count = rest.count()
    removed: list[DataFrame] = []
    rounds = 0
    while edge_count > driver_edge_limit:
        now_removed, rest = _round(rest)
        before, edge_count = edge_count, rest.count()
        rounds += 1
        if edge_count == before:
            raise _cycle(f"{edge_count} edges")
        removed.append(now_removed)
        if len(removed) == _MERGED_ROUNDS:
            removed = [cut(functools.reduce(_union, removed).repartition("group", "vertex"))]
        _log.info("kept set: round %d: %d edges left", rounds, edge_count)
        if rounds >= max_rounds and edge_count > driver_edge_limit:
            _log.warning(
                "kept set: %d edges left after %d rounds, the driver takes %d: the order follows the graph; "
                "order by fewer classes, or raise driver_edges",
                edge_count,
                rounds,
                driver_edge_limit,
            )
    if edge_count or not removed:
        kind = edges.schema["worse"].dataType.simpleString()
        removed.append(edges.sparkSession.createDataFrame(removed_table(rest.toArrow()), f"group int, vertex {kind}"))
    return functools.reduce(_union, removed)


def removed_table(edges: pa.Table) -> pa.Table:
    """The same in memory: from rows (group, worse, better) to rows (group, vertex).

    Raises:
        InputError: the edges of a group close a cycle.
    """
    graph = dense_graph(edges)
    from spark_jobs.dedup.greedy_cover import REMOVED, UNDECIDED, decide

    state = decide(graph.first, graph.second, graph.vertex_count)
    undecided = int((state == UNDECIDED).sum())
    if undecided:
        raise _cycle(f"{undecided} vertices")
    return vertex_table(graph, state == REMOVED)


def _round(edges: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Decide what waits for nobody: (group, vertex) of who is removed, and the edges that are left."""
    from pyspark.sql import functions as F

    waiting = edges.select("group", F.col("worse").alias("better")).distinct()
    removed = cut(
        edges.join(waiting, ["group", "better"], "left_anti").select("group", F.col("worse").alias("vertex")).distinct()
    )
    rest = edges.join(removed.withColumnRenamed("vertex", "worse"), ["group", "worse"], "left_anti")
    rest = rest.join(removed.withColumnRenamed("vertex", "better"), ["group", "better"], "left_anti")
    return removed, cut(rest.select("group", "worse", "better"))


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other)


def _cycle(what: str) -> InputError:
    return InputError(
        f"kept set: {what} wait for each other in a cycle, so nobody comes first; "
        "every edge must lead to the end that is better by one order of all vertices"
    )
