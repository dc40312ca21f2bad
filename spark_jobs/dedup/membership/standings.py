"""Read from the rows of `revisions` which members have left the corpus, and which share a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Policy = Literal["keep", "excise"]
"""Whether documents that were packed stay."""
PATH = ("dataset", "repository", "path")
"""Columns that identify a path among the members of a corpus."""


def standings(revisions: DataFrame) -> DataFrame:
    """The newest standing of each member that has any row: doc_id, standing, leaves."""
    from pyspark.sql import functions as F

    last = F.max(F.struct("increment", "standing", "leaves")).alias("last")
    return revisions.groupBy("doc_id").agg(last).select("doc_id", "last.standing", "last.leaves")


def paths_of(revisions: DataFrame) -> DataFrame:
    """Members that share their path with another one: doc_id, path_id."""
    return revisions.where("path_id IS NOT NULL").select("doc_id", "path_id").distinct()


def left_members(revisions: DataFrame) -> DataFrame:
    """Members that have left: doc_id."""
    return revisions.where("leaves").select("doc_id").distinct()


def counting_pairs(pairs: DataFrame, revisions: DataFrame) -> DataFrame:
    """The pairs that count: the better end has not left by the pair's increment, and the paths of both differ.

    Args:
        pairs: rows with doc_id, better_doc_id and increment, that of the document that comes later.
        revisions: rows of `revisions` of all these increments.
    """
    from pyspark.sql import functions as F

    left = (
        revisions.where("leaves")
        .groupBy(F.col("doc_id").alias("better_doc_id"))
        .agg(F.min("increment").alias("left_in"))
    )
    paths = paths_of(revisions)
    better_paths = paths.withColumnsRenamed({"doc_id": "better_doc_id", "path_id": "better_path_id"})
    return (
        pairs.join(left, "better_doc_id", "left")
        .join(paths, "doc_id", "left")
        .join(better_paths, "better_doc_id", "left")
        .where("(left_in <= increment) IS NOT TRUE AND (path_id = better_path_id) IS NOT TRUE")
        .select(*pairs.columns)
    )
