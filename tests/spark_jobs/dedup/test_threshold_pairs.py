"""Pairs at every threshold, exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel, ValidationError

from spark_jobs.dedup.threshold_pairs import Thresholds, exact, pairs_at, threshold_of, with_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Config(BaseModel):
    """A config with thresholds."""

    thresholds: Thresholds


def test_a_pair_is_repeated_for_every_threshold_that_its_fraction_reaches(spark: SparkSession) -> None:
    """At and one below each bound, in weights where floats would round to the wrong side."""
    from pyspark.sql import functions as F

    thresholds = (0.07, 0.7, 0.9, 1.0)
    weights = [(7, 10), (69, 100), (7 * 10**11 - 1, 10**12), (7 * 10**11, 10**12), (9, 10), (7, 100), (6, 100), (5, 5)]
    pairs = spark.createDataFrame(weights, "shared_weight bigint, united_weight bigint")
    rows = pairs_at(pairs, thresholds).select(
        "group", threshold_of(F.col("group"), thresholds), "shared_weight", "united_weight"
    )
    assert sorted(tuple(row) for row in rows.collect()) == sorted(
        (group, threshold, shared, united)
        for group, threshold in enumerate(thresholds)
        for shared, united in weights
        if Fraction(shared, united) >= Fraction(str(threshold))
    )


def test_a_threshold_is_the_fraction_that_its_decimals_say() -> None:
    """0.7 is 7/10, not the double next to it."""
    assert exact(0.7) == Fraction(7, 10)
    assert exact(1.0) == 1
    assert exact(0.000001) == Fraction(1, 10**6)


def test_groups_come_back_from_thresholds(spark: SparkSession) -> None:
    """Rows of a threshold that is no longer listed are left out."""
    rows = with_group(spark.createDataFrame([(0.7,), (0.8,), (0.9,)], "threshold double"), (0.7, 0.9))
    assert {tuple(row) for row in rows.collect()} == {(0.7, 0), (0.9, 1)}


@pytest.mark.parametrize(
    ("thresholds", "fault"),
    [
        ((), "at least 1"),
        ((0.8, 0.7), "ascending"),
        ((0.7, 0.7), "ascending"),
        ((0.0,), "above 0"),
        ((1.1,), "at most 1"),
        ((0.1234567,), "decimals"),
        ((float("nan"),), "above 0"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(thresholds: tuple[float, ...], fault: str) -> None:
    """Before any work starts."""
    with pytest.raises(ValidationError, match=fault):
        Config(thresholds=thresholds)
