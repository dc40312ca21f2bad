"""Relabel vertices as dense integers for the kernels on the driver.

The kernels need vertices 0..V-1. Their numbers follow the order of the ids, so the least number is the least id. The
graphs of several groups share the numbers: ids are encoded once, and bits of an edge's `groups` list its groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.spark_sql import DataFrame, SparkSession

DriverEdges = Annotated[
    int,
    Field(
        ge=0,
        le=50_000_000,
        description="edges up to which the driver solves the graph alone, about 200 bytes each; more take Spark rounds",
        json_schema_extra={"affects_rows": False},
    ),
]
"""Type of the config field `driver_edges` in steps that solve graphs."""
DEFAULT_DRIVER_EDGES = 4_000_000


@dataclass(frozen=True)
class DenseGraph:
    """Edges between numbered vertices.

    Attributes:
        ids: (V,) id of each vertex, ascending (strings by their bytes, as Spark orders them).
        groups: (E,) groups of each edge: bit g is set if it is an edge of group g.
        first: (E,) first end of each edge.
        second: (E,) second end.
    """

    ids: pa.Array
    groups: Int32Array
    first: Int64Array
    second: Int64Array

    @property
    def vertex_count(self) -> int:
        """The number of vertices, V."""
        return len(self.ids)

    def by_group(self) -> Iterator[tuple[int, Int64Array, Int64Array]]:
        """(number, first ends, second ends) of each group that has edges."""
        present = int(np.bitwise_or.reduce(self.groups, initial=0))
        for group in range(present.bit_length()):
            if present >> group & 1:
                inside = self.groups >> group & 1 == 1
                yield group, self.first[inside], self.second[inside]


def dense_graph(edges: pa.Table) -> DenseGraph:
    """Replace the ids at the ends of edges by dense numbers.

    Args:
        edges: columns groups (int), and the two ends (both string or both long), in this order; no nulls.
    """
    kind = _wide(edges.schema.field(1).type)
    ends = [chunk for index in (1, 2) for chunk in edges.column(index).cast(kind).chunks]
    numbers, ids = _ranks(pa.chunked_array(ends, kind))
    return DenseGraph(
        ids=ids,
        groups=edges.column(0).to_numpy().astype(np.int32),
        first=numbers[: edges.num_rows],
        second=numbers[edges.num_rows :],
    )


def _wide(kind: pa.DataType) -> pa.DataType:
    """The type of ids; strings get 64-bit offsets, since 60 million ids of 32 digits exceed 2 GB."""
    return pa.large_string() if pa.types.is_string(kind) else kind


def _ranks(values: pa.ChunkedArray) -> tuple[Int64Array, pa.Array]:
    """(N,) rank of each value among the distinct ones, and the distinct values in ascending order."""
    encoded = values.dictionary_encode().combine_chunks()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.to_numpy()], encoded.dictionary.take(pa.array(order))


def from_driver(spark: SparkSession, rows: pa.Table, ddl: str) -> DataFrame:
    """A DataFrame of few partitions from a table; Spark would make a partition per batch, of 2,000 rows by default."""
    frame = spark.createDataFrame(rows, ddl)
    return frame.coalesce(int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
