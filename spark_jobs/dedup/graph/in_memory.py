"""Graph algorithms on the driver, over vertices 0..V-1: connected components, and the greedy kept set."""

from __future__ import annotations

import numpy as np

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int8Array, Int32Array, Int64Array


@compiled
def component_labels(left: Int32Array, right: Int32Array, vertex_count: int) -> Int64Array:
    """Label every vertex with the least vertex of its component.

    Union by the lesser root: the root of a tree is always its least vertex, so the root is the label. Paths are halved
    on the way up (Tarjan and van Leeuwen 1984), keeping E unions at O(E log V) in the worst case, near O(E) in
    practice.

        edges 4-3, 2-1, 3-1      parent  0 1 2 3 4  ->  0 1 2 3 3  ->  0 1 1 3 3  ->  0 1 1 1 3      roots 0 1 1 1 1

    Args:
        left: (E,) one end of each edge, in 0..vertex_count - 1.
        right: (E,) the other end.
        vertex_count: V.

    Returns:
        (V,) labels; a vertex without edges has its own.
    """
    parent = np.arange(vertex_count)
    for edge in range(left.size):
        root = left[edge]
        while parent[root] != root:
            parent[root] = parent[parent[root]]
            root = parent[root]
        other = right[edge]
        while parent[other] != other:
            parent[other] = parent[parent[other]]
            other = parent[other]
        if root < other:
            parent[other] = root
        else:
            parent[root] = other
    for vertex in range(vertex_count):  # a parent is never greater than its child, so one ascending pass is enough
        parent[vertex] = parent[parent[vertex]]
    return parent


UNDECIDED, KEPT, REMOVED = 0, 1, 2


@compiled
def kept_states(worse: Int32Array, better: Int32Array, vertex_count: int) -> Int8Array:
    """Decide which vertices the greedy algorithm keeps when it considers the best first.

    Edges lead from a worse end to a better one and close no cycle. A vertex is removed if and only if one of its better
    neighbours is kept. An acyclic graph has exactly one such set (its kernel: von Neumann and Morgenstern 1944), so any
    order of work gives the same answer. Kahn's order (1962) visits every edge once: O(V + E) time, 4 bytes an edge and
    25 bytes a vertex.

        c -> b -> a,  d -> b     a has no better neighbour: kept.  So b is removed.  So c and d have none left: kept.

    Args:
        worse: (E,) the end of each edge, removed if the other is kept, in 0..vertex_count - 1.
        better: (E,) the other end.
        vertex_count: V.

    Returns:
        (V,) `KEPT` or `REMOVED`; `UNDECIDED` only on a cycle and where a better neighbour is undecided.
    """
    start = np.zeros(vertex_count + 1, dtype=np.int64)
    waits_for = np.zeros(vertex_count, dtype=np.int64)
    for edge in range(worse.size):
        start[better[edge] + 1] += 1
        waits_for[worse[edge]] += 1
    for vertex in range(vertex_count):
        start[vertex + 1] += start[vertex]
    neighbours = np.empty(worse.size, worse.dtype)
    free = start[:-1].copy()
    for edge in range(worse.size):
        neighbours[free[better[edge]]] = worse[edge]
        free[better[edge]] += 1

    state = np.zeros(vertex_count, dtype=np.int8)
    queue = free  # as long as there are vertices; every one enters once, when it is decided
    last = 0
    for vertex in range(vertex_count):
        if waits_for[vertex] == 0:
            state[vertex] = KEPT
            queue[last] = vertex
            last += 1
    first = 0
    while first < last:
        vertex = queue[first]
        first += 1
        for position in range(start[vertex], start[vertex + 1]):
            neighbour = neighbours[position]
            if state[neighbour] != UNDECIDED:
                continue
            waits_for[neighbour] -= 1
            if state[vertex] == KEPT:
                state[neighbour] = REMOVED
            elif waits_for[neighbour] == 0:
                state[neighbour] = KEPT
            else:
                continue
            queue[last] = neighbour
            last += 1
    return state
