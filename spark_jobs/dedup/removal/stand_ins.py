"""Stand-ins: the exact duplicates that are kept instead of files whose repository is removed.

Exact duplicates are found before repositories are compared, so the file that represents a group may belong to a removed
repository. If a duplicate of it is in no removed repository, that one is kept, and the representative is removed with
it as witness: a file of a removed repository is never the witness of one of a kept repository. Bags and pairs are the
representative's.

    group        fork/a.c (its bag is compared)   kept/a.c        fork is removed, kept/a.c is the stand-in
        witnesses    x: fork/a.c      ->  x: kept/a.c, fork/a.c: kept/a.c with J = 1 / 1
                     fork/a.c: y      ->  unchanged: kept/a.c repeats a file with the witness y
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.spark_sql import DataFrame, F


def leaving_files(leaving: DataFrame) -> DataFrame:
    """Rows (doc_id, repository, ..) of the files that leave, without those that have a stand-in."""
    return leaving.where("stand_in_doc_id IS NULL")


def with_stand_ins(removed: DataFrame, leaving: DataFrame, increment: int, thresholds: Sequence[float]) -> DataFrame:
    """Replace kept representatives by their stand-ins, in rows of `removals` of an increment.

    Args:
        removed: rows of `removals` about documents that have bags.
        leaving: rows of `repository_removal_files` of increments 0 to `increment`.
        increment: the increment that is decided.
        thresholds: at each of them a representative that is not removed yet gets a row with its stand-in as witness.
    """
    all_of_them = leaving.where("stand_in_doc_id IS NOT NULL")
    named = all_of_them.select(F.col("doc_id").alias("witness_doc_id"), "stand_in_dataset", "stand_in_doc_id")
    turned = removed.join(named, "witness_doc_id", "left").withColumns(
        {
            "witness_dataset": F.coalesce("stand_in_dataset", "witness_dataset"),
            "witness_doc_id": F.coalesce("stand_in_doc_id", "witness_doc_id"),
        }
    )
    listed = F.array(*(F.lit(float(threshold)) for threshold in thresholds))
    replaced = all_of_them.where(F.col("increment") == increment).select(
        F.explode(listed).alias("threshold"),
        "dataset",
        "doc_id",
        F.col("stand_in_dataset").alias("witness_dataset"),
        F.col("stand_in_doc_id").alias("witness_doc_id"),
        *(F.lit(1).cast("long").alias(name) for name in ("shared_weight", "united_weight")),
        F.lit(1.0).alias("similarity"),
        "repository",
    )
    here = replaced.join(removed.select("threshold", "doc_id"), ["threshold", "doc_id"], "left_anti")
    return turned.select(removed.columns).unionByName(here)


def without_stand_ins(removed: DataFrame, leaving: DataFrame) -> DataFrame:
    """Rows of `removals` about documents that have bags: the inverse of `with_stand_ins`."""
    named = leaving.where("stand_in_doc_id IS NOT NULL").select(
        F.col("stand_in_doc_id").alias("witness_doc_id"),
        F.col("doc_id").alias("represents"),
        F.col("dataset").alias("represents_in"),
    )
    met = removed.join(named, "witness_doc_id", "left").where("(doc_id = represents) IS NOT TRUE")
    turned = met.withColumns(
        {
            "witness_dataset": F.coalesce("represents_in", "witness_dataset"),
            "witness_doc_id": F.coalesce("represents", "witness_doc_id"),
        }
    )
    return turned.select(removed.columns)
