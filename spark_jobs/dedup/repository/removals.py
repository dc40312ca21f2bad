"""Repository removals: the repositories that go as a whole because a better one like them stays, each with its witness.

What an increment brings of a repository is no duplicate of what earlier ones brought of the same repository, where the
dataset's policy is `latest`: its files are newer revisions, and `removals` decides about those that are not.

Decided as documents are (`removals`): by the pairs of the increment, in the order (increment, place, id), a repository
goes if and only if a better neighbour is kept. Its witness is the kept better neighbour of the highest J. Pairs count
where both ends lie in one piece of a component (`repository_components`: all of them, as long as nothing is cut). What
an earlier increment kept is never retracted, and what it removed is nobody's witness.

Its files leave with a removed repository, but only those that something kept says too: `removals` decides about them,
each with a witness of its own, and what it alone has stays. Two kinds of files do not leave, but are judged like all
others: the exact witness of another file of the same increment whose repository does not go, which stays in the other's
name, and members of large buckets (see `large_buckets`). Of those not all pairs are stored, because who is kept among
them was settled in the order without repositories. Were they put last, copies that were compared with one of them alone
would stay beside each other.

    repository  fork  = {a, b, c, l}  goes   d (no repository) has the same bytes as b, and b is its witness
    leaving     a, c                         b does not leave: it is no worse than d is; l is the licence of 600 others
    removed     a, for a' of a kept one      c is like nothing that is kept, and stays

A later increment may bring an exact duplicate of a file that went. It goes too, as a duplicate of something that is
represented by that file's witness.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.membership.repository_facts import repository_files
from spark_jobs.dedup.near.bucket_members import DEFAULT_MAX_BUCKET_PAIRS, MaxBucketPairs, all_members, with_pair_count
from spark_jobs.dedup.pictures import draw_witness_similarities
from spark_jobs.dedup.removal.removals import RemovalsConfig, removals
from spark_jobs.lake.declare.step import Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Proof, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AS_DOCUMENTS = {"repository_id": "doc_id", "better_repository_id": "better_doc_id"}


class RepositoryRemovalsConfig(BaseModel):
    """From which similarity on a repository goes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float = Field(0.7, gt=0, le=1, description="as in repository_pairs")
    latest: tuple[str, ...] = Field((), description="datasets of which only the latest document of a path counts")
    max_bucket_pairs: MaxBucketPairs = DEFAULT_MAX_BUCKET_PAIRS
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES


def kept_pairs(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: RepositoryRemovalsConfig
) -> DataFrame:
    """Pairs of the increment, inside a piece, whose two repositories are both kept; there are none.

    Args:
        landed: rows of `repository_removals` of the increment.
        frames: `repository_pairs`, `repository_components` and `repository_removals` of the increments before.
        increment: the increment.
        config: datasets whose repositories have revisions.

    Returns:
        Rows (repository_id, better_repository_id).
    """
    removed = _removed(landed, frames)
    counted = _counted(frames["repository_pairs"], frames["repository_components"], increment, config)
    better = removed.withColumnRenamed("repository_id", "better_repository_id")
    kept = counted.join(removed, "repository_id", "left_anti").join(better, "better_repository_id", "left_anti")
    return kept.select("repository_id", "better_repository_id")


def unjustified(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: RepositoryRemovalsConfig
) -> DataFrame:
    """Removals without a kept witness that is their pair, with the weights written; there are none.

    Args:
        landed: rows of `repository_removals` of the increment.
        frames: `repository_pairs`, `repository_components` and `repository_removals` of the increments before.
        increment: the increment.
        config: datasets whose repositories have revisions.

    Returns:
        Rows (repository_id, witness_repository_id).
    """
    keys = ["repository_id", "witness_repository_id", "shared_weight", "united_weight"]
    counted = _counted(frames["repository_pairs"], frames["repository_components"], increment, config)
    pairs = counted.withColumnRenamed("better_repository_id", "witness_repository_id").select(*keys)
    removed = _removed(landed, frames).withColumnRenamed("repository_id", "witness_repository_id")
    no_pair = landed.join(pairs, keys, "left_anti").select(*keys[:2])
    return no_pair.unionByName(landed.join(removed, keys[1], "left_semi").select(*keys[:2]))


def _removed(landed: DataFrame, frames: Mapping[str, DataFrame]) -> DataFrame:
    """repository_id of everything removed up to now."""
    now = landed.select("repository_id")
    own = frames.get("repository_removals")
    return now if own is None else now.unionByName(own.select("repository_id"))


def lost_witnesses(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: RepositoryRemovalsConfig
) -> DataFrame:
    """Exact duplicates of the increment that do not leave though their witness does; there are none.

    Args:
        landed: rows of `repository_removal_files` of the increment.
        frames: `exact_duplicates`, among others.
        increment: the increment.
        config: not needed here.

    Returns:
        Rows (doc_id, witness_doc_id).
    """
    from pyspark.sql import functions as F

    exact = frames["exact_duplicates"].where(F.col("increment") == F.lit(increment)).select("doc_id", "witness_doc_id")
    leaving = landed.select(F.col("doc_id").alias("witness_doc_id"))
    return exact.join(leaving, "witness_doc_id", "left_semi").join(landed, "doc_id", "left_anti")


REPOSITORY_REMOVALS = Table(
    name="repository_removals",
    comment="One row per repository that goes, with the kept repository that justifies it.",
    columns=(
        Column("dataset!", "string", "dataset of the removed repository"),
        Column("repository!", "string", "its name"),
        Column("repository_id!", "string", "its identity: what one increment brought of it"),
        Column("witness_dataset!", "string", "dataset of the witness"),
        Column("witness_repository!", "string", "the kept repository most like it, of those better"),
        Column("witness_repository_id!", "string", "its identity"),
        Column("shared_weight!", "long", "weight that both bags share: sum of the lesser weights"),
        Column("united_weight!", "long", "weight of both bags together: sum of the greater weights"),
        Column("similarity!", "double", "weighted Jaccard similarity: shared_weight / united_weight"),
        Column("containment!", "double", "share of the lesser repository in the other, as in repository_pairs"),
    ),
    key=("repository_id",),
    partition=("increment",),
    checks=(
        Check("witness_is_another", "witness_repository_id <> repository_id", "none is its own duplicate"),
        Check(
            "similarity_is_that_of_the_weights",
            "shared_weight between 1 and united_weight and similarity = shared_weight / united_weight",
            "the similarity is the quotient of the two weights",
        ),
    ),
    proofs=(
        Proof("no_kept_pair", "no two kept repositories are a pair inside a piece", kept_pairs),
        Proof("every_removal_has_a_kept_witness", "the witness is kept, and a verified pair of it", unjustified),
    ),
)

REPOSITORY_REMOVAL_FILES = Table(
    name="repository_removal_files",
    comment="One row per file that leaves with its repository; it goes where `removals` finds a kept document like it.",
    columns=(
        Column("doc_id!", "string", "identity of the file"),
        Column("dataset!", "string", "its dataset"),
        Column("repository!", "string", "the removed repository"),
    ),
    key=("doc_id",),
    partition=("increment",),
    proofs=(Proof("no_lost_witness", "whoever's exact witness leaves, leaves as well", lost_witnesses),),
)


def _draw(rows: pa.Table) -> bytes:
    """Similarity to the witness, as that of documents is drawn."""
    return draw_witness_similarities(rows.append_column("threshold", pa.array([0.0] * rows.num_rows)))


@step(
    version="3",
    scope=Scope.HISTORY,
    tables=(REPOSITORY_REMOVALS, REPOSITORY_REMOVAL_FILES),
    plot=Plot("Similarity of removed repositories to the witness", ("similarity",), _draw),
)
def repository_removals(
    repository_pairs: DataFrame,
    repository_components: DataFrame,
    members: DataFrame,
    exact_duplicates: DataFrame,
    buckets: DataFrame,
    repository_removals: DataFrame,
    increment: int,
    config: RepositoryRemovalsConfig,
) -> Output:
    """Remove the repositories of an increment that have a kept better neighbour, and name the files that may go.

    Args:
        repository_pairs: rows of `repository_pairs` of increments 0 to `increment`, with the column `increment`.
        repository_components: the same of `repository_components`.
        members: the same of `members`.
        exact_duplicates: the same of `exact_duplicates`.
        buckets: the same of `buckets`.
        repository_removals: own rows of the increments before.
        increment: the increment whose repositories are decided.
        config: the threshold, and from when on a bucket is large.

    Returns:
        Rows of `repository_removals` and of `repository_removal_files`.
    """
    from pyspark.sql import functions as F

    counted = _counted(repository_pairs, repository_components, increment, config)
    own = repository_removals.select(F.col("repository_id").alias("doc_id"), F.lit(config.threshold).alias("threshold"))
    deciding = RemovalsConfig(thresholds=(config.threshold,), driver_edges=config.driver_edges)
    decided = removals(counted.withColumnsRenamed(_AS_DOCUMENTS), own, increment, deciding)
    ids = {"doc_id": "repository_id", "witness_doc_id": "witness_repository_id"}
    names = counted.select(
        "repository_id",
        "repository",
        F.col("better_repository_id").alias("witness_repository_id"),
        F.col("better_repository").alias("witness_repository"),
        "containment",
    )
    removed = decided.drop("repository").withColumnsRenamed(ids).join(names, list(ids.values())).persist()
    leaving = _leaving(removed, members, exact_duplicates, increment)
    leaving = leaving.join(_in_large(buckets, increment, config.max_bucket_pairs), "place", "left_anti").drop("place")
    rows = removed.select([column.name for column in REPOSITORY_REMOVALS.columns])
    return Output({"repository_removals": rows, "repository_removal_files": leaving}, {}, (removed,))


def _counted(
    pairs: DataFrame, components: DataFrame, increment: int | None, config: RepositoryRemovalsConfig
) -> DataFrame:
    """Pairs of the increment whose two ends lie in one piece and are no revisions of each other."""
    from pyspark.sql import functions as F

    now = F.col("increment") == F.lit(increment)
    pieces = components.where(now).select("repository_id", "piece")
    better = pieces.withColumnRenamed("repository_id", "better_repository_id")
    itself = F.expr("dataset = better_dataset AND repository = better_repository")
    others = pairs.where(now & ~(itself & F.col("dataset").isin(*config.latest)))
    return others.join(pieces, "repository_id").join(better, ["better_repository_id", "piece"]).drop("piece")


def _leaving(removed: DataFrame, members: DataFrame, exact_duplicates: DataFrame, increment: int) -> DataFrame:
    """Files of removed repositories, but for exact witnesses of files that do not go with one."""
    from pyspark.sql import functions as F

    now = F.col("increment") == F.lit(increment)
    files = repository_files(members.where(now)).join(removed.select("repository_id"), "repository_id", "left_semi")
    staying = exact_duplicates.where(now).join(files.select("doc_id"), "doc_id", "left_anti")
    needed = staying.select(F.col("witness_doc_id").alias("doc_id")).distinct()
    return files.join(needed, "doc_id", "left_anti").select("doc_id", "dataset", "repository", "place")


def _in_large(buckets: DataFrame, increment: int, most: int) -> DataFrame:
    """Places of the members of the large buckets of an increment."""
    from pyspark.sql import functions as F

    large = with_pair_count(buckets.where(F.col("increment") == F.lit(increment))).where(F.col("pair_count") > most)
    return large.mapInArrow(all_members, "place bigint").distinct()
