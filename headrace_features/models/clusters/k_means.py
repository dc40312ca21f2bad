"""K-means over vectors of integers, the same to the last bit on every machine.

Sums of coordinates, centroids (rounded means) and squared distances are integers. The products of vectors and
centroids come from a matrix product in float32, exact here: see `embedding`. Ties go to the lower number.

Sources: Lloyd 1982, "Least squares quantization in PCM"; first centroids as in Arthur and Vassilvitskii 2007,
"k-means++: The Advantages of Careful Seeding", each the best of some draws.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.arrays import Float32Array, Int16Array, Int32Array, Int64Array

_CELLS: Final = 1 << 21  # of a block of distances: 8 MB


def fit(vectors: Int16Array, k: int, seed: int, max_iterations: int = 50) -> Int16Array:
    """Centroids of some vectors, the largest cluster first.

    Args:
        vectors: (N, V), each of length SCALE; the result depends on their order and the seed.
        k: number of centroids; fewer result where fewer vectors are distinct.
        seed: of the first centroids.
        max_iterations: of Lloyd's algorithm, which ends before where nothing changes.

    Returns:
        (K, V), K from 0 to k.
    """
    if not len(vectors):
        return vectors
    centroids = _first(vectors, k, seed)
    labels = np.full(len(vectors), -1, np.int32)
    for _ in range(max_iterations):
        assigned, _ = assign(vectors, centroids)
        if np.array_equal(assigned, labels):
            break
        labels = assigned
        centroids = _means(vectors, labels, centroids)
    sizes = np.bincount(assign(vectors, centroids)[0], minlength=len(centroids))
    order = np.argsort(-sizes, kind="stable")
    return centroids[order[sizes[order] > 0]]


def assign(vectors: Int16Array, centroids: Int16Array) -> tuple[Int32Array, Int64Array]:
    """(N,) number of the nearest of (K, V) centroids, and (N,) the squared distance to it; K is at least 1."""
    labels, squares = np.empty(len(vectors), np.int32), np.empty(len(vectors), np.int64)
    columns = np.ascontiguousarray(centroids.T, np.float32)
    lengths = np.square(columns).sum(axis=0)
    rows = max(1, _CELLS // len(centroids))
    for start in range(0, len(vectors), rows):
        block = vectors[start : start + rows].astype(np.float32)
        rest = _minus_twice(block, columns, lengths)
        nearest = rest.argmin(axis=1)
        labels[start : start + rows] = nearest
        squares[start : start + rows] = rest[np.arange(len(block)), nearest] + np.square(block).sum(axis=1)
    return labels, squares


def _minus_twice(block: Float32Array, columns: Float32Array, lengths: Float32Array) -> Float32Array:
    """(N, K) |c|^2 - 2 x.c, the squared distance without its term |x|^2; below 2^24 and so exact."""
    product: Float32Array = block @ columns
    product *= -2
    product += lengths
    return product


def _means(vectors: Int16Array, labels: Int32Array, centroids: Int16Array) -> Int16Array:
    """The rounded mean of each cluster; an empty cluster keeps its centroid."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=len(centroids))
    there = np.flatnonzero(counts)
    starts = np.concatenate(([0], np.cumsum(counts[there])[:-1]))
    sums = np.add.reduceat(vectors[order], starts, axis=0, dtype=np.int64)
    sizes = counts[there][:, None]
    means = centroids.copy()
    means[there] = (2 * sums + sizes) // (2 * sizes)
    return means


def _first(vectors: Int16Array, k: int, seed: int) -> Int16Array:
    """(K, V) first centroids by greedy k-means++: each the best of some vectors drawn by squared distance."""
    block = vectors.astype(np.float32)
    lengths = np.square(block).sum(axis=1)

    def distances(rows: Int64Array) -> Int64Array:
        """(N, R) squared distances of all vectors to R of them."""
        columns = np.ascontiguousarray(block[rows].T)
        squares: Int64Array = (_minus_twice(block, columns, lengths[rows]) + lengths[:, None]).astype(np.int64)
        return squares

    draw = np.random.PCG64(seed)
    draws = 2 + int(np.log(k))
    chosen = [int(draw.random_raw()) % len(vectors)]
    squares = distances(np.array(chosen))[:, 0]
    while len(chosen) < k and squares.any():
        total = np.cumsum(squares)
        places = [int(draw.random_raw()) % int(total[-1]) for _ in range(draws)]
        candidates = np.searchsorted(total, places, side="right")
        left = np.minimum(squares[:, None], distances(candidates))
        best = int(left.sum(axis=0).argmin())
        chosen.append(int(candidates[best]))
        squares = left[:, best]
    return vectors[chosen]
