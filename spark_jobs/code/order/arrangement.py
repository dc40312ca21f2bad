"""In which order the files of a repository are read: components first, then tiers and greed inside each.

    components   files that need each other in a circle stay together; a component comes after all that it needs
    tiers        inside one, edges are given up from the weakest strength on; what the stronger ones still bind stays
                 bound, and where everything is a circle again, so on with the next strength
    greed        what no strength decides stands as the greedy feedback order of all edges of the component puts it
    neighbours   at last the components are taken again, dependencies first, staying in a directory while it lasts

    a --import--> b --import--> c,  c --import_type--> a     one component; without the weaker edge: c, b, a

All tiers of all components are worked on at once: a block is what is still together, and blocks never interleave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.code.order.file_graph import greedy_places, neighbourly_places, strong_components, topological_places


@dataclass(frozen=True)
class FileGraph:
    """Which file needs which, once per pair, sorted by (needs, needed).

    Attributes:
        vertex_count: V; files are 0..V-1 in the order of their paths.
        needs: (E,) the end that depends.
        needed: (E,) the end it depends on, never the same.
        strength: (E,) how firmly the edge binds, >= 0; the strongest kind of the pair.
    """

    vertex_count: int
    needs: Int64Array
    needed: Int64Array
    strength: Int64Array

    def only(self, chosen: BoolArray) -> FileGraph:
        """The graph with the edges of a (E,) mask."""
        return FileGraph(self.vertex_count, self.needs[chosen], self.needed[chosen], self.strength[chosen])


def file_graph(vertex_count: int, needs: Int64Array, needed: Int64Array, strength: Int64Array) -> FileGraph:
    """Make a graph of edges in any order and number: of each pair the strongest, none from a file to itself.

    Args:
        vertex_count: V.
        needs: (E,) the end that depends.
        needed: (E,) the end it depends on.
        strength: (E,) how firmly each edge binds, >= 0.
    """
    order = np.lexsort((-strength, needed, needs))
    needs, needed, strength = needs[order], needed[order], strength[order]
    first = np.ones(len(needs), dtype=np.bool_)
    first[1:] = (needs[1:] != needs[:-1]) | (needed[1:] != needed[:-1])
    first &= needs != needed
    return FileGraph(vertex_count, needs[first], needed[first], strength[first])


def arranged_places(graph: FileGraph, homes: Int64Array) -> Int64Array:
    """Place every file after what it needs, wherever that is possible.

    Every edge between two components is satisfied. Where nothing else decides, the least vertex comes first.

    Args:
        graph: the files and what they need.
        homes: (V,) directory of each file, by number; files of one directory stay together as far as edges allow.

    Returns:
        (V,) a permutation: 0 for the file that is read first.
    """
    component = strong_components(graph.needs, graph.needed, graph.vertex_count)
    inner = _arrange_blocks(graph, component)
    return _with_neighbours(graph, component, inner, homes)


def _arrange_blocks(graph: FileGraph, block: Int64Array) -> Int64Array:
    """(V,) place of every file, blocks in their order and each arranged by the strengths of its edges."""
    for strength in np.unique(graph.strength):
        inside = graph.only(block[graph.needs] == block[graph.needed])
        if not len(inside.needs):
            break
        if not (inside.strength == strength).any():
            continue  # nothing is given up at this strength
        greedy = greedy_places(inside.needs, inside.needed, _weights(inside.strength), graph.vertex_count)
        kept = inside.only(inside.strength > strength)
        part = strong_components(kept.needs, kept.needed, graph.vertex_count)
        block = _parts_in_order(kept, part, block, greedy)[part]
    order = np.argsort(block, kind="stable")
    return _inverse(order)


def _weights(strength: Int64Array) -> Int64Array:
    """1, 2, 4, 8 from the weakest strength on: twice as heavy as the next weaker one."""
    weights: Int64Array = np.left_shift(np.int64(1), strength)
    return weights


def _parts_in_order(kept: FileGraph, part: Int64Array, block: Int64Array, greedy: Int64Array) -> Int64Array:
    """(P,) number of each part among all: blocks in their order, in them dependencies first, then by least place."""
    part_count = int(part.max()) + 1
    least = np.full(part_count, np.iinfo(np.int64).max)
    np.minimum.at(least, part, greedy)
    block_of = np.zeros(part_count, dtype=np.int64)
    block_of[part] = block
    priority = _inverse(np.lexsort((least, block_of)))
    across = part[kept.needs] != part[kept.needed]
    places: Int64Array = topological_places(part[kept.needs[across]], part[kept.needed[across]], priority)
    return places


def _with_neighbours(graph: FileGraph, component: Int64Array, inner: Int64Array, homes: Int64Array) -> Int64Array:
    """Take the components again, dependencies first, staying in a directory; their insides are left as they are."""
    if not graph.vertex_count:
        return inner
    order = np.lexsort((inner, component))
    bounds = np.flatnonzero(np.diff(component[order], prepend=-1))
    firsts, lasts = order[bounds], order[np.append(bounds[1:], len(order)) - 1]
    across = component[graph.needs] != component[graph.needed]
    places = neighbourly_places(
        component[graph.needs[across]],
        component[graph.needed[across]],
        homes[firsts],
        homes[lasts],
        int(homes.max()) + 1,
    )
    return _inverse(np.lexsort((inner, places[component])))


def _inverse(order: npt.NDArray[np.intp]) -> Int64Array:
    """Place of every element from the elements by place."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places
