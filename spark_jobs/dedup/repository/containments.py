"""Repository containments: repositories that are contained in larger ones, such as a vendored package.

The similarity J of a package to one that vendors it is low, because the larger one has much else. The containment,
the share of the lesser repository that the larger one has, is high:

    requests  40 files          pip  500 files, 39 of them those of requests
    containment 39 / 40         J 39 / 501

Containments are reported, and no repository is removed for one: the larger repository is more than its copy, and the
lesser one is often the original. Of the files that both have, duplicates are removed one by one as all documents are,
and `members` prefers a repository of their own over forks and over folders of vendored code.

Candidates share an item (see `bags`) that few repositories have. With a repository's items sorted from rare to common,
the last ones that weigh less than the threshold cannot make a containment alone, so one of the others must be
shared (prefix filtering; Chaudhuri, Ganti and Kaushik 2006, "A Primitive Operator for Similarity Joins in Data
Cleaning"). The containment of a candidate is computed exactly. Items that more than `_MOST_HOLDERS` repositories have
make no candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.dedup.graph.threshold_pairs import exact
from spark_jobs.dedup.membership.repository_facts import newest_bags
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F

_MOST_HOLDERS = 1000  # repositories with an item up to which it leads from one to another; rarer items do anyway
_ITEMS_DDL = "repository_id string, first_increment int, total_weight bigint, item bigint, weight int"


class RepositoryContainmentsConfig(ConfigModel):
    """The share from which on a repository counts as contained."""

    containment_threshold: float = Field(
        0.7, gt=0, le=1, description="share of the lesser repository's weight that the larger one has"
    )


REPOSITORY_CONTAINMENTS = Table(
    name="repository_containments",
    comment="One row per repository and larger one that holds at least the threshold of it.",
    columns=(
        Column("dataset!", "string", "dataset of the lesser repository"),
        Column("repository!", "string", "its name"),
        Column("repository_id!", "string", "its identity"),
        Column("container_dataset!", "string", "dataset of the larger one"),
        Column("container_repository!", "string", "its name"),
        Column("container_repository_id!", "string", "its identity"),
        Column("shared_weight!", "long", "weight that both bags share: sum of the lesser weights"),
        Column("total_weight!", "long", "weight of the lesser repository"),
        Column("container_weight!", "long", "weight of the larger one"),
        Column("containment!", "double", "shared_weight / total_weight"),
        Column("similarity!", "double", "weighted Jaccard similarity of the two"),
    ),
    key=("repository_id", "container_repository_id"),
    partition=("increment",),
    checks=(
        Check("two_repositories", "repository_id <> container_repository_id", "none is inside itself"),
        Check("container_is_no_lighter", "container_weight >= total_weight", "the larger one holds the lesser one"),
        Check("fraction", "shared_weight between 1 and total_weight", "the containment is above 0 and at most 1"),
    ),
)


@step(
    version="1",
    scope=Scope.HISTORY,
    tables=(REPOSITORY_CONTAINMENTS,),
)
def repository_containments(
    repository_bags: DataFrame, increment: int, config: RepositoryContainmentsConfig
) -> DataFrame:
    """Find the repositories that are contained in larger ones, if either is new; one row per pair."""
    current = newest_bags(repository_bags)
    items = checkpointed(
        current.select("repository_id", "first_increment", "total_weight", "item_hashes", "units", "levels").mapInArrow(
            _items, _ITEMS_DDL
        )
    )
    candidates = _candidates(items, increment, config)
    weights = items.select("repository_id", "item", "weight")
    other = items.select(F.col("repository_id").alias("container_repository_id"), "item", F.col("weight").alias("held"))
    shared = (
        candidates.join(weights, "repository_id")
        .join(other, ["container_repository_id", "item"])
        .groupBy("repository_id", "container_repository_id")
        .agg(F.sum(F.least("weight", "held")).cast("long").alias("shared_weight"))
    )
    names = current.select("repository_id", "dataset", "repository", "total_weight")
    container = names.withColumnsRenamed({name: f"container_{name}" for name in names.columns}).withColumnRenamed(
        "container_total_weight", "container_weight"
    )
    bound = exact(config.containment_threshold)
    weighed = shared.join(names, "repository_id").join(container, "container_repository_id")
    contained = weighed.where(F.col("shared_weight") * bound.denominator >= F.col("total_weight") * bound.numerator)
    united = F.col("total_weight") + F.col("container_weight") - F.col("shared_weight")
    rows = contained.withColumns(
        {
            "containment": F.col("shared_weight") / F.col("total_weight"),
            "similarity": F.col("shared_weight") / united,
        }
    )
    return rows.select([column.name for column in REPOSITORY_CONTAINMENTS.columns])


def _items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn bags into rows, one for each item."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns, token_weights

    for batch in batches:
        bags = bags_from_columns(batch.column("item_hashes"), batch.column("units"), batch.column("levels"))
        owner = pa.array(np.repeat(np.arange(len(bags)), np.diff(bags.offsets)))
        columns = [batch.column(name).take(owner) for name in ("repository_id", "first_increment", "total_weight")]
        columns += [pa.array(bags.hashes.view(np.int64)), pa.array(token_weights(bags).astype(np.int32))]
        yield pa.RecordBatch.from_arrays(columns, names=ddl_names(_ITEMS_DDL))


def _candidates(items: DataFrame, increment: int, config: RepositoryContainmentsConfig) -> DataFrame:
    """Distinct candidates (repository_id, container_repository_id): they share an item of the lesser one's prefix."""
    from pyspark.sql import Window

    holders = items.groupBy("item").agg(F.count("*").alias("holders"))
    bound = exact(config.containment_threshold)
    from_here = Window.partitionBy("repository_id").orderBy(F.desc("holders"), F.desc("item"))
    needed = F.col("left") * bound.denominator >= F.col("total_weight") * bound.numerator
    leading = (
        items.join(holders, "item")
        .withColumn("left", F.sum("weight").over(from_here.rowsBetween(Window.unboundedPreceding, 0)))
        .where(needed & F.col("holders").between(2, _MOST_HOLDERS))
        .select("item", "repository_id", "first_increment", "total_weight")
    )
    larger = items.select(
        "item",
        F.col("repository_id").alias("container_repository_id"),
        F.col("total_weight").alias("container_weight"),
        F.col("first_increment").alias("container_increment"),
    )
    lighter = F.col("total_weight") < F.col("container_weight")
    as_heavy = F.col("total_weight") == F.col("container_weight")
    inside = lighter | (as_heavy & (F.col("repository_id") < F.col("container_repository_id")))
    ends = ["repository_id", "container_repository_id"]
    new = leading.where(F.col("first_increment") == increment).join(larger, "item").where(inside).select(*ends)
    if increment > 0:
        old = leading.where(F.col("first_increment") < increment)
        late = larger.where(F.col("container_increment") == increment)
        new = new.unionByName(old.join(late, "item").where(inside).select(*ends))
    return new.distinct()
