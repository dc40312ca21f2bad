"""Thresholds: counts of what each similarity threshold keeps of an increment, and the measured recall.

Recall is measured, not assumed: a sample of the kept documents is compared exactly with all others that it could be
similar to (`sample_join`). All documents that reach a threshold with a sampled one should be removed at it; those that
are not were missed. The sample is compared with its own increment and with ten times as many earlier documents, so that
the cost grows with the increment and not with the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from spark_jobs.arrays import Int32Array
from spark_jobs.dedup.graph.threshold_pairs import (
    KindThreshold,
    KindThresholds,
    exact,
    of_kinds,
    one_group,
    reaches,
    with_group,
)
from spark_jobs.dedup.membership.keep_priority import sampled
from spark_jobs.dedup.membership.revisions import left_members, paths_of
from spark_jobs.dedup.near.pair_columns import BAG
from spark_jobs.dedup.pictures import draw_kept
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.lake.engine.arrangement import Shared, persist, release
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    from spark_jobs.dedup.near.sample_join import SampleIndex


class _Sample(NamedTuple):
    """Sampled documents: the index of their bags, and row by row their ids and the bits of groups that remove each."""

    bags: SampleIndex
    ids: pa.Array
    gone: Int32Array


_EARLIER_A_NEW_ONE = 10
_SAMPLE_TOKENS = 4_000_000  # of all sampled documents: about 100 MB for a worker
_SIMILAR_DDL = "doc_id string, sampled_doc_id string, sampled_gone int, shared_weight bigint, united_weight bigint"


class ThresholdsConfig(ConfigModel):
    """The thresholds that are compared, and the recall that is required."""

    thresholds: KindThresholds = Field(
        KindThresholds(), description="similarities from which on two documents are duplicates"
    )
    sample_documents: int = Field(
        4000, ge=0, le=20_000, description="new documents, about, that are compared with all others to measure recall"
    )
    least_recall: float = Field(
        0.999,
        ge=0,
        le=1,
        description="share of the duplicates of sampled documents that must have been removed, where there are 100; "
        "less where `bands` had to lower the recall",
    )


THRESHOLDS = Table(
    name="thresholds",
    comment="One row per increment and threshold: what of the increment's members would go and stay.",
    columns=(
        Column("threshold!", "double", "weighted Jaccard similarity from which on two documents are duplicates"),
        Column("member_count!", "long", "members of the increment"),
        Column("exact_removed_count!", "long", "of them, removed as exact duplicates"),
        Column("near_removed_count!", "long", "of the others, removed as near-duplicates"),
        Column("repository_removed_count!", "long", "of the others, removed with their repositories"),
        Column("kept_count!", "long", "members that stay"),
        Column("kept_byte_count!", "long", "bytes of the kept"),
        Column("removed_byte_count!", "long", "bytes of all removed"),
        Column("component_count!", "long", "components that a pair of the increment belongs to"),
        Column("largest_component!", "long", "documents in the largest of these; 0 where there is none"),
        Column("sampled_count!", "long", "kept documents that were compared with all others"),
        Column("similar_count!", "long", "documents that reach the threshold with one of these, by their bags"),
        Column("found_count!", "long", "of them, removed as they should be"),
        Column("recall", "double", "found_count / similar_count; null where there is none"),
        Column("least_recall!", "double", "recall asked for, where 100 similar documents were found"),
    ),
    key=("threshold",),
    partition=("increment",),
    checks=(
        Check(
            "every_member_is_counted_once",
            "kept_count + exact_removed_count + near_removed_count + repository_removed_count = member_count "
            "and kept_count >= 0",
            "a member is kept, or removed as exact, as near, or with its repository",
        ),
        Check(
            "recall_of_the_sample",
            "similar_count < 100 or found_count >= least_recall * similar_count",
            "of the documents like a sampled one, all but the share that may be missed were removed",
        ),
    ),
)


@step(
    version="3",
    scope=Scope.HISTORY,
    tables=(THRESHOLDS,),
    plot=Plot(
        "What each threshold keeps, and the recall measured",
        (
            *("threshold", "member_count", "kept_count", "kept_byte_count", "removed_byte_count"),
            *("similar_count", "found_count"),
        ),
        draw_kept,
    ),
)
def thresholds(
    members: DataFrame,
    exact_duplicates: DataFrame,
    removals: DataFrame,
    components: DataFrame,
    bags: DataFrame,
    bands: DataFrame,
    increment: int,
    config: ThresholdsConfig,
    revisions: DataFrame | None = None,
) -> DataFrame:
    """Count the members that every threshold keeps and removes; one row per threshold, also without removals.

    Without `revisions` no member is a revision of another.
    """
    here = F.col("increment") == increment
    listed = members.sparkSession.createDataFrame(
        [(value,) for value in config.thresholds.together], "threshold double"
    )
    exact_ones = exact_duplicates.where(here).select("doc_id", F.lit(True).alias("exact"))
    # A document whose witness is its stand-in counts as kept, and the stand-in as the exact duplicate.
    standing_in = exact_duplicates.where(here).select(
        F.col("witness_doc_id").alias("doc_id"), F.col("doc_id").alias("witness_doc_id")
    )
    flagged = members.where(here).select("doc_id", "byte_count").join(exact_ones, "doc_id", "left")
    total = flagged.agg(
        F.count("*").alias("member_count"),
        F.count("exact").alias("exact_removed_count"),
        F.coalesce(F.sum("byte_count"), F.lit(0)).alias("member_byte_count"),
        F.coalesce(F.sum(F.when(F.col("exact"), F.col("byte_count"))), F.lit(0)).alias("exact_byte_count"),
    )
    gone = (
        flagged.where("exact is null")
        .join(removals.where(here).join(standing_in, ["doc_id", "witness_doc_id"], "left_anti"), "doc_id")
        .groupBy("threshold")
        .agg(
            F.count_if(F.col("repository").isNull()).alias("near_removed_count"),
            F.count("repository").alias("repository_removed_count"),
            F.sum("byte_count").alias("gone_byte_count"),
        )
    )
    linked = (
        components.where(here & (F.col("doc_id") == F.col("component")))
        .groupBy("threshold")
        .agg(F.count("*").alias("component_count"), F.max("document_count").cast("long").alias("largest_component"))
    )
    counted = listed.join(gone, "threshold", "left").join(linked, "threshold", "left").fillna(0)
    expected = bands.where(here).agg(F.coalesce(F.min("recall"), F.lit(1.0)).alias("expected"))
    # Three standard deviations below the recall that lowered bands expect, or every other run would fail by chance.
    chance = 3 * F.sqrt(F.col("expected") * (1 - F.col("expected")) / F.greatest(F.col("similar_count"), F.lit(1)))
    lowered = F.greatest(F.col("expected") - chance, F.lit(0.0))
    least_recall = F.when(F.col("expected") < config.least_recall, lowered).otherwise(F.lit(config.least_recall))
    return (
        counted.crossJoin(total)
        .join(_recall(bags, removals, revisions, increment, config), "threshold")
        .crossJoin(expected)
        .select(
            "threshold",
            "member_count",
            "exact_removed_count",
            "near_removed_count",
            "repository_removed_count",
            F.expr("member_count - exact_removed_count - near_removed_count - repository_removed_count").alias(
                "kept_count"
            ),
            F.expr("member_byte_count - exact_byte_count - gone_byte_count").alias("kept_byte_count"),
            F.expr("exact_byte_count + gone_byte_count").alias("removed_byte_count"),
            "component_count",
            "largest_component",
            "sampled_count",
            "similar_count",
            "found_count",
            F.expr("cast(found_count as double) / nullif(similar_count, 0)").alias("recall"),
            least_recall.alias("least_recall"),
        )
    )


def _recall(
    bags: DataFrame, removals: DataFrame, revisions: DataFrame | None, increment: int, config: ThresholdsConfig
) -> DataFrame:
    """Measure recall on a sample: rows (threshold, sampled_count, similar_count, found_count)."""
    spark = bags.sparkSession
    thresholds, lowest = config.thresholds.together, config.thresholds.lowest
    gone = with_group(removals, thresholds).select("doc_id", one_group("group").alias("bits"))
    every = (1 << len(thresholds)) - 1
    is_new = F.col("increment") == increment
    sizes = bags.groupBy(is_new.alias("new")).agg(F.count("*").alias("documents"), F.sum("token_count").alias("tokens"))
    counts = {row["new"]: (int(row["documents"]), int(row["tokens"])) for row in sizes.collect()}
    documents, tokens = counts.get(True, (0, 0))
    share = min(1.0, config.sample_documents / max(1, documents), _SAMPLE_TOKENS / max(1, tokens))
    sample = _with_gone(bags.where(is_new & sampled(share)).select("doc_id", "kind", *BAG), gone)
    indexed = _indexed(sample.where(f"gone <> {every}").toArrow(), lowest)
    among = bags.where(is_new | sampled(_EARLIER_A_NEW_ONE * documents / max(1, counts.get(False, (0, 0))[0])))
    similar_documents = among.select("doc_id", "kind", *BAG).mapInArrow(
        partial(_similar_documents, shared=Shared(among, indexed), lowest=lowest), _SIMILAR_DDL
    )
    similar_documents = persist(similar_documents)  # it is read twice, to look up which of its documents are removed
    judged = _with_gone(similar_documents if revisions is None else comparable(similar_documents, revisions), gone)
    counts_of = []
    for group, threshold in enumerate(thresholds):
        bit = F.lit(group)
        kept = int(np.count_nonzero(indexed.gone >> group & 1 == 0))
        similar = reaches(threshold) & (F.getbit("sampled_gone", bit) == 0)
        counts_of.append(
            F.struct(
                F.lit(float(threshold)).alias("threshold"),
                F.lit(kept).cast("long").alias("sampled_count"),
                F.count_if(similar).alias("similar_count"),
                F.count_if(similar & (F.getbit("gone", bit) == 1)).alias("found_count"),
            )
        )
    rows = judged.agg(F.array(*counts_of).alias("rows")).select(F.inline("rows")).toArrow()
    release(similar_documents)
    return spark.createDataFrame(rows)


def comparable(similar: DataFrame, revisions: DataFrame) -> DataFrame:
    """Similar documents that may be removed: neither those that left, nor revisions of the sampled one's path."""
    paths = paths_of(revisions)
    sampled = paths.withColumnsRenamed({"doc_id": "sampled_doc_id", "path_id": "sampled_path_id"})
    return (
        similar.join(left_members(revisions), "doc_id", "left_anti")
        .join(paths, "doc_id", "left")
        .join(sampled, "sampled_doc_id", "left")
        .where("(path_id = sampled_path_id) IS NOT TRUE")
    )


def _with_gone(rows: DataFrame, gone: DataFrame) -> DataFrame:
    """Add a column `gone`: the bits of the groups in which a row's document is removed."""
    named = gone.join(rows.select("doc_id").distinct(), "doc_id", "left_semi")
    joined = rows.join(named.groupBy("doc_id").agg(F.bit_or("bits").alias("gone")), "doc_id", "left")
    return joined.fillna(0, ["gone"])


def _compared_at(kinds: pa.ChunkedArray, lowest: KindThreshold) -> Int32Array:
    """(D,) bit of the lowest threshold of each document's kind, among the distinct ones of all kinds."""
    return of_kinds(kinds, lambda kind: 1 << lowest.distinct.index(lowest.of(kind))).astype(np.int32)


def _indexed(sample: pa.Table, lowest: KindThreshold) -> _Sample:
    """Index the sampled documents; the result is sent to every worker."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.near.sample_join import sample_index

    ordered = sample.sort_by("doc_id")
    bags = bags_from_columns(*(ordered.column(name).cast(pa.large_binary()).combine_chunks() for name in BAG))
    ids, gone = ordered.column("doc_id").combine_chunks(), ordered.column("gone").to_numpy().astype(np.int32)
    values = tuple(exact(threshold) for threshold in lowest.distinct)
    return _Sample(sample_index(bags, _compared_at(ordered.column("kind"), lowest), values), ids, gone)


def _similar_documents(
    batches: Iterable[pa.RecordBatch], shared: Shared[_Sample], lowest: KindThreshold
) -> Iterator[pa.RecordBatch]:
    """Pairs of a document and another, sampled one that reach the lowest threshold of their kind."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.near.sample_join import similar_to_sample

    sample = shared.value
    values = tuple(exact(threshold) for threshold in lowest.distinct)
    for batch in batches:
        bags = bags_from_columns(*(batch.column(name) for name in BAG))
        groups = _compared_at(pa.chunked_array([batch.column("kind")]), lowest)
        similar = similar_to_sample(bags, groups, sample.bags, values)
        ids = batch.column("doc_id").take(pa.array(similar.rows))
        sampled = sample.ids.take(pa.array(similar.sampled))
        columns = [
            ids,
            sampled,
            pa.array(sample.gone[similar.sampled]),
            pa.array(similar.shared),
            pa.array(similar.united),
        ]
        rows = pa.RecordBatch.from_arrays(columns, names=ddl_names(_SIMILAR_DDL))
        yield rows.filter(pc.not_equal(ids, sampled))
