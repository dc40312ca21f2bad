"""A graph of any ids as dense numbers, for the kernels that run on the driver; and what cuts a plan between rounds.

A kernel wants vertices 0..V-1. Vertices here are (group, id): graphs of several groups are kept apart in one array, and
their numbers follow the order of (group, id), so that the least number is the least id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DriverEdges = Annotated[
    int,
    Field(
        ge=0,
        le=50_000_000,
        description="edges up to which the driver solves the graph alone, about 200 bytes each; more take Spark rounds",
        json_schema_extra={"affects_rows": False},
    ),
]
"""A field of the configs of steps that solve graphs."""
DEFAULT_DRIVER_EDGES = 4_000_000

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DenseGraph:
    """Edges between numbered vertices.

    Attributes:
        groups: (V,) group of each vertex, ascending.
        ids: (V,) id of each vertex, ascending inside a group (strings by their bytes, as Spark orders them).
        first: (E,) first end of each edge.
        second: (E,) second end.
    """

    groups: Int32Array
    ids: pa.Array
    first: Int64Array
    second: Int64Array

    @property
    def vertex_count(self) -> int:
        """V."""
        return len(self.groups)


def dense_graph(edges: pa.Table) -> DenseGraph:
    """Number the vertices of edges.

    Args:
        edges: columns group (int), and the two ends (both string or both long), by place; no nulls.
    """
    groups = edges.column(0).to_numpy().astype(np.int32)
    kind = _wide(edges.schema.field(1).type)
    ends = [chunk for place in (1, 2) for chunk in edges.column(place).cast(kind).chunks]
    codes, ids = _natural_codes(pa.chunked_array(ends, kind))
    width = max(1, len(ids))
    # Codes are dense already in a single group; otherwise a vertex is numbered once in every group it occurs in.
    keys, numbers = np.unique(np.concatenate([groups, groups]).astype(np.int64) * width + codes, return_inverse=True)
    return DenseGraph(
        groups=(keys // width).astype(np.int32),
        ids=ids.take(pa.array(keys % width)),
        first=numbers[: len(groups)],
        second=numbers[len(groups) :],
    )


def _wide(kind: pa.DataType) -> pa.DataType:
    """Type of the ids: with 64-bit offsets, since the ids of 60 million ends pass 2 GB."""
    return pa.large_string() if pa.types.is_string(kind) else kind


def _natural_codes(values: pa.ChunkedArray) -> tuple[Int64Array, pa.Array]:
    """(N,) rank of each value among the distinct ones, and the distinct values in ascending order."""
    encoded = values.dictionary_encode().combine_chunks()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.to_numpy()], encoded.dictionary.take(pa.array(order))


def vertex_table(graph: DenseGraph, chosen: npt.NDArray[np.bool_] | None = None) -> pa.Table:
    """Vertices as a table (group, vertex): all, or those of a (V,) mask."""
    table = pa.table({"group": graph.groups, "vertex": graph.ids})
    return table if chosen is None else table.filter(pa.array(chosen))


def cut(frame: DataFrame) -> DataFrame:
    """Compute a frame now and forget how: the plan of the next round starts here, else it doubles with every round.

    With `spark.checkpoint.dir` set, the rows are kept there and outlive executors. Without it they lie in the
    executors' memory and disks: the loss of one fails the step, which is then run again as a whole.
    """
    if frame.sparkSession.conf.get("spark.checkpoint.dir", ""):
        return frame.checkpoint()
    return frame.localCheckpoint()
