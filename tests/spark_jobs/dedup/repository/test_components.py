"""Components of repositories, and what giant ones are made of."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup.repository.components import (
    REPOSITORY_COMPONENTS,
    RepositoryComponentsConfig,
    repository_components,
)
from spark_jobs.dedup.repository.removals import RepositoryRemovalsConfig, repository_removals
from spark_jobs.lake.declare.tables import spark_schema
from tests.spark_jobs.dedup.repository_corpus import Corpus, Fact, File, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PAIRS = (
    "increment int, dataset string, repository string, repository_id string, better_dataset string, "
    "better_repository string, better_repository_id string, better_increment int, shared_weight bigint, "
    "united_weight bigint, containment double"
)
WEB = [f"web-{number}" for number in range(6)]
SCIENCE = [f"sci-{number}" for number in range(6)]
OTHERS = [f"other-{number}" for number in range(30)]
FACTS = [
    *(Fact(name, topics=("HTTP", "tools")) for name in WEB),
    *(Fact(name, topics=("tools",)) for name in SCIENCE[:1]),
]
FILES = [
    *(File(0, name, "matrix/solver_test.py", name) for name in SCIENCE),
    *(File(0, name, "server/solver.py", name) for name in WEB),
    *(File(0, name, "x.py", name) for name in OTHERS),
]


def identity(name: str, increment: int = 0) -> str:
    """repository_id by name."""
    return File(increment, name, "", "").repository_id


def linked(names: list[str], shared: int = 95) -> list[tuple[str, str, int]]:
    """Every two of some repositories."""
    return [(one, other, shared) for one, other in itertools.combinations(names, 2)]


GIANT = [*linked(WEB), *linked(SCIENCE), (WEB[2], SCIENCE[3], 75), (OTHERS[0], OTHERS[1], 80)]


def inputs(
    spark: SparkSession, pairs: list[tuple[str, str, int]], increment: int = 0, new: tuple[str, ...] = ()
) -> dict[str, DataFrame]:
    """Tables of the step; pairs with a new repository are of the increment."""
    rows = []
    for one, other, shared in pairs:
        late = [name in new for name in (one, other)]
        worse, better = (one, other) if late[0] else (other, one)
        ids = [identity(name, increment if name in new else 0) for name in (worse, better)]
        since = increment if any(late) else 0
        rows.append((since, "code", worse, ids[0], "code", better, ids[1], since if all(late) else 0, shared, 100, 1.0))
    corpus = Corpus([*FILES, *(File(increment, name, "y.py", name) for name in new)], (), FACTS)
    frames = corpus.inputs(spark, increment)
    named = {(file.repository_id, "code", file.repository) for file in corpus.files}
    return {
        "repository_pairs": spark.createDataFrame(rows, _PAIRS),
        "repository_bags": spark.createDataFrame(
            sorted(named), "repository_id string, dataset string, repository string"
        ),
        "members": frames["members"],
        "repositories": frames["repositories"],
    }


def run(
    spark: SparkSession, frames: dict[str, DataFrame], config: RepositoryComponentsConfig, increment: int = 0
) -> dict[str, Row]:
    """Rows by name; checks hold."""
    own = frames.get("own", spark.createDataFrame([], spark_schema(REPOSITORY_COMPONENTS)))
    given = {name: frame for name, frame in frames.items() if name != "own"}
    found = repository_components(**given, repository_components=own, increment=increment, config=config)
    landed = stored(spark, found.selectExpr(f"{increment} AS increment", "*"))
    for check in REPOSITORY_COMPONENTS.checks:
        assert landed.where(f"not coalesce({check.predicate}, false)").count() == 0, check.name
    rows = landed.collect()
    frames["own"] = own.unionByName(landed)
    assert len({row.repository for row in rows}) == len(rows)
    return {row.repository: row for row in rows}


@pytest.mark.nightly
def test_a_giant_component_has_topics_and_others_have_none(spark: SparkSession) -> None:
    """Named by what is declared and by the words of names and paths of those that declare nothing; nothing is cut."""
    rows = run(spark, inputs(spark, GIANT), RepositoryComponentsConfig())
    least = min(map(identity, [*WEB, *SCIENCE]))
    assert {(row.component, row.repository_count, row.piece) for name, row in rows.items() if name[0] != "o"} == {
        (least, 12, least)
    }
    assert {rows[name].topic for name in WEB} == {"http, tools"}
    assert {rows[name].topic for name in SCIENCE} == {"matrix, sci, solver"}
    assert {rows[name].topic for name in OTHERS[:2]} == {None}
    assert set(rows) == {*WEB, *SCIENCE, *OTHERS[:2]}


@pytest.mark.parametrize(("bridge", "pieces"), [pytest.param(75, 2, marks=pytest.mark.nightly), (92, 1)])
def test_a_topic_is_cut_off_unless_a_pair_is_above_the_cut(spark: SparkSession, bridge: int, pieces: int) -> None:
    """Inside topics nothing changes; a pair between two pieces removes nobody, though both ends are kept."""
    pairs = [*linked(WEB, 80), *linked(SCIENCE, 80), (WEB[2], SCIENCE[3], bridge)]
    frames = inputs(spark, pairs)
    rows = run(spark, frames, RepositoryComponentsConfig(cut=("http, tools",)))
    assert {rows[name].piece for name in WEB} == {min(map(identity, [*WEB, *(SCIENCE if pieces == 1 else [])]))}
    assert len({row.piece for row in rows.values()}) == pieces
    assert len({row.component for row in rows.values()}) == 1


@pytest.mark.nightly
def test_only_pairs_inside_a_piece_remove(spark: SparkSession) -> None:
    """A pair across the cut is no reason to go."""
    frames = inputs(spark, [*linked(WEB, 99), *linked(SCIENCE, 99), (WEB[0], SCIENCE[0], 75)])
    exact = spark.createDataFrame([], "increment int, doc_id string, witness_doc_id string")
    buckets = spark.createDataFrame([], "increment int, members array<bigint>, earlier array<bigint>")
    own = spark.createDataFrame([], "repository_id string, increment int")
    for cut, expected in ((), {*WEB[1:], SCIENCE[0], *SCIENCE[2:]}), (("http, tools",), {*WEB[1:], *SCIENCE[1:]}):
        run(spark, frames, RepositoryComponentsConfig(cut=cut))
        pieces = frames.pop("own")
        found = repository_removals(
            frames["repository_pairs"],
            pieces,
            frames["members"],
            exact,
            buckets,
            own,
            0,
            RepositoryRemovalsConfig(),
        )
        assert {row.repository for row in found.frames["repository_removals"].collect()} == expected


@pytest.mark.nightly
def test_increments_extend_components(spark: SparkSession) -> None:
    """A late repository joins a component, whose topics are found again; what no pair reaches has no new row."""
    frames = inputs(spark, GIANT)
    config = RepositoryComponentsConfig()
    first = run(spark, frames, config)
    late = inputs(spark, [*GIANT, ("late", WEB[0], 90), ("late", WEB[1], 90)], 1, ("late",))
    rows = run(spark, {**late, "own": frames["own"]}, config, 1)
    assert set(rows) == {"late", *WEB, *SCIENCE}
    assert {row.repository_count for row in rows.values()} == {13}
    assert rows["late"].topic == rows[WEB[0]].topic
    assert {rows[name].topic for name in SCIENCE} == {first[SCIENCE[0]].topic}


@pytest.mark.nightly
def test_the_size_of_a_giant_is_a_share_of_all_repositories(spark: SparkSession) -> None:
    """12 of 42 are more than a quarter and less than a third."""
    frames = inputs(spark, GIANT)
    for fraction, topics in ((0.25, 2), (0.33, 0)):
        found = run(spark, dict(frames), RepositoryComponentsConfig(giant_fraction=fraction))
        assert len({row.topic for row in found.values()} - {None}) == topics
