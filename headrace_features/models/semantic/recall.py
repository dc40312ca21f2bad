"""The step `semantic_recall`: the removed share of semantic duplicates, measured by brute force on a sample.

Two documents without a common cell are never compared, so the misses are measured, as `thresholds` does for
near-duplicates: every document reaching the threshold with a sampled kept one should have been removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from headrace_features.models.semantic.compared import families, vectors_of, with_families
from headrace_features.models.semantic.cosine import Queries
from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.graph.threshold_pairs import exact
from spark_jobs.dedup.membership.keep_priority import sampled
from spark_jobs.dedup.removal.thresholds import comparable
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.lake.engine.arrangement import Shared
from spark_jobs.spark_sql import DataFrame, F

_EARLIER_A_NEW_ONE: Final = 10
_SIMILAR_DDL: Final = "doc_id string, sampled_doc_id string"


class SemanticRecallConfig(ConfigModel):
    """The sample, and the required recall."""

    threshold: float = Field(0.9, gt=0, le=1, description="least cosine of a pair")
    sample_documents: int = Field(
        2000, ge=0, le=20_000, description="number of new kept documents, about, that are compared with all others"
    )
    least_recall: float = Field(
        0.9,
        ge=0,
        le=1,
        description="least share of similar documents that were removed; checked from 100 such documents on",
    )
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES


SEMANTIC_RECALL = Table(
    name="semantic_recall",
    comment="One row per increment: what the level semantic compared, removed and missed.",
    columns=(
        Column("threshold!", "double", "least cosine of a pair"),
        Column("compared_count!", "long", "documents of the increment that were compared"),
        Column("removed_count!", "long", "of them, removed"),
        Column("largest_cell!", "long", "most of them in one cell; each is compared with all before it there"),
        Column("sampled_count!", "long", "kept documents that were compared with all others by brute force"),
        Column("similar_count!", "long", "documents that reach the threshold with one of these"),
        Column("found_count!", "long", "of them, removed as they should be"),
        Column("recall", "double", "found_count / similar_count; null where there is none"),
        Column("least_recall!", "double", "recall asked for, where 100 similar documents were found"),
    ),
    key=("threshold",),
    partition=("increment",),
    checks=(
        Check(
            "recall_of_the_sample",
            "similar_count < 100 or found_count >= least_recall * similar_count",
            "of the documents like a sampled one, all but the share that may be missed were removed; fewer cells find "
            "more, and so do more max_pairs",
        ),
    ),
)


@step(version="1", scope=Scope.HISTORY, tables=(SEMANTIC_RECALL,))
def semantic_recall(
    semantic_cells: DataFrame,
    semantic_removals: DataFrame,
    increment: int,
    config: SemanticRecallConfig,
    documents: DataFrame | None = None,
    revisions: DataFrame | None = None,
) -> DataFrame:
    """Compare a sample of the kept documents of an increment with all new and some earlier documents; one row."""
    is_new = F.col("increment") == increment
    gone = semantic_removals.select("doc_id", F.lit(True).alias("gone"))
    new = semantic_cells.where(is_new).join(gone, "doc_id", "left")
    sizes = new.groupBy("cell").agg(F.count("*").alias("documents"), F.count("gone").alias("removed")).collect()
    documents_now, removed = (sum(row[name] for row in sizes) for name in ("documents", "removed"))
    family = families(documents, semantic_cells, config.driver_edges)
    share = config.sample_documents / max(1, documents_now - removed)
    kept = new.where(F.col("gone").isNull() & sampled(share)).select("doc_id", "vector")
    sample = with_families(kept, family).toArrow().sort_by("doc_id")
    earlier = semantic_cells.where(F.col("increment") < increment).count()
    among = semantic_cells.where(is_new | sampled(_EARLIER_A_NEW_ONE * documents_now / max(1, earlier)))
    rows = with_families(among.select("doc_id", "vector"), family)
    similar = partial(_similar, sample=Shared(rows, sample), least=exact(config.threshold))
    similar_rows = rows.mapInArrow(similar, _SIMILAR_DDL)
    similar_rows = similar_rows if revisions is None else comparable(similar_rows, revisions)
    counted = similar_rows.join(gone, "doc_id", "left").agg(
        F.lit(float(config.threshold)).alias("threshold"),
        F.lit(documents_now).cast("long").alias("compared_count"),
        F.lit(removed).cast("long").alias("removed_count"),
        F.lit(max((row["documents"] for row in sizes), default=0)).cast("long").alias("largest_cell"),
        F.lit(len(sample)).cast("long").alias("sampled_count"),
        F.count("*").alias("similar_count"),
        F.count("gone").alias("found_count"),
    )
    recall = F.expr("cast(found_count as double) / nullif(similar_count, 0)").alias("recall")
    return counted.select("*", recall, F.lit(float(config.least_recall)).alias("least_recall"))


def _similar(batches: Iterable[pa.RecordBatch], sample: Shared[pa.Table], least: Fraction) -> Iterator[pa.RecordBatch]:
    """Pairs (doc_id, sampled_doc_id) of two documents with a cosine reaching the threshold."""
    sampled = sample.value
    ids = sampled["doc_id"].combine_chunks()
    for batch in batches if len(sampled) else ():
        everywhere = np.full(len(sampled), 1, np.int64)
        queries = Queries(
            vectors_of(sampled["vector"]), everywhere, sampled["family"].to_numpy(), least, batch.num_rows
        )
        ranks = np.zeros(batch.num_rows, np.int64)
        query, other, _, _ = queries.neighbours(vectors_of(batch["vector"]), ranks, batch["family"].to_numpy())
        matches = batch["doc_id"].take(pa.array(other))
        pairs = pa.RecordBatch.from_arrays(
            [matches, ids.take(pa.array(query)).cast(matches.type)], names=ddl_names(_SIMILAR_DDL)
        )
        yield pairs.filter(pc.not_equal(pairs["doc_id"], pairs["sampled_doc_id"]))
