"""Order the files of a repository by their dependencies, circular ones too.

    components   files in need of each other in a circle form a component; a component comes after all its needs
    strengths    inside a component the weakest edges are ignored, strength by strength, until the others form no
                     circle; a part still circular is treated the same with the next strength
        greedy       files ordered by no strength get the greedy feedback order of all edges of the component
    directories  last, the components are ordered again, dependencies first, staying in a directory while one of its
                     components can come next

    a --import--> b --import--> c,  c --import_type--> a     one component; without the weaker edge: c, b, a

All components are refined at once: a block is a set of files still forming one part, and blocks never interleave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.code.order.file_graph import (
    directory_positions,
    greedy_positions,
    strong_components,
    topological_positions,
)


@dataclass(frozen=True)
class FileGraph:
    """The dependencies between files, one edge per pair, sorted by (needs, needed).

    Attributes:
        vertex_count: V; files are 0..V-1 in the order of their paths.
        needs: (E,) the depending file.
        needed: (E,) the file it depends on, never the same.
        strength: (E,) how firmly the edge binds, >= 0; the strongest kind of the pair.
    """

    vertex_count: int
    needs: Int64Array
    needed: Int64Array
    strength: Int64Array

    def only(self, chosen: BoolArray) -> FileGraph:
        """The graph with only the edges marked in an (E,) mask."""
        return FileGraph(self.vertex_count, self.needs[chosen], self.needed[chosen], self.strength[chosen])


def file_graph(vertex_count: int, needs: Int64Array, needed: Int64Array, strength: Int64Array) -> FileGraph:
    """Make a graph from edges in any order, with repeats; keeps the strongest of each pair, and no loops.

    Args:
        vertex_count: V.
        needs: (E,) the depending end.
        needed: (E,) the end it depends on.
        strength: (E,) how firmly each edge binds, >= 0.
    """
    order = np.lexsort((-strength, needed, needs))
    needs, needed, strength = needs[order], needed[order], strength[order]
    first = np.ones(len(needs), dtype=np.bool_)
    first[1:] = (needs[1:] != needs[:-1]) | (needed[1:] != needed[:-1])
    first &= needs != needed
    return FileGraph(vertex_count, needs[first], needed[first], strength[first])


def arranged_positions(graph: FileGraph, directories: Int64Array) -> Int64Array:
    """Position of every file, after all its needs wherever possible.

    Every edge between two components is satisfied. Where nothing else decides, the least vertex comes first.

    Args:
        graph: the files and what they need.
        directories: (V,) number of each file's directory; files of one stay together as far as edges allow.

    Returns:
        (V,) a permutation: 0 for the file to read first.
    """
    component = strong_components(graph.needs, graph.needed, graph.vertex_count)
    inner = _arrange_blocks(graph, component)
    return _by_directory(graph, component, inner, directories)


def _arrange_blocks(graph: FileGraph, block: Int64Array) -> Int64Array:
    """(V,) position of every file: the blocks keep their order, and edges order the files inside each."""
    for strength in np.unique(graph.strength):
        inside = graph.only(block[graph.needs] == block[graph.needed])
        if not len(inside.needs):
            break
        if not (inside.strength == strength).any():
            continue  # no edge is ignored at this strength
        greedy = greedy_positions(inside.needs, inside.needed, _weights(inside.strength), graph.vertex_count)
        kept = inside.only(inside.strength > strength)
        part = strong_components(kept.needs, kept.needed, graph.vertex_count)
        block = _parts_in_order(kept, part, block, greedy)[part]
    order = np.argsort(block, kind="stable")
    return _inverse(order)


def _weights(strength: Int64Array) -> Int64Array:
    """(E,) 2^strength: an edge is twice as heavy as one of the next weaker strength."""
    weights: Int64Array = np.left_shift(np.int64(1), strength)
    return weights


def _parts_in_order(kept: FileGraph, part: Int64Array, block: Int64Array, greedy: Int64Array) -> Int64Array:
    """(P,) position of each part: by block, inside it dependencies first, ties by least greedy position."""
    part_count = int(part.max()) + 1
    least = np.full(part_count, np.iinfo(np.int64).max)
    np.minimum.at(least, part, greedy)
    block_of = np.zeros(part_count, dtype=np.int64)
    block_of[part] = block
    priority = _inverse(np.lexsort((least, block_of)))
    across = part[kept.needs] != part[kept.needed]
    positions: Int64Array = topological_positions(part[kept.needs[across]], part[kept.needed[across]], priority)
    return positions


def _by_directory(graph: FileGraph, component: Int64Array, inner: Int64Array, directories: Int64Array) -> Int64Array:
    """(V,) positions with the components ordered anew, staying in a directory; inside they keep `inner`."""
    if not graph.vertex_count:
        return inner
    order = np.lexsort((inner, component))
    bounds = np.flatnonzero(np.diff(component[order], prepend=-1))
    firsts, lasts = order[bounds], order[np.append(bounds[1:], len(order)) - 1]
    across = component[graph.needs] != component[graph.needed]
    positions = directory_positions(
        component[graph.needs[across]],
        component[graph.needed[across]],
        directories[firsts],
        directories[lasts],
        int(directories.max()) + 1,
    )
    return _inverse(np.lexsort((inner, positions[component])))


def _inverse(order: npt.NDArray[np.intp]) -> Int64Array:
    """The inverse permutation: [2, 0, 1] -> [1, 2, 0]."""
    positions = np.empty(len(order), dtype=np.int64)
    positions[order] = np.arange(len(order))
    return positions
