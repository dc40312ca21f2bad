"""Whom to keep of repositories: places made of metadata."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.dedup.membership.repository_facts import Preference, RepositoryCriterion, newest_facts, with_place
from spark_jobs.dedup.repository.bags import RepositoryBagsConfig
from tests.spark_jobs.dedup.repository_corpus import Corpus, Fact, File

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAGS = "repository_id string, dataset string, repository string, fork_depth int"
DEFAULT: tuple[RepositoryCriterion, ...] = RepositoryBagsConfig().keep_first
FACTS = [
    Fact("original", licence="MIT", stars=5),
    Fact("fork", fork_of="original", licence="MIT", stars=900),
    Fact("starred", stars=100),
    Fact("fork of fork", fork_of="fork"),
    Fact("self", fork_of="self"),
    Fact("tool-1.9", version="1.9"),
    Fact("tool-1.10", version="v1.10rc1"),
    Fact("tool@2", licence="MIT"),
    Fact("odd", version="unknown"),
    Fact("stale", fork_of="x"),
    Fact("stale", increment=1),
]


# Names of repositories, criteria, and the names by standing, the first kept first.
CASES: list[tuple[list[str], tuple[RepositoryCriterion, ...], list[set[str]]]] = [
    (["fork", "original", "unknown"], ("original", "licensed"), [{"original"}, {"unknown"}, {"fork"}]),
    (["fork", "fork of fork", "self"], ("original",), [{"self"}, {"fork"}, {"fork of fork"}]),
    # Known good, original, newest, starred make 24 classes: the stars do not fit, and neither does the licence.
    (["fork", "original", "unknown"], DEFAULT, [{"original", "unknown"}, {"fork"}]),
    (["fork", "original", "good"], ("known_good", "original"), [{"good"}, {"original"}, {"fork"}]),
    (["fork", "original", "starred"], ("starred",), [{"fork", "starred"}, {"original"}]),
    (["tool-1.9", "tool-1.10", "tool@2", "tool"], ("newest",), [{"tool@2"}, {"tool-1.9", "tool-1.10", "tool"}]),
    (["tool-1.9", "tool-1.10", "odd"], ("newest",), [{"tool-1.10", "odd"}, {"tool-1.9"}]),
    (["stale", "original"], ("original",), [{"stale", "original"}]),
]


def test_criteria_make_classes(spark: SparkSession) -> None:
    """The strongest first; versions by their numbers, also where only the name tells; the newest facts count."""
    from pyspark.sql import DataFrame

    facts = newest_facts(Corpus([File(1, None, "a", "")], (), FACTS).inputs(spark, 1)["repositories"])
    placed = []
    for case, (names, criteria, _) in enumerate(CASES):
        rows = [(File(0, name, "a", name).repository_id, "code", name, 0) for name in names]
        bags = spark.createDataFrame(rows, BAGS)
        wanted = Preference(criteria, (), ("good",), 100)
        placed.append(
            with_place(bags, facts, wanted).selectExpr(f"{case} AS case", "repository_id", "repository", "place")
        )
    classes: dict[int, dict[int, set[str]]] = {}
    for row in functools.reduce(DataFrame.unionByName, placed).collect():
        assert row.place & ((1 << 39) - 1) == int(row.repository_id[:15], 16) >> 21
        classes.setdefault(row.case, {}).setdefault(row.place >> 59, set()).add(row.repository)
    assert all(0 <= standing < 16 for found in classes.values() for standing in found)
    by_standing = [[names for _, names in sorted(classes[case].items())] for case in range(len(CASES))]
    assert by_standing == [expected for *_, expected in CASES]


def test_datasets_come_in_the_order_of_the_config(spark: SparkSession) -> None:
    """One that is not listed is as good as the first."""
    wanted = Preference(("dataset",), ("docs", "code"), (), None)
    assert _standings(spark, wanted, ("docs", "code", "none")) == [0, 1, 0]


def _standings(spark: SparkSession, wanted: Preference, datasets: Sequence[str]) -> list[int]:
    """Standing of a repository in each dataset, without any facts."""
    files = [File(0, "name", "a", "", dataset=dataset) for dataset in datasets]
    bags = spark.createDataFrame([(f.repository_id, f.dataset, f.repository, None) for f in files], BAGS)
    found = {row.dataset: row.place >> 59 for row in with_place(bags, None, wanted).collect()}
    return [found[dataset] for dataset in datasets]
