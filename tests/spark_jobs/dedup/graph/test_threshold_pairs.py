"""Pairs at every threshold, exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pydantic import BaseModel, ValidationError

from spark_jobs.dedup.graph.threshold_pairs import (
    KindThreshold,
    KindThresholds,
    Thresholds,
    exact,
    group_numbers,
    groups_reached,
    of_kinds,
    own_groups,
    threshold_of,
    with_group,
    without,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Config(BaseModel):
    """A config with thresholds."""

    thresholds: Thresholds


def test_a_pair_is_in_the_group_of_every_threshold_that_its_fraction_reaches(spark: SparkSession) -> None:
    """At and one below each bound, in weights where floats would round to the wrong side."""
    from pyspark.sql import functions as F

    thresholds = (0.07, 0.7, 0.9, 1.0)
    weights = [(7, 10), (69, 100), (7 * 10**11 - 1, 10**12), (7 * 10**11, 10**12), (9, 10), (7, 100), (6, 100), (5, 5)]
    pairs = spark.createDataFrame(weights, "shared_weight bigint, united_weight bigint")
    rows = pairs.withColumn("groups", groups_reached(thresholds))
    expected = {
        (shared, united): [g for g, one in enumerate(thresholds) if Fraction(shared, united) >= Fraction(str(one))]
        for shared, united in weights
    }
    assert {tuple(row[:2]): row.groups for row in rows.collect()} == {
        pair: sum(1 << group for group in groups) for pair, groups in expected.items()
    }
    numbered = rows.select("shared_weight", "united_weight", F.explode(group_numbers(F.col("groups"))).alias("group"))
    assert sorted(tuple(row) for row in numbered.select("*", threshold_of(F.col("group"), thresholds)).collect()) == (
        sorted((*pair, group, thresholds[group]) for pair, groups in expected.items() for group in groups)
    )


def test_the_last_of_31_groups_is_like_any_other(spark: SparkSession) -> None:
    """Bit 30 is the last that an int has beside its sign."""
    from pyspark.sql import functions as F

    thresholds = tuple(number / 100 for number in range(60, 91))
    pair = spark.createDataFrame([(90, 100)], "shared_weight bigint, united_weight bigint")
    groups = groups_reached(thresholds)
    row = pair.select(groups, F.size(group_numbers(groups)), without(groups, F.lit((1 << 30) - 1))).first()
    assert row == (2**31 - 1, 31, 1 << 30)


def test_groups_without_others_are_those_not_among_them(spark: SparkSession) -> None:
    """Bit by bit; a null, as a left join leaves it, takes nothing away."""
    from pyspark.sql import functions as F

    rows = spark.createDataFrame([(0b1011, 0b0110), (0b1011, None), (0b11, 0b111)], "groups int, others int")
    found = [row[0] for row in rows.select(without(F.col("groups"), F.col("others"))).collect()]
    assert found == [0b1001, 0b1011, 0]


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
        (tuple(number / 100 for number in range(1, 33)), "32 thresholds are more than 31; leave some out"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(thresholds: tuple[float, ...], fault: str) -> None:
    """Before any work starts."""
    with pytest.raises(ValidationError, match=fault):
        Config(thresholds=thresholds)


@pytest.mark.parametrize(
    "thresholds", [(1.0,), (0.000001,), (0.123456, 0.123457), tuple(number / 100 for number in range(1, 32))]
)
def test_thresholds_at_the_bounds_are_taken(thresholds: tuple[float, ...]) -> None:
    """J = 1 are equal bags; six decimals, and 31 thresholds, are as many as there may be."""
    assert Config(thresholds=thresholds).thresholds == thresholds
    assert KindThresholds.model_validate(list(thresholds)).together == thresholds


def test_a_threshold_by_kind_is_a_fraction_above_0_and_up_to_1() -> None:
    """The threshold of a kind, and of what has no kind where all kinds have the same."""
    by_kind = KindThreshold.model_validate({"code": 1.0, "data": 0.5, "default": 0.8})
    assert [by_kind.of(kind) for kind in ("code", "prose", "markup", "data")] == [1.0, 0.8, 0.8, 0.5]
    assert (by_kind.distinct, by_kind.is_one) == ((0.5, 0.8, 1.0), False)
    with pytest.raises(KeyError):
        by_kind.of("repository")
    assert KindThreshold.model_validate(0.5).of("repository") == 0.5
    assert KindThreshold.model_validate(by_kind) is by_kind
    assert KindThreshold.model_validate({"code": 0.5}) == KindThreshold(code=0.5, prose=0.8, markup=0.8, data=0.8)
    for value in (0.0, 1.000001, -0.5):
        with pytest.raises(ValidationError):
            KindThreshold.model_validate(value)


def test_values_are_looked_up_by_the_kind_of_each_document() -> None:
    """In any order of kinds, in several chunks, once for each kind; no documents are no fault."""
    kinds = pa.chunked_array([["b", "a"], [], ["a", "c", "b"]], pa.string())
    asked: list[str] = []
    found = of_kinds(kinds, lambda kind: asked.append(kind) or ord(kind))
    assert (found.tolist(), sorted(asked)) == ([98, 97, 97, 99, 98], ["a", "b", "c"])
    assert of_kinds(kinds.slice(0, 0), ord).tolist() == []


def test_thresholds_of_all_kinds_or_by_kind() -> None:
    """One list says what a list for each kind says, also as a config is written; unnamed kinds have the default."""
    plain = KindThresholds.model_validate([0.7, 0.8])
    assert plain.model_dump(mode="json") == [0.7, 0.8]
    assert plain == KindThresholds.model_validate({"default": [0.7, 0.8]})
    by_kind = KindThresholds.model_validate({"code": [0.5, 0.8], "default": [0.6]})
    assert by_kind.together == (0.5, 0.6, 0.8)
    assert by_kind.lowest.values == {"code": 0.5, "prose": 0.6, "markup": 0.6, "data": 0.6}
    assert KindThresholds.model_validate(by_kind.model_dump(mode="json")) == by_kind
    assert KindThresholds.model_validate({"code": [0.5]}).prose == (0.7, 0.8, 0.9)
    assert [str(one) for one in (KindThreshold(), KindThreshold(code=0.5))] == [
        "0.8",
        "0.5 (code), 0.8 (prose, markup, data)",
    ]
    many = {"code": [n / 100 for n in range(1, 21)], "default": [n / 100 for n in range(30, 50)]}
    with pytest.raises(ValidationError, match="40 thresholds are more than 31"):
        KindThresholds.model_validate(many)


def test_a_kind_is_in_the_groups_from_its_lowest_threshold_on(spark: SparkSession) -> None:
    """And in which it is counted below that; with one list no kind is looked at."""
    thresholds = KindThresholds.model_validate({"code": [0.5], "data": [0.9], "default": [0.7, 0.8]})
    kinds = spark.createDataFrame([(kind,) for kind in ("code", "prose", "markup", "data")], "kind string")
    found = {row[0]: tuple(row)[1:] for row in kinds.select("kind", *own_groups(thresholds)).collect()}
    assert found == {"code": (0b1111, 0), "prose": (0b1110, 1), "markup": (0b1110, 1), "data": (0b1000, 3)}
    (row,) = spark.range(1).select(*own_groups(KindThresholds())).collect()
    assert tuple(row) == (0b111, 0)
    higher = KindThresholds.model_validate({"code": [0.8, 0.9], "default": [0.5]})
    found = {row[0]: tuple(row)[1:] for row in kinds.select("kind", *own_groups(higher)).collect()}
    assert found == {"code": (0b110, 1), **dict.fromkeys(("prose", "markup", "data"), (0b111, 0))}
