"""How many documents a survivor stands for: itself and the duplicates that were removed because it is there.

A near-duplicate goes because of its witness, which stays. An exact duplicate goes because of the first document like
it; where that one is a near-duplicate, because of its witness:

    exact   b -> a, c -> a          near   a -> x          x stands for x, a, b, c
"""

from __future__ import annotations

from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.dedup.removal.survivors import applied_removals
from spark_jobs.spark_sql import DataFrame, F


def copies_of(
    exact_duplicates: DataFrame, removals: DataFrame | None, members: DataFrame, threshold: KindThreshold
) -> DataFrame:
    """Count, of the removed documents of an increment, those that each kept document stands for.

    An exact duplicate that is the witness of a removal is kept itself (`survivors`), and counts for nobody.

    Args:
        exact_duplicates: of the increment.
        removals: of the increment; None where near-duplicates are kept.
        members: of the increment.
        threshold: at which near-duplicates are removed.

    Returns:
        Rows (doc_id, documents), itself included, of documents that stand for two or more.
    """
    gone = exact_duplicates.select("doc_id", F.col("witness_doc_id").alias("kept"))
    if removals is not None:
        near = applied_removals(removals, members, threshold).select("doc_id", F.col("witness_doc_id").alias("kept"))
        near = near.dropDuplicates(["doc_id"])
        gone = gone.join(near.select(F.col("kept").alias("doc_id")), "doc_id", "left_anti")
        gone = gone.join(near.select("doc_id"), "doc_id", "left_anti")  # such a one is counted as a near-duplicate
        of_witness = near.select(F.col("doc_id").alias("kept"), F.col("kept").alias("of_kept"))
        gone = gone.join(of_witness, "kept", "left").select("doc_id", F.coalesce("of_kept", "kept").alias("kept"))
        gone = gone.unionByName(near)
    counted = gone.groupBy("kept").agg((F.count("*") + 1).alias("documents"))
    return counted.select(F.col("kept").alias("doc_id"), "documents")
