"""The step that finds components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from spark_jobs.dedup.graph.components import COMPONENTS, ComponentsConfig, components
from tests.spark_jobs.dedup.planted_pairs import THRESHOLDS, Document, Pair, at_least, pairs_frame, planted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[float, str, str, int]
OWN_DDL = "increment int, threshold double, doc_id string, component string, document_count int"


def run(
    spark: SparkSession,
    pairs: Sequence[Pair],
    own: Sequence[tuple[int, *Row]],
    increment: int,
    partitions: int = 2,
    driver_edges: int = 10**6,
) -> list[Row]:
    """Rows of the step for one increment, sorted."""
    frame = components(
        pairs_frame(spark, pairs, increment, partitions),
        spark.createDataFrame(list(own), OWN_DDL),
        increment,
        ComponentsConfig(thresholds=THRESHOLDS, driver_edges=driver_edges),
    )
    return sorted(tuple(row) for row in frame.collect())


def history(spark: SparkSession, pairs: Sequence[Pair], increments: int, driver_edges: int) -> list[tuple[int, *Row]]:
    """All increments, one after another, each with the rows of those before."""
    own: list[tuple[int, *Row]] = []
    for increment in range(increments):
        own += [(increment, *row) for row in run(spark, pairs, own, increment, driver_edges=driver_edges)]
    return own


def by_hand(pairs: Sequence[Pair], increment: int) -> list[Row]:
    """Components over the pairs of all increments up to one, those alone that a pair of that one is part of."""
    rows: list[Row] = []
    for threshold in THRESHOLDS:
        chosen = [p for p in pairs if p.worse.increment <= increment and p.similarity >= at_least(threshold)]
        sets: dict[str, set[str]] = {}
        for pair in chosen:
            joined = sets.get(pair.worse.doc_id, {pair.worse.doc_id}) | sets.get(
                pair.better.doc_id, {pair.better.doc_id}
            )
            sets.update(dict.fromkeys(joined, joined))
        touched = {pair.worse.doc_id for pair in chosen if pair.worse.increment == increment}
        rows += [(threshold, doc, min(found), len(found)) for doc, found in sets.items() if found & touched]
    return sorted(rows)


@pytest.mark.parametrize(
    ("seed", "driver_edges", "increments"), [(1, 10**6, 3), pytest.param(3, 0, 2, marks=pytest.mark.nightly)]
)
def test_every_increment_has_the_components_of_all_pairs_so_far(
    spark: SparkSession, seed: int, driver_edges: int, increments: int
) -> None:
    """Built on what earlier increments found, rows are those of a run over all pairs; the newest, of the union."""
    pairs = planted(seed, documents=120, increments=increments, pairs=70)
    own = history(spark, pairs, increments, driver_edges)
    for increment in range(increments):
        expected = by_hand(pairs, increment)
        assert len(expected) > 10
        assert sorted(row[1:] for row in own if row[0] == increment) == expected
    newest = {(row[1], row[2]): row[1:] for row in sorted(own)}
    at_once = [Pair(p.worse._replace(increment=0), p.better._replace(increment=0), p.shared, p.united) for p in pairs]
    assert sorted(newest.values()) == by_hand(at_once, 0)


def test_an_untouched_component_has_no_new_rows(spark: SparkSession) -> None:
    """Worked example of the module: a and c stay as they are, d and e have a new row with f."""
    a, c, d, e = (Document(0, place, name, "code") for place, name in enumerate("acde"))
    f = Document(1, 0, "f", "code")
    pairs = [Pair(c, a, 9, 10), Pair(e, d, 9, 10), Pair(f, e, 7, 10)]
    first = run(spark, pairs, [], 0)
    assert first == sorted(
        (t, doc, c, 2) for t in THRESHOLDS for doc, c in (("a", "a"), ("c", "a"), ("d", "d"), ("e", "d"))
    )
    assert run(spark, pairs, [(0, *row) for row in first], 1) == [(0.7, doc, "d", 3) for doc in "def"]


@pytest.mark.nightly
def test_rows_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    pairs = planted(5, increments=1)
    plain = run(spark, pairs, [], 0)
    for partitions in (1, 7):
        assert run(spark, pairs[::-1], [], 0, partitions) == plain


def test_a_corpus_without_pairs_has_no_components(spark: SparkSession) -> None:
    """Also in a later increment, where components exist already."""
    assert run(spark, [], [], 0) == []
    assert run(spark, [], [(0, 0.7, "a", "a", 2), (0, 0.7, "b", "a", 2)], 1) == []


def test_rows_fit_the_table_and_pass_its_checks(spark: SparkSession) -> None:
    """Columns are those declared; every check holds for every row."""
    frame = components(pairs_frame(spark, planted(6), 0), spark.createDataFrame([], OWN_DDL), 0, ComponentsConfig())
    types = {"long": "bigint"}
    assert frame.dtypes == [(c.name, types.get(c.type, c.type)) for c in COMPONENTS.columns]
    for check in COMPONENTS.checks:
        assert frame.where(f"not coalesce({check.predicate}, false)").count() == 0


def test_driver_edges_decide_no_row_and_unknown_settings_are_refused() -> None:
    """The step key leaves out what only decides where the graph is solved."""
    from spark_jobs.lake.ledger.step_key import config_json

    assert config_json(ComponentsConfig(driver_edges=1)) == config_json(ComponentsConfig())
    for edges in (0, 50_000_000):
        assert ComponentsConfig(driver_edges=edges).driver_edges == edges
    for refused in ({"threshold": 0.7}, {"driver_edges": -1}, {"driver_edges": 50_000_001}):
        with pytest.raises(ValidationError):
            ComponentsConfig.model_validate(refused)
