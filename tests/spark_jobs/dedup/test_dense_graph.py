"""Ids as dense numbers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.dedup.dense_graph import dense_graph, vertex_table

IDS = {"string": (st.text(max_size=3), pa.string()), "long": (st.integers(-(2**63), 2**63 - 1), pa.int64())}


@pytest.mark.parametrize("kind", IDS)
@given(data=st.data())
def test_numbers_are_dense_and_in_the_order_of_group_and_id(kind: str, data: st.DataObject) -> None:
    """Every end is found again under its number; strings are ordered by their bytes, as Spark orders them."""
    ids, arrow_type = IDS[kind]
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), ids, ids)))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    types = [pa.int32(), arrow_type, arrow_type]
    half = len(rows) // 2
    table = pa.table(
        [pa.chunked_array([c[:half], c[half:]], t) for c, t in zip(columns, types, strict=True)], list("gab")
    )
    graph = dense_graph(table)
    vertices = [(row["group"], row["vertex"]) for row in vertex_table(graph).to_pylist()]
    distinct = {(group, end) for group, one, other in rows for end in (one, other)}
    assert vertices == sorted(distinct, key=lambda v: (v[0], v[1].encode() if isinstance(v[1], str) else v[1]))
    assert [vertices[number] for number in graph.first] == [(group, one) for group, one, _ in rows]
    assert [vertices[number] for number in graph.second] == [(group, other) for group, _, other in rows]
