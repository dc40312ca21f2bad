"""Components in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from spark_jobs.arrays import Int64Array
from spark_jobs.dedup.graph.in_memory import component_labels


def by_scipy(left: Int64Array, right: Int64Array, vertex_count: int) -> Int64Array:
    """Least vertex of each vertex's component, by a foreign implementation."""
    graph = coo_array((np.ones(len(left)), (left, right)), shape=(vertex_count, vertex_count))
    count, labels = connected_components(graph, directed=False)
    least = np.full(count, vertex_count)
    np.minimum.at(least, labels, np.arange(vertex_count))
    return least[labels]


def edges_of(pairs: list[tuple[int, int]]) -> tuple[Int64Array, Int64Array]:
    """Pairs as two arrays."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_labels_are_those_of_scipy(case: tuple[int, list[tuple[int, int]]]) -> None:
    """Any graph, with loops and repeated edges."""
    vertex_count, pairs = case
    left, right = edges_of(pairs)
    assert component_labels(left, right, vertex_count).tolist() == by_scipy(left, right, vertex_count).tolist()


@pytest.mark.parametrize("descending", [False, True])
def test_a_chain_of_a_million_edges_has_one_component(descending: bool) -> None:
    """The deepest tree that edges in order can build takes no more than others."""
    place = np.arange(1_000_000)
    if descending:
        place = place[::-1].copy()
    assert not component_labels(place, place + 1, 1_000_001).any()


def test_vertices_without_edges_are_their_own_component() -> None:
    """No edge, no link."""
    nothing = np.zeros(0, dtype=np.int64)
    assert component_labels(nothing, nothing, 3).tolist() == [0, 1, 2]
    assert component_labels(nothing, nothing, 0).tolist() == []
