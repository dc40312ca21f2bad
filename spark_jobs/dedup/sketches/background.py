"""Background: the distribution of the similarity of random pairs of documents, measured once on the corpus.

It decides which bands are cheapest, because false candidates come from its tail (boilerplate), which no model predicts.
All pairs of a sample of each kind are compared exactly; the sample is the documents with the smallest hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.dedup.membership.keep_priority import sampled
from spark_jobs.dedup.pictures import draw_background
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped
from spark_jobs.spark_sql import DataFrame, F

BINS = 1000


class BackgroundConfig(ConfigModel):
    """Size of the sample that is compared."""

    sample_documents: int = Field(
        3000, ge=2, le=20_000, description="documents per kind, about; 3,000 give 4.5 million pairs in about a second"
    )


BACKGROUND = Table(
    name="background",
    comment="One row per kind and thousandth of similarity: how many pairs of a sample have it.",
    columns=(
        Column("kind!", "string", "code, prose, markup or data"),
        Column("similarity!", "double", "lower end of the bin, a multiple of 0.001"),
        Column("pair_count!", "long", "pairs of sampled documents whose weighted Jaccard similarity is in the bin"),
    ),
    key=("kind", "similarity"),
    partition=("increment",),
    sort=("kind", "similarity"),
    checks=(Check("similarity_in_bounds", "similarity between 0 and 1", "similarity is a fraction"),),
)


@step(
    version="1",
    scope=Scope.FROZEN,
    tables=(BACKGROUND,),
    plot=Plot("similarity of unrelated documents", ("kind", "similarity", "pair_count"), draw_background),
)
def background(bags: DataFrame, config: BackgroundConfig) -> DataFrame:
    """Compare all pairs of a sample of each kind; one row per kind and bin that has a pair."""
    sizes = {row["kind"]: int(row["count"]) for row in bags.groupBy("kind").count().collect()}
    chosen = F.lit(False)
    for kind, size in sorted(sizes.items()):
        chosen = chosen | ((F.col("kind") == kind) & sampled(config.sample_documents / size))
    sample = bags.where(chosen).select("kind", "token_hashes", "units", "levels")
    kinds = max(1, len(sizes))
    of_kinds = grouped(sample, ["kind"], most_calls=kinds)
    return of_kinds.map(_histograms, "kind string, similarity double, pair_count bigint").to_frame()


def _histograms(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Histograms by kind: similarities of all pairs of the partition's sampled documents, which are held in memory."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.sketches.similarity import background_counts

    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    sample = pa.Table.from_batches(parts).combine_chunks()
    for kind in sorted(set(sample.column("kind").to_pylist())):
        rows = sample.filter(pa.compute.equal(sample.column("kind"), kind)).combine_chunks()
        columns = [rows.column(name).chunk(0) for name in ("token_hashes", "units", "levels")]
        counts = background_counts(bags_from_columns(*columns), BINS)
        bins = np.flatnonzero(counts)
        yield pa.RecordBatch.from_arrays(
            [pa.array([kind] * len(bins), pa.string()), pa.array(bins / BINS), pa.array(counts[bins])],
            names=["kind", "similarity", "pair_count"],
        )
