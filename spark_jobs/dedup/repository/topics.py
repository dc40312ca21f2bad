"""Find communities of a weighted graph by label propagation; they become the topics of a giant component.

Every vertex begins with a label of its own. One after another, in the order of their numbers, vertices take the label
that weighs most among their neighbours, until none changes (Raghavan, Albert and Kumara 2007). Nothing is random: of
labels that weigh the same a vertex keeps its own, else takes the least, so that the result is a function of the graph.

An edge weighs more the more neighbours its ends share. Otherwise the first labels of a community would cross a single
bridge into the next one and win all ties there:

    triangles 0-1-2 and 3-4-5, bridge 2-3       in a triangle two ends share a neighbour: weight 2; the bridge weighs 1
    labels    0 1 2 3 4 5  ->  1 1 1 4 4 4      least vertex of each community: 0 0 0 3 3 3
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int64Array

_MOST_ROUNDS = 50  # labels may oscillate without end
_MOST_COMPARED = 1024  # neighbours of a vertex that are compared; bounds the work on an edge between two hubs


def communities(first: Int64Array, second: Int64Array, weights: Int64Array, vertex_count: int) -> Int64Array:
    """Label every vertex with its community.

    Args:
        first: (E,) one end of each edge, in 0..vertex_count - 1; each edge once, none from a vertex to itself.
        second: (E,) the other end.
        weights: (E,) int64 weights, at least 1.
        vertex_count: V.

    Returns:
        (V,) int64 the least vertex of the community that each belongs to.
    """
    ends = np.concatenate([first, second])
    others = np.concatenate([second, first])
    order = np.lexsort((others, ends))
    offsets = np.searchsorted(ends[order], np.arange(vertex_count + 1))
    neighbours = others[order]
    strengths = np.concatenate([weights, weights])[order]
    labels = _propagate(offsets, neighbours, _strengthened(offsets, neighbours, strengths))
    least = np.full(vertex_count, vertex_count, dtype=np.int64)
    np.minimum.at(least, labels, np.arange(vertex_count))
    community: Int64Array = least[labels]
    return community


@compiled
def _strengthened(offsets: Int64Array, neighbours: Int64Array, weights: Int64Array) -> Int64Array:
    """Edge weights times (1 + number of common neighbours of both ends, among the first 1,024 of each)."""
    result = np.empty_like(weights)
    for vertex in range(offsets.size - 1):
        for position in range(offsets[vertex], offsets[vertex + 1]):
            other = neighbours[position]
            i, j, shared = offsets[vertex], offsets[other], 0
            i_end = min(offsets[vertex + 1], i + _MOST_COMPARED)
            j_end = min(offsets[other + 1], j + _MOST_COMPARED)
            while i < i_end and j < j_end:
                a, b = neighbours[i], neighbours[j]
                shared += a == b
                i += a <= b
                j += b <= a
            result[position] = weights[position] * (1 + shared)
    return result


@compiled
def _propagate(offsets: Int64Array, neighbours: Int64Array, weights: Int64Array) -> Int64Array:
    """(V,) label of every vertex once no label changes, or after `_MOST_ROUNDS` rounds."""
    count = offsets.size - 1
    labels = np.arange(count)
    received = np.zeros(count, dtype=np.int64)
    for _ in range(_MOST_ROUNDS):
        changed = False
        for vertex in range(count):
            start, end = offsets[vertex], offsets[vertex + 1]
            for position in range(start, end):
                received[labels[neighbours[position]]] += weights[position]
            best = labels[vertex]
            for position in range(start, end):
                label = labels[neighbours[position]]
                mine = best == labels[vertex]
                if received[label] > received[best] or (
                    received[label] == received[best] and label < best and not mine
                ):
                    best = label
            for position in range(start, end):
                received[labels[neighbours[position]]] = 0
            if best != labels[vertex]:
                labels[vertex] = best
                changed = True
        if not changed:
            break
    return labels
