"""Repository bags: every repository as the groups of duplicate files that it is made of (see `repository_items`).

A repository here is what one increment brings of it (`repository_facts`). Its files stand for their group: an exact
duplicate for its witness, and that for its component, as of the increment. Components grow and merge, so an increment
also writes the bags of earlier repositories again whose files got another component; of several rows of a repository,
**the newest counts**. Files without tokens weigh nothing, and documents without a repository are in no bag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.dedup.repository_facts import (
    Preference,
    RepositoryCriterion,
    newest_facts,
    repository_files,
    with_place,
)
from spark_jobs.dedup.repository_items import bags_of_items, item_hash, item_unit
from spark_jobs.lake.tables import Check, Column, Table
from spark_jobs.step import Scope, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RepositoryBagsConfig(BaseModel):
    """What files of a repository are equal, and whom to keep."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float = Field(
        0.7, gt=0, le=1, description="threshold whose components make files equal, one of those compared"
    )
    min_files: int = Field(
        2, ge=1, description="repositories with fewer files that have tokens are not compared; single files are already"
    )
    max_level: int = Field(4, ge=1, le=16, description="files of one group beyond it add no weight")
    keep_first: tuple[RepositoryCriterion, ...] = Field(
        ("dataset", "known_good", "original", "newest", "starred", "licensed"),
        description="whom to keep of repositories that repeat each other, the strongest criterion first; criteria are "
        "used while they make at most 16 classes; then by hash",
    )
    datasets: tuple[str, ...] = Field((), description="datasets in order; without them datasets are equal")
    known_good: tuple[str, ...] = Field((), description="repositories that are kept before others")
    min_stars: int | None = Field(
        100, ge=0, description="stars (`metadata.stars`) from which on a repository counts as starred; none: not used"
    )


REPOSITORY_BAGS = Table(
    name="repository_bags",
    comment="One row per repository that is compared, or whose files got another component: the groups of duplicate "
    "files that it is made of; of several rows of a repository, the one of the highest increment counts.",
    columns=(
        Column("repository_id!", "string", "identity of the repository as an increment brought it"),
        Column("dataset!", "string", "its dataset"),
        Column("repository!", "string", "its name"),
        Column("first_increment!", "int", "increment that brought its files"),
        Column("place!", "long", "order in which repositories are considered for keeping, lowest first"),
        Column("file_count!", "int", "files, those without tokens too"),
        Column("byte_count!", "long", "bytes of its files"),
        Column("item_count!", "int", "groups of duplicate files"),
        Column("total_weight!", "long", "sum of all weights"),
        Column("item_hashes!", "binary", "hashes of the groups, ascending, 8 bytes each, little-endian"),
        Column("units!", "binary", "weight of a file of each group, 1 byte"),
        Column("levels!", "binary", "files of each group up to max_level, 1 byte"),
    ),
    key=("repository_id",),
    partition=("increment",),
    checks=(
        Check(
            "lengths_agree",
            "item_count >= 1 and octet_length(item_hashes) = 8 * item_count and octet_length(units) = item_count "
            "and octet_length(levels) = item_count",
            "every group has a hash, a unit and a level",
        ),
        Check("total_weight_positive", "total_weight >= item_count", "every weight is at least 1"),
        Check("first_is_no_later", "first_increment <= increment", "its files came in this increment or before"),
        Check("place_not_negative", "place >= 0", "a place has 63 bits"),
    ),
)


@step(
    version="2",
    scope=Scope.HISTORY,
    tables=(REPOSITORY_BAGS,),
    kernels=("spark_jobs.dedup.places", "spark_jobs.dedup.repository_facts", "spark_jobs.dedup.repository_items"),
)
def repository_bags(
    members: DataFrame,
    exact_duplicates: DataFrame,
    components: DataFrame,
    bags: DataFrame,
    repository_bags: DataFrame,
    increment: int,
    config: RepositoryBagsConfig,
    repositories: DataFrame | None = None,
) -> DataFrame:
    """Make the bags of the repositories of an increment, and again those that its components touch.

    Args:
        members: rows of `members` of increments 0 to `increment`, with the column `increment`.
        exact_duplicates: the same of `exact_duplicates`.
        components: the same of `components`.
        bags: the same of `bags`, for the weights of documents.
        repository_bags: own rows of the increments before.
        increment: the new one.
        config: what is equal, and whom to keep.
        repositories: rows of `repositories` of all datasets, with `dataset`, `dataset_increment` and `increment`.

    Returns:
        Rows of the table `repository_bags`.
    """
    from pyspark.sql import functions as F

    witnesses = exact_duplicates.select("doc_id", "witness_doc_id")
    files = repository_files(members).join(witnesses, "doc_id", "left")
    files = files.withColumn("identity", F.coalesce("witness_doc_id", "doc_id"))
    linked = components.where(F.col("threshold") == config.threshold).select("increment", "doc_id", "component")
    new = files.where(F.col("first_increment") == increment)
    wanted = new
    if increment > 0:
        changed = _changed(linked, increment).withColumnRenamed("doc_id", "identity")
        earlier = files.where(F.col("first_increment") < increment)
        touched = earlier.join(changed, "identity", "left_semi").select("repository_id").distinct()
        wanted = new.unionByName(earlier.join(touched, "repository_id", "left_semi"))
    made = bags_of_items(_with_items(wanted, linked, bags), config.max_level, config.min_files)
    names = wanted.select("repository_id", "first_increment", "dataset", "repository").distinct()
    described = made.join(names, "repository_id")
    facts = None if repositories is None else newest_facts(repositories)
    preference = Preference(config.keep_first, config.datasets, config.known_good, config.min_stars)
    placed = with_place(described.where(F.col("first_increment") == increment), facts, preference)
    if increment > 0:
        # The order never changes: what stands earlier keeps its place.
        places = repository_bags.select("repository_id", "place").distinct()
        placed = placed.unionByName(described.join(places, "repository_id"), allowMissingColumns=False)
    return placed.select([column.name for column in REPOSITORY_BAGS.columns])


def _with_items(files: DataFrame, linked: DataFrame, bags: DataFrame) -> DataFrame:
    """Rows (repository_id, byte_count, item, unit): a file's group and its weight, null where it has no tokens."""
    from pyspark.sql import functions as F

    component = F.max_by("component", "increment").alias("component")
    newest = linked.groupBy(F.col("doc_id").alias("identity")).agg(component)
    grouped = files.join(newest, "identity", "left").withColumn("group", F.coalesce("component", "identity"))
    weights = bags.select(F.col("doc_id").alias("group"), "total_weight")
    return grouped.join(weights, "group", "left").select(
        "repository_id",
        "byte_count",
        F.when(F.col("total_weight").isNotNull(), item_hash(F.col("group"))).alias("item"),
        F.when(F.col("total_weight").isNotNull(), item_unit(F.col("total_weight"))).alias("unit"),
    )


def _changed(linked: DataFrame, increment: int) -> DataFrame:
    """Documents (doc_id) whose component is another one since this increment; one without was its own."""
    from pyspark.sql import functions as F

    former = (
        linked.where(F.col("increment") < increment)
        .groupBy("doc_id")
        .agg(F.max_by("component", "increment").alias("former"))
    )
    now = linked.where(F.col("increment") == increment).select("doc_id", "component").join(former, "doc_id", "left")
    return now.where(F.col("component") != F.coalesce("former", "doc_id")).select("doc_id")
