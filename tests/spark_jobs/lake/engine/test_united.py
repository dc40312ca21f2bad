"""Any number of frames are one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.lake.engine.united import united
from spark_jobs.spark_sql import F
from tests.tiers import on_spark, sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@on_spark
@sampled(2)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_rows_of_all_are_there_in_the_columns_of_the_first(spark: SparkSession, count: int) -> None:
    """By name, also where the others have them in another order; equal rows stay apart."""
    frames = [spark.createDataFrame([(number, "x"), (0, "y")], "a bigint, b string") for number in range(count)]
    turned = [frame.select("b", "a") if number % 2 else frame for number, frame in enumerate(frames)]
    rows = united(turned)
    assert rows.columns == ["a", "b"]
    expected = [(number, text) for one in range(count) for number, text in ((one, "x"), (0, "y"))]
    assert sorted(map(tuple, rows.collect())) == sorted(expected)


def test_hundreds_of_frames_are_a_plan_that_is_not_deep(spark: SparkSession) -> None:
    """A chain of 200 ended Sail's process for its stack."""
    frames = [spark.range(3).withColumn("frame", F.lit(number)) for number in range(200)]
    rows = united(frames).where("id > 0").groupBy().agg(F.count("*"), F.sum("frame"))
    assert tuple(rows.collect()[0]) == (400, 2 * sum(range(200)))
