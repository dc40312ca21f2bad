"""Revisions: the standing of members when their path gets a newer document, an older one again, or none.

A member has the standing `latest` from its increment on. Changes at its source change the standing
(`spark_jobs.sources.landing.revisions`), and every change is a row:

    superseded  another document is the latest at its path now (only where the dataset's policy is `latest`)
    gone        its file, or its record, was deleted at the source
    latest      it replaced another member, or it returned

    increment   at the path    rows
    0           A              -
    1           B              A superseded by B, B latest after A
    2           A again        B superseded by A, A latest after B
    3           no file        A gone

Two rules follow for deduplication. Members with the same `path_id` are never each other's witness: else an edit would
be removed as a near-duplicate of the corrected text. And a member that `leaves`, by the policy `excise`, is no
witness from that increment on; under `keep` packed documents stay, and may justify removals.

A document that returns becomes `latest` if it is a member that has not left. Otherwise the former latest member remains
so until a new generation, because a document is packed with its own increment and no other.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.sources.landing.revisions import latest_at_paths, same_path
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F


class RevisionsConfig(ConfigModel):
    """The members leaving a corpus after a change of their source."""

    latest: tuple[str, ...] = Field((), description="datasets of which only the latest document of a path counts")
    superseded: Policy = Field("keep", description="whether superseded members stay packed or are excised")
    on_delete: Policy = Field("keep", description="whether members that are gone stay packed or are excised")


REVISIONS = Table(
    name="revisions",
    comment="One row per increment and member whose standing among the documents of its path changed.",
    columns=(
        Column("dataset!", "string", "dataset of the member"),
        Column("doc_id!", "string", "identity of the member"),
        Column("path_id", "string", "what all documents of its path share; null where the dataset takes all revisions"),
        Column("standing!", "string", "latest, superseded or gone"),
        Column("other_doc_id", "string", "superseded: by which document; latest: after which member"),
        Column("leaves!", "boolean", "whether it is excised, and from this increment on no removal's witness"),
    ),
    key=("doc_id",),
    partition=("increment",),
    checks=(
        Check("standing_is_known", "standing in ('latest', 'superseded', 'gone')", "a standing is one of three"),
        Check("superseded_by_another", "other_doc_id <> doc_id or other_doc_id is null", "no document replaces itself"),
        Check("latest_stays", "not (leaves and standing = 'latest')", "what is the latest does not leave"),
    ),
)


@step(
    version="1",
    scope=Scope.HISTORY,
    tables=(REVISIONS,),
)
def revisions(
    documents: DataFrame,
    arrivals: DataFrame,
    members: DataFrame,
    revisions: DataFrame,
    increment: int,
    config: RevisionsConfig,
) -> DataFrame:
    """Find the members of changed standing; one row per member."""
    from pyspark.sql import Window

    newest = _newest(documents, arrivals, members, increment).alias("newest")
    met = (
        members.select("doc_id", *PATH, F.col("increment").alias("since"))
        .alias("member")
        .join(newest, same_path("member", "newest", PATH))
        .select("member.*", "gone", "landed", F.col("newest.doc_id").alias("newest"))
        .join(standings(revisions), "doc_id", "left")
        .withColumn("was", F.coalesce("standing", F.lit("latest")))
        .withColumn("had_left", F.coalesce("leaves", F.lit(False)))
        .drop("leaves")
    )
    path = Window.partitionBy(*PATH)
    is_newest = F.col("doc_id") == F.col("newest")
    before = F.struct((F.col("was") == "latest").alias("stood"), "since", "doc_id")
    ranked = (
        met.withColumn("newest_is_in", F.max(is_newest & ~F.col("had_left")).over(path))
        .withColumn("before", F.max(F.when(~is_newest, before)).over(path))
        .withColumn("follows_latest", F.col("dataset").isin(*config.latest))
        .where("landed OR gone OR newest_is_in")
    )
    changed = (
        ranked.withColumn("now", _standing(is_newest))
        .withColumn("leaves", F.col("had_left") | _leaves(config))
        .withColumn("joins", is_newest & F.col("follows_latest") & F.col("before").isNotNull())
        .where("now <> was OR leaves <> had_left OR (joins AND standing IS NULL)")
    )
    other = F.when(F.col("now") == "superseded", F.col("newest")).when(F.col("now") == "latest", F.col("before.doc_id"))
    return changed.select(
        "dataset",
        "doc_id",
        F.when(F.col("follows_latest"), _path_id()).alias("path_id"),
        F.col("now").alias("standing"),
        other.alias("other_doc_id"),
        "leaves",
    )


def _newest(documents: DataFrame, arrivals: DataFrame, members: DataFrame, increment: int) -> DataFrame:
    """The newest document at each path with a member before, or has an arrival with a doc_id now."""
    now = F.col("increment") == F.lit(increment)
    arrived = arrivals.where(now & F.col("doc_id").isNotNull()).select(*PATH, "doc_id", "dataset_increment", "status")
    paths = members.where(~now).select(*PATH).unionByName(arrived.select(*PATH))
    landed = (
        documents.where(now)
        .select(*PATH, "doc_id", "dataset_increment")
        .alias("landed")
        .join(paths.alias("path"), same_path("landed", "path", PATH), "left_semi")
    )
    return latest_at_paths(landed, arrived, PATH, "dataset_increment")


def _standing(is_newest: SparkColumn) -> SparkColumn:
    """The column with the new standing of a member, from the old one (`was`)."""
    replaced = ~is_newest & F.col("follows_latest")
    still = F.col("was") == "latest"
    after_loss = (
        F.when(replaced & F.col("newest_is_in") & still, "superseded").when(still, "gone").otherwise(F.col("was"))
    )
    after_landing = F.when(is_newest, "latest").when(replaced, "superseded").otherwise(F.col("was"))
    return F.when(F.col("gone"), after_loss).otherwise(after_landing)


def _leaves(config: RevisionsConfig) -> SparkColumn:
    """Whether the change takes a member out of the corpus, by its new standing (`now`)."""
    replaced = F.lit(config.superseded == "excise") & (F.col("now") == "superseded")
    return replaced | (F.lit(config.on_delete == "excise") & F.col("gone"))


def _path_id() -> SparkColumn:
    """The identity of a path: 32 hex digits of a SHA-256 over dataset, repository or null, and path."""
    named = F.to_json(F.array("dataset", "repository", "path"))
    return F.substring(F.sha2(named, 256), 1, 32)


Policy = Literal["keep", "excise"]
"""Whether packed documents stay or are excised."""
PATH = ("dataset", "repository", "path")
"""Columns that identify a path among the members of a corpus."""


def standings(revisions: DataFrame) -> DataFrame:
    """The newest standing of each member with any row: doc_id, standing, leaves."""
    last = F.max(F.struct("increment", "standing", "leaves")).alias("last")
    return revisions.groupBy("doc_id").agg(last).select("doc_id", "last.standing", "last.leaves")


def paths_of(revisions: DataFrame) -> DataFrame:
    """Members with the path of another one: doc_id, path_id."""
    return revisions.where("path_id IS NOT NULL").select("doc_id", "path_id").distinct()


def left_members(revisions: DataFrame) -> DataFrame:
    """Former members of the corpus: doc_id."""
    return revisions.where("leaves").select("doc_id").distinct()


def counting_pairs(pairs: DataFrame, revisions: DataFrame) -> DataFrame:
    """Pairs of documents with different paths, the better one not gone by the pair's increment."""
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
