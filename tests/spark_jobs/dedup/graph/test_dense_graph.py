"""Ids as dense numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.dedup.graph.dense_graph import DenseGraph, dense_graph

IDS = {"string": (st.text(max_size=3), pa.string()), "long": (st.integers(-(2**63), 2**63 - 1), pa.int64())}


@pytest.mark.parametrize("kind", IDS)
@given(data=st.data())
def test_numbers_are_dense_and_in_the_order_of_ids(kind: str, data: st.DataObject) -> None:
    """Every end is found again under its number; strings are ordered by their bytes, as Spark orders them."""
    graph, rows = drawn_graph(kind, data)
    distinct = {end for _, one, other in rows for end in (one, other)}
    ids = graph.ids.to_pylist()
    assert ids == sorted(distinct, key=lambda end: end.encode() if isinstance(end, str) else end)
    assert graph.vertex_count == len(ids)
    assert [ids[number] for number in graph.first] == [one for _, one, _ in rows]
    assert [ids[number] for number in graph.second] == [other for _, _, other in rows]


@given(data=st.data())
def test_every_group_has_its_edges_in_order(data: st.DataObject) -> None:
    """An edge is in each group whose bit is set; a group without edges is not named."""
    graph, rows = drawn_graph("long", data)
    ids = graph.ids.to_pylist()
    found = {
        group: [(ids[one], ids[other]) for one, other in zip(first, second, strict=True)]
        for group, first, second in graph.by_group()
    }
    expected = {group: [row[1:] for row in rows if row[0] >> group & 1] for group in range(31)}
    assert found == {group: edges for group, edges in expected.items() if edges}


def drawn_graph(kind: str, data: st.DataObject) -> tuple[DenseGraph, list[tuple[int, Any, Any]]]:
    """Edges (groups, one end, other end) in two chunks, numbered, and as they were drawn."""
    ids, arrow_type = IDS[kind]
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2**31 - 1), ids, ids)))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    types = [pa.int32(), arrow_type, arrow_type]
    half = len(rows) // 2
    table = pa.table(
        [pa.chunked_array([c[:half], c[half:]], t) for c, t in zip(columns, types, strict=True)], list("gab")
    )
    return dense_graph(table), rows
