"""Removals from edges in memory, beside a loop over documents in Python's fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.dedup.removal.best_edges import removal_batches
from spark_jobs.exceptions import InputError
from tests.tiers import tries

THRESHOLDS = (0.5, 0.75)
_SCHEMA = pa.schema(
    [
        ("groups", pa.int32()),
        ("dataset", pa.string()),
        ("doc_id", pa.string()),
        ("better_dataset", pa.string()),
        ("better_doc_id", pa.string()),
        ("better_increment", pa.int32()),
        ("shared_weight", pa.int64()),
        ("united_weight", pa.int64()),
        ("repository", pa.string()),
    ]
)
_LARGEST = 2**62


class Edge(NamedTuple):
    """From a document to a better one; a document's number is its place in the order."""

    groups: int
    worse: int
    better: int
    increment: int
    shared: int
    united: int


def fractions() -> st.SearchStrategy[tuple[int, int]]:
    """Small ones, which are often equal, and neighbours that floats cannot tell apart."""
    small = st.tuples(st.integers(1, 6), st.integers(6, 12))
    near = st.integers(_LARGEST - 3, _LARGEST).flatmap(
        lambda united: st.tuples(st.integers(united - 2, united), st.just(united))
    )
    return st.one_of(small, near)


def edges() -> st.SearchStrategy[list[Edge]]:
    """Of eight documents, at most one for two."""
    ends = st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] > pair[1])
    drawn = st.tuples(st.integers(1, 3), ends, st.integers(0, 1), fractions())
    listed = st.lists(drawn, max_size=20, unique_by=lambda edge: edge[1])
    return listed.map(
        lambda rows: [Edge(groups, *ends, increment, *weights) for groups, ends, increment, weights in rows]
    )


def name(document: int) -> str:
    """Names that do not follow the order of documents."""
    return f"{document * 5 % 8}-é"


def table(rows: list[Edge], chunks: int) -> pa.Table:
    """Edges as the step has them, in so many chunks."""
    listed = [
        dict(
            zip(
                _SCHEMA.names,
                (row.groups, "a", name(row.worse), "b", name(row.better), row.increment, row.shared, row.united, None),
                strict=True,
            )
        )
        for row in rows
    ]
    parts = [pa.Table.from_pylist(listed[at::chunks], _SCHEMA) for at in range(chunks)]
    return pa.concat_tables(parts)


@settings(max_examples=tries(200))
@given(rows=edges(), chunks=st.integers(1, 3))
def test_a_document_goes_for_the_most_similar_of_the_kept(rows: list[Edge], chunks: int) -> None:
    """At each threshold, the best first; of equals the earlier increment, then the lesser identity."""
    expected = set()
    for group, threshold in enumerate(THRESHOLDS):
        removed = set[int]()
        for document in range(8):
            kept = [
                row for row in rows if row.groups >> group & 1 and row.worse == document and row.better not in removed
            ]
            if kept:
                removed.add(document)
                best = min(kept, key=lambda row: (-Fraction(row.shared, row.united), row.increment, name(row.better)))
                expected.add((threshold, name(document), name(best.better), best.shared, best.united))
    found = [row for batch in removal_batches(table(rows, chunks), THRESHOLDS) for row in batch.to_pylist()]
    columns = ("threshold", "doc_id", "witness_doc_id", "shared_weight", "united_weight")
    assert len(found) == len(expected)
    assert {tuple(row[column] for column in columns) for row in found} == expected
    assert all(row["similarity"] == row["shared_weight"] / row["united_weight"] for row in found)


def test_edges_in_a_circle_are_an_error() -> None:
    """Nobody comes first there."""
    circle = [Edge(1, 0, 1, 0, 1, 2), Edge(1, 1, 0, 0, 1, 2)]
    with pytest.raises(InputError, match="cycle"):
        list(removal_batches(table(circle, 1), THRESHOLDS))
