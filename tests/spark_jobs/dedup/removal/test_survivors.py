"""The step that says what goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup.removal.survivors import SURVIVORS, SurvivorsConfig, survivors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MEMBERS = [("code", 1, "a", "p"), ("code", 2, "b", "q"), ("docs", 0, "c", "r"), ("docs", 3, "d", "s")]
REMOVED = [("code", "b", "a"), ("docs", "d", "a")]


def run(spark: SparkSession, removed: list[tuple[str, str, str]], partitions: int = 2, order: int = 1) -> DataFrame:
    """Survivors of the members above."""
    members = spark.createDataFrame(MEMBERS[::order], "dataset string, shard int, doc_id string, path string")
    rows = spark.createDataFrame(removed[::order], "dataset string, doc_id string, witness_doc_id string")
    return survivors(members.repartition(partitions), rows, SurvivorsConfig())


def by_id(frame: DataFrame) -> list[Row]:
    """Rows by doc_id; sorting them here spares Spark a second run of the step."""
    return sorted(frame.collect(), key=lambda row: str(row.doc_id))


def test_survivors_are_the_members_that_were_not_removed(spark: SparkSession) -> None:
    """Every member is either removed or survives."""
    assert sorted(map(tuple, run(spark, REMOVED).collect())) == [("code", 1, "a"), ("docs", 0, "c")]
    assert len(run(spark, []).collect()) == len(MEMBERS)


def test_rows_fit_the_table(spark: SparkSession) -> None:
    """Columns and types are those declared."""
    assert run(spark, REMOVED).dtypes == [(column.name, column.type) for column in SURVIVORS.columns]


@pytest.mark.nightly
def test_survivors_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    plain = by_id(run(spark, REMOVED))
    for partitions in (1, 7):
        assert by_id(run(spark, REMOVED, partitions, order=-1)) == plain


def test_near_duplicates_go_at_the_applied_threshold(spark: SparkSession) -> None:
    """Each level takes away its own; removals at another threshold say nothing."""
    members = spark.createDataFrame(MEMBERS, "dataset string, shard int, doc_id string, path string")
    exact = spark.createDataFrame([("code", "b")], "dataset string, doc_id string")
    rows = [(0.7, "a", "d"), (0.7, "c", "d"), (0.8, "c", "d")]
    near = spark.createDataFrame(rows, "threshold double, doc_id string, witness_doc_id string")
    plain = survivors(members, exact, SurvivorsConfig(threshold=0.8), near)
    assert [row.doc_id for row in by_id(plain)] == ["a", "d"]
    lower = survivors(members, exact, SurvivorsConfig(threshold=0.7), near)
    assert [row.doc_id for row in by_id(lower)] == ["d"]


def test_a_near_duplicate_goes_at_the_threshold_of_its_kind(spark: SparkSession) -> None:
    """A document is looked up at its own threshold, whatever happens to it at others."""
    rows = [("d", 0, "a", "code"), ("d", 0, "b", "code"), ("d", 0, "c", "prose"), ("d", 0, "e", "prose")]
    members = spark.createDataFrame(rows, "dataset string, shard int, doc_id string, kind string")
    exact = spark.createDataFrame([], "dataset string, doc_id string")
    gone = [(0.5, "a", "z"), (0.8, "b", "z"), (0.5, "c", "z"), (0.5, "e", "z"), (0.8, "e", "z")]
    near = spark.createDataFrame(gone, "threshold double, doc_id string, witness_doc_id string")
    config = SurvivorsConfig.model_validate({"threshold": {"code": 0.5}})
    assert [row.doc_id for row in by_id(survivors(members, exact, config, near))] == ["b", "c"]
