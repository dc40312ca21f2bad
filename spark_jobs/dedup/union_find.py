"""Connected components in memory: every vertex learns the least vertex it is linked to.

Union by the lesser root: the root of a tree is always its least vertex, so the root is the answer. Paths are halved on
the way up (Tarjan and van Leeuwen 1984), which keeps E unions at O(E log V) in the worst case, near O(E) in practice.

    edges 4-3, 2-1, 3-1      parent  0 1 2 3 4  ->  0 1 2 3 3  ->  0 1 1 3 3  ->  0 1 1 1 3      roots 0 1 1 1 1
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Int64Array = npt.NDArray[np.int64]


@njit(cache=True)
def least_linked(left: Int64Array, right: Int64Array, vertex_count: int) -> Int64Array:
    """Label every vertex with the least vertex of its component.

    Args:
        left: (E,) one end of each edge, in 0..vertex_count - 1.
        right: (E,) the other end.
        vertex_count: V.

    Returns:
        (V,) labels; a vertex without edges has its own.
    """
    parent = np.arange(vertex_count)
    for edge in range(left.size):
        one = left[edge]
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        other = right[edge]
        while parent[other] != other:
            parent[other] = parent[parent[other]]
            other = parent[other]
        if one < other:
            parent[other] = one
        else:
            parent[one] = other
    for vertex in range(vertex_count):  # a parent is never greater than its child, so one ascending pass is enough
        parent[vertex] = parent[parent[vertex]]
    return parent
