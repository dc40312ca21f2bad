"""The kept set of graphs of any size: a maximal independent set by a given order, computed in parallel rounds.

Every edge leads from a worse document to a better one. Considered one after another, the best first, a document is kept
unless a better neighbour was kept. Each round decides many documents at once, with the same result, because the set is
unique (see `in_memory.kept_states`):

    1. a vertex that is the worse end of no edge is kept
    2. its worse neighbours are removed
    3. edges with a removed end are dropped

For a random order (a hash of the id, also after a few coarse classes) there are O(log n) rounds
(Fischer and Noever 2018, "Tight Analysis of Parallel Randomized Greedy MIS"), and nearly all edges are dropped in the
first two. An order that follows the graph, such as a chain of versions ranked by date, decides one vertex of every
chain in a round; so the driver finishes the rest in one pass as soon as it has at most `driver_edge_limit` edges. A
larger rest takes more rounds, however large its components are: that always ends, but may take half as many rounds as
its longest chain has vertices. After `max_rounds` every round logs a warning; raise the limit then (about 200 bytes an
edge of the driver's memory).

Graphs of several groups (one for each threshold) are solved together: an edge has one row, and bit g of its `groups`
is set if it is an edge of group g. A round is computed for all groups at once, bit by bit. A vertex *waits* in a group
where it has a better neighbour:

    edges          b -> a of 0 and 1,  c -> b of 0 and 1,  d -> c of 1
    waiting        b 0, 1    c 0, 1    d 1
    removed        b 0, 1                           all groups of b -> a, since a waits nowhere
    left           d -> c of 1                      next round: c waits nowhere, d is removed in 1

Sail's process decides every graph in one such pass, from edges in mapped files. On Spark no task holds a component: a
round has one row for a vertex, and joins on a vertex of many edges may be split.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Int32Array
from spark_jobs.dedup.graph.dense_graph import DenseGraph, dense_graph, from_driver
from spark_jobs.dedup.graph.threshold_pairs import without
from spark_jobs.exceptions import InputError
from spark_jobs.lake.engine.embedded import is_embedded, keep_batches
from spark_jobs.lake.engine.spooled_rows import mapped_rows
from spark_jobs.lake.engine.united import united
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F

_log = logging.getLogger(__name__)
_MERGED_ROUNDS = 32  # rounds after which their results become one DataFrame, so that the plan stays short


def removed_vertices(edges: DataFrame, driver_edge_limit: int, max_rounds: int = 20) -> DataFrame:
    """Find the removed vertices: those with a kept better neighbour.

    Args:
        edges: rows (groups int, worse, better), no nulls; bit g of `groups`, 0 to 30, is set if the edge is in group g.
            The ends are both strings or both longs, and edges may repeat. Every group is a graph without cycles of its
            own.
        driver_edge_limit: most edges to finish in the driver's memory; 0 for none.
        max_rounds: each round from this one on logs a warning with advice on the order.

    Returns:
        Rows (vertex, groups), one for each vertex removed in any group, with the bits of these groups.

    Raises:
        InputError: the edges of a group close a cycle.
    """
    rest = edges.select("groups", "worse", "better").where("groups <> 0")
    if is_embedded(edges):
        with mapped_rows(rest) as rows:
            return keep_batches(edges.sparkSession, removed_table(rows).to_batches(), _ddl(edges))
    rest = checkpointed(rest)
    edge_count, left = _left(rest)
    removed: list[DataFrame] = []
    rounds = 0
    while edge_count > driver_edge_limit:
        now_removed, rest = _round(rest)
        before, (edge_count, left) = left, _left(rest)
        rounds += 1
        if left == before:
            raise cycle(f"{edge_count} edges")
        removed.append(now_removed)
        if len(removed) == _MERGED_ROUNDS:
            removed = [checkpointed(_merged(removed))]
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
        removed.append(from_driver(edges.sparkSession, removed_table(rest.toArrow()), _ddl(edges)))
    return _merged(removed)


def _ddl(edges: DataFrame) -> str:
    """Of rows (vertex, groups)."""
    return f"vertex {edges.schema['worse'].dataType.simpleString()}, groups int"


def removed_table(edges: pa.Table) -> pa.Table:
    """Find the removed vertices in memory: rows (groups, worse, better) to rows (vertex, groups).

    Raises:
        InputError: the edges of a group close a cycle.
    """
    graph = dense_graph(edges)
    groups = removed_groups(graph)
    removed = pa.table({"vertex": graph.ids, "groups": groups}).filter(pa.array(groups != 0))
    return removed.set_column(0, "vertex", removed["vertex"].cast(edges.schema.field(1).type))


def removed_groups(graph: DenseGraph) -> Int32Array:
    """(V,) bits of the groups removing each vertex; edges lead from the worse end to the better one.

    Raises:
        InputError: the edges of a group close a cycle.
    """
    from spark_jobs.dedup.graph.in_memory import REMOVED, UNDECIDED, kept_states

    groups = np.zeros(graph.vertex_count, np.int32)
    for group, worse, better in graph.by_group():
        state = kept_states(worse, better, graph.vertex_count)
        undecided = int((state == UNDECIDED).sum())
        if undecided:
            raise cycle(f"{undecided} vertices")
        groups |= (state == REMOVED).astype(np.int32) << group
    return groups


def _round(edges: DataFrame) -> tuple[DataFrame, DataFrame]:
    """One round: rows (vertex, groups) of the vertices removed by it, and the remaining edges."""
    waiting = edges.groupBy(F.col("worse").alias("better")).agg(F.bit_or("groups").alias("waiting"))
    free = without(F.col("groups"), F.col("waiting"))
    removed = checkpointed(
        edges.join(waiting, "better", "left")
        .groupBy(F.col("worse").alias("vertex"))
        .agg(F.bit_or(free).alias("groups"))
        .where("groups <> 0")
    )
    rest = edges
    for end in ("worse", "better"):
        gone = removed.select(F.col("vertex").alias(end), F.col("groups").alias("gone"))
        left = without(F.col("groups"), F.col("gone"))
        rest = rest.join(gone, end, "left").select(left.alias("groups"), "worse", "better").where("groups <> 0")
    return removed, checkpointed(rest)


def _left(edges: DataFrame) -> tuple[int, int]:
    """The number of edges, and their number when each counts once in every group."""
    sums = edges.agg(F.count("*"), F.coalesce(F.sum(F.bit_count("groups")), F.lit(0))).first()
    return (int(sums[0]), int(sums[1])) if sums else (0, 0)


def _merged(removed: Sequence[DataFrame]) -> DataFrame:
    """The vertices removed by several rounds, one row each: rounds may differ between its groups."""
    if len(removed) == 1:
        return removed[0]
    return united(removed).groupBy("vertex").agg(F.bit_or("groups").alias("groups"))


def cycle(what: str) -> InputError:
    """The error about edges in a cycle."""
    return InputError(
        f"kept set: {what} wait for each other in a cycle, so nobody comes first; "
        "every edge must lead to the end that is better by one order of all vertices"
    )
