"""Repository bags: every repository as a bag of items, one item for each group of duplicate files that it has.

A repository here is what one increment brings of it (`repository_facts`). The group of a file is its component at the
lowest threshold compared, as of the increment; an exact duplicate belongs to the group of its witness. Components grow
and merge, so an increment also rewrites the bags of earlier repositories whose files got another component; of several
rows of a repository, **the newest counts**. Files without tokens weigh nothing, and documents without a repository are
in no bag.

An item weighs as much as the document that names the group, in steps of 256, and counts as often as the repository has
files of the group, up to a cap:

    repository x    a.py, a_copy.py, b.py           group 3f.. weighs 40, twice;  group 91.. weighs 7
    repository y    a.py with a line more           group 3f.. weighs 40          J = 40 / (80 + 7)

Chosen by measurement: 190 repositories of 58 packages (1 to 4 releases of each, and what they vendor; 15,729 files,
200 MB; the truth is 308 pairs of one name). Average precision, recall at three thresholds (precision was 1.000 at
each), items per repository, microseconds a pair; `python benchmarks/bench_repositories.py` prints all.

    items                                     AP     R at 0.6   0.7     0.8    items    us/pair
    tokens of all files                       .987   .666      .588    .477    7,350    390
    files by exact content, by log of size    .709   .104      .084    .071       77    3.0
    components at 0.8, by log of size         .938   .448      .347    .266       75    2.9
    components at 0.7, each counting as one   .966   .513      .383    .302       74    1.6
    components at 0.7, by log of size         .975   .526      .438    .305       74    2.7
    components at 0.7, by size (this one)     .978   .539      .481    .422       74    1.7

Tokens rank hardly better at a hundred times the bytes and the work. And users can check J over groups: of two
repositories with J = 0.7, at most three tenths of their content lies outside shared groups of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.dedup.membership.repository_facts import (
    Preference,
    RepositoryCriterion,
    newest_facts,
    repository_files,
    with_place,
)
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F


class RepositoryBagsConfig(ConfigModel):
    """When files of repositories count as equal, and which of several similar repositories is kept."""

    threshold: float = Field(
        0.7, gt=0, le=1, description="threshold whose components make files equal, one of those compared"
    )
    min_files: int = Field(
        2, ge=1, description="fewest files with tokens of a compared repository; single files are compared as documents"
    )
    max_level: int = Field(4, ge=1, le=16, description="most files of a group that add weight")
    keep_first: tuple[RepositoryCriterion, ...] = Field(
        ("dataset", "known_good", "original", "newest", "starred", "licensed"),
        description="order in which similar repositories are kept: by these criteria, the strongest first, as long as "
        "they make at most 16 classes, then by hash",
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
    version="3",
    scope=Scope.HISTORY,
    tables=(REPOSITORY_BAGS,),
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
    """Make the bags of the repositories of an increment, and rewrite earlier ones whose components changed."""
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
    item_bags = bags_of_items(_with_items(wanted, linked, bags), config.max_level, config.min_files)
    names = wanted.groupBy("repository_id", "first_increment", "dataset", "repository").agg(
        F.max("fork_depth").alias("fork_depth")
    )
    described = item_bags.join(names, "repository_id")
    facts = None if repositories is None else newest_facts(repositories)
    preference = Preference(config.keep_first, config.datasets, config.known_good, config.min_stars)
    placed = with_place(described.where(F.col("first_increment") == increment), facts, preference)
    if increment > 0:
        # A priority never changes: a repository of an earlier increment keeps its place.
        places = repository_bags.select("repository_id", "place").distinct()
        placed = placed.unionByName(described.join(places, "repository_id"), allowMissingColumns=False)
    return placed.select([column.name for column in REPOSITORY_BAGS.columns])


def _with_items(files: DataFrame, linked: DataFrame, bags: DataFrame) -> DataFrame:
    """Rows (repository_id, byte_count, item, unit) of files: item is the group's hash; both null without tokens."""
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
    """Documents (doc_id) whose component changed in this increment; a document without one was its own component."""
    former = (
        linked.where(F.col("increment") < increment)
        .groupBy("doc_id")
        .agg(F.max_by("component", "increment").alias("former"))
    )
    now = linked.where(F.col("increment") == increment).select("doc_id", "component").join(former, "doc_id", "left")
    return now.where(F.col("component") != F.coalesce("former", "doc_id")).select("doc_id")


WEIGHT_STEP = 256
MOST_UNIT = 255
_BAG_DDL = (
    "repository_id string, file_count int, byte_count bigint, item_count int, total_weight bigint, "
    "item_hashes binary, units binary, levels binary"
)


def item_hash(doc_id: SparkColumn) -> SparkColumn:
    """The first 60 bits of the doc_id that names a group, as a long; a doc_id is a hash already."""
    return F.conv(F.substring(doc_id, 1, 15), 16, 10).cast("long")


def item_unit(total_weight: SparkColumn) -> SparkColumn:
    """Weight of a group, 1 to 255: total weight of the document that names it, in steps of 256."""
    steps = F.floor((total_weight + WEIGHT_STEP // 2) / WEIGHT_STEP)
    return F.greatest(F.lit(1), F.least(F.lit(MOST_UNIT), steps)).cast("int")


def bags_of_items(files: DataFrame, max_level: int, min_files: int) -> DataFrame:
    """Put the files of each repository into one bag.

    Args:
        files: rows (repository_id, byte_count, item bigint, unit int), one a file; item and unit are null for a file
            without tokens.
        max_level: most files of a group that add weight.
        min_files: repositories with fewer files that weigh anything have no bag.

    Returns:
        Rows (repository_id, file_count, byte_count, item_count, total_weight, item_hashes, units, levels).
    """
    grouped = files.groupBy("repository_id", "item").agg(
        F.max("unit").alias("unit"), F.count("*").alias("count"), F.sum("byte_count").alias("byte_count")
    )
    level = F.least("count", F.lit(max_level)).cast("int")
    item = F.when(F.col("item").isNotNull(), F.struct("item", "unit", level.alias("level")))
    whole = grouped.groupBy("repository_id").agg(
        F.sum("count").cast("int").alias("file_count"),
        F.sum("byte_count").alias("byte_count"),
        F.sum(F.when(F.col("item").isNotNull(), F.col("count"))).alias("weighed"),
        F.array_sort(F.collect_list(item)).alias("items"),
    )
    return whole.where(F.col("weighed") >= min_files).drop("weighed").mapInArrow(_bags, _BAG_DDL)


def _bags(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn lists of (item, unit, level), ascending, into the columns of bags."""
    from spark_jobs.dedup.bags.bag_arrays import binary_column

    for batch in batches:
        lists = batch.column("items")
        offsets = lists.offsets.to_numpy().astype(np.int64)
        offsets -= offsets[0]
        hashes, units, levels = (field.to_numpy(zero_copy_only=False) for field in lists.flatten().flatten())
        sums = np.concatenate([[0], np.cumsum(units.astype(np.int64) * levels)])
        columns = [
            *(batch.column(name) for name in ("repository_id", "file_count", "byte_count")),
            pa.array(np.diff(offsets).astype(np.int32)),
            pa.array(sums[offsets[1:]] - sums[offsets[:-1]]),
            binary_column(hashes.view(np.uint64), offsets),
            *(binary_column(values.astype(np.uint8), offsets) for values in (units, levels)),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=ddl_names(_BAG_DDL))
