"""Repositories from texts to survivors, without any fact: originals, forks of forks, vendored copies, mirrors.

The truth is known as they are made: originals keep all their files, and a kept repository loses a file to itself or to
another kept one alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.dedup.bags.bags import BagsConfig, bags
from spark_jobs.dedup.bags.vocabulary import VocabularyConfig, vocabulary
from spark_jobs.dedup.graph.components import COMPONENTS, ComponentsConfig, components
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES, exact_duplicates
from spark_jobs.dedup.membership.members import MembersConfig, members
from spark_jobs.dedup.near.buckets import BucketsConfig, buckets
from spark_jobs.dedup.near.pairs import PAIRS, PairsConfig, pairs
from spark_jobs.dedup.removal.removals import REMOVALS, RemovalsConfig, kept_pairs, removals, unjustified
from spark_jobs.dedup.removal.survivors import SurvivorsConfig, survivors
from spark_jobs.dedup.repository.bags import REPOSITORY_BAGS, RepositoryBagsConfig, repository_bags
from spark_jobs.dedup.repository.components import (
    REPOSITORY_COMPONENTS,
    RepositoryComponentsConfig,
    repository_components,
)
from spark_jobs.dedup.repository.pairs import REPOSITORY_PAIRS, RepositoryPairsConfig, repository_pairs
from spark_jobs.dedup.repository.removals import REPOSITORY_REMOVALS, RepositoryRemovalsConfig, repository_removals
from spark_jobs.dedup.sketches.background import BackgroundConfig, background
from spark_jobs.dedup.sketches.signatures import SignaturesConfig, signatures
from spark_jobs.lake.declare.step import NoConfig, Output
from spark_jobs.lake.declare.tables import Table, spark_schema
from tests.tiers import tries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.nightly

Repositories = dict[str, dict[str, str]]


def world(seed: int) -> tuple[Repositories, set[str]]:
    """Repositories by name, and the originals among them, whose files must all be kept."""
    draw = random.Random(seed)

    def text() -> str:
        return " ".join(f"w{draw.randrange(3000)}" for _ in range(60))

    def edited(files: Mapping[str, str], share: float, words: int = 2) -> dict[str, str]:
        found = {}
        for path, content in files.items():
            parts = content.split()
            for place in draw.sample(range(len(parts)), words if draw.random() < share else 0):
                parts[place] = f"w{draw.randrange(3000)}"
            found[path] = " ".join(parts)
        return found

    def files(count: int) -> dict[str, str]:
        return {f"{draw.choice(('', 'src/', 'src/a/'))}f{n}.txt": text() for n in range(count)}

    made: Repositories = {}
    library, first, chain = f"library{seed}", f"first{seed}", f"chain{seed}"
    made[library], made[first], made[chain] = files(12), files(20), files(24)
    folder = draw.choice(("deps", "lib", "contrib", "packages", "a/b"))
    made[f"app{seed}"] = files(30) | {f"{folder}/{p}": t for p, t in edited(made[library], 0.2).items()}
    added = {f"more/{path}": content for path, content in files(3).items()}
    made[f"fork{seed}"] = edited(made[first], 0.3) | added
    # Each is a fifth new beside the one before, so that every second one is no duplicate of the first.
    before = chain
    for number in range(3):
        replaced = dict(draw.sample(sorted(made[before].items()), 20))
        before = f"{chain}-{'abc'[number]}"
        made[before] = replaced | {f"new{number}/{path}": content for path, content in files(4).items()}
    mirror = files(10)
    made[f"mirror{seed}"], made[f"rorrim{seed}"] = mirror, dict(mirror)
    return made, {library, first}


@pytest.fixture(scope="module")
def corpus() -> tuple[Repositories, set[str]]:
    """Some worlds in one corpus."""
    worlds = [world(seed) for seed in range(tries(12, 3))]
    return {name: files for one, _ in worlds for name, files in one.items()}, set().union(*(two for _, two in worlds))


def run(spark: SparkSession, repositories: Repositories, partitions: int) -> dict[str, list[Any]]:
    """All steps of one increment; rows by table."""
    tables: dict[str, DataFrame] = {}

    def land(found: DataFrame | Output, *names: str) -> None:
        output = found if isinstance(found, Output) else Output({names[0]: found})
        for name in names:
            frame = output.frames[name].selectExpr("*", "0 AS increment")
            data = frame.toArrow()
            tables[name] = spark.createDataFrame(data if data.num_rows else [], frame.schema).repartition(partitions)

    def none(table: Table) -> DataFrame:
        return spark.createDataFrame([], spark_schema(table))

    def of(*names: str) -> list[DataFrame]:
        return [tables[name] for name in names]

    rows = [
        ("code", 0, sha(f"{name} {path}"), name, path, 0, 0, "prose", None, text, sha(text), len(text), None)
        for name, files in repositories.items()
        for path, text in files.items()
    ]
    ddl = (
        "dataset string, dataset_increment int, doc_id string, repository string, path string, increment int, "
        "shard int, kind string, language string, content string, content_sha256 string, byte_count bigint, "
        "licence string"
    )
    documents = spark.createDataFrame(rows, ddl).repartition(partitions)
    texts = documents.withColumnRenamed("content_sha256", "letters_sha256")
    verdicts = documents.selectExpr("dataset", "doc_id", "true AS kept")
    land(members(documents, texts, verdicts, MembersConfig(datasets=("code",))), "members")
    land(
        exact_duplicates(*of("members"), none(EXACT_DUPLICATES), 0, NoConfig()).frames["exact_duplicates"],
        "exact_duplicates",
    )
    read = (*of("members", "exact_duplicates"), texts)
    land(vocabulary(*read, VocabularyConfig()), "vocabulary")
    land(bags(*read, *of("vocabulary"), BagsConfig()), "bags")
    land(background(*of("bags"), BackgroundConfig()), "background")
    land(signatures(*of("bags", "vocabulary"), SignaturesConfig()), "signatures")
    land(buckets(*of("signatures", "background"), 0, BucketsConfig()), "buckets")
    land(pairs(*of("buckets", "signatures", "bags"), none(PAIRS), 0, PairsConfig()), "pairs")
    land(components(*of("pairs"), none(COMPONENTS), 0, ComponentsConfig()), "components")
    grouped = of("members", "exact_duplicates", "components", "bags")
    land(repository_bags(*grouped, none(REPOSITORY_BAGS), 0, RepositoryBagsConfig()), "repository_bags")
    compared = repository_pairs(*of("repository_bags"), none(REPOSITORY_PAIRS), 0, RepositoryPairsConfig())
    land(compared, "repository_pairs")
    linked = of("repository_pairs", "repository_bags", "members")
    config = RepositoryComponentsConfig()
    land(repository_components(*linked, none(REPOSITORY_COMPONENTS), 0, config), "repository_components")
    decided = of("repository_pairs", "repository_components", "members", "exact_duplicates", "buckets")
    leaving = repository_removals(*decided, none(REPOSITORY_REMOVALS), 0, RepositoryRemovalsConfig())
    land(leaving, "repository_removals", "repository_removal_files")
    (leaving_files,) = of("repository_removal_files")
    land(removals(*of("pairs"), none(REMOVALS), 0, RemovalsConfig(), leaving_files), "removals")
    frames = {"pairs": tables["pairs"], "leaving": leaving_files}
    for proof in (kept_pairs, unjustified):
        assert proof(tables["removals"].drop("increment"), frames, 0, RemovalsConfig()).count() == 0
    land(survivors(*of("members", "exact_duplicates"), SurvivorsConfig(), *of("removals")), "survivors")
    names = ("members", "exact_duplicates", "repository_removals", "removals", "survivors")
    return {name: sorted(map(tuple, tables[name].collect())) and tables[name].collect() for name in names}


@pytest.fixture(scope="module")
def found(spark: SparkSession, corpus: tuple[Repositories, set[str]]) -> dict[str, list[Any]]:
    """Rows by table."""
    return run(spark, corpus[0], 2)


def test_originals_keep_all_their_files(corpus: tuple[Repositories, set[str]], found: dict[str, list[Any]]) -> None:
    """Whatever was made of them."""
    kept = {row.doc_id for row in found["survivors"]}
    for name in corpus[1]:
        assert {path for path in corpus[0][name] if sha(f"{name} {path}") not in kept} == set(), name


def test_kept_repositories_lose_files_to_kept_ones_alone(
    corpus: tuple[Repositories, set[str]], found: dict[str, list[Any]]
) -> None:
    """By the witnesses in the tables, followed to a survivor; and every text has one."""
    repository = {sha(f"{name} {path}"): name for name, files in corpus[0].items() for path in files}
    kept = {row.doc_id for row in found["survivors"]}
    out = {row.repository for row in found["repository_removals"]}
    assert any(name.startswith("fork") for name in out) and any(name.startswith("chain") for name in out)
    near = {row.doc_id: row.witness_doc_id for row in found["removals"] if row.threshold == 0.8}
    exact = {row.doc_id: row.witness_doc_id for row in found["exact_duplicates"]}
    assert near.keys() | exact.keys() | kept == repository.keys() and not kept & near.keys()
    assert set(near.values()) <= kept
    for doc_id, name in repository.items():
        witness = doc_id
        while witness not in kept:
            witness = near.get(witness) or exact[witness]
        assert witness == doc_id or name in out or repository[witness] not in out, name
    for seed in range(tries(12, 3)):
        left = [sum(repository[one] == f"{name}{seed}" for one in kept) for name in ("mirror", "rorrim")]
        assert sorted(left) == [0, 10]


def test_rows_are_the_same_for_7_partitions(
    spark: SparkSession, corpus: tuple[Repositories, set[str]], found: dict[str, list[Any]]
) -> None:
    """Neither partitions nor the order of files show."""
    turned = {name: dict(reversed(files.items())) for name, files in reversed(corpus[0].items())}
    again = run(spark, turned, 7)
    assert {name: sorted(map(repr, rows)) for name, rows in again.items()} == {
        name: sorted(map(repr, rows)) for name, rows in found.items()
    }


def sha(text: str) -> str:
    """A hash as identities are."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
