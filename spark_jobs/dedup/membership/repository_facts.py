"""Repositories as units of one increment: their identity, facts and priority.

The files of a repository in one increment are judged together, and once: what later increments add to it has
an identity of its own. A place is made as for documents (see `members`): a priority of at most 16 classes from
metadata, then a hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spark_jobs.dedup.membership.keep_priority import CLASSES, place, priority
from spark_jobs.dedup.membership.originals import FORK_DEPTHS, RELEASE
from spark_jobs.sources.licences.expressions import UNKNOWN
from spark_jobs.spark_sql import Column, DataFrame, F

RepositoryCriterion = Literal["dataset", "known_good", "original", "newest", "starred", "licensed"]
_VERSION = r"^[^0-9]*([0-9]+(\.[0-9]+)*)"


@dataclass(frozen=True)
class Preference:
    """Criteria for keeping one of several similar repositories.

    Attributes:
        criteria: the strongest first.
        datasets: datasets in order of preference.
        known_good: repositories to prefer.
        min_stars: the least stars of a repository counted as starred; None where stars do not count.
    """

    criteria: Sequence[RepositoryCriterion]
    datasets: Sequence[str]
    known_good: Sequence[str]
    min_stars: int | None


def repository_files(members: DataFrame) -> DataFrame:
    """The members of a repository, with its identity.

    Args:
        members: rows of `members` with the column `increment`.

    Returns:
        Rows (repository_id, first_increment, dataset, repository, doc_id, place, path, byte_count, fork_depth).
    """
    return members.where("repository IS NOT NULL").select(
        repository_id(F.col("dataset"), F.col("repository"), F.col("increment")).alias("repository_id"),
        F.col("increment").alias("first_increment"),
        "dataset",
        "repository",
        "doc_id",
        "place",
        "path",
        "byte_count",
        "fork_depth",
    )


def repository_id(dataset: Column, repository: Column, increment: Column) -> Column:
    """Identity of an increment's files of a repository: 32 hex digits of a SHA-256 over the three."""
    return F.substring(F.sha2(F.concat_ws("\n", dataset, increment.cast("string"), repository), 256), 1, 32)


def newest_bags(repository_bags: DataFrame) -> DataFrame:
    """The row of the highest increment of each repository in `repository_bags`."""
    newest = repository_bags.groupBy("repository_id").agg(F.max("increment").alias("increment"))
    return repository_bags.join(newest, ["repository_id", "increment"], "left_semi")


def newest_facts(repositories: DataFrame) -> DataFrame:
    """The latest facts of each repository: dataset, repository, fork_depth, licence, version, stars, terms.

    Args:
        repositories: rows of `repositories` of all datasets, with `dataset`, `dataset_increment` and `increment`.
    """
    facts = F.struct(
        "increment",
        "dataset_increment",
        "fork_of",
        "licence",
        "version",
        stars().alias("stars"),
        F.transform(F.concat("topics", "dependencies"), F.lower).alias("terms"),
    )
    newest = repositories.groupBy("dataset", "repository").agg(F.max(facts).alias("facts"))
    newest_facts_of_each = newest.select("dataset", "repository", "facts.*").drop("increment", "dataset_increment")
    return with_fork_depth(newest_facts_of_each).drop("fork_of")


def with_fork_depth(repositories: DataFrame) -> DataFrame:
    """Add `fork_depth` to rows (repository, fork_of, ..): 0 an original, 1 a fork of one, 2 a fork of a fork.

    The parent of a fork is looked up by its name among the same rows, in any dataset; a missing parent counts as an
    original. Deeper forks are 2 as well, since places have few classes.
    """
    is_fork = F.col("fork_of").isNotNull() & (F.col("fork_of") != F.col("repository"))
    parents = repositories.where(is_fork).select(F.col("repository").alias("fork_of"), F.lit(2).alias("depth"))
    deeper = repositories.join(parents.distinct(), "fork_of", "left")
    return deeper.withColumn("fork_depth", F.when(is_fork, F.coalesce("depth", F.lit(1))).otherwise(0)).drop("depth")


def stars() -> Column:
    """Stars of a row of `repositories`; null where they are not known."""
    return F.expr("try_cast(metadata['stars'] AS bigint)")


def with_place(bags: DataFrame, facts: DataFrame | None, wanted: Preference) -> DataFrame:
    """Add `place` to rows (repository_id, dataset, repository, fork_depth, ..); without facts no one has a licence.

    `fork_depth` comes from members; facts may give a greater one.
    """
    if facts is None:
        described = bags.withColumns({name: F.lit(None).cast("string") for name in ("licence", "version")}).withColumns(
            {"stated_depth": F.lit(0), "stars": F.lit(None).cast("long")}
        )
    else:
        stated = facts.drop("terms").withColumnRenamed("fork_depth", "stated_depth")
        described = bags.join(stated, ["dataset", "repository"], "left")
    ranked = _with_newest(described) if "newest" in wanted.criteria else described.withColumn("newest", F.lit(True))
    placed = ranked.withColumn("place", place(_priority(wanted), F.col("repository_id")))
    return placed.drop("stated_depth", "licence", "version", "stars", "newest")


def _with_newest(bags: DataFrame) -> DataFrame:
    """Add `newest`: whether no row of the same name in the frame has a higher version; unknown versions are lowest."""
    from pyspark.sql import Window

    written = F.coalesce(F.col("version"), F.regexp_extract("repository", RELEASE, 0))
    digits = F.regexp_extract_all(F.regexp_extract(written, _VERSION, 1), F.lit("[0-9]+"), F.lit(0))
    number = F.transform(digits, lambda part: part.try_cast("long"))
    name = F.regexp_replace(F.lower("repository"), RELEASE, "")
    numbered = bags.withColumn("number", number)
    best = F.max("number").over(Window.partitionBy("dataset", name))
    return numbered.withColumn("newest", F.col("number").eqNullSafe(best)).drop("number")


def _priority(wanted: Preference) -> Column:
    """The class of a repository, 0 to 15, by a preference; a criterion equal for all rows has one level."""
    never = F.lit(False)
    order = F.array(*(F.lit(name) for name in wanted.datasets)) if wanted.datasets else F.array(F.col("dataset"))
    levels: dict[str, tuple[int, Column]] = {
        "dataset": (
            max(1, min(len(wanted.datasets), CLASSES)),
            F.greatest(F.least(F.array_position(order, F.col("dataset")), F.lit(CLASSES)) - 1, F.lit(0)),
        ),
        "known_good": (2 if wanted.known_good else 1, 1 - _flag(F.col("repository").isin(*wanted.known_good))),
        "original": (FORK_DEPTHS, F.greatest("fork_depth", "stated_depth", F.lit(0)).cast("long")),
        "newest": (2, 1 - _flag(F.col("newest"))),
        "starred": (
            1 if wanted.min_stars is None else 2,
            1 - _flag(never if wanted.min_stars is None else F.col("stars") >= wanted.min_stars),
        ),
        "licensed": (2, 1 - _flag(~F.col("licence").contains(UNKNOWN))),
    }
    return priority(wanted.criteria, levels)


def _flag(condition: Column) -> Column:
    """1 where a condition is true, 0 where it is false or null."""
    return F.coalesce(condition, F.lit(False)).cast("long")
