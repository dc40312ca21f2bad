"""Members: the documents of a corpus, and the keeping order of duplicates among them.

Of documents repeating each other, the one with the lowest `place` is kept. A place is the document's priority, a
coarse class by facts about it, then a hash, so that no dataset or name wins by accident. The hash of its repository
comes first (`keep_priority`), so that of two repositories with the same files one keeps them all:

    place = priority (0..15, 4 bits) | 20 bits of the repository's hash | first 39 bits of doc_id, which is a SHA-256
    the priority has the levels of the criteria of `keep_first` as digits, the first criterion the most significant:
        dataset     its index in the config        starred     its repository has `min_stars` or more
        known_good  its repository is listed       licensed    its licence is known
        original    0 in an original repository, and for files of a fork that its originals lack; 1 in a fork, or a
                            copy of another repository's file, or in a folder of vendored code; 2 in a fork of a fork,
                            or such a copy in a fork

Forks are known by stated facts, else found by their files (`originals`). There are at most 16 classes: criteria are
used from the first on while they fit. With few classes the kept set is found in few parallel rounds (a class for every
document would take as many rounds as there are documents).
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import Field, model_validator

from spark_jobs.dedup.membership.keep_priority import CLASSES, place, priority
from spark_jobs.dedup.membership.originals import FORK_DEPTHS
from spark_jobs.dedup.membership.repository_copies import find_copies, repository_key
from spark_jobs.dedup.membership.repository_facts import stars, with_fork_depth
from spark_jobs.dedup.membership.revisions import PATH, Policy
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.sources.landing.revisions import landings_and_events, newest
from spark_jobs.sources.languages import VENDORED
from spark_jobs.sources.licences.expressions import UNKNOWN
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

# Folders in addition to VENDORED, for single files; whole copies are found in any folder (`originals`).
_DEPENDENCIES = r"(?i)(^|/)(deps|dependencies|subprojects)/"
Revisions = Literal["latest", "all"]
Criterion = Literal["dataset", "original", "known_good", "starred", "licensed"]


class MembersConfig(ConfigModel):
    """The documents taken in by a corpus, and the keeping order of duplicates among them."""

    datasets: tuple[str, ...] = Field(min_length=1, description="datasets of the corpus, by name")
    revisions: dict[str, Revisions] = Field(
        default_factory=dict,
        description="by dataset: `latest` (the default) takes only the newest revision of each path among those that "
        "arrive together, `all` takes every one",
    )

    keep_first: tuple[Criterion, ...] = Field(
        ("dataset", "known_good", "original", "starred", "licensed"),
        description="order in which duplicates are kept: by these criteria, the strongest first, then by hash",
    )
    known_good: tuple[str, ...] = Field((), description="repositories whose documents are kept before others'")
    min_stars: int | None = Field(
        100, ge=0, description="stars (`metadata.stars`) from which on a repository counts as starred; none: not used"
    )
    on_delete: Policy = Field("keep", description="`excise` takes nothing in that is gone by the time it would enter")

    @model_validator(mode="after")
    def _datasets_are_known(self) -> MembersConfig:
        """Raise for a policy of a dataset outside of the corpus, or a dataset named twice."""
        if unknown := sorted(set(self.revisions) - set(self.datasets)):
            raise ValueError(
                f"revisions names {unknown}, the corpus has {list(self.datasets)}; name datasets of the corpus"
            )
        if len(set(self.datasets)) != len(self.datasets):
            raise ValueError(f"datasets names one twice: {list(self.datasets)}; name each once")
        return self

    @property
    def latest(self) -> tuple[str, ...]:
        """Datasets entering with the latest revision of each path alone."""
        return tuple(name for name in self.datasets if self.revisions.get(name, "latest") == "latest")


MEMBERS = Table(
    name="members",
    comment="One row per document that enters the corpus: kept by its verdict, and the latest revision of its path "
    "where the dataset's policy says so.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("repository", "string", "repository of the document; null where it has none"),
        Column("path!", "string", "path in the repository or the dataset"),
        Column("place!", "long", "order in which documents are considered for keeping, lowest first; see the step"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("language", "string", "programming or natural language"),
        Column("byte_count!", "long", "bytes of the document as it came"),
        Column("content_sha256!", "string", "SHA-256 of the document as it came"),
        Column("letters_sha256", "string", "SHA-256 of the letters of its text; null where too few"),
        Column("fork_depth", "int", "0 in an original repository, 1 in a fork, 2 in a fork of a fork"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        Check("byte_count_not_negative", "byte_count >= 0", "a document has no fewer than 0 bytes"),
        Check("place_not_negative", "place >= 0", "a place has 63 bits"),
    ),
)


@step(
    version="5",
    scope=Scope.INCREMENT,
    tables=(MEMBERS,),
)
def members(
    documents: DataFrame,
    texts: DataFrame,
    verdicts: DataFrame,
    config: MembersConfig,
    repositories: DataFrame | None = None,
    arrivals: DataFrame | None = None,
) -> DataFrame:
    """Select the documents kept by the verdicts, of each path the latest revision; one row per document.

    The latest revision is the one landed or returned in the highest dataset increment, kept or not: a replaced
    revision does not come back because its successor was rejected. Contents are read only of a few manifests
    (`originals`).

    Args:
        documents: rows of `documents` of all datasets, with the columns `dataset` and `dataset_increment`.
        texts: the same of `texts`.
        verdicts: the same of `verdicts`.
        config: datasets and their policies.
        repositories: the same of `repositories`; without it no document counts as a fork's, or as starred.
        arrivals: the same of `arrivals`; without it no document has returned or is gone.
    """
    identity = ["dataset", "doc_id"]
    about = ["shard", "repository", "path", "kind", "language", "byte_count", "content_sha256", "licence"]
    candidates = documents.select(*identity, *about, "dataset_increment").where(F.col("dataset").isin(*config.datasets))
    kept = verdicts.where("kept").select(*identity)
    letters = texts.select(*identity, "letters_sha256")
    joined = _entering(candidates, arrivals, config).join(kept, identity).join(letters, identity)
    stated = _with_facts(joined, repositories)
    placed = _with_copies(stated, documents, texts).withColumn("place", _place(config))
    return placed.select([column.name for column in MEMBERS.columns])


def _entering(documents: DataFrame, arrivals: DataFrame | None, config: MembersConfig) -> DataFrame:
    """Leave out documents replaced by a later revision of their path, and with `on_delete: excise` deleted ones."""
    from pyspark.sql import Window

    if not config.latest and config.on_delete == "keep":
        return documents
    narrow = documents.select(*PATH, "doc_id", "dataset_increment")
    landings = landings_and_events(narrow, arrivals).withColumn("key", F.xxhash64(*PATH))
    # Most paths have one landing, which is the newest: they are neither sorted nor joined. A key of two does no harm.
    several = landings.groupBy("key").count().where("count > 1").select("key")
    last = (
        landings.join(several, "key", "left_semi")
        .withColumn("newest", newest("dataset_increment").over(Window.partitionBy(*PATH)))
        .where("NOT is_event")
    )
    replaced = F.col("dataset").isin(*config.latest) & (F.col("doc_id") != F.col("newest.doc_id"))
    gone = F.col("newest.gone") & F.lit(config.on_delete == "excise")
    return documents.join(last.where(replaced | gone).select("dataset", "doc_id"), ["dataset", "doc_id"], "left_anti")


def _with_facts(documents: DataFrame, repositories: DataFrame | None) -> DataFrame:
    """Add `fork_depth` and `stars` of the document's repository, by the facts of its dataset increment."""
    if repositories is None:
        return documents.withColumns({"fork_depth": F.lit(0), "stars": F.lit(None).cast("long")})
    keys = ["dataset", "dataset_increment", "repository"]
    facts = with_fork_depth(repositories.select(*keys, "fork_of", stars().alias("stars")))
    one_each = facts.groupBy(*keys).agg(F.max("fork_depth").alias("fork_depth"), F.max("stars").alias("stars"))
    return documents.join(one_each, keys, "left").fillna(0, ["fork_depth"])


def _with_copies(stated: DataFrame, documents: DataFrame, texts: DataFrame) -> DataFrame:
    """Add `copied`, 1 for a copy of another repository's file, -1 for a fork's own; and forks found by files."""
    copies = find_copies(stated, documents, texts)
    if copies.forks:
        forks = pa.table({"repo": list(copies.forks), "found": pa.array(copies.forks.values(), pa.int32())})
        keyed = stated.withColumn("repo", repository_key())
        keyed = keyed.join(stated.sparkSession.createDataFrame(forks), "repo", "left")
        stated = keyed.withColumn("fork_depth", F.greatest("fork_depth", "found")).drop("repo", "found")
    if copies.files is None:
        return stated.withColumn("copied", F.lit(0))
    return stated.join(copies.files, "doc_id", "left").fillna(0, ["copied"])


def _place(config: MembersConfig) -> SparkColumn:
    """The column `place` by the config's criteria: priority and hash in one number."""
    foreign_folder = F.col("path").rlike(VENDORED) | F.col("path").rlike(_DEPENDENCIES)
    vendored = (F.col("repository").isNotNull() & foreign_folder).cast("int")
    foreign = F.greatest(vendored, "copied")
    fork_depth = F.when(F.col("copied") < 0, 0).otherwise(F.col("fork_depth"))
    levels: dict[str, tuple[int, SparkColumn]] = {
        "dataset": (
            min(len(config.datasets), CLASSES),
            F.least(F.array_position(F.lit(list(config.datasets)), F.col("dataset")), F.lit(CLASSES)) - 1,
        ),
        "original": (
            FORK_DEPTHS,
            F.least(fork_depth + foreign, F.lit(FORK_DEPTHS - 1)).cast("long"),
        ),
        "known_good": (
            2 if config.known_good else 1,
            1 - F.coalesce(F.col("repository").isin(*config.known_good), F.lit(False)).cast("long"),
        ),
        "starred": (
            1 if config.min_stars is None else 2,
            1 - F.coalesce(F.col("stars") >= F.lit(config.min_stars), F.lit(False)).cast("long"),
        ),
        "licensed": (2, F.coalesce(F.col("licence").contains(UNKNOWN), F.lit(True)).cast("long")),
    }
    return place(priority(config.keep_first, levels), F.col("doc_id"))
