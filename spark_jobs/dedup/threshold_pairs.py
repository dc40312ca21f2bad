"""Pairs at every threshold of a list, in one pass and in integers.

A threshold is written in decimals, and J = shared weight / united weight is a fraction of integers, so "J is at least
0.7" is `10 * shared >= 7 * united`: no rounding decides about a document.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACES = 6


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    """Refuse thresholds that are not fractions of at most six decimals, in ascending order."""
    for value in values:
        if not 0 < value <= 1:
            raise ValueError(f"threshold {value} is not above 0 and at most 1; write a fraction such as 0.8")
        if 10**_PLACES % exact(value).denominator:
            raise ValueError(f"threshold {value} has more than {_PLACES} decimals; round it")
    if list(values) != sorted(set(values)):
        raise ValueError(f"thresholds {list(values)} are not in ascending order, each once; sort them")
    return values


Thresholds = Annotated[
    tuple[float, ...],
    Field(min_length=1, description="weighted Jaccard similarities from which on two documents are duplicates"),
    AfterValidator(_ascending),
]
DEFAULT_THRESHOLDS = (0.7, 0.8, 0.9)


def exact(threshold: float) -> Fraction:
    """A threshold as the fraction that its decimals say: 0.7 is 7/10."""
    return Fraction(str(threshold))


def reaches(threshold: float) -> Column:
    """Whether a row of `pairs` (shared_weight, united_weight) has J of at least a threshold, exactly."""
    from pyspark.sql import functions as F

    bound = exact(threshold)
    return F.col("shared_weight") * F.lit(bound.denominator) >= F.col("united_weight") * F.lit(bound.numerator)


def pairs_at(pairs: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """Repeat each pair for every threshold that it reaches, with `group` = the threshold's place in the list."""
    from pyspark.sql import functions as F

    places = [F.when(reaches(threshold), F.lit(place)) for place, threshold in enumerate(thresholds)]
    return pairs.select(F.explode(F.array_compact(F.array(*places))).alias("group"), *pairs.columns)


def threshold_of(group: Column, thresholds: Sequence[float]) -> Column:
    """The threshold of a group."""
    from pyspark.sql import functions as F

    return F.element_at(F.array(*(F.lit(float(threshold)) for threshold in thresholds)), group + 1)


def with_group(rows: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """Rows with a column `threshold`, as `group`; rows of other thresholds are left out."""
    from pyspark.sql import functions as F

    listed = F.array(*(F.lit(float(threshold)) for threshold in thresholds))
    group = (F.array_position(listed, F.col("threshold")) - 1).cast("int")
    return rows.withColumn("group", group).where("group >= 0")
