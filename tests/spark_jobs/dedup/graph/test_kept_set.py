"""The kept set of graphs on Spark and on the driver."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup.graph.kept_set import removed_vertices
from spark_jobs.exceptions import InputError
from tests.spark_jobs.dedup.graphs import Graph, Named, chain, graphs, hashed_id, masked, random_graph, ranked_id
from tests.tiers import needs_spark, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Edge = tuple[int, str, str]
ALL_ON_SPARK, ALL_ON_DRIVER = 0, 10**9


def find(
    spark: SparkSession, edges: Sequence[Edge], limit: int, partitions: int = 2, rounds: int = 20
) -> set[tuple[int, str]]:
    """Every (group, vertex) that is removed; a vertex has one row, whatever its groups."""
    frame = spark.createDataFrame(masked(edges), "groups int, worse string, better string").repartition(partitions)
    result = removed_vertices(frame, limit, rounds)
    assert result.dtypes == [("vertex", "string"), ("groups", "int")]
    rows = result.collect()
    assert len({row["vertex"] for row in rows}) == len(rows)
    assert all(row["groups"] for row in rows)
    return {(group, row["vertex"]) for row in rows for group in range(31) if row["groups"] >> group & 1}


def grouped(parts: Sequence[Graph], named: Named) -> list[Edge]:
    """Graphs as groups; the better end is the one whose number is less, whatever the ids."""
    return [(group, named(worse), named(better)) for group, graph in enumerate(parts) for worse, better in graph]


def one_after_another(parts: Sequence[Graph], named: Named) -> set[tuple[int, str]]:
    """Brute force: the least number first, removed if a lesser neighbour was kept."""
    removed = set()
    for group, graph in enumerate(parts):
        kept: set[int] = set()
        for vertex in sorted({end for edge in graph for end in edge}):
            if any(worse == vertex and better in kept for worse, better in graph):
                removed.add((group, named(vertex)))
            else:
                kept.add(vertex)
    return removed


@on_spark  # which has rounds and joins of its own here, Sail solves in its process
def test_both_paths_remove_what_one_after_another_removes(spark: SparkSession) -> None:
    """Graphs of many shapes at once, each a group of its own with either ids, which have no say in the order."""
    parts = graphs()
    expected = one_after_another(parts, ranked_id)
    expected |= {(group + len(parts), name) for group, name in one_after_another(parts, hashed_id)}
    edges = grouped(parts, ranked_id)
    edges += [(group + len(parts), *ends) for group, *ends in grouped(parts, hashed_id)]
    assert len(expected) > 200
    assert find(spark, edges, ALL_ON_DRIVER) == expected
    assert find(spark, edges, ALL_ON_SPARK) == expected


@pytest.mark.parametrize("limit", [pytest.param(ALL_ON_SPARK, marks=pytest.mark.nightly), 60])
def test_edges_of_many_groups_are_removed_in_each_as_if_it_were_alone(spark: SparkSession, limit: int) -> None:
    """31 nested graphs, as thresholds make them: an edge is in all groups up to one, the last of which has few."""
    draw = random.Random(5)
    edges = {edge: draw.randint(0, 30) for edge in random_graph(11, 40, 150)}
    parts = [[edge for edge, last in edges.items() if group <= last] for group in range(31)]
    expected = one_after_another(parts, hashed_id)
    assert len({frozenset(vertex for group, vertex in expected if group == number) for number in range(31)}) > 10
    assert find(spark, grouped(parts, hashed_id), limit) == expected


def test_a_vertex_that_goes_in_different_rounds_has_one_row(spark: SparkSession) -> None:
    """In group 0 it waits for nobody but the best; in group 30 for a chain; in group 7 it stays."""
    parts: list[Graph] = [[] for _ in range(31)]
    parts[0], parts[7], parts[30] = [(5, 0)], [(5, 4), (4, 3)], [(5, 4), (4, 3), (3, 2)]
    edges = grouped(parts, ranked_id)
    expected = one_after_another(parts, ranked_id)
    assert {group for group, vertex in expected if vertex == ranked_id(5)} == {0, 30}
    assert find(spark, edges, 1) == expected


@pytest.mark.nightly
@needs_spark
def test_the_driver_finishes_what_rounds_leave(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """A chain in which every vertex is a class of its own loses two edges a round: the driver takes the rest."""
    parts = [chain(30)]
    with caplog.at_level(logging.INFO):
        found = find(spark, grouped(parts, ranked_id), 25, rounds=1)
    assert found == one_after_another(parts, ranked_id)
    assert [record.message.split(": ", 1)[1] for record in caplog.records if "kept set: round" in record.message] == [
        "round 1: 27 edges left",
        "round 2: 25 edges left",
    ]


@needs_spark
def test_a_rest_too_large_for_the_driver_goes_on_in_rounds_with_a_warning(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After max_rounds the log says what to do; what rounds removed is merged on the way, and nothing is lost."""
    monkeypatch.setattr("spark_jobs.dedup.graph.kept_set._MERGED_ROUNDS", 2)
    parts = [chain(12)]
    with caplog.at_level(logging.WARNING):
        assert find(spark, grouped(parts, hashed_id), ALL_ON_SPARK, rounds=4) == one_after_another(parts, hashed_id)
    warnings = [record.message for record in caplog.records if "raise driver_edges" in record.message]
    assert len(warnings) == 2
    assert "3 edges left after 4 rounds, the driver takes 0" in warnings[0]


@pytest.mark.parametrize("limit", [ALL_ON_SPARK, ALL_ON_DRIVER])
def test_a_cycle_is_an_error(spark: SparkSession, limit: int) -> None:
    """Nobody comes first: the message says so, instead of rounds without end."""
    edges = [(0, "b", "a"), (0, "c", "d"), (0, "d", "e"), (0, "e", "c")]
    with pytest.raises(InputError, match="wait for each other in a cycle"):
        find(spark, edges, limit)


@pytest.mark.parametrize("limit", [ALL_ON_SPARK, ALL_ON_DRIVER])
def test_a_cycle_over_two_groups_is_none(spark: SparkSession, limit: int) -> None:
    """Each group lacks another edge of a ring of six. The first round leaves every edge, in one group or the other."""
    rows = [({5: 0b10, 2: 0b01}.get(at, 0b11), at, (at + 1) % 6) for at in range(6)]
    found = removed_vertices(spark.createDataFrame(rows, "groups int, worse bigint, better bigint"), limit)
    assert {row["vertex"]: row["groups"] for row in found.collect()} == {4: 1, 2: 1, 0: 1, 1: 2, 5: 2, 3: 2}


@pytest.mark.parametrize("limit", [ALL_ON_SPARK, ALL_ON_DRIVER])
def test_no_edge_removes_nobody(spark: SparkSession, limit: int) -> None:
    """Nothing in, nothing out."""
    assert find(spark, [], limit) == set()


@pytest.mark.nightly
def test_a_chain_of_100_000_edges_loses_every_second_vertex(spark: SparkSession) -> None:
    """The driver path, with rows made by Spark: the worst order there is."""
    from pyspark.sql import functions as F

    edges = spark.range(100_000).select(
        F.lit(1).alias("groups"), (F.col("id") + 1).alias("worse"), F.col("id").alias("better")
    )
    found = removed_vertices(edges, ALL_ON_DRIVER)
    assert found.agg(F.count("*"), F.count_if(F.col("vertex") % 2 == 1)).first() == (50_000, 50_000)


@pytest.mark.nightly
def test_few_rounds_for_a_chain_in_random_order(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """10,000 documents in a chain, ordered by hash: about one edge in twenty is left by each round."""
    parts = [chain(10_001, seed=3)]
    with caplog.at_level(logging.INFO):
        found = find(spark, grouped(parts, ranked_id), ALL_ON_SPARK)
    assert sum("kept set: round" in record.message for record in caplog.records) <= 6
    assert found == find(spark, grouped(parts, ranked_id), ALL_ON_DRIVER)


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [ALL_ON_SPARK, ALL_ON_DRIVER])
def test_removals_are_identical_for_1_2_and_7_partitions(spark: SparkSession, limit: int) -> None:
    """Neither the number of partitions nor the order of edges shows."""
    edges = grouped([graphs()[-2], graphs()[-1]], hashed_id)
    plain = find(spark, edges, limit)
    for partitions in (1, 7):
        assert find(spark, edges[::-1], limit, partitions) == plain
