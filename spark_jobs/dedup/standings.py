"""What the rows of `revisions` say about members, for the steps that heed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Policy = Literal["keep", "excise"]
"""Whether what was packed stays."""
PATH = ("dataset", "repository", "path")
"""What makes a path among the members of a corpus."""


def standings(revisions: DataFrame) -> DataFrame:
    """The last row of each member that has any: doc_id, standing, leaves."""
    from pyspark.sql import functions as F

    last = F.max(F.struct("increment", "standing", "leaves")).alias("last")
    return revisions.groupBy("doc_id").agg(last).select("doc_id", "last.standing", "last.leaves")


def paths_of(revisions: DataFrame) -> DataFrame:
    """Members that share their path with another one: doc_id, path_id."""
    return revisions.where("path_id IS NOT NULL").select("doc_id", "path_id").distinct()


def left_members(revisions: DataFrame) -> DataFrame:
    """Members that have left: doc_id."""
    return revisions.where("leaves").select("doc_id").distinct()
