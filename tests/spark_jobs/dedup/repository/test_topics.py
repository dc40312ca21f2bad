"""Communities of a weighted graph."""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.dedup.repository.topics import communities

Edges = list[tuple[int, int]]


def found(edges: Edges, vertex_count: int, weights: list[int] | None = None) -> list[int]:
    """Communities of a list of edges."""
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    given_weights = np.array([100] * len(edges) if weights is None else weights, dtype=np.int64)
    labels = communities(ends[:, 0].copy(), ends[:, 1].copy(), given_weights, vertex_count)
    return [int(label) for label in labels]


def clique(start: int, size: int) -> Edges:
    """All edges among consecutive vertices."""
    return list(itertools.combinations(range(start, start + size), 2))


def test_two_cliques_and_a_bridge_are_two_communities() -> None:
    """The bridge does not carry the label of the first over, however the vertices are numbered."""
    edges = [*clique(0, 6), *clique(6, 6), (5, 6)]
    assert found(edges, 12) == [0] * 6 + [6] * 6
    for seed in range(20):
        order = random.Random(seed).sample(range(12), 12)
        labels = found([(order[one], order[other]) for one, other in edges], 12)
        halves = [{labels[order[vertex]] for vertex in half} for half in (range(6), range(6, 12))]
        assert halves == [{min(order[:6])}, {min(order[6:])}]


def test_a_strong_link_decides_between_communities() -> None:
    """A vertex with one neighbour in each of two cliques follows the heavier edge."""
    edges = [*clique(0, 5), *clique(5, 5), (0, 10), (5, 10)]
    for heavy, community in ((-2, 0), (-1, 5)):
        weights = [100] * len(edges)
        weights[heavy] = 300
        assert found(edges, 11, weights)[10] == community


def test_no_edges_no_communities() -> None:
    """Every vertex is alone."""
    assert found([], 3) == [0, 1, 2]


@given(st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)).filter(lambda edge: edge[0] < edge[1])), st.randoms())
def test_communities_are_linked_and_do_not_depend_on_the_order_of_edges(
    edges: set[tuple[int, int]], draw: random.Random
) -> None:
    """A community is named by its least vertex, and lies inside a component of the graph."""
    listed = sorted(edges)
    labels = found(listed, 16)
    shuffled = [edge if draw.random() < 0.5 else edge[::-1] for edge in draw.sample(listed, len(listed))]
    assert found(shuffled, 16) == labels
    component = list(range(16))
    for _ in range(16):
        for one, other in listed:
            component[one] = component[other] = min(component[one], component[other])
    assert all(label <= vertex and labels[label] == label for vertex, label in enumerate(labels))
    assert all(component[label] == component[vertex] for vertex, label in enumerate(labels))
