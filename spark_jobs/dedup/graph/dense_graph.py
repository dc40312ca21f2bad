"""Relabel vertices as dense integers for the kernels on the driver.

The kernels need vertices 0..V-1. Their numbers follow the order of the ids, so the least number is the least id. The
graphs of several groups share the numbers: ids are encoded once, and bits of an edge's `groups` list its groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from spark_jobs.arrays import Int32Array
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
_NARROW_BYTES = 1 << 31  # of strings with 32-bit offsets: 60 million ids of 32 digits are more


@dataclass(frozen=True)
class DenseGraph:
    """Edges between numbered vertices.

    Attributes:
        ids: (V,) id of each vertex, ascending (strings by their bytes, as Spark orders them).
        groups: (E,) groups of each edge: bit g is set if it is an edge of group g.
        first: (E,) number of the first end of each edge.
        second: (E,) of the second end.
    """

    ids: pa.Array
    groups: Int32Array
    first: Int32Array
    second: Int32Array

    @property
    def vertex_count(self) -> int:
        """The number of vertices, V."""
        return len(self.ids)

    def by_group(self) -> Iterator[tuple[int, Int32Array, Int32Array]]:
        """(number, first ends, second ends) of each group with edges."""
        present = int(np.bitwise_or.reduce(self.groups, initial=0))
        for group in range(present.bit_length()):
            if present >> group & 1:
                inside = self.groups >> group & 1 == 1
                yield group, self.first[inside], self.second[inside]


def dense_graph(edges: pa.Table) -> DenseGraph:
    """Replace the ids at the ends of edges by dense numbers.

    Only distinct ids are copied, so that edges may lie in mapped files.

    Args:
        edges: columns groups (int) and the two ends (both string or both long) come first, in this order; no nulls.
    """
    ids, (first, second) = numbered(edges.columns[1:3])
    return DenseGraph(ids, edges.column(0).to_numpy().astype(np.int32), first, second)


def numbered(columns: Sequence[pa.ChunkedArray]) -> tuple[pa.Array, list[Int32Array]]:
    """The distinct values of columns of one type, ascending, and the numbers of each column's among them."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    parts, kind = [pc.unique(chunk) for chunk in chunks], columns[0].type
    if pa.types.is_string(kind) and sum(part.nbytes for part in parts) > _NARROW_BYTES:
        kind = pa.large_string()
    values = pc.unique(pa.chunked_array(parts, columns[0].type).cast(kind))
    values = values.take(pc.sort_indices(values))
    numbers = pc.index_in(pa.chunked_array(chunks, columns[0].type).cast(kind), values).combine_chunks().to_numpy()
    return values, np.split(numbers, np.cumsum([len(column) for column in columns])[:-1])


def from_driver(spark: SparkSession, rows: pa.Table, ddl: str) -> DataFrame:
    """A DataFrame of few partitions from a table; Spark would make a partition per batch, of 2,000 rows by default."""
    frame = spark.createDataFrame(rows, ddl)
    return frame.coalesce(int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
