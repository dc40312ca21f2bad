"""Removals: the documents to remove because a similar, better one is kept, at each threshold, with their witnesses.

The pairs of an increment lead from its documents to better ones: of an earlier increment, or of the same one and
earlier in the order. What an earlier increment kept is never retracted, so only its own documents are decided:

    1. pairs whose better document was removed before do not count, and neither do pairs of two revisions of one path,
    or
       whose better document has left the corpus (see `revisions`)
    2. by the pairs that count, a document is removed if and only if a better neighbour is kept (`kept_set`)
    3. its witness is the kept better neighbour of the highest J; of equals the one that comes first

Files of removed repositories (`leaving`) come last in the order of their increment, and any stored pair counts for
them, at every threshold: such a file is removed if any similar document is kept, and else kept. Their rows name the
repository. Where such a file has a stand-in, an exact duplicate that is not in a removed repository, that one is kept
instead (`stand_ins`).

All thresholds are decided together: a pair has one row, and bit g of its `groups` is set if it counts at threshold
number g. A document that has a pair with a kept better document is removed, so step 3 chooses from the pairs that
remain after step 2.

    J of b -> a is 0.95, of c -> b 0.85      groups of b -> a  0, 1, 2     of c -> b  0, 1
    b is removed in 0, 1, 2                  left of c -> b  none: c is kept;  b has three rows, with the witness a

Sail's process decides from mapped rows (`best_edges`), Spark by joins. Two proofs run on the written rows, by plain
joins or by sorted keys (`mapped_proofs`), and share no decision with the computation: no two kept documents are a pair
that counts (by 1.) at any threshold of the config, and every removed one has a kept witness with which it is such a
pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.graph.kept_set import removed_vertices
from spark_jobs.dedup.graph.threshold_pairs import (
    DEFAULT_THRESHOLDS,
    Thresholds,
    exact,
    groups_reached,
    one_group,
    with_group,
    without,
)
from spark_jobs.dedup.membership.revisions import counting_pairs
from spark_jobs.dedup.pictures import draw_witness_similarities
from spark_jobs.dedup.removal.stand_ins import leaving_files, with_stand_ins, without_stand_ins
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Proof, Table
from spark_jobs.lake.engine.embedded import is_embedded, keep_batches
from spark_jobs.lake.engine.spooled_rows import mapped_rows
from spark_jobs.lake.engine.united import united
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

_REMOVALS_DDL = (
    "threshold double, dataset string, doc_id string, witness_dataset string, witness_doc_id string, "
    "shared_weight bigint, united_weight bigint, similarity double, repository string"
)
_EDGE_COLUMNS = (
    *("groups", "dataset", "doc_id", "better_dataset", "better_doc_id", "better_increment"),
    *("shared_weight", "united_weight", "repository"),
)
_WEIGHT = "decimal(12,0)"
_REACHED = f"cast(shared_weight as {_WEIGHT}) >= cast(threshold as decimal(7,6)) * cast(united_weight as {_WEIGHT})"


class RemovalsConfig(ConfigModel):
    """The similarities from which on a document is removed."""

    thresholds: Thresholds = DEFAULT_THRESHOLDS
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES
    max_rounds: int = Field(
        20,
        ge=1,
        description="rounds on Spark from which on a warning asks for another order or more driver_edges",
        json_schema_extra={"affects_rows": False},
    )


def kept_pairs(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: RemovalsConfig
) -> DataFrame:
    """A proof's counterexamples: pairs of the increment with both documents kept at a threshold that the pair reaches.

    Returns:
        Rows (threshold, doc_id, better_doc_id).
    """
    now = F.lit(increment)
    pairs = _counted(frames["pairs"], increment, frames.get("revisions"))
    leaves = F.lit(False)
    if "leaving" in frames:
        files = leaving_files(frames["leaving"]).select("doc_id", F.lit(True).alias("worse")).distinct()
        others = files.withColumnsRenamed({"doc_id": "better_doc_id", "worse": "better"})
        pairs = pairs.join(files, "doc_id", "left").join(others, "better_doc_id", "left")
        leaves = F.coalesce("worse", F.col("better") & (F.col("better_increment") == now), F.lit(False))
    removed = _removed(landed, frames)
    if is_embedded(landed):
        return _kept_pairs_here(pairs.withColumn("leaves", leaves), removed, config.thresholds)
    listed = landed.sparkSession.createDataFrame(
        [(float(threshold),) for threshold in config.thresholds], "threshold double"
    )
    at_each = pairs.withColumn("leaves", leaves).join(F.broadcast(listed), F.expr(f"leaves or {_REACHED}"))
    at_each = at_each.select("threshold", "doc_id", "better_doc_id")
    better = removed.withColumnRenamed("doc_id", "better_doc_id")
    return at_each.join(removed, ["threshold", "doc_id"], "left_anti").join(
        better, ["threshold", "better_doc_id"], "left_anti"
    )


def unjustified(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: RemovalsConfig
) -> DataFrame:
    """A proof's counterexamples: removals without a kept witness, or without a stored pair of these weights with it.

    Returns:
        Rows (threshold, doc_id, witness_doc_id).
    """
    ends = ["dataset", "doc_id", "witness_dataset", "witness_doc_id"]
    written = [*ends, "shared_weight", "united_weight"]
    renamed = {"better_dataset": "witness_dataset", "better_doc_id": "witness_doc_id"}
    pairs = _counted(frames["pairs"], increment, frames.get("revisions")).withColumnsRenamed(renamed).select(*written)
    if "leaving" in frames:
        landed = without_stand_ins(landed, frames["leaving"])
    stray = landed.where("repository is not null")
    if "leaving" in frames:
        leaving = leaving_files(frames["leaving"]).select("doc_id", "repository")
        turned = pairs.toDF(*ends[2:], *ends[:2], *written[4:])
        pairs = pairs.unionByName(turned.join(leaving, "doc_id", "left_semi"))
        stray = stray.join(leaving, ["doc_id", "repository"], "left_anti")
    removed = _removed(landed, frames)
    if is_embedded(landed):
        bad = _unjustified_here(landed, pairs, removed)
        return united([bad, stray.select(*bad.columns)])
    removed = removed.withColumnRenamed("doc_id", "witness_doc_id")
    no_pair = landed.join(pairs, written, "left_anti")
    not_kept = landed.join(removed, ["threshold", "witness_doc_id"], "left_semi")
    return united([rows.select("threshold", "doc_id", "witness_doc_id") for rows in (no_pair, not_kept, stray)])


def _kept_pairs_here(pairs: DataFrame, removed: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """What `kept_pairs` gives, computed now in Sail's process."""
    from spark_jobs.dedup.removal.mapped_proofs import kept_pair_batches

    columns = ("doc_id", "better_doc_id", "shared_weight", "united_weight", "leaves")
    with mapped_rows(pairs.select(*columns)) as rows, mapped_rows(removed) as gone:
        batches = kept_pair_batches(rows, gone, [exact(threshold) for threshold in thresholds])
        ddl = "threshold double, doc_id string, better_doc_id string"
        return keep_batches(pairs.sparkSession, batches, ddl)


def _unjustified_here(landed: DataFrame, pairs: DataFrame, removed: DataFrame) -> DataFrame:
    """What `unjustified` gives but for stray rows, computed now in Sail's process."""
    from spark_jobs.dedup.removal.mapped_proofs import unjustified_batches

    columns = ("dataset", "doc_id", "witness_dataset", "witness_doc_id", "shared_weight", "united_weight")
    with (
        mapped_rows(landed.select("threshold", *columns)) as written,
        mapped_rows(pairs.select(*columns)) as rows,
        mapped_rows(removed) as gone,
    ):
        ddl = "threshold double, doc_id string, witness_doc_id string"
        return keep_batches(landed.sparkSession, unjustified_batches(written, rows, gone), ddl)


def _removed(landed: DataFrame, frames: Mapping[str, DataFrame]) -> DataFrame:
    """(threshold, doc_id) of all documents removed so far, except those that have a stand-in."""
    rows = landed.unionByName(frames["removals"].select(landed.columns)) if "removals" in frames else landed
    decided = without_stand_ins(rows, frames["leaving"]) if "leaving" in frames else rows
    return decided.select("threshold", "doc_id")


REMOVALS = Table(
    name="removals",
    comment="One row per threshold and document that goes, with the kept document that justifies it.",
    columns=(
        Column("threshold!", "double", "least weighted Jaccard similarity at which a document goes"),
        Column("dataset!", "string", "dataset of the removed document"),
        Column("doc_id!", "string", "identity of the removed document"),
        Column("witness_dataset!", "string", "dataset of the witness"),
        Column("witness_doc_id!", "string", "the kept document most like it, of those better"),
        Column("shared_weight!", "long", "weight that both bags share: sum of the lesser weights"),
        Column("united_weight!", "long", "weight of both bags together: sum of the greater weights"),
        Column("similarity!", "double", "weighted Jaccard similarity: shared_weight / united_weight"),
        Column("repository", "string", "repository that goes, whose file the document is; null for all others"),
    ),
    key=("threshold", "doc_id"),
    partition=("increment",),
    checks=(
        Check("witness_is_another", "witness_doc_id <> doc_id", "no document is its own duplicate"),
        Check(
            "witness_reaches_the_threshold",
            f"repository is not null or {_REACHED}",
            "the witness is as similar as the threshold asks, in exact arithmetic; for a file of a repository "
            "that goes any stored pair will do",
        ),
        Check(
            "similarity_is_that_of_the_weights",
            "shared_weight between 1 and united_weight and similarity = shared_weight / united_weight",
            "the similarity is the quotient of the two weights",
        ),
    ),
    proofs=(
        Proof(
            "no_kept_pair",
            "no two kept documents are a pair at or above the threshold, but for revisions of one path",
            kept_pairs,
        ),
        Proof(
            "every_removal_has_a_kept_witness",
            "the witness is kept, has not left, is no revision of the same path, and a verified pair of it",
            unjustified,
        ),
    ),
)


@step(
    version="3",
    scope=Scope.HISTORY,
    tables=(REMOVALS,),
    plot=Plot("Similarity of removed documents to the witness", ("threshold", "similarity"), draw_witness_similarities),
)
def removals(
    pairs: DataFrame,
    removals: DataFrame,
    increment: int,
    config: RemovalsConfig,
    leaving: DataFrame | None = None,
    revisions: DataFrame | None = None,
) -> DataFrame:
    """Remove the documents of an increment that have a kept better neighbour; one row per threshold and document.

    Args:
        pairs: rows of `pairs` of increments 0 to `increment`, with the column `increment`.
        removals: rows of `removals` of earlier increments.
        increment: the increment whose documents are decided.
        config: thresholds.
        leaving: rows of `repository_removal_files`, of increments 0 to `increment`; None without repository removals.
        revisions: rows of `revisions` of increments 0 to `increment`; without it no document is a revision of another.
    """
    edges = _counted(pairs, increment, revisions).withColumns(
        {"groups": groups_reached(config.thresholds), "repository": F.lit(None).cast("string")}
    )
    if leaving is not None:
        edges = _with_leaving(edges, leaving_files(leaving), increment, (1 << len(config.thresholds)) - 1)
    if increment > 0:
        earlier = removals if leaving is None else without_stand_ins(removals, leaving)
        before = with_group(earlier, config.thresholds).groupBy("doc_id")
        edges = _kept_better(edges, before.agg(F.bit_or(one_group("group")).alias("gone")))
    decided = _decided_here(edges, config) if is_embedded(edges) else _decided(edges, config)
    return decided if leaving is None else with_stand_ins(decided, leaving, increment, config.thresholds)


def _decided(edges: DataFrame, config: RemovalsConfig) -> DataFrame:
    """Rows of `removals` from edges that count, by joins and rounds on Spark."""
    removed = removed_vertices(
        edges.select("groups", F.col("doc_id").alias("worse"), F.col("better_doc_id").alias("better")),
        config.driver_edges,
        config.max_rounds,
    )
    justified = _kept_better(edges, removed.select(F.col("vertex").alias("doc_id"), F.col("groups").alias("gone")))
    return _witnesses(justified, config.thresholds)


def _decided_here(edges: DataFrame, config: RemovalsConfig) -> DataFrame:
    """As `_decided`, in Sail's process and from mapped rows."""
    from spark_jobs.dedup.removal.best_edges import removal_batches

    with mapped_rows(edges.select(*_EDGE_COLUMNS)) as rows:
        return keep_batches(edges.sparkSession, removal_batches(rows, config.thresholds), _REMOVALS_DDL)


def _kept_better(edges: DataFrame, removed: DataFrame) -> DataFrame:
    """Edges, with only the groups in which their better document is not removed; `removed` has rows (doc_id, gone)."""
    met = edges.join(removed.withColumnRenamed("doc_id", "better_doc_id"), "better_doc_id", "left")
    return met.withColumn("groups", without(F.col("groups"), F.col("gone"))).drop("gone").where("groups <> 0")


def _witnesses(justified: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """Rows of `removals` from edges to kept documents: at each threshold the best edge of each document."""
    witness = F.struct(
        *_similarity_ranks(),
        "better_increment",
        "better_doc_id",
        "better_dataset",
        "shared_weight",
        "united_weight",
    )
    at_each = [
        F.struct(
            F.lit(float(threshold)).alias("threshold"),
            F.min(F.when(F.getbit("groups", F.lit(group)) == 1, witness)).alias("witness"),
        )
        for group, threshold in enumerate(thresholds)
    ]
    proofs = justified.groupBy("doc_id", "dataset", "repository").agg(F.array(*at_each).alias("found"))
    return (
        proofs.select("dataset", "doc_id", "repository", F.inline("found"))
        .where("witness is not null")
        .select(
            "threshold",
            "dataset",
            "doc_id",
            F.col("witness.better_dataset").alias("witness_dataset"),
            F.col("witness.better_doc_id").alias("witness_doc_id"),
            "witness.shared_weight",
            "witness.united_weight",
            (F.col("witness.shared_weight") / F.col("witness.united_weight")).alias("similarity"),
            "repository",
        )
    )


def _with_leaving(edges: DataFrame, leaving: DataFrame, increment: int, every_group: int) -> DataFrame:
    """Turn edges of leaving files so that these are the worse end, and put them in all groups; keep other edges."""
    ends = leaving.select("doc_id", F.col("repository").alias("own")).distinct()
    others = ends.withColumnsRenamed({"doc_id": "better_doc_id", "own": "other"})
    met = edges.join(ends, "doc_id", "left").join(others, "better_doc_id", "left")
    # A leaving file of an earlier increment that was kept is as good as any other document.
    other = F.when(F.col("better_increment") == F.lit(increment), F.col("other"))
    turned = F.col("own").isNull() & other.isNotNull()
    swapped = {
        name: F.when(turned, F.col(better)).otherwise(F.col(name))
        for worse, two in (("doc_id", "better_doc_id"), ("dataset", "better_dataset"))
        for name, better in ((worse, two), (two, worse))
    }
    groups = F.when(F.coalesce("own", other).isNotNull(), F.lit(every_group)).otherwise(F.col("groups"))
    repository = F.coalesce("own", other)
    return met.withColumns({**swapped, "groups": groups, "repository": repository}).drop("own", "other")


def _counted(pairs: DataFrame, increment: int | None, revisions: DataFrame | None) -> DataFrame:
    """Pairs of the increment that count: the better document has not left, and the paths differ."""
    now = pairs.where(F.col("increment") == F.lit(increment))
    return now if revisions is None else counting_pairs(now, revisions)


def _similarity_ranks() -> tuple[SparkColumn, SparkColumn]:
    """Two sort keys, the first 24 decimals of J, twelve in each, negated: ascending order begins with the highest J.

    They order the J of pairs exactly as the fractions are, for united weights below 10^12: two fractions with
    denominators a and b differ by at least 1 / ab > 10^-24. Six decimals at a time come from a long division, whose
    products stay below 10^18.
    """
    rest, digits = "shared_weight", []
    for _ in range(4):
        digits.append(f"({rest} * 1000000L) div united_weight")
        rest = f"(({rest} * 1000000L) % united_weight)"
    high, low = (f"-(({first}) * 1000000L + ({second}))" for first, second in (digits[:2], digits[2:]))
    return F.expr(high).alias("rank"), F.expr(low).alias("rank_beyond")
