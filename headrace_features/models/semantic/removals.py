"""The step `semantic_removals`: the documents to remove because a better one of the same meaning is kept.

It decides as `removals` does, by the same code and the same two proofs: a document is removed if and only if a
better neighbour is kept, its witness is the kept one of the highest cosine, and what an earlier increment kept stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import Field

from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.pictures import draw_witness_similarities
from spark_jobs.dedup.removal.removals import RemovalsConfig, kept_pairs, removals, unjustified
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Proof, Table
from spark_jobs.spark_sql import DataFrame, F

_Counterexamples = Callable[[DataFrame, Mapping[str, DataFrame], int | None, RemovalsConfig], DataFrame]


class SemanticRemovalsConfig(ConfigModel):
    """The cosine from which on a document is removed."""

    threshold: float = Field(0.9, gt=0, le=1, description="least cosine; no less than that of the pairs")
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES

    @property
    def deciding(self) -> RemovalsConfig:
        """The config for `removals` with this threshold."""
        return RemovalsConfig(thresholds=(self.threshold,), driver_edges=self.driver_edges)


def _by(
    counterexamples: _Counterexamples,
) -> Callable[[DataFrame, Mapping[str, DataFrame], int | None, SemanticRemovalsConfig], DataFrame]:
    """Adapt a proof of `removals` to the tables of this level, whose names begin with `semantic_`."""

    def proof(
        landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: SemanticRemovalsConfig
    ) -> DataFrame:
        described = {name.removeprefix("semantic_"): _with_repository(frame) for name, frame in frames.items()}
        return counterexamples(_with_repository(landed), described, increment, config.deciding)

    return proof


def _with_repository(frame: DataFrame) -> DataFrame:
    """Add a null column `repository` to removals: this level removes no repository as a whole."""
    return frame.withColumn("repository", F.lit(None).cast("string")) if "witness_doc_id" in frame.columns else frame


SEMANTIC_REMOVALS = Table(
    name="semantic_removals",
    comment="One row per document that goes for one that means the same, with the kept document that justifies it.",
    columns=(
        Column("threshold!", "double", "least cosine at which a document goes"),
        Column("dataset!", "string", "dataset of the removed document"),
        Column("doc_id!", "string", "identity of the removed document"),
        Column("witness_dataset!", "string", "dataset of the witness"),
        Column("witness_doc_id!", "string", "the kept document most like it, of those better"),
        Column("shared_weight!", "long", "product of the two vectors"),
        Column("united_weight!", "long", "product of their lengths, rounded down"),
        Column("similarity!", "double", "cosine: shared_weight / united_weight"),
    ),
    key=("doc_id",),
    partition=("increment",),
    checks=(
        Check("witness_is_another", "witness_doc_id <> doc_id", "no document is its own duplicate"),
        Check(
            "similarity_is_that_of_the_weights",
            "shared_weight between 1 and united_weight and similarity = shared_weight / united_weight",
            "the similarity is the quotient of the two weights",
        ),
    ),
    proofs=(
        Proof(
            "no_kept_pair", "no two kept documents are a stored pair, but for revisions of one path", _by(kept_pairs)
        ),
        Proof("every_removal_has_a_kept_witness", "the witness is kept, and a stored pair of it", _by(unjustified)),
    ),
)


@step(
    version="1",
    scope=Scope.HISTORY,
    tables=(SEMANTIC_REMOVALS,),
    plot=Plot("Cosine of removed documents to the witness", ("threshold", "similarity"), draw_witness_similarities),
)
def semantic_removals(
    semantic_pairs: DataFrame,
    semantic_removals: DataFrame,
    increment: int,
    config: SemanticRemovalsConfig,
    revisions: DataFrame | None = None,
) -> DataFrame:
    """Remove the documents of an increment with a kept better neighbour; one row per document."""
    decided: DataFrame = removals(semantic_pairs, semantic_removals, increment, config.deciding, None, revisions)
    return decided.drop("repository")
