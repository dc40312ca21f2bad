"""Random graphs of files for tests, and slow, obvious versions of what the kernels compute."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Int64Array = npt.NDArray[np.int64]
Edge = tuple[int, int, int]
Edges = dict[tuple[int, int], int]


def graphs(most_vertices: int = 12) -> st.SearchStrategy[tuple[int, list[Edge]]]:
    """A number of vertices, and edges (needs, needed, strength 0..3) with loops and repetitions."""

    def edges(count: int) -> st.SearchStrategy[tuple[int, list[Edge]]]:
        end = st.integers(0, count - 1)
        return st.tuples(st.just(count), st.lists(st.tuples(end, end, st.integers(0, 3)), max_size=4 * count))

    return st.integers(1, most_vertices).flatmap(edges)


def columns(edges: list[Edge]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Edges as three arrays."""
    table = np.array(edges, dtype=np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def strongest(edges: list[Edge]) -> Edges:
    """Strength by pair, the strongest of each, without loops."""
    found: Edges = {}
    for needs, needed, strength in edges:
        if needs != needed:
            found[needs, needed] = max(strength, found.get((needs, needed), 0))
    return found


def closure(count: int, pairs: set[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """(V, V) whether the first needs the second, directly or through others, itself included (Warshall)."""
    reach = np.eye(count, dtype=np.bool_)
    for needs, needed in pairs:
        reach[needs, needed] = True
    for middle in range(count):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


def components(vertices: set[int], pairs: set[tuple[int, int]], count: int) -> list[frozenset[int]]:
    """Strongly connected components among some vertices, by least member."""
    reach = closure(count, {(a, b) for a, b in pairs if a in vertices and b in vertices})
    found = {frozenset(v for v in vertices if reach[u, v] and reach[v, u]) for u in vertices}
    return sorted(found, key=min)


def greedy(vertices: set[int], edges: Edges) -> list[int]:
    """Eades, Lin and Smyth's order with weights 2^strength, by looking at every vertex in every round."""
    front: list[int] = []
    back: list[int] = []
    left = set(vertices)
    while left:
        inside = {pair: s for pair, s in edges.items() if left.issuperset(pair)}
        needs_nothing = [v for v in sorted(left) if not any(a == v for a, _ in inside)]
        unused = [v for v in sorted(left) if not any(b == v for _, b in inside)]
        if needs_nothing:
            front.append(needs_nothing[0])
            left.discard(needs_nothing[0])
        elif unused:
            back.append(unused[0])
            left.discard(unused[0])
        else:

            def surplus(vertex: int, inside: Edges = inside) -> int:
                return sum((2**s) * ((b == vertex) - (a == vertex)) for (a, b), s in inside.items())

            best = min(sorted(left), key=lambda v: (-surplus(v), v))
            front.append(best)
            left.discard(best)
    return front + back[::-1]


def arrange(vertices: set[int], edges: Edges, count: int) -> list[int]:
    """One component in order: greed over all edges, then without the weakest strength that is there, and so on."""
    if len(vertices) == 1:
        return list(vertices)
    inside = {pair: s for pair, s in edges.items() if vertices.issuperset(pair)}
    order = greedy(vertices, inside)
    for weakest in sorted(set(inside.values())):
        kept = {pair: s for pair, s in inside.items() if s > weakest}
        parts = components(vertices, set(kept), count)
        if len(parts) > 1:
            return [v for part in _ready_first(parts, kept, order) for v in arrange(set(part), edges, count)]
    raise AssertionError("without any edge every vertex is a part of its own")


def _ready_first(parts: list[frozenset[int]], kept: Edges, order: list[int]) -> list[frozenset[int]]:
    """Parts, dependencies first; of those that are ready the one with the foremost member."""
    found: list[frozenset[int]] = []
    while len(found) < len(parts):
        done = {v for part in found for v in part}
        ready = [p for p in parts if p not in found and all(b in p or b in done for a, b in kept if a in p)]
        found.append(min(ready, key=lambda part: min(order.index(v) for v in part)))
    return found
