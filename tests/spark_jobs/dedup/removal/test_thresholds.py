"""The step that compares thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.dedup.bags.bags import BAGS
from spark_jobs.dedup.removal.thresholds import THRESHOLDS, ThresholdsConfig, thresholds
from spark_jobs.lake.declare.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Members = list[tuple[str, int]]
_NO_SAMPLE = (0, 0, 0, None, 0.0)  # the bands expect 0.64, give or take 0.48 for each of three deviations


def run(
    spark: SparkSession,
    members: Members,
    exact: list[str],
    gone: list[tuple[float, str, str | None]],
    components: list[tuple[float, str, str, int]],
) -> DataFrame:
    """The step over small tables, without bags."""

    def of_increment_1(rows: list[Any], ddl: str) -> DataFrame:
        return spark.createDataFrame(rows, ddl).selectExpr("*", "1 AS increment")

    return thresholds(
        of_increment_1(members, "doc_id string, byte_count bigint"),
        of_increment_1([(doc_id, "d3") for doc_id in exact], "doc_id string, witness_doc_id string"),
        of_increment_1(
            [(*one, "d0") for one in gone], "threshold double, doc_id string, repository string, witness_doc_id string"
        ),
        of_increment_1(components, "threshold double, doc_id string, component string, document_count int"),
        spark.createDataFrame([], spark_schema(BAGS)),
        of_increment_1([(0.64,)], "recall double"),
        1,
        ThresholdsConfig(),
    )


def test_each_threshold_counts_every_member_once(spark: SparkSession) -> None:
    """Documents and bytes kept and removed, files that go with repositories apart.

    d0 repeats d3 and stands in for it at 0.9, which changes no count. Components are named by a document of the
    increment or of an earlier one. Rows fit the table and pass its checks.
    """
    members: Members = [(f"d{n}", 10**n) for n in range(6)]
    gone = [(0.7, "d1", None), (0.7, "d2", "r"), (0.8, "d2", "r"), (0.9, "d3", "r")]
    components = [
        (0.7, "d1", "d1", 2),
        (0.7, "d2", "d1", 2),
        (0.7, "d4", "a0", 3),
        (0.7, "d5", "a0", 3),
        (0.7, "a0", "a0", 3),
        (0.8, "d2", "d2", 2),
    ]
    frame = run(spark, members, ["d0"], gone, components)
    types = {"long": "bigint"}
    assert frame.dtypes == [(c.name, types.get(c.type, c.type)) for c in THRESHOLDS.columns]
    rows = sorted(tuple(row) for row in frame.collect())
    landed = spark.createDataFrame(rows, frame.schema)
    for check in THRESHOLDS.checks:
        assert landed.where(f"not coalesce({check.predicate}, false)").count() == 0
    assert rows == [
        (0.7, 6, 1, 1, 1, 3, 111_000, 111, 2, 3, *_NO_SAMPLE),
        (0.8, 6, 1, 0, 1, 4, 111_010, 101, 1, 2, *_NO_SAMPLE),
        (0.9, 6, 1, 0, 0, 5, 111_110, 1, 0, 0, *_NO_SAMPLE),
    ]


@pytest.mark.nightly
def test_an_empty_increment_has_a_row_of_zeros_for_each_threshold(spark: SparkSession) -> None:
    """Nothing came, nothing is kept; the row says so."""
    rows = sorted(tuple(row) for row in run(spark, [], [], [], []).collect())
    assert rows == [(threshold, 0, 0, 0, 0, 0, 0, 0, 0, 0, *_NO_SAMPLE) for threshold in (0.7, 0.8, 0.9)]
