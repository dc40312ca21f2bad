"""Graphs that the tests of components and of the kept set share: each a list of edges (greater, less)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Graph = list[tuple[int, int]]
Id = TypeVar("Id", str, int, str | int)


def random_graph(seed: int, vertices: int, edges: int) -> Graph:
    """Edges between random vertices, some twice."""
    draw = random.Random(seed)
    drawn = [draw.sample(range(vertices), 2) for _ in range(edges)]
    return [(max(pair), min(pair)) for pair in drawn]


def chain(vertices: int, seed: int | None = None) -> Graph:
    """A chain, its vertices in order along it or (with a seed) in random order."""
    numbers = list(range(vertices))
    if seed is not None:
        random.Random(seed).shuffle(numbers)
    return [(max(pair), min(pair)) for pair in zip(numbers[1:], numbers, strict=False)]


def graphs() -> list[Graph]:
    """Chains, cliques, stars from either end, a tree, and random graphs sparse and dense."""
    return [
        [(1, 0)],
        [(1, 0), (1, 0), (3, 2)],
        chain(40, seed=1),
        chain(9),
        [(one, other) for one in range(25) for other in range(one)],
        [(leaf, 0) for leaf in range(1, 60)],
        [(60, leaf) for leaf in range(60)],
        [(vertex, (vertex - 1) // 2) for vertex in range(1, 50)],
        *(random_graph(seed, 40, edges) for seed, edges in enumerate((10, 25, 40, 60, 200))),
    ]


def masked(edges: Sequence[tuple[int, Id, Id]]) -> list[tuple[int, Id, Id]]:
    """Edges (group, one end, other end) as rows (groups, one end, other end).

    Every second pair of ends has one row for all its groups; the others have a row for each, repeats and all.
    """
    numbers = {ends: number for number, ends in enumerate(dict.fromkeys(edge[1:] for edge in edges))}
    rows: list[tuple[int, Id, Id]] = []
    together: dict[tuple[Id, Id], int] = {}
    for group, one, other in edges:
        if numbers[one, other] % 2:
            rows.append((1 << group, one, other))
        else:
            together[one, other] = together.get((one, other), 0) | 1 << group
    return rows + [(groups, one, other) for (one, other), groups in together.items()]


def hashed_id(vertex: int) -> str:
    """An id that looks like a doc_id and has nothing to do with the number's order."""
    return hashlib.sha256(str(vertex).encode()).hexdigest()[:32]


def ranked_id(vertex: int) -> str:
    """An id in the order of the numbers."""
    return f"d{vertex:06}"


Named = Callable[[int], str]
