"""Components of graphs on Spark and on the driver."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup.graph.connected_components import connected_components
from tests.spark_jobs.dedup.graphs import Graph, chain, graphs, hashed_id, masked, random_graph
from tests.tiers import needs_spark, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Found = dict[tuple[int, str | int], str | int]
Edge = tuple[int, str | int, str | int]
ALL_ON_SPARK, ALL_ON_DRIVER = 0, 10**9


def find(spark: SparkSession, edges: Sequence[Edge], limit: int, kind: str = "string", partitions: int = 2) -> Found:
    """Component of every (group, vertex); each has as many vertices as it says."""
    frame = spark.createDataFrame(masked(edges), f"groups int, left {kind}, right {kind}").repartition(partitions)
    result = connected_components(frame, limit)
    assert result.columns == ["group", "vertex", "component", "vertex_count"]
    rows = result.collect()
    found = {(row["group"], row["vertex"]): row["component"] for row in rows}
    assert len(found) == len(rows)
    sizes = Counter((row["group"], row["component"]) for row in rows)
    assert all(row["vertex_count"] == sizes[row["group"], row["component"]] for row in rows)
    return found


def grouped(parts: Sequence[Graph]) -> list[Edge]:
    """Graphs of many shapes with ids of documents, each a group."""
    return [(group, hashed_id(a), hashed_id(b)) for group, graph in enumerate(parts) for a, b in graph]


def by_flooding(edges: Sequence[Edge]) -> Found:
    """Least vertex within reach, by passing it on until nothing changes."""
    found: Found = {(group, end): end for group, *ends in edges for end in ends}
    changed = True
    while changed:
        changed = False
        for group, one, other in edges:
            least = min(found[group, one], found[group, other])  # type: ignore[type-var]
            for end in (one, other):
                changed |= found[group, end] != least
                found[group, end] = least
    return found


@on_spark  # which has rounds and joins of its own here, Sail solves in its process
def test_both_paths_give_what_flooding_gives(spark: SparkSession) -> None:
    """Graphs of many shapes at once, each a group of its own, ids in no order; directions and loops say nothing."""
    edges: list[Edge] = [*grouped(graphs()), (20, "b", "a"), (20, "a", "b"), (20, "a", "b")]
    expected = by_flooding(edges)
    edges.append((20, "c", "c"))
    assert find(spark, edges, ALL_ON_DRIVER) == expected
    assert find(spark, edges, ALL_ON_SPARK) == expected


@needs_spark
def test_the_driver_takes_over_when_few_edges_are_left(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Rounds never add edges; what they leave has the same components."""
    edges = [(group, f"{group}-{one}", f"{group}-{other}") for group, one, other in grouped(graphs())]
    distinct = len(set(edges))
    with caplog.at_level(logging.INFO):
        assert find(spark, edges, distinct - 1) == by_flooding(edges)
    rounds = [record for record in caplog.records if "connected components: round" in record.message]
    assert len(rounds) == 1
    assert "moved" in rounds[0].message
    left = int(rounds[0].message.split(": ")[2].split()[0])
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert find(spark, edges, left) == by_flooding(edges)
    assert sum("connected components: round" in record.message for record in caplog.records) == 1


def test_numbers_are_ordered_as_numbers(spark: SparkSession) -> None:
    """9 comes before 10, and -1 before both, on either path."""
    edges: list[Edge] = [(0, 10, 9), (0, 10, 11), (1, -1, 9)]
    expected = {(0, 9): 9, (0, 10): 9, (0, 11): 9, (1, -1): -1, (1, 9): -1}
    for limit in (ALL_ON_SPARK, ALL_ON_DRIVER):
        assert find(spark, edges, limit, "long") == expected


def test_a_graph_without_edges_has_no_components(spark: SparkSession) -> None:
    """Nothing in, nothing out."""
    for limit in (ALL_ON_SPARK, ALL_ON_DRIVER):
        assert find(spark, [], limit) == {}


@pytest.mark.nightly
def test_a_chain_of_100_000_edges_is_one_component(spark: SparkSession) -> None:
    """The driver path, with rows made by Spark."""
    from pyspark.sql import functions as F

    edges = spark.range(100_000).select(
        F.lit(1).alias("groups"), F.col("id").alias("left"), (F.col("id") + 1).alias("right")
    )
    found = connected_components(edges, ALL_ON_DRIVER)
    assert found.agg(F.count("*"), F.max("component")).first() == (100_001, 0)


@pytest.mark.nightly
@needs_spark
def test_a_chain_takes_logarithmic_rounds(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """A chain in order, the worst case: one round per doubling and one that proves the end."""
    with caplog.at_level(logging.INFO):
        found = find(spark, [(0, one, other) for one, other in chain(129)], ALL_ON_SPARK, "long")
    assert set(found.values()) == {0}
    rounds = [record for record in caplog.records if "connected components: round" in record.message]
    assert len(rounds) <= 9
    assert [record.message.endswith("at rest") for record in rounds] == [False] * (len(rounds) - 1) + [True]


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [ALL_ON_SPARK, ALL_ON_DRIVER])
def test_components_are_identical_for_1_2_and_7_partitions(spark: SparkSession, limit: int) -> None:
    """Neither the number of partitions nor the order of edges shows."""
    edges = grouped([random_graph(7, 12, 20), [(9, leaf) for leaf in range(9)]])
    plain = find(spark, edges, limit)
    for partitions in (1, 7):
        assert find(spark, edges[::-1], limit, partitions=partitions) == plain
