"""Small corpora of repositories, their steps run one after another, and what must come out by brute force.

A file has a content; equal contents are exact duplicates, and contents that are linked are near-duplicates. The tables
that the level `repository` reads are made of that in plain Python.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_jobs.dedup.repository.bags import REPOSITORY_BAGS, RepositoryBagsConfig, repository_bags
from spark_jobs.dedup.repository.components import (
    REPOSITORY_COMPONENTS,
    RepositoryComponentsConfig,
    repository_components,
)
from spark_jobs.dedup.repository.containments import (
    REPOSITORY_CONTAINMENTS,
    RepositoryContainmentsConfig,
    repository_containments,
)
from spark_jobs.dedup.repository.pairs import REPOSITORY_PAIRS, RepositoryPairsConfig, repository_pairs
from spark_jobs.dedup.repository.removals import (
    REPOSITORY_REMOVAL_FILES,
    REPOSITORY_REMOVALS,
    RepositoryRemovalsConfig,
    repository_removals,
)
from spark_jobs.lake.declare.step import Output
from spark_jobs.lake.declare.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = {
    table.name: table
    for table in (
        REPOSITORY_BAGS,
        REPOSITORY_PAIRS,
        REPOSITORY_CONTAINMENTS,
        REPOSITORY_COMPONENTS,
        REPOSITORY_REMOVALS,
        REPOSITORY_REMOVAL_FILES,
    )
}
THRESHOLD = Fraction(7, 10)
PARTITIONS = 2  # as many as frames made of rows have in tests
_MEMBERS = (
    "increment int, dataset string, shard int, doc_id string, place bigint, repository string, path string, "
    "byte_count bigint, fork_depth int"
)
_FACTS = (
    "increment int, dataset string, dataset_increment int, repository string, version string, licence string, "
    "fork_of string, topics array<string>, dependencies array<string>, metadata map<string,string>"
)


class File(NamedTuple):
    """A member of the corpus."""

    increment: int
    repository: str | None
    path: str
    content: str
    weight: int = 2560
    dataset: str = "code"

    @property
    def doc_id(self) -> str:
        """Identity, a hash as in production."""
        return hashlib.sha256(f"{self.dataset}\0{self.repository}\0{self.path}\0{self.content}".encode()).hexdigest()[
            :32
        ]

    @property
    def place(self) -> int:
        """Place in the order, a hash as in production."""
        return int(self.doc_id[:15], 16)

    @property
    def repository_id(self) -> str:
        """Identity of what its increment brought of its repository."""
        return hashlib.sha256(f"{self.dataset}\n{self.increment}\n{self.repository}".encode()).hexdigest()[:32]


class Fact(NamedTuple):
    """What is known about a repository."""

    repository: str
    version: str | None = None
    licence: str | None = None
    fork_of: str | None = None
    topics: tuple[str, ...] = ()
    stars: int | None = None
    increment: int = 0


@dataclass(frozen=True)
class Corpus:
    """Files, which contents are near-duplicates since which increment, facts, and who shares a bucket in which."""

    files: Sequence[File]
    links: Sequence[tuple[int, str, str]] = ()
    facts: Sequence[Fact] = ()
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    buckets: Sequence[tuple[int, Sequence[File]]] = ()

    @property
    def increments(self) -> range:
        """All increments."""
        return range(max((file.increment for file in self.files), default=0) + 1)

    def witnesses(self) -> dict[str, str]:
        """Exact duplicates and whom they repeat."""
        first: dict[str, File] = {}
        for file in sorted(self.files, key=lambda file: (file.increment, file.doc_id)):
            first.setdefault(file.content, file)
        return {one.doc_id: first[one.content].doc_id for one in self.files if first[one.content] != one}

    def groups(self, increment: int) -> dict[str, str]:
        """Component of every standing document up to an increment, its own where nothing links it."""
        witnesses = self.witnesses()
        standing = {f.content: f.doc_id for f in self.files if f.increment <= increment and f.doc_id not in witnesses}
        label = {doc_id: doc_id for doc_id in standing.values()}
        for since, one, other in self.links:
            if since <= increment and one in standing and other in standing:
                left, right = sorted((label[standing[one]], label[standing[other]]))
                label = {doc_id: left if found == right else found for doc_id, found in label.items()}
        return label

    def inputs(self, spark: SparkSession, increment: int, partitions: int = PARTITIONS) -> dict[str, DataFrame]:
        """The tables of other levels, up to an increment."""
        here = [file for file in self.files if file.increment <= increment]
        witnesses = self.witnesses()
        members = [(f.increment, f.dataset, 0, f.doc_id, f.place, f.repository, f.path, 100, 0) for f in here]
        exact = [(f.increment, f.doc_id, witnesses[f.doc_id]) for f in here if f.doc_id in witnesses]
        bags = [(f.increment, f.doc_id, f.weight) for f in here if f.doc_id not in witnesses and f.weight]
        linked: list[tuple[int, float, str, str]] = []
        known: dict[str, str] = {}
        for number in range(increment + 1):
            sizes = Counter((groups := self.groups(number)).values())
            now = {doc: label for doc, label in groups.items() if sizes[label] > 1}
            moved = {label for doc, label in now.items() if known.get(doc) != label}
            linked += [(number, 0.7, doc, label) for doc, label in now.items() if label in moved]
            linked += [(number, 0.9, doc, "0" * 32) for doc in now]  # another threshold does not count
            known.update(now)
        facts: list[Any] = [
            (
                fact.increment,
                "code",
                fact.increment,
                fact.repository,
                fact.version,
                fact.licence,
                fact.fork_of,
                list(fact.topics),
                [],
                {} if fact.stars is None else {"stars": str(fact.stars)},
            )
            for fact in self.facts
            if fact.increment <= increment
        ]
        buckets: list[Any] = [
            (number, *([f.place for f in files if (f.increment == number) == new] for new in (True, False)))
            for number, files in self.buckets
            if number <= increment
        ]
        frames = {
            "members": spark.createDataFrame(members, _MEMBERS),
            "exact_duplicates": spark.createDataFrame(exact, "increment int, doc_id string, witness_doc_id string"),
            "bags": spark.createDataFrame(bags, "increment int, doc_id string, total_weight bigint"),
            "components": spark.createDataFrame(
                linked, "increment int, threshold double, doc_id string, component string"
            ),
            "repositories": spark.createDataFrame(facts, _FACTS),
            "buckets": spark.createDataFrame(buckets, "increment int, members array<bigint>, earlier array<bigint>"),
        }
        return {
            name: frame if partitions == PARTITIONS else frame.repartition(partitions) for name, frame in frames.items()
        }

    def bags(self, increment: int) -> dict[str, dict[str, int]]:
        """Weight of every group in every repository that is compared, as they are in an increment."""
        witnesses, groups = self.witnesses(), self.groups(increment)
        weight = {file.doc_id: file.weight for file in self.files}
        contents: dict[str, Counter[str]] = {}
        for file in self.files:
            group = groups.get(witnesses.get(file.doc_id, file.doc_id))
            if file.repository is not None and file.increment <= increment and group and weight[group]:
                contents.setdefault(file.repository_id, Counter())[group] += 1
        return {
            one: {
                group: min(4, count) * min(255, max(1, (weight[group] + 128) // 256)) for group, count in found.items()
            }
            for one, found in contents.items()
            if found.total() >= 2
        }

    def similarities(self, increment: int) -> dict[frozenset[str], Fraction]:
        """J of every two repositories as they are in an increment."""
        bags = self.bags(increment)
        result = {}
        for one, x in bags.items():
            for other, y in bags.items():
                if one < other and (shared := sum(min(w, y.get(group, 0)) for group, w in x.items())):
                    result[frozenset((one, other))] = Fraction(shared, sum(x.values()) + sum(y.values()) - shared)
        return result

    def containments(self, increment: int) -> dict[tuple[str, str], Fraction]:
        """Share of the lesser of every two repositories in the larger one, from the threshold on."""
        bags = self.bags(increment)
        ranked = sorted(bags, key=lambda one: (sum(bags[one].values()), one))
        shares = {
            (one, other): Fraction(
                sum(min(w, bags[other].get(group, 0)) for group, w in bags[one].items()), sum(bags[one].values())
            )
            for place, one in enumerate(ranked)
            for other in ranked[place + 1 :]
        }
        return {pair: share for pair, share in shares.items() if share >= THRESHOLD}


def run(spark: SparkSession, corpus: Corpus, partitions: int = PARTITIONS) -> dict[str, DataFrame]:
    """Run all five steps over all increments, every check and proof on the way; rows with the column `increment`."""
    tables = {name: spark.createDataFrame([], spark_schema(table)) for name, table in TABLES.items()}
    for number in corpus.increments:
        frames = {**corpus.inputs(spark, number, partitions)}
        for made, config in (
            (repository_bags, RepositoryBagsConfig),
            (repository_pairs, RepositoryPairsConfig),
            (repository_containments, RepositoryContainmentsConfig),
            (repository_components, RepositoryComponentsConfig),
            (repository_removals, RepositoryRemovalsConfig),
        ):
            given = config(**corpus.config.get(made.name, {}))
            named = {name: frame for name, frame in {**frames, **tables}.items() if name in made.parameters}
            returned = made(**named, increment=number, config=given)
            output = returned if isinstance(returned, Output) else Output({made.name: returned})
            for name, table in TABLES.items():
                if name in output.frames:
                    landed = stored(spark, output.frames[name].selectExpr(f"{number} AS increment", "*"), partitions)
                    holds = " and ".join(f"coalesce({check.predicate}, false)" for check in table.checks)
                    assert landed.where(f"not ({holds or 'true'})").count() == 0
                    for proof in table.proofs:
                        assert proof.violations(landed, named, number, given).count() == 0, proof.name
                    tables[name] = tables[name].unionByName(landed)
            for frame in output.persisted:
                frame.unpersist()
    return tables


def stored(spark: SparkSession, frame: DataFrame, partitions: int = PARTITIONS) -> DataFrame:
    """Rows as a table would hold them."""
    data = frame.toArrow()
    whole = spark.createDataFrame(data, frame.schema) if data.num_rows else spark.createDataFrame([], frame.schema)
    return whole if partitions == PARTITIONS else whole.repartition(partitions)


def removed(tables: Mapping[str, DataFrame]) -> dict[str, tuple[str, int]]:
    """Witness by removed repository, and the increment."""
    rows = tables["repository_removals"].collect()
    assert len({row.repository for row in rows}) == len(rows)
    return {row.repository: (row.witness_repository, row.increment) for row in rows}


def leaving(tables: Mapping[str, DataFrame]) -> set[str]:
    """doc_id of the files that leave with their repositories."""
    return {row.doc_id for row in tables["repository_removal_files"].where("stand_in_doc_id IS NULL").collect()}
