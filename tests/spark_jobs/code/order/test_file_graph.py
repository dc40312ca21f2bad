"""The graph kernels, against slow versions that look at everything."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.code.order.file_graph import (
    depth_first_positions,
    directory_positions,
    greedy_positions,
    reachable,
    strong_components,
    topological_positions,
)
from tests.spark_jobs.code.graphs import Edge, closure, columns, graphs, greedy, strongest


def simple(edges: list[Edge]) -> list[Edge]:
    """Sorted edges, each pair once, without loops, as the kernels are given them."""
    return sorted((a, b, s) for (a, b), s in strongest(edges).items())


@given(graphs())
def test_components_are_the_mutually_reachable_and_come_after_what_they_need(case: tuple[int, list[Edge]]) -> None:
    """Against the transitive closure; numbers are dense."""
    count, edges = case
    needs, needed, _ = columns(simple(edges))
    label = strong_components(needs, needed, count)
    reach = closure(count, set(strongest(edges)))
    assert np.array_equal(label[:, None] == label[None, :], reach & reach.T)
    assert (label[needs] >= label[needed]).all()
    assert set(label.tolist()) == set(range(int(label.max()) + 1))


@given(graphs())
def test_greedy_places_are_those_of_the_definition(case: tuple[int, list[Edge]]) -> None:
    """Round by round, over all vertices that are left."""
    count, edges = case
    needs, needed, strength = columns(simple(edges))
    places = greedy_positions(needs, needed, 2**strength, count)
    assert np.argsort(places).tolist() == greedy(set(range(count)), strongest(edges))


@given(graphs())
def test_depth_first_is_the_post_order_of_recursion(case: tuple[int, list[Edge]]) -> None:
    """The textbook's recursive search, neighbours by number."""
    count, edges = case
    pairs = sorted(strongest(edges))
    found: list[int] = []
    seen: set[int] = set()

    def visit(vertex: int) -> None:
        seen.add(vertex)
        for needs, needed in pairs:
            if needs == vertex and needed not in seen:
                visit(needed)
        found.append(vertex)

    for root in range(count):
        if root not in seen:
            visit(root)
    needs, needed, _ = columns(simple(edges))
    assert np.argsort(depth_first_positions(needs, needed, count)).tolist() == found


@given(graphs(), st.data())
def test_reachable_is_the_closure_of_what_is_marked(case: tuple[int, list[Edge]], data: st.DataObject) -> None:
    """Whatever is marked."""
    count, edges = case
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    needs, needed, _ = columns(simple(edges))
    assert np.array_equal(reachable(needs, needed, marked), marked @ closure(count, set(strongest(edges))))


@given(graphs(), st.data())
def test_topological_takes_the_least_priority_that_is_ready(case: tuple[int, list[Edge]], data: st.DataObject) -> None:
    """On an acyclic graph: edges lead from higher to lower numbers."""
    count, edges = case
    downward = simple([(max(a, b), min(a, b), s) for a, b, s in edges])
    priority = np.array(data.draw(st.permutations(range(count))))
    needs, needed, _ = columns(downward)
    found: list[int] = []
    while len(found) < count:
        ready = [v for v in range(count) if v not in found and all(b in found for a, b, _ in downward if a == v)]
        found.append(min(ready, key=lambda v: priority[v]))
    assert np.argsort(topological_positions(needs, needed, priority)).tolist() == found


@given(graphs(), st.data())
def test_neighbourly_stays_at_home_while_something_there_is_ready(
    case: tuple[int, list[Edge]], data: st.DataObject
) -> None:
    """Next is the least ready vertex that begins where the last one ended, else the least ready one."""
    count, edges = case
    downward = simple([(max(a, b), min(a, b), s) for a, b, s in edges])
    homes = st.lists(st.integers(0, 2), min_size=count, max_size=count)
    first, last = np.array(data.draw(homes)), np.array(data.draw(homes))
    needs, needed, _ = columns(downward)
    found: list[int] = []
    while len(found) < count:
        ready = [v for v in range(count) if v not in found and all(b in found for a, b, _ in downward if a == v)]
        near = [v for v in ready if found and first[v] == last[found[-1]]]
        found.append(min(near or ready))
    assert np.argsort(directory_positions(needs, needed, first, last, 3)).tolist() == found


def test_a_chain_of_200000_files_neither_recurses_nor_overflows() -> None:
    """Each file needs the next one: the deepest graph there is."""
    count = 200_000
    needs, needed = np.arange(count - 1), np.arange(1, count)
    assert strong_components(needs, needed, count).tolist() == list(range(count))[::-1]
    assert depth_first_positions(needs, needed, count).tolist() == list(range(count))[::-1]
