"""Stand-ins: the exact duplicates that are kept in the place of files whose repository goes.

Exact duplicates are found before repositories are compared, so the file that represents a group may belong to a
repository that goes. Where a duplicate of it stays, that one is kept, and the representative goes for it: a file of a
repository that goes is never the reason that one of a kept repository goes. Bags and pairs are the representative's.

    group        fork/a.c (its bag is compared)   kept/a.c        fork goes, kept/a.c is the stand-in
    decided      fork/a.c stays, x goes for it    ->  x goes for kept/a.c, fork/a.c goes for kept/a.c with J = 1 / 1
                 fork/a.c goes for y              ->  as it is: kept/a.c repeats a file that goes for y
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.spark_sql import DataFrame, F


def leaving_files(leaving: DataFrame) -> DataFrame:
    """Rows (doc_id, repository, ..) of the files that leave, without those that have a stand-in."""
    return leaving.where("stand_in_doc_id IS NULL")


def with_stand_ins(removed: DataFrame, leaving: DataFrame, increment: int, thresholds: Sequence[float]) -> DataFrame:
    """Put stand-ins in the place of kept documents, in rows of `removals` of an increment.

    Args:
        removed: rows of `removals`, decided about documents that have bags.
        leaving: rows of `repository_removal_files` of increments 0 to `increment`.
        increment: the increment that is decided.
        thresholds: at each of which a representative that is not removed goes for its stand-in.
    """
    all_of_them = leaving.where("stand_in_doc_id IS NOT NULL")
    named = all_of_them.select(F.col("doc_id").alias("witness_doc_id"), "stand_in_dataset", "stand_in_doc_id")
    turned = removed.join(named, "witness_doc_id", "left").withColumns(
        {
            "witness_dataset": F.coalesce("stand_in_dataset", "witness_dataset"),
            "witness_doc_id": F.coalesce("stand_in_doc_id", "witness_doc_id"),
        }
    )
    listed = F.array(*(F.lit(float(one)) for one in thresholds))
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
    """Rows of `removals` as they were decided, about documents that have bags: the reverse of `with_stand_ins`."""
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
