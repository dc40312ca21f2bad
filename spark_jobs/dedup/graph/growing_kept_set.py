"""The kept set of a growing graph: new edges cost what they change.

A document is removed at a threshold if and only if a better neighbour is kept at it (see `kept_set`). Bits of a number
are the thresholds. The worse ends of new edges are decided anew; where one changes, so are the documents that it is
better than, and so on until nothing changes. As edges close no cycle, that ends, and the answer is unique.

    b -> a          b removed
    c -> b          c kept, since b is removed
    new: a -> d     a removed, so b is kept, so c is removed
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.dedup.graph.kept_set import cycle


class GrowingKeptSet:
    """Which of V vertices are removed, in which groups; 24 bytes a vertex and 20 an edge."""

    def __init__(self, ids: Int64Array) -> None:
        """Vertices without edges.

        Args:
            ids: (V,) int64 ascending.
        """
        self.ids = ids
        self.removed = np.zeros(len(ids), np.int32)
        self._up = np.full(len(ids), -1, np.int32)  # the last edge to a better end, and from a worse one
        self._down = np.full(len(ids), -1, np.int32)
        self._edges = np.empty((5, 1024), np.int32)  # groups, worse, better, next of the same worse, of the same better
        self._edge_count = 0

    def add(self, groups: Int32Array, worse: Int64Array, better: Int64Array) -> None:
        """Add edges between known ids, closing no cycle.

        Args:
            groups: (E,) int32 bits of the groups of each.
            worse: (E,) int64 ids.
            better: (E,) int64 ids.

        Raises:
            InputError: they close one.
        """
        ends = [np.searchsorted(self.ids, side).astype(np.int32) for side in (worse, better)]
        count = self._edge_count + len(groups)
        if count > self._edges.shape[1]:
            larger = np.empty((5, 2 * count), np.int32)
            larger[:, : self._edge_count] = self._edges[:, : self._edge_count]
            self._edges = larger
        self._edges[:3, self._edge_count : count] = (groups, *ends)
        _link(self._edges, self._edge_count, count, self._up, self._down)
        first, self._edge_count = self._edge_count, count
        if not _settle(self._edges, first, count, self._up, self._down, self.removed):
            raise cycle(f"some of {count} edges")


@compiled
def _link(edges: Int32Array, first: int, last: int, up: Int32Array, down: Int32Array) -> None:
    """Put edges into the lists of their ends."""
    for edge in range(first, last):
        worse, better = edges[1, edge], edges[2, edge]
        edges[3, edge], up[worse] = up[worse], edge
        edges[4, edge], down[better] = down[better], edge


@compiled
def _settle(edges: Int32Array, first: int, last: int, up: Int32Array, down: Int32Array, removed: Int32Array) -> bool:
    """Decide the worse ends of edges, and all that changes with them; the waiting are a ring, each in it once.

    Returns:
        False where that does not end: each pass over the ring leaves one edge of every path behind.
    """
    waits = np.zeros(removed.size, np.bool_)
    ring = np.empty(removed.size, np.int32)
    begin, size = 0, 0
    for edge in range(first, last):
        waits[edges[1, edge]] = True
    for vertex in range(removed.size):  # nearly the order of documents, in which each is looked at once
        if waits[vertex]:
            ring[size] = vertex
            size += 1
    passes, left = 0, size
    while size:
        if not left:
            passes, left = passes + 1, size
            if passes > ring.size:
                return False
        left -= 1
        vertex = ring[begin]
        begin = (begin + 1) % ring.size
        size -= 1
        waits[vertex] = False
        groups = np.int32(0)
        edge = up[vertex]
        while edge >= 0:
            groups |= edges[0, edge] & ~removed[edges[2, edge]]
            edge = edges[3, edge]
        if groups == removed[vertex]:
            continue
        removed[vertex] = groups
        edge = down[vertex]
        while edge >= 0:
            worse = edges[1, edge]
            if not waits[worse]:
                waits[worse] = True
                ring[(begin + size) % ring.size] = worse
                size += 1
            edge = edges[4, edge]
    return True
