"""The step `centroids`: the clusters of a corpus, fitted on a sample of its first increment and then frozen.

    sample   survivors with a hash low enough, about `sample_documents` of them
    weigh    document frequency of each bucket of hashed words -> weight of the bucket (`embedding`)
    embed    each becomes a vector
    coarse   K-means over all of them, in one task
    fine     K-means inside each coarse cluster, a task for each; their number is shared out by size
    name     words of the documents nearest to each centroid

On the driver are the weights, 64 KB, and the coarse centroids: nothing that grows with documents. The task of the
coarse clusters holds about 10 bytes per dimension and sampled document. A text of rare words only has no cluster.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pydantic import Field

from headrace_features.models.clusters import k_means
from headrace_features.models.clusters.embedding import BITS, EmbeddingConfig, bucket_weights, document_counts, embed
from headrace_features.models.clusters.labels import label_words
from spark_jobs.arrays import Int16Array, Int64Array, UInt8Array
from spark_jobs.code.grouped_rows import grouped_rows
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped, persist
from spark_jobs.spark_sql import DataFrame, F

_log = logging.getLogger(__name__)
_KEYS: Final = ["dataset", "shard", "doc_id"]
_TYPICAL: Final = 5
_LABEL_WORDS: Final = 8
_LABEL_CHARACTERS: Final = 4096
_CELLS_DDL = "coarse int, cluster int, document_count bigint, vector binary, typical array<string>"
_ROWS_DDL = f"{_CELLS_DDL}, label array<string>, embedding string"


class CentroidsConfig(ConfigModel):
    """How many clusters there are, and the sample they are fitted on."""

    coarse: int = Field(16, ge=1, le=20_000, description="number of coarse clusters")
    fine: int = Field(256, ge=1, le=5_000_000, description="number of clusters, each inside one coarse cluster")
    sample_documents: int = Field(50_000, ge=1, description="number of documents, about, on which centroids are fitted")
    max_iterations: int = Field(50, ge=1, description="most rounds of K-means; fewer where no document moves")
    embedding: EmbeddingConfig = EmbeddingConfig()


CENTROIDS = Table(
    name="centroids",
    comment="One row per cluster, and one per coarse cluster: its centroid, its name, and what it was fitted on.",
    columns=(
        Column("coarse!", "int", "coarse cluster, from 0, the largest first"),
        Column("cluster", "int", "cluster, from 0, by coarse cluster and size; null in the row of a coarse cluster"),
        Column("document_count!", "long", "documents of the sample that are in it"),
        Column("vector!", "binary", "centroid: little-endian int16, of a length up to 2030"),
        Column("typical!", "list<string!>", "doc_id of the documents of the sample that are nearest to it, in order"),
        Column("label!", "list<string!>", "words with the most weight in the typical documents"),
        Column("embedding!", "string", "JSON: the config by which texts become vectors"),
    ),
    key=("coarse", "cluster"),
    partition=("increment",),
    sort=("coarse", "cluster"),
    checks=(Check("not_empty", "document_count >= 1", "a cluster has a document of the sample"),),
    sampled=("label",),
)
CENTROID_WEIGHTS = Table(
    name="centroid_weights",
    comment="One row per bucket of hashed words with a weight above 0.",
    columns=(
        Column("bucket!", "int", "bucket, below 65,536"),
        Column("document_count!", "long", "documents of the sample with a word in the bucket"),
        Column("weight!", "int", "weight of a word of the bucket, 1 to 255"),
    ),
    key=("bucket",),
    partition=("increment",),
    sort=("bucket",),
    checks=(Check("weight_in_bounds", "weight between 1 and 255", "a weight is one byte"),),
)


@step(version="1", scope=Scope.FROZEN, tables=(CENTROIDS, CENTROID_WEIGHTS))
def centroids(survivors: DataFrame, texts: DataFrame, config: CentroidsConfig) -> Output:
    """Fit clusters in two levels on a sample of documents, and name them; one row per cluster."""
    spark = survivors.sparkSession
    sample = _sample(survivors, texts, config.sample_documents)
    counted = sample.select("content").mapInArrow(
        functools.partial(_count, config=config.embedding), "bucket int, document_count bigint"
    )
    sums = counted.groupBy("bucket").agg(F.sum("document_count").alias("document_count")).toArrow()
    in_documents, count = _in_documents(sums)
    weights = bucket_weights(in_documents, count, config.fine)
    weighing = np.flatnonzero(weights)
    rows = {"bucket": weighing.astype(np.int32), "document_count": in_documents[weighing]}
    weight_rows = pa.table({**rows, "weight": weights[weighing].astype(np.int32)})

    embedding = functools.partial(_embed, weights=weights, config=config.embedding)
    vectors = persist(sample.select("doc_id", "content").mapInArrow(embedding, "doc_id string, vector binary"))
    fitted = grouped(vectors, []).map(functools.partial(_fit_coarse, config=config), _CELLS_DDL).to_frame()
    plan = CellPlan.of(fitted.toArrow(), config)
    assign = functools.partial(_assign_coarse, plan=plan)
    assigned = vectors.mapInArrow(assign, "doc_id string, vector binary, coarse int")
    fit = functools.partial(_fit_fine, plan=plan, config=config)
    cells = grouped(assigned, ["coarse"], ["doc_id"]).map(fit, _CELLS_DDL).to_frame()
    exploded = cells.select("*", F.posexplode("typical").alias("place", "doc_id"))
    texts_of = sample.select("doc_id", F.substring("content", 1, _LABEL_CHARACTERS).alias("content"))
    of_clusters = grouped(exploded.join(texts_of, "doc_id"), ["coarse", "cluster"], ["place"])
    named = of_clusters.map(functools.partial(_name, weights=weights, config=config.embedding), _ROWS_DDL)
    frames = {CENTROIDS.name: named.to_frame(), CENTROID_WEIGHTS.name: spark.createDataFrame(weight_rows)}
    return Output(frames, persisted=(vectors,))


def _sample(survivors: DataFrame, texts: DataFrame, sample_documents: int) -> DataFrame:
    """Keys and contents of about `sample_documents` survivors, chosen by the hash of their id."""
    share = sample_documents / max(survivors.count(), 1)
    chosen = survivors.select(_KEYS)
    if share < 1:
        place = F.xxhash64("doc_id", F.lit("centroids")).bitwiseAND((1 << 63) - 1)
        chosen = chosen.where(place < int(share * (1 << 63)))
    return texts.select(*_KEYS, "content").join(chosen, _KEYS, "left_semi")


def _count(batches: Iterable[pa.RecordBatch], config: EmbeddingConfig) -> Iterator[pa.RecordBatch]:
    """Document frequency of each bucket in a task; the row of bucket -1 has the number of documents."""
    total, documents = np.zeros(1 << BITS, np.int64), 0
    for batch in batches:
        total += document_counts(batch.column("content"), config)
        documents += batch.num_rows
    there = np.flatnonzero(total)
    buckets = np.append(there, -1).astype(np.int32)
    counts = np.append(total[there], documents)
    yield pa.RecordBatch.from_arrays([pa.array(buckets), pa.array(counts)], names=["bucket", "document_count"])


def _in_documents(sums: pa.Table) -> tuple[Int64Array, int]:
    """(2^BITS,) document frequency of each bucket in the sample, and the number of sampled documents."""
    buckets, counts = (sums.column(name).to_numpy() for name in ("bucket", "document_count"))
    document_counts = np.zeros(1 << BITS, np.int64)
    document_counts[buckets[buckets >= 0]] = counts[buckets >= 0]
    return document_counts, int(counts[buckets < 0].sum())


def vector_column(vectors: Int16Array) -> pa.Array:
    """(D,) binary values of (D, V) vectors, each V little-endian int16."""
    flat = np.ascontiguousarray(vectors, "<i2")
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(2 * flat.shape[1]), len(flat), [None, pa.py_buffer(flat.tobytes())]
    )
    return fixed.cast(pa.binary())


def vector_array(column: pa.Array | pa.ChunkedArray, dimensions: int) -> Int16Array:
    """(D, V) vectors of (D,) binary values, the inverse of `vector_column`; V is `dimensions`."""
    return np.frombuffer(b"".join(column.to_pylist()), "<i2").astype(np.int16).reshape(-1, dimensions)


def _embed(batches: Iterable[pa.RecordBatch], weights: UInt8Array, config: EmbeddingConfig) -> Iterator[pa.RecordBatch]:
    """Ids and vectors of the documents with a vector other than 0."""
    for batch in batches:
        vectors = embed(batch.column("content"), weights, config)
        there = np.flatnonzero(vectors.any(axis=1))
        ids = batch.column("doc_id").take(pa.array(there))
        yield pa.RecordBatch.from_arrays([ids, vector_column(vectors[there])], names=["doc_id", "vector"])


class CellPlan:
    """The coarse clusters, and how many clusters each is divided into.

    Attributes:
        vectors: (C, V) coarse centroids.
        counts: (C,) clusters in each, at least one; their sum is at most max(`fine`, C).
        firsts: (C,) number of the first cluster in each.
    """

    def __init__(self, vectors: Int16Array, sizes: Int64Array, fine: int) -> None:
        """Share `fine` clusters out in proportion to `sizes`, by largest remainders; n documents get at most n."""
        self.vectors = vectors
        shares = sizes * max(fine - len(sizes), 0) / max(int(sizes.sum()), 1)
        counts = shares.astype(np.int64)
        left = max(fine - len(sizes), 0) - int(counts.sum())
        counts[np.argsort(-(shares - counts), kind="stable")[:left]] += 1
        self.counts: Int64Array = np.minimum(counts + 1, sizes)
        self.firsts: Int64Array = np.cumsum(self.counts) - self.counts

    @classmethod
    def of(cls, coarse: pa.Table, config: CentroidsConfig) -> CellPlan:
        """The plan for the fitted coarse clusters; warns where there are fewer clusters than the config wants."""
        rows = coarse.sort_by("coarse")
        sizes = rows.column("document_count").to_numpy()
        plan = cls(vector_array(rows.column("vector"), config.embedding.dimensions), sizes, config.fine)
        if len(sizes) < config.coarse or int(plan.counts.sum()) < config.fine:
            _log.warning(
                "centroids: the sample has %d documents with words, enough for %d coarse and %d fine clusters, not for "
                "%d and %d; lower coarse and fine, or raise sample_documents",
                *(int(sizes.sum()), len(sizes), int(plan.counts.sum()), config.coarse, config.fine),
            )
        return plan


def _fit_coarse(batches: Iterable[pa.RecordBatch], config: CentroidsConfig) -> Iterator[pa.RecordBatch]:
    """The rows of the coarse clusters, fitted on all vectors of the sample, all in this one task."""
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    vectors = vector_array(pa.Table.from_batches(parts).sort_by("doc_id")["vector"], config.embedding.dimensions)
    centroids = k_means.fit(vectors, config.coarse, config.embedding.seed, config.max_iterations)
    sizes = np.bincount(k_means.assign(vectors, centroids)[0], minlength=len(centroids))
    yield _cells(np.arange(len(centroids)), None, sizes, centroids, [[] for _ in centroids]).to_batches()[0]


def _assign_coarse(batches: Iterable[pa.RecordBatch], plan: CellPlan) -> Iterator[pa.RecordBatch]:
    """Append the nearest coarse cluster of each vector."""
    for batch in batches:
        nearest, _ = k_means.assign(vector_array(batch.column("vector"), plan.vectors.shape[1]), plan.vectors)
        yield batch.append_column("coarse", pa.array(nearest, pa.int32()))


def _fit_fine(batches: Iterable[pa.RecordBatch], plan: CellPlan, config: CentroidsConfig) -> Iterator[pa.RecordBatch]:
    """For each coarse cluster its row and those of the clusters inside it; vectors come by (coarse, doc_id)."""
    for rows in grouped_rows(batches, ("coarse",)):
        yield from _fit_cell(rows, plan, config).to_batches()


def _fit_cell(rows: pa.Table, plan: CellPlan, config: CentroidsConfig) -> pa.Table:
    """The row of one coarse cluster and those of the clusters fitted on its vectors, `rows`."""
    number = rows.column("coarse")[0].as_py()
    vectors = vector_array(rows.column("vector"), config.embedding.dimensions)
    # Each cell draws from a stream of its own; a seed of PCG64 may have any number of bits.
    seed = config.embedding.seed + (number + 1 << 64)
    centroids = k_means.fit(vectors, int(plan.counts[number]), seed, config.max_iterations)
    labels, squares = k_means.assign(vectors, centroids)
    distances = k_means.assign(vectors, plan.vectors[number : number + 1])[1]
    ids = np.asarray(rows.column("doc_id").to_pylist(), object)
    typical = [_nearest(ids, distances)]
    typical += [_nearest(ids[labels == label], squares[labels == label]) for label in range(len(centroids))]
    numbers = plan.firsts[number] + np.arange(-1, len(centroids))
    sizes = np.append(len(vectors), np.bincount(labels, minlength=len(centroids)))
    centres = np.vstack([plan.vectors[number : number + 1], centroids])
    return _cells(np.full(len(centres), number), numbers, sizes, centres, typical)


def _nearest(ids: Any, squares: Int64Array) -> list[str]:
    """Ids of the nearest documents, at most `_TYPICAL`; ids come sorted, so ties go to the lower id."""
    return [str(doc_id) for doc_id in ids[np.argsort(squares, kind="stable")[:_TYPICAL]]]


def _cells(
    coarse: Int64Array, cluster: Int64Array | None, sizes: Int64Array, vectors: Int16Array, typical: list[list[str]]
) -> pa.Table:
    """Rows of `_CELLS_DDL`; with `cluster`, the first row is that of the coarse cluster and gets a null number."""
    numbers = pa.nulls(len(coarse), pa.int32())
    if cluster is not None:
        numbers = pa.array(cluster.astype(np.int32), mask=np.arange(len(cluster)) == 0)
    return pa.table(
        {
            "coarse": pa.array(coarse.astype(np.int32)),
            "cluster": numbers,
            "document_count": pa.array(sizes.astype(np.int64)),
            "vector": vector_column(vectors),
            "typical": pa.array(typical, pa.list_(pa.string())),
        }
    )


def _name(batches: Iterable[pa.RecordBatch], weights: UInt8Array, config: EmbeddingConfig) -> Iterator[pa.RecordBatch]:
    """The row of each cluster with its label. Input: one row per typical document, by (cluster, nearness)."""
    settings = pa.array([json.dumps(config.model_dump(), sort_keys=True)])
    columns = ["coarse", "cluster", "document_count", "vector", "typical"]
    for rows in grouped_rows(batches, ("coarse", "cluster")):
        words = label_words(rows.column("content").to_pylist(), weights, config, _LABEL_WORDS)
        named = rows.slice(0, 1).select(columns).append_column("label", pa.array([words], pa.list_(pa.string())))
        yield from named.append_column("embedding", settings).to_batches()
