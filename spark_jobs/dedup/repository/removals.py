"""Repository removals: the repositories to remove because a similar, better one is kept, each with its witness.

They are decided like documents (`removals`): by the pairs of the increment, in the order (increment, place, id), a
repository is removed if and only if a better neighbour is kept. Its witness is the kept better neighbour of the highest
J. A pair counts if both repositories are in one piece of a component (`repository_components`); without cuts every pair
does. What an earlier increment kept is never retracted, and what it removed is never a witness. Where the dataset's
policy is `latest`, pairs between two increments of one repository do not count: the files of the later one are newer
revisions, and `removals` decides about the others.

The files of a removed repository *leave*: `removals` puts them last in the order, so that each is removed if a similar
document is kept, with a witness of its own, and a file that is similar to no kept one stays. Two kinds of files do not
leave:

- the exact witness of another file of the same increment whose repository is not removed; the best such file is kept
  instead (`stand_ins`)
- members of large buckets (see `large_buckets`), of which not all pairs are stored, because the kept ones among them
  were computed in the order without repositories. If they were put last, copies that had been compared with only one of
    them would both stay. They are judged like the files of any repository.

    repository  fork  = {a, b, c, l}  removed    d (no repository) has the same bytes as b, and b is its witness
    leaving     a, c                         b has the stand-in d; l is the licence of 600 others
    removed     a, for a' of a kept one      b, for d; c is like no kept document, and stays

A later increment may bring an exact duplicate of a file that was removed. It is removed too; the witness of that file
represents both.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pydantic import Field

from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.membership.repository_facts import repository_files
from spark_jobs.dedup.near.bucket_members import DEFAULT_MAX_BUCKET_PAIRS, MaxBucketPairs, all_members, with_pair_count
from spark_jobs.dedup.pictures import draw_witness_similarities
from spark_jobs.dedup.removal.removals import RemovalsConfig, removals
from spark_jobs.dedup.removal.stand_ins import leaving_files
from spark_jobs.lake.declare.step import ConfigModel, Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Proof, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.spark_sql import DataFrame, F

_AS_DOCUMENTS = {"repository_id": "doc_id", "better_repository_id": "better_doc_id"}


class RepositoryRemovalsConfig(ConfigModel):
    """The similarity from which on a repository is removed."""

    threshold: float = Field(0.7, gt=0, le=1, description="as in repository_pairs")
    latest: tuple[str, ...] = Field((), description="datasets of which only the latest document of a path counts")
    max_bucket_pairs: MaxBucketPairs = DEFAULT_MAX_BUCKET_PAIRS
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES


def kept_pairs(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: RepositoryRemovalsConfig
) -> DataFrame:
    """A proof's counterexamples: pairs of the increment, inside a piece, whose two repositories are both kept.

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
    """A proof's counterexamples: removals without a kept witness, or without a stored pair of these weights with it.

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
    """The repository_id of all repositories removed so far."""
    now = landed.select("repository_id")
    earlier = frames.get("repository_removals")
    return now if earlier is None else now.unionByName(earlier.select("repository_id"))


def lost_witnesses(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: RepositoryRemovalsConfig
) -> DataFrame:
    """A proof's counterexamples: exact duplicates of the increment that do not leave though their witness does.

    Returns:
        Rows (doc_id, witness_doc_id).
    """
    exact = frames["exact_duplicates"].where(F.col("increment") == F.lit(increment)).select("doc_id", "witness_doc_id")
    leaving = leaving_files(landed).select(F.col("doc_id").alias("witness_doc_id"))
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
    comment="One row per file that leaves with its repository; it goes where `removals` finds a kept document like it, "
    "or for its stand-in.",
    columns=(
        Column("doc_id!", "string", "identity of the file"),
        Column("dataset!", "string", "its dataset"),
        Column("repository!", "string", "the removed repository"),
        Column("stand_in_dataset", "string", "dataset of the stand-in"),
        Column("stand_in_doc_id", "string", "exact duplicate that does not leave, and is kept in its place"),
    ),
    key=("doc_id",),
    partition=("increment",),
    proofs=(Proof("no_lost_witness", "a file whose exact witness leaves, leaves as well", lost_witnesses),),
)


def _draw(rows: pa.Table) -> bytes:
    """Draw a histogram of removed repositories by similarity to their witness; a PNG."""
    return draw_witness_similarities(rows.append_column("threshold", pa.array([0.0] * rows.num_rows)))


@step(
    version="4",
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
    """Remove the repositories of an increment that have a kept better neighbour, and list their files that leave."""
    counted = _counted(repository_pairs, repository_components, increment, config)
    earlier = repository_removals.select(
        F.col("repository_id").alias("doc_id"), F.lit(config.threshold).alias("threshold")
    )
    deciding = RemovalsConfig(thresholds=(config.threshold,), driver_edges=config.driver_edges)
    decided = removals(counted.withColumnsRenamed(_AS_DOCUMENTS), earlier, increment, deciding)
    ids = {"doc_id": "repository_id", "witness_doc_id": "witness_repository_id"}
    names = counted.select(
        "repository_id",
        "repository",
        F.col("better_repository_id").alias("witness_repository_id"),
        F.col("better_repository").alias("witness_repository"),
        "containment",
    )
    removed = persist(decided.drop("repository").withColumnsRenamed(ids).join(names, list(ids.values())))
    large = _in_large(buckets, increment, config.max_bucket_pairs).withColumn("is_large", F.lit(True))
    leaving = _leaving(removed, members, exact_duplicates, increment).join(large, "place", "left")
    leaving = leaving.where("stand_in_doc_id IS NOT NULL OR is_large IS NULL").drop("place", "is_large")
    rows = removed.select([column.name for column in REPOSITORY_REMOVALS.columns])
    return Output({"repository_removals": rows, "repository_removal_files": leaving}, {}, (removed,))


def _counted(
    pairs: DataFrame, components: DataFrame, increment: int | None, config: RepositoryRemovalsConfig
) -> DataFrame:
    """Pairs of the increment that count: both repositories are in one piece and are no revisions of each other."""
    now = F.col("increment") == F.lit(increment)
    pieces = components.where(now).select("repository_id", "piece")
    better = pieces.withColumnRenamed("repository_id", "better_repository_id")
    itself = F.expr("dataset = better_dataset AND repository = better_repository")
    others = pairs.where(now & ~(itself & F.col("dataset").isin(*config.latest)))
    return others.join(pieces, "repository_id").join(better, ["better_repository_id", "piece"]).drop("piece")


def _leaving(removed: DataFrame, members: DataFrame, exact_duplicates: DataFrame, increment: int) -> DataFrame:
    """Files of removed repositories; an exact witness of files that do not leave has the best of them as stand-in."""
    now = F.col("increment") == F.lit(increment)
    files = repository_files(members.where(now)).join(removed.select("repository_id"), "repository_id", "left_semi")
    staying = exact_duplicates.where(now).join(files.select("doc_id"), "doc_id", "left_anti")
    order = F.struct("place", "doc_id", "dataset")
    best = staying.select("doc_id", "witness_doc_id").join(members.where(now), "doc_id").groupBy("witness_doc_id")
    stand_ins = best.agg(F.min(order).alias("best")).select(
        F.col("witness_doc_id").alias("doc_id"),
        F.col("best.dataset").alias("stand_in_dataset"),
        F.col("best.doc_id").alias("stand_in_doc_id"),
    )
    leaving = files.select("doc_id", "dataset", "repository", "place")
    return leaving.join(stand_ins, "doc_id", "left")


def _in_large(buckets: DataFrame, increment: int, most: int) -> DataFrame:
    """Rows (place) of the members of large buckets of an increment, those with more than `most` pairs."""
    large = with_pair_count(buckets.where(F.col("increment") == F.lit(increment))).where(F.col("pair_count") > most)
    return large.mapInArrow(all_members, "place bigint").distinct()
