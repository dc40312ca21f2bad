"""Verification: from candidates to pairs with their exact similarity, the cheap tests before the costly one.

    candidates (two places)
      -> with both signatures: sizes that cannot reach the threshold, and signatures that agree too seldom, fall
      -> with both bags: sum of lesser weights / sum of greater weights, exactly

Bags are large, so only those of documents that still have a candidate are moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Of pairs exactly at the threshold one in a million is lost by the test of the signatures.
_SIGNATURE_LOSS = 1e-6
# Up to so many candidates of a later increment their documents are sent to the index, instead of the index to them.
_BROADCAST_CANDIDATES = 4_000_000
_END = ("dataset", "doc_id", "increment", "place", "kind")
_ENDS_DDL = ", ".join(
    f"{side}_{name} {kind}"
    for side in ("left", "right")
    for name, kind in zip(_END, ("string", "string", "int", "bigint", "string"), strict=True)
)
_PAIRS_DDL = f"{_ENDS_DDL}, shared_weight bigint, united_weight bigint"
PAIR_COLUMNS = (
    "right_kind AS kind",
    "right_dataset AS dataset",
    "right_doc_id AS doc_id",
    "right_place AS place",
    "left_dataset AS better_dataset",
    "left_doc_id AS better_doc_id",
    "left_place AS better_place",
    "left_increment AS better_increment",
    "shared_weight",
    "united_weight",
)
"""Columns of verified pairs as rows of `pairs`: the left document is the better one."""


@dataclass(frozen=True)
class Index:
    """What candidates are verified with.

    Attributes:
        signatures: rows of `signatures` of all increments so far.
        bags: rows of `bags` of the same.
        grown: whether most of it may have nothing to do with the candidates, as in a later increment.
    """

    signatures: DataFrame
    bags: DataFrame
    grown: bool


def verified_pairs(
    candidates: DataFrame, candidate_count: int, index: Index, threshold: Fraction
) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """Candidates that are at least as similar as the threshold.

    Args:
        candidates: distinct rows (first bigint, second bigint), two places.
        candidate_count: about how many there are; decides only how they are joined.
        index: signatures and bags.
        threshold: lowest weighted Jaccard similarity.

    Returns:
        Rows left_* and right_* (dataset, doc_id, increment, place, kind), shared_weight and united_weight, where the
        left document comes first in the order (increment, place, doc_id); and DataFrames to unpersist.
    """
    kept: list[DataFrame] = []
    few = index.grown and candidate_count <= _BROADCAST_CANDIDATES
    if few:
        candidates = _kept(candidates, kept)
    agreeing = _agreeing(candidates, index.signatures, threshold, kept if few else None)
    return _exact(agreeing, index.bags, threshold, kept, few), tuple(kept)


def _kept(frame: DataFrame, kept: list[DataFrame]) -> DataFrame:
    """Keep a small DataFrame that is read more than once."""
    kept.append(frame.persist())
    return kept[-1]


def _agreeing(
    candidates: DataFrame, signatures: DataFrame, threshold: Fraction, kept: list[DataFrame] | None
) -> DataFrame:
    """Candidates whose sizes and signatures allow the threshold, with their two documents.

    With a list for what is kept, only the signatures of candidates are moved, found in one scan.
    """
    from pyspark.sql import functions as F

    read = signatures.select(*_END, "total_weight", "signature", "signature_version")
    if kept is not None:
        places = candidates.select(F.explode(F.array("first", "second")).alias("place")).distinct()
        read = _kept(read.join(F.broadcast(places), "place", "left_semi"), kept)

    def side(name: str) -> DataFrame:
        # Pairs of one leader compress so well that Spark takes a million of them for small enough to broadcast.
        return read.select(*(F.col(column).alias(f"{name}_{column}") for column in read.columns)).hint("merge")

    joined = candidates.join(side("left"), F.col("first") == F.col("left_place")).join(
        side("right"), F.col("second") == F.col("right_place")
    )
    lesser = F.least("left_total_weight", "right_total_weight")
    greater = F.greatest("left_total_weight", "right_total_weight")
    sized = joined.where(
        (lesser * threshold.denominator >= greater * threshold.numerator)
        & (F.col("left_kind") == F.col("right_kind"))
        & (F.col("left_signature_version") == F.col("right_signature_version"))
    )
    ends = [f"{name}_{column}" for name in ("left", "right") for column in _END]
    return sized.select(*ends, "left_signature", "right_signature").mapInArrow(
        partial(_agree, threshold=threshold), _ENDS_DDL
    )


def _agree(batches: Iterable[pa.RecordBatch], threshold: Fraction) -> Iterator[pa.RecordBatch]:
    """Rows whose two signatures agree often enough."""
    from spark_jobs.dedup.signature_arrays import signature_rows
    from spark_jobs.dedup.similarity import agreement_counts, least_agreement

    least = least_agreement(threshold, _SIGNATURE_LOSS)
    for batch in batches:
        left, right = (signature_rows(batch.column(f"{side}_signature")) for side in ("left", "right"))
        kept = pa.array(agreement_counts(left, right) >= least)
        yield batch.drop_columns(["left_signature", "right_signature"]).filter(kept)


def _exact(agreeing: DataFrame, bags: DataFrame, threshold: Fraction, kept: list[DataFrame], few: bool) -> DataFrame:
    """Pairs by their bags; the document that comes first is the left one."""
    from pyspark.sql import functions as F

    order = [F.struct(*(f"{side}_{name}" for name in ("increment", "place", "doc_id"))) for side in ("left", "right")]
    turned = [
        F.when(order[0] < order[1], F.col(f"{side}_{name}")).otherwise(F.col(f"{other}_{name}")).alias(f"{side}_{name}")
        for side, other in (("left", "right"), ("right", "left"))
        for name in _END
    ]
    # Two documents at one place come out in all their combinations: one of them is meant.
    ordered = _kept(agreeing.where("left_place <> right_place OR left_doc_id < right_doc_id").select(*turned), kept)
    ids = ordered.select(F.explode(F.array("left_doc_id", "right_doc_id")).alias("doc_id")).distinct()
    needed = bags.select("doc_id", "token_hashes", "units", "levels")
    needed = needed.join(F.broadcast(ids) if few else ids, "doc_id", "left_semi")
    if few:
        needed = _kept(needed, kept)

    def side(name: str) -> DataFrame:
        return needed.select(*(F.col(column).alias(f"{name}_{column}") for column in needed.columns)).hint("merge")

    both = ordered.join(side("left"), "left_doc_id").join(side("right"), "right_doc_id")
    ends = [f"{name}_{column}" for name in ("left", "right") for column in _END]
    columns = [f"{name}_{column}" for name in ("left", "right") for column in ("token_hashes", "units", "levels")]
    return both.select(*ends, *columns).mapInArrow(partial(_overlap, threshold=threshold), _PAIRS_DDL)


def _overlap(batches: Iterable[pa.RecordBatch], threshold: Fraction) -> Iterator[pa.RecordBatch]:
    """Rows with the exact similarity of their bags, of those that reach the threshold."""
    from spark_jobs.dedup.bag_arrays import bags_from_columns
    from spark_jobs.dedup.similarity import overlaps

    names = ("token_hashes", "units", "levels")
    for batch in batches:
        left, right = (
            bags_from_columns(*(batch.column(f"{side}_{name}") for name in names)) for side in ("left", "right")
        )
        shared, united = overlaps(left, right)
        kept = shared * threshold.denominator >= united * threshold.numerator
        ends = batch.drop_columns([f"{side}_{name}" for side in ("left", "right") for name in names])
        whole = ends.append_column("shared_weight", pa.array(shared)).append_column("united_weight", pa.array(united))
        yield whole.filter(pa.array(np.asarray(kept)))
