"""The step `clusters`: the cluster of each document, by the frozen centroids.

A document gets the nearest coarse centroid, and among the clusters inside that the nearest. A worker holds the
centroids, 2 bytes per dimension, and the signs of the projection (`embedding`), 32 MB for 512 dimensions.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace_features.models.clusters import k_means
from headrace_features.models.clusters.centroids import vector_array
from headrace_features.models.clusters.embedding import BITS, SCALE, EmbeddingConfig, embed
from spark_jobs.arrays import BoolArray, Float64Array, Int16Array, Int32Array, Int64Array, UInt8Array
from spark_jobs.lake.declare.step import ArrowRows, NoConfig, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Proof, Table
from spark_jobs.spark_sql import DataFrame

_KEYS: Final = ["dataset", "shard", "doc_id"]
_DDL = "dataset string, shard int, doc_id string, coarse int, cluster int, distance double"


def _survivors_without_cluster(
    rows: DataFrame, inputs: Mapping[str, DataFrame], increment: int | None, config: NoConfig
) -> DataFrame:
    """Survivors without a row in `clusters`; a proof, so none is expected."""
    return inputs["survivors"].select(*_KEYS).join(rows.select(*_KEYS), _KEYS, "left_anti")


CLUSTERS = Table(
    name="clusters",
    comment="One row per surviving document: the cluster that it is in.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("coarse", "int", "coarse cluster; null, as the next two, where no word of the text weighs anything"),
        Column("cluster", "int", "cluster"),
        Column("distance", "double", "distance to the cluster's centroid; a document's vector has length 1"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        Check(
            "all_or_nothing",
            "(coarse is null) = (cluster is null) and (cluster is null) = (distance is null)",
            "a document is in a coarse cluster, a cluster, at a distance; or in none",
        ),
        Check("distance_in_bounds", "coalesce(distance, 0) between 0 and 2.01", "a distance in a ball of radius 1"),
    ),
    proofs=(Proof("every_survivor_is_assigned", "each survivor is a row", _survivors_without_cluster),),
)


@dataclass(frozen=True)
class Centroids:
    """The frozen centroids, as a worker holds them.

    Attributes:
        config: what a vector is.
        weights: (2^BITS,) weight of each bucket.
        coarse: (C, V) coarse centroids, by number.
        fine: (K, V) centroids of the clusters, by coarse cluster and number.
        numbers: (K,) number of each cluster.
        starts: (C + 1,) row of `fine` where each coarse cluster begins.
    """

    config: EmbeddingConfig
    weights: UInt8Array
    coarse: Int16Array
    fine: Int16Array
    numbers: Int32Array
    starts: Int64Array

    @classmethod
    def of(cls, centroids: pa.Table, weights: pa.Table) -> Centroids:
        """Build it from the rows of the tables `centroids` and `centroid_weights`."""
        rows = centroids.sort_by([("coarse", "ascending"), ("cluster", "ascending")])
        settings = json.loads(rows.column("embedding")[0].as_py()) if rows.num_rows else {}
        config = EmbeddingConfig(**settings)
        vectors = vector_array(rows.column("vector"), config.dimensions)
        is_fine = np.asarray(rows.column("cluster").is_valid())
        of_bucket = np.zeros(1 << BITS, np.uint8)
        of_bucket[weights.column("bucket").to_numpy()] = weights.column("weight").to_numpy()
        numbers = rows.column("cluster").drop_null().to_numpy().astype(np.int32)
        counts = np.bincount(rows.column("coarse").to_numpy()[is_fine])
        starts = np.append(0, np.cumsum(counts)).astype(np.int64)
        return cls(config, of_bucket, vectors[~is_fine], vectors[is_fine], numbers, starts)

    def assign(self, content: pa.Array) -> tuple[BoolArray, Int32Array, Int32Array, Float64Array]:
        """The clusters of some texts.

        Args:
            content: (D,) strings, none of them null.

        Returns:
            (D,) each: whether a text has a cluster, its coarse cluster, cluster and distance; 0 where it has none.
        """
        return self.nearest(embed(content, self.weights, self.config))

    def nearest(self, vectors: Int16Array) -> tuple[BoolArray, Int32Array, Int32Array, Float64Array]:
        """The clusters of (D, V) vectors, as `assign` returns them."""
        there: BoolArray = (np.abs(vectors).max(axis=1) > 0) & (len(self.coarse) > 0)
        coarse: Int32Array = np.zeros(len(vectors), np.int32)
        cluster: Int32Array = np.zeros(len(vectors), np.int32)
        squares = np.zeros(len(vectors), np.int64)
        if there.any():
            coarse[there], _ = k_means.assign(vectors[there], self.coarse)
        rows = np.flatnonzero(there)
        rows = rows[np.argsort(coarse[rows], kind="stable")]
        for part in np.split(rows, np.flatnonzero(np.diff(coarse[rows])) + 1):
            if len(part):
                start, end = self.starts[coarse[part[0]]], self.starts[coarse[part[0]] + 1]
                nearest, squares[part] = k_means.assign(vectors[part], self.fine[start:end])
                cluster[part] = self.numbers[start + nearest]
        return there, coarse, cluster, np.sqrt(squares) / SCALE


@step(version="1", scope=Scope.INCREMENT, tables=(CLUSTERS,))
def clusters(survivors: DataFrame, texts: DataFrame, centroids: DataFrame, centroid_weights: DataFrame) -> Output:
    """Assign every surviving document to the nearest of the frozen centroids; one row per document."""
    fitted = Centroids.of(
        centroids.select("coarse", "cluster", "vector", "embedding").toArrow(),
        centroid_weights.select("bucket", "weight").toArrow(),
    )
    documents = texts.select(*_KEYS, "content").join(survivors.select(*_KEYS), _KEYS, "left_semi")
    assigned = ArrowRows(documents, functools.partial(_assign, centroids=fitted), _DDL)
    return Output({CLUSTERS.name: assigned.to_frame()}, arrow_rows={CLUSTERS.name: assigned})


def _assign(batches: Iterable[pa.RecordBatch], centroids: Centroids) -> Iterator[pa.RecordBatch]:
    """The rows of `clusters` for batches of documents."""
    for batch in batches:
        there, *columns = centroids.assign(batch.column("content"))
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in _KEYS), *(pa.array(column, mask=~there) for column in columns)],
            names=[*_KEYS, "coarse", "cluster", "distance"],
        )
