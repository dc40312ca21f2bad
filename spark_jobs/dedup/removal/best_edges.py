"""Removals of one process: edges stay in mapped files; what is held are 12 bytes of each and 100 of a document.

edges       b -> a of 0 and 1,  c -> b of 0 and 1,  c -> a of 0      groups are the thresholds
removed     b and c in 0, b in 1                                     by the kept set of each group
witnesses   b: a in both,  c: a in 0                                 the best edge to a document that is kept
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array
from spark_jobs.dedup.graph.dense_graph import dense_graph
from spark_jobs.dedup.graph.kept_set import removed_groups
from spark_jobs.dedup.near.comparison import taken_in_batches

_WEIGHTS = ("shared_weight", "united_weight")


class _Best(NamedTuple):
    """The best edge so far of each of V documents as the worse end; of none all is 0 and the row -1.

    Attributes:
        rows: (V,) int64 number of the edge.
        shared: (V,) int64 numerator of its similarity.
        united: (V,) int64 denominator.
        increments: (V,) int64 increment of the better document.
        others: (V,) int32 the better document.
    """

    rows: Int64Array
    shared: Int64Array
    united: Int64Array
    increments: Int64Array
    others: Int32Array

    @classmethod
    def of_none(cls, count: int) -> _Best:
        """Of documents without edges."""
        shared, united, increments = np.zeros((3, count), np.int64)
        return cls(np.full(count, -1, np.int64), shared, united, increments, np.zeros(count, np.int32))


def removal_batches(edges: pa.Table, thresholds: Sequence[float]) -> Iterator[pa.RecordBatch]:
    """Rows of `removals`: at each threshold the documents with a kept better neighbour, and the best of these.

    Args:
        edges: rows of `pairs`, mapped, with `groups`, the thresholds at which each counts (bits), and `repository`.
        thresholds: ascending.

    Raises:
        InputError: the edges close a cycle.
    """
    graph = dense_graph(edges.select(["groups", "doc_id", "better_doc_id"]))
    removed = removed_groups(graph)
    numbers = edges.select([*_WEIGHTS, "better_increment"]).to_batches()
    for group, threshold in enumerate(thresholds):
        counts = (graph.groups >> group & 1 == 1) & (removed[graph.second] >> group & 1 == 0)
        best = _Best.of_none(graph.vertex_count)
        first = 0
        for batch in numbers:
            shared, united, increments = (column.cast(pa.int64()).to_numpy() for column in batch.columns)
            last = first + batch.num_rows
            ends = graph.first[first:last], graph.second[first:last]
            _improve(best, first, counts[first:last], ends, (shared, united), increments)
            first = last
        chosen = np.sort(best.rows[best.rows >= 0])
        for part in taken_in_batches(edges, chosen):
            yield from _rows(part, threshold)


def _rows(edges: pa.Table, threshold: float) -> Iterator[pa.RecordBatch]:
    """Rows of `removals` from the edges that justify them."""
    shared, united = (edges[name].cast(pa.float64(), safe=False) for name in _WEIGHTS)
    yield from pa.table(
        {
            "threshold": pa.repeat(float(threshold), edges.num_rows),
            "dataset": edges["dataset"],
            "doc_id": edges["doc_id"],
            "witness_dataset": edges["better_dataset"],
            "witness_doc_id": edges["better_doc_id"],
            **{name: edges[name] for name in _WEIGHTS},
            "similarity": pc.divide(shared, united),
            "repository": edges["repository"],
        }
    ).to_batches()


@compiled
def _improve(
    best: _Best,
    first: int,
    counts: BoolArray,
    ends: tuple[Int32Array, Int32Array],
    weights: tuple[Int64Array, Int64Array],
    increments: Int64Array,
) -> None:
    """Take in edges, the first of which has the number `first`; those that do not count are passed over."""
    for edge in range(counts.size):
        if not counts[edge]:
            continue
        worse, better = ends[0][edge], ends[1][edge]
        shared, united, increment = weights[0][edge], weights[1][edge], increments[edge]
        if best.rows[worse] >= 0:
            order = compared_fractions(shared, united, best.shared[worse], best.united[worse])
            # Of equally similar ones the older increment, then the lower number, so that no order of the edges shows.
            if not order:
                order = np.sign(best.increments[worse] - increment)
            if not order:
                order = np.sign(best.others[worse] - better)
            if order <= 0:
                continue
        best.rows[worse], best.others[worse], best.increments[worse] = first + edge, better, increment
        best.shared[worse], best.united[worse] = shared, united


@inner
def compared_fractions(shared: int, united: int, other_shared: int, other_united: int) -> int:
    """-1, 0 or 1: a fraction beside another, exactly, by their continued fractions; both are at least 0."""
    sign = 1
    while True:
        # Cross products could exceed 64 bits, and floats take close fractions for equal.
        whole, other_whole = shared // united, other_shared // other_united
        if whole != other_whole:
            return sign if whole > other_whole else -sign
        shared, other_shared = shared - whole * united, other_shared - other_whole * other_united
        if not shared or not other_shared:
            return int(sign * (np.int64(shared > 0) - np.int64(other_shared > 0)))
        # What is left is below 1 in both: the greater one has the lesser reciprocal.
        shared, united, other_shared, other_united = united, shared, other_united, other_shared
        sign = -sign
