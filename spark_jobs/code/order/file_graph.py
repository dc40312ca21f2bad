"""Compiled graph algorithms on integer arrays: components, greedy feedback order and topological orders.

Vertices are 0..V-1. An edge leads from `needs` to `needed`, and an order is good where the needed end comes first.
Nothing here recurses, since a repository may hold one chain of 200,000 files.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import Int64Array

MAX_VERTICES = 1 << 24  # a key of the heap holds a vertex in 24 bits and a difference of weights in 36
_DELTA_LIMIT = 1 << 35
_NONE = -1


@inner
def _adjacency(source: Int64Array, target: Int64Array, vertex_count: int) -> tuple[Int64Array, Int64Array]:
    """Adjacency lists: (E,) targets grouped by source, and (V + 1,) where each source's group starts."""
    start = np.zeros(vertex_count + 1, dtype=np.int64)
    for edge in range(source.size):
        start[source[edge] + 1] += 1
    for vertex in range(vertex_count):
        start[vertex + 1] += start[vertex]
    free = start[:-1].copy()
    targets = np.empty(source.size, dtype=np.int64)
    for edge in range(source.size):
        targets[free[source[edge]]] = target[edge]
        free[source[edge]] += 1
    return start, targets


@compiled
def _push(heap: Int64Array, size: int, value: int) -> int:
    """Add a value to a binary min-heap; the new size."""
    position = size
    while position > 0:
        parent = (position - 1) >> 1
        if heap[parent] <= value:
            break
        heap[position] = heap[parent]
        position = parent
    heap[position] = value
    return size + 1


@inner
def _pop(heap: Int64Array, size: int) -> int:
    """Remove and return the least value of a binary heap; the caller decrements the size."""
    least: int = heap[0]
    size -= 1
    value = heap[size]
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[position] = heap[child]
        position = child
    heap[position] = value
    return least


@compiled
def strong_components(needs: Int64Array, needed: Int64Array, vertex_count: int) -> Int64Array:
    """Label strongly connected components so that a component comes after all its needs.

    Source: Tarjan 1972, "Depth-first search and linear graph algorithms", with a stack of its own. Searches start at
    the least vertex and follow edges as they are sorted, so the labels are a function of the sorted edges.

    Args:
        needs: (E,) the depending vertex.
        needed: (E,) vertex it depends on.
        vertex_count: V.

    Returns:
        (V,) number of each vertex's component, from 0, dependencies first.
    """
    start, targets = _adjacency(needs, needed, vertex_count)
    label = np.full(vertex_count, _NONE, dtype=np.int64)
    number = np.full(vertex_count, _NONE, dtype=np.int64)
    low = np.zeros(vertex_count, dtype=np.int64)
    next_edge = start[:-1].copy()
    path = np.empty(vertex_count, dtype=np.int64)
    open_vertices = np.empty(vertex_count, dtype=np.int64)
    open_count, visited, component_count = 0, 0, 0
    for root in range(vertex_count):
        if number[root] != _NONE:
            continue
        depth = 0
        path[0] = root
        number[root] = low[root] = visited
        visited += 1
        open_vertices[open_count] = root
        open_count += 1
        while depth >= 0:
            vertex = path[depth]
            if next_edge[vertex] < start[vertex + 1]:
                target = targets[next_edge[vertex]]
                next_edge[vertex] += 1
                if number[target] == _NONE:
                    number[target] = low[target] = visited
                    visited += 1
                    open_vertices[open_count] = target
                    open_count += 1
                    depth += 1
                    path[depth] = target
                elif label[target] == _NONE:  # of a component that is still open; a closed one is no way back
                    low[vertex] = min(low[vertex], number[target])
                continue
            if low[vertex] == number[vertex]:
                while True:
                    open_count -= 1
                    member = open_vertices[open_count]
                    label[member] = component_count
                    if member == vertex:
                        break
                component_count += 1
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[vertex])
    return label


@compiled
def depth_first_positions(needs: Int64Array, needed: Int64Array, vertex_count: int) -> Int64Array:
    """Position of each vertex in the post-order of a depth-first search from the least vertex; back edges are ignored.

    Args:
        needs: (E,) the depending end.
        needed: (E,) the end it depends on.
        vertex_count: V.

    Returns:
        (V,) a permutation: 0 for the first vertex.
    """
    start, targets = _adjacency(needs, needed, vertex_count)
    position = np.full(vertex_count, _NONE, dtype=np.int64)
    visited = np.zeros(vertex_count, dtype=np.bool_)
    next_edge = start[:-1].copy()
    path = np.empty(vertex_count, dtype=np.int64)
    placed = 0
    for root in range(vertex_count):
        if visited[root]:
            continue
        visited[root] = True
        path[0] = root
        depth = 0
        while depth >= 0:
            vertex = path[depth]
            if next_edge[vertex] < start[vertex + 1]:
                target = targets[next_edge[vertex]]
                next_edge[vertex] += 1
                if not visited[target]:
                    visited[target] = True
                    depth += 1
                    path[depth] = target
                continue
            position[vertex] = placed
            placed += 1
            depth -= 1
    return position


@compiled
def reachable(needs: Int64Array, needed: Int64Array, begin: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(V,) whether a vertex is marked in `begin`, or needed by a marked one directly or through others."""
    start, targets = _adjacency(needs, needed, begin.size)
    reached = begin.copy()
    waiting = np.empty(begin.size, dtype=np.int64)
    count = 0
    for vertex in range(begin.size):
        if begin[vertex]:
            waiting[count] = vertex
            count += 1
    while count > 0:
        count -= 1
        vertex = waiting[count]
        for position in range(start[vertex], start[vertex + 1]):
            target = targets[position]
            if not reached[target]:
                reached[target] = True
                waiting[count] = target
                count += 1
    return reached


@inner
def _greedy_key(vertex: int, needs_count: int, users_count: int, delta: int) -> int:
    """Sort key, least first: a vertex without needs, one without users, else needs less uses; then the id."""
    if needs_count == 0:  # the two highest bits are the class, so one number is compared
        return vertex
    if users_count == 0:
        return (1 << 61) | vertex
    return (2 << 61) | ((_DELTA_LIMIT - delta) << 24) | vertex


@compiled
def greedy_positions(needs: Int64Array, needed: Int64Array, weight: Int64Array, vertex_count: int) -> Int64Array:
    """Order vertices so that edges of little weight are violated: a greedy feedback order, O(E log V).

    Source: Eades, Lin and Smyth 1993, "A fast and effective heuristic for the feedback arc set problem". Of the
    vertices left, one without needs goes to the front, one without users to the back, else the one with the greatest
    weight of users less weight of needs to the front. Parts of a graph without an edge between them do not influence
    each other.

    Args:
        needs: (E,) the depending end.
        needed: (E,) the end it depends on.
        weight: (E,) > 0; all together below 2^35.
        vertex_count: V, at most `MAX_VERTICES`.

    Returns:
        (V,) distinct positions, 0..V-1.
    """
    start, targets = _adjacency(needs, needed, vertex_count)
    users_start, users = _adjacency(needed, needs, vertex_count)
    target_weights = _adjacency(needs, weight, vertex_count)[1]
    user_weights = _adjacency(needed, weight, vertex_count)[1]
    needs_count = start[1:] - start[:-1]
    users_count = users_start[1:] - users_start[:-1]
    delta = np.zeros(vertex_count, dtype=np.int64)
    for edge in range(needs.size):
        delta[needed[edge]] += weight[edge]
        delta[needs[edge]] -= weight[edge]

    heap = np.empty(vertex_count + needs.size, dtype=np.int64)
    current = np.empty(vertex_count, dtype=np.int64)
    size = 0
    for vertex in range(vertex_count):
        current[vertex] = _greedy_key(vertex, needs_count[vertex], users_count[vertex], delta[vertex])
        size = _push(heap, size, current[vertex])
    position = np.full(vertex_count, _NONE, dtype=np.int64)
    front, back = 0, vertex_count
    while size > 0:
        key = _pop(heap, size)
        size -= 1
        vertex = key & ((1 << 24) - 1)
        # an outdated entry: a heap cannot change one, so each change pushes another
        if position[vertex] != _NONE or key != current[vertex]:
            continue
        if needs_count[vertex] > 0 and users_count[vertex] == 0:
            back -= 1
            position[vertex] = back
        else:
            position[vertex] = front
            front += 1
        for at in range(start[vertex], start[vertex + 1]):
            other = targets[at]
            if position[other] == _NONE:
                users_count[other] -= 1
                delta[other] -= target_weights[at]
                current[other] = _greedy_key(other, needs_count[other], users_count[other], delta[other])
                size = _push(heap, size, current[other])
        for at in range(users_start[vertex], users_start[vertex + 1]):
            other = users[at]
            if position[other] == _NONE:
                needs_count[other] -= 1
                delta[other] += user_weights[at]
                current[other] = _greedy_key(other, needs_count[other], users_count[other], delta[other])
                size = _push(heap, size, current[other])
    return position


@compiled
def topological_positions(needs: Int64Array, needed: Int64Array, priority: Int64Array) -> Int64Array:
    """Order vertices after all their needs; of those ready to come next, the least `priority` does.

    Source: Kahn 1962, "Topological sorting of large networks", with a heap of the ready vertices.

    Args:
        needs: (E,) the depending end.
        needed: (E,) the end it depends on; the edges close no cycle.
        priority: (V,) a permutation of 0..V-1.

    Returns:
        (V,) a permutation: 0 for the first vertex.
    """
    vertex_count = priority.size
    start, users = _adjacency(needed, needs, vertex_count)
    by_priority = np.empty(vertex_count, dtype=np.int64)
    waits_for = np.zeros(vertex_count, dtype=np.int64)
    for vertex in range(vertex_count):
        by_priority[priority[vertex]] = vertex
    for edge in range(needs.size):
        waits_for[needs[edge]] += 1
    heap = np.empty(vertex_count, dtype=np.int64)
    size = 0
    for vertex in range(vertex_count):
        if waits_for[vertex] == 0:
            size = _push(heap, size, priority[vertex])
    position = np.full(vertex_count, _NONE, dtype=np.int64)
    placed = 0
    while size > 0:
        vertex = by_priority[_pop(heap, size)]
        size -= 1
        position[vertex] = placed
        placed += 1
        for at in range(start[vertex], start[vertex + 1]):
            user = users[at]
            waits_for[user] -= 1
            if waits_for[user] == 0:
                size = _push(heap, size, priority[user])
    return position


@compiled
def directory_positions(
    needs: Int64Array, needed: Int64Array, first_directory: Int64Array, last_directory: Int64Array, directory_count: int
) -> Int64Array:
    """Order vertices after all their needs, staying in a directory while one of its vertices may come next.

    A vertex is a component: it begins in the directory of its first file and ends in that of its last file. Next comes
    the least of the ready vertices beginning where the last one ended; if there is none, the least of all ready ones.

    Args:
        needs: (E,) the depending end.
        needed: (E,) the end it depends on; the edges close no cycle.
        first_directory: (V,) directory of each vertex's beginning, in 0..H-1.
        last_directory: (V,) directory of its end.
        directory_count: H.

    Returns:
        (V,) a permutation: 0 for the first vertex.
    """
    vertex_count = first_directory.size
    start, users = _adjacency(needed, needs, vertex_count)
    waits_for = np.zeros(vertex_count, dtype=np.int64)
    for edge in range(needs.size):
        waits_for[needs[edge]] += 1
    heap_start = np.zeros(directory_count + 1, dtype=np.int64)
    for vertex in range(vertex_count):
        heap_start[first_directory[vertex] + 1] += 1
    for directory in range(directory_count):
        heap_start[directory + 1] += heap_start[directory]
    heap_sizes = np.zeros(directory_count, dtype=np.int64)
    heaps = np.empty(vertex_count, dtype=np.int64)
    ready = np.empty(vertex_count, dtype=np.int64)
    size = 0
    for vertex in range(vertex_count):
        if waits_for[vertex] == 0:
            directory = first_directory[vertex]
            heap_sizes[directory] = _push(
                heaps[heap_start[directory] : heap_start[directory + 1]],
                heap_sizes[directory],
                vertex,
            )
            size = _push(ready, size, vertex)
    position = np.full(vertex_count, _NONE, dtype=np.int64)
    placed, directory = 0, _NONE
    while placed < vertex_count:
        vertex = _NONE
        while vertex == _NONE and directory != _NONE and heap_sizes[directory] > 0:
            vertex = _pop(heaps[heap_start[directory] : heap_start[directory + 1]], heap_sizes[directory])
            heap_sizes[directory] -= 1
            if position[vertex] != _NONE:
                vertex = _NONE
        while vertex == _NONE and size > 0:
            vertex = _pop(ready, size)
            size -= 1
            if position[vertex] != _NONE:
                vertex = _NONE
        if vertex == _NONE:
            break  # only a cycle is left, which the caller has ruled out
        position[vertex] = placed
        placed += 1
        directory = last_directory[vertex]
        for at in range(start[vertex], start[vertex + 1]):
            user = users[at]
            waits_for[user] -= 1
            if waits_for[user] == 0:
                user_directory = first_directory[user]
                heap_sizes[user_directory] = _push(
                    heaps[heap_start[user_directory] : heap_start[user_directory + 1]], heap_sizes[user_directory], user
                )
                size = _push(ready, size, user)
    return position
