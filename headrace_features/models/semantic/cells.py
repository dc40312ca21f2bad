"""Cells: a partition of the space of vectors; only documents of one cell are compared with each other.

`semantic_centroids` has the centroid of each cell, fitted by K-means on a sample of the first increment and frozen;
`semantic_cells` the two cells nearest to each document. Two documents are compared if they share one of their two
cells. Of n documents in k cells about 2 n^2 / k pairs are compared, and finding the cells costs n k products, so k is
by default the square root of 2 n.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pydantic import Field

from headrace_features.models.clusters import k_means
from headrace_features.models.clusters.centroids import vector_column
from headrace_features.models.semantic.compared import compared, only_encoder, vectors_of
from headrace_features.models.semantic.cosine import nearest_two
from spark_jobs.arrays import Int16Array
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.lake.engine.arrangement import Shared, grouped, persist
from spark_jobs.spark_sql import DataFrame, F

_log = logging.getLogger(__name__)
_CENTROIDS_DDL: Final = "cell int, document_count bigint, vector binary, encoder string"
_CELLS_DDL: Final = (
    "dataset string, doc_id string, place bigint, vector binary, encoder string, cell int, second_cell int"
)


class SemanticCentroidsConfig(ConfigModel):
    """How many cells there are, and the sample they are fitted on."""

    cells: int | None = Field(
        None,
        ge=1,
        le=20_000,
        description="number of cells; by default the square root of twice the documents of the first increment",
    )
    sample_documents: int = Field(50_000, ge=1, description="number of documents, about, on which centroids are fitted")
    max_iterations: int = Field(50, ge=1, description="most rounds of K-means; fewer where no document moves")
    seed: int = Field(0, ge=0, lt=1 << 63, description="seed of the first centroids")


SEMANTIC_CENTROIDS = Table(
    name="semantic_centroids",
    comment="One row per cell: the centroid of its documents.",
    columns=(
        Column("cell!", "int", "from 0, the largest first"),
        Column("document_count!", "long", "documents of the sample that are in it"),
        Column("vector!", "binary", "centroid: little-endian int16, as the vectors of the encoder"),
        Column("encoder!", "string", "SHA-256 of the encoder of these vectors"),
    ),
    key=("cell",),
    partition=("increment",),
    checks=(Check("not_empty", "document_count >= 1", "a cell has a document of the sample"),),
)
SEMANTIC_CELLS = Table(
    name="semantic_cells",
    comment="One row per document that is compared by meaning: its vector and the two cells nearest to it.",
    columns=(
        Column("dataset!", "string", "dataset of the document"),
        Column("doc_id!", "string", "identity of the document"),
        Column("place!", "long", "as in members"),
        Column("vector!", "binary", "by the encoder"),
        Column("encoder!", "string", "SHA-256 of the encoder"),
        Column("cell!", "int", "nearest cell; 0 where there is none"),
        Column("second_cell", "int", "second nearest; null where there are not two"),
    ),
    key=("doc_id",),
    partition=("increment",),
    checks=(Check("two_cells", "coalesce(second_cell, -1) <> cell", "the two cells differ"),),
)


@step(version="1", scope=Scope.FROZEN, tables=(SEMANTIC_CENTROIDS,))
def semantic_centroids(
    survivors: DataFrame, members: DataFrame, vectors: DataFrame, config: SemanticCentroidsConfig
) -> Output:
    """Fit the cells on a sample of the compared documents; one row per cell."""
    rows = persist(compared(survivors, members, vectors))
    only_encoder(rows)
    count = rows.count()
    cells = config.cells or min(20_000, math.isqrt(2 * count) + 1)
    share = config.sample_documents / max(count, 1)
    place = F.xxhash64("doc_id", F.lit("semantic")).bitwiseAND((1 << 63) - 1)
    sample = rows if share >= 1 else rows.where(place < int(share * (1 << 63)))
    fit = functools.partial(_fit, cells=cells, config=config)
    fitted = grouped(sample.select("doc_id", "vector", "encoder"), [], ["doc_id"]).map(fit, _CENTROIDS_DDL)
    return Output({SEMANTIC_CENTROIDS.name: fitted.to_frame()}, persisted=(rows,))


def _fit(batches: Iterable[pa.RecordBatch], cells: int, config: SemanticCentroidsConfig) -> Iterator[pa.RecordBatch]:
    """The rows of `semantic_centroids`, fitted on all vectors of the sample, all in this one task."""
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    rows = pa.Table.from_batches(parts).sort_by("doc_id")
    vectors = vectors_of(rows["vector"])
    centroids = k_means.fit(vectors, cells, config.seed, config.max_iterations)
    sizes = np.bincount(k_means.assign(vectors, centroids)[0], minlength=len(centroids))
    columns = {
        "cell": pa.array(np.arange(len(centroids), dtype=np.int32)),
        "document_count": pa.array(sizes.astype(np.int64)),
        "vector": vector_column(centroids),
        "encoder": pa.array([rows["encoder"][0].as_py()] * len(centroids)),
    }
    yield pa.RecordBatch.from_pydict(columns).filter(pa.array(sizes > 0))


@step(version="1", scope=Scope.INCREMENT, tables=(SEMANTIC_CELLS,))
def semantic_cells(
    survivors: DataFrame, members: DataFrame, vectors: DataFrame, semantic_centroids: DataFrame
) -> DataFrame:
    """Find the two nearest cells of every compared document; one row per document."""
    rows = compared(survivors, members, vectors)
    fitted = semantic_centroids.select("cell", "vector", "encoder").toArrow().sort_by("cell")
    only_encoder(vectors.where("vector IS NOT NULL"), fitted["encoder"][0].as_py() if len(fitted) else None)
    if not len(fitted):
        _log.warning(
            "semantic_cells: the first increment had no vector, so there is one cell, and each document is compared "
            "with all before it; fit cells by a new generation: headrace corpus refresh"
        )
    shared = Shared(rows, vectors_of(fitted["vector"]))
    return rows.mapInArrow(functools.partial(_assign, shared=shared), _CELLS_DDL)


def _assign(batches: Iterable[pa.RecordBatch], shared: Shared[Int16Array]) -> Iterator[pa.RecordBatch]:
    """Append to each document its two nearest cells."""
    for batch in batches:
        first, second = nearest_two(vectors_of(batch["vector"]), shared.value)
        columns = [batch[name] for name in ddl_names(_CELLS_DDL)[:-2]]
        columns += [pa.array(first), pa.array(second, mask=second < 0)]
        yield pa.RecordBatch.from_arrays(columns, names=ddl_names(_CELLS_DDL))
