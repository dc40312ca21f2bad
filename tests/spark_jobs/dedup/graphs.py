"""Graphs that the tests of components and of the kept set share: each a list of edges (greater, less)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

Graph = list[tuple[int, int]]


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


def hashed_id(vertex: int) -> str:
    """An id that looks like a doc_id and has nothing to do with the number's order."""
    return hashlib.sha256(str(vertex).encode()).hexdigest()[:32]


def ranked_id(vertex: int) -> str:
    """An id in the order of the numbers."""
    return f"d{vertex:06}"


Named = Callable[[int], str]
