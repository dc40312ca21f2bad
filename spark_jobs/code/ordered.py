"""The step `ordered`: rank the documents of a repository so that a file's dependencies come before it."""

from __future__ import annotations

from functools import partial

from pydantic import Field, field_validator

from spark_jobs.code.order.policy import Policy
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.language_codes import require_codes

_OF_SURVIVORS = frozenset({"shard", "language"})
_OF_EDGES = frozenset({"needed_doc_id", "needed_path", "kind"})


class OrderedConfig(ConfigModel):
    """How the files of a repository are ordered."""

    policy: Policy = Field(
        "dependencies_first",
        description="dependencies_first (what a file needs comes before it; files of a directory stay together as far "
        "as that allows), two_level (directories, then the files in each), depth_first (plain search), path, random",
    )
    two_level_languages: tuple[str, ...] = Field(
        ("Go",),
        description="in repositories where most code is of these languages, two_level is used in place of "
        "dependencies_first; for languages whose packages are directories that cannot import each other in a circle",
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="of the policy random")

    @field_validator("two_level_languages")
    @classmethod
    def _names_of_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        """Raise if a language is not named as documents name it."""
        require_codes(languages)
        return languages


ORDERED = Table(
    name="ordered",
    comment="One row per surviving document: its rank among those of its repository.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("repository", "string", "repository of the document; null where it has none"),
        Column("package", "string", "directory of its path; null at the top"),
        Column("rank!", "long", "position in the repository, from 0 without gaps; 0 for a document without repository"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        Check("rank_not_negative", "rank >= 0", "ranks count from 0"),
        Check("alone_without_repository", "repository is not null or rank = 0", "without repository there is no order"),
    ),
)


@step(version="3", scope=Scope.INCREMENT, tables=(ORDERED,))
def ordered(
    survivors: DataFrame, members: DataFrame, config: OrderedConfig, dependencies: DataFrame | None = None
) -> DataFrame:
    """Rank the documents of each repository so that a file's dependencies come before it; one row per document.

    Dependencies through removed files still order the survivors, see `repository_order`.

    Args:
        survivors: rows of `survivors` of the increment.
        members: rows of `members` of the same increment.
        config: the policy.
        dependencies: rows of `dependencies` of all datasets, with the column `dataset`; without it files are ordered by
            the UTF-8 of their paths.
    """
    code = F.when(F.col("kind") == "code", F.col("language")).alias("language")
    about = members.select("dataset", "doc_id", "repository", "path", code)
    described = survivors.select("dataset", "shard", "doc_id").join(about, ["dataset", "doc_id"])
    if dependencies is None or config.policy == "path":
        ranked = _ranked_by_path(described)
    else:
        alone = described.where(F.col("repository").isNull()).withColumn("rank", F.lit(0).cast("long"))
        together = _ranked_by_dependencies(described.where(F.col("repository").isNotNull()), dependencies, config)
        ranked = alone.drop("language").unionByName(together)
    package = F.nullif(F.regexp_extract("path", r"^(.*)/[^/]*$", 1), F.lit("")).alias("package")
    return ranked.select("dataset", "shard", "doc_id", "repository", package, "rank")


def _ranked_by_path(described: DataFrame) -> DataFrame:
    """Documents with their rank by path in their repository."""
    from pyspark.sql import Window

    # A document without repository is a group of its own, so that these do not all end up in one task.
    has_none = F.col("repository").isNull()
    group = Window.partitionBy("dataset", has_none, F.coalesce("repository", "doc_id")).orderBy("path", "doc_id")
    return described.withColumn("rank", (F.row_number().over(group) - 1).cast("long"))


def _ranked_by_dependencies(described: DataFrame, dependencies: DataFrame, config: OrderedConfig) -> DataFrame:
    """Documents of repositories with their rank; a repository with all its edges is in one task."""
    from spark_jobs.code.order.repository_order import RANKED, OrderRules, ranked_batches

    names = ["dataset", "repository", "shard", "doc_id", "path", "language", "needed_doc_id", "needed_path", "kind"]
    edges = dependencies.select(
        *(
            F.lit(None).cast("int" if name == "shard" else "string").alias(name) if name in _OF_SURVIVORS else name
            for name in names
        )
    )
    files = described.select(*(F.lit(None).cast("string").alias(name) if name in _OF_EDGES else name for name in names))
    rules = OrderRules(config.policy, config.two_level_languages, config.seed)
    of_repositories = grouped(files.unionByName(edges), ["dataset", "repository"])
    return of_repositories.map(partial(ranked_batches, rules=rules), RANKED).to_frame()
