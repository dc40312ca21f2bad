"""Pairs at every threshold of a list, in one pass and in integers.

A threshold is written in decimals, and J = shared weight / united weight is a fraction of integers, so "J is at least
0.7" is `10 * shared >= 7 * united`: no rounding decides about a document.

Every threshold makes a graph of its own, a *group*, numbered by the index of the threshold in the list. A pair has one
row however many groups it is an edge of; bit g of its `groups` says that it is an edge of group g.

    thresholds 0.7, 0.8, 0.9       J = 17/20: groups 0 and 1, which is 1 + 2 = 3
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, Field

from spark_jobs.spark_sql import Column, DataFrame, F

_DECIMALS = 6
MOST_GROUPS = 31
"""Bits of a 32-bit int without its sign."""


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    """Refuse thresholds that are not at most 31 fractions of at most six decimals, in ascending order."""
    if len(values) > MOST_GROUPS:
        raise ValueError(f"{len(values)} thresholds are more than {MOST_GROUPS}; leave some out")
    for value in values:
        if not 0 < value <= 1:
            raise ValueError(f"threshold {value} is not above 0 and at most 1; write a fraction such as 0.8")
        if 10**_DECIMALS % exact(value).denominator:
            raise ValueError(f"threshold {value} has more than {_DECIMALS} decimals; round it")
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
    bound = exact(threshold)
    return F.col("shared_weight") * F.lit(bound.denominator) >= F.col("united_weight") * F.lit(bound.numerator)


def groups_reached(thresholds: Sequence[float]) -> Column:
    """Groups of a row of `pairs`: bit g is set if and only if its J is at least threshold number g."""
    bits = [
        F.when(reaches(threshold), F.lit(1 << group)).otherwise(F.lit(0)) for group, threshold in enumerate(thresholds)
    ]
    return functools.reduce(lambda one, other: one.bitwiseOR(other), bits)


def group_numbers(groups: Column) -> Column:
    """The numbers of the groups whose bits are set, as an array."""
    return F.filter(F.sequence(F.lit(0), F.lit(MOST_GROUPS - 1)), lambda group: F.getbit(groups, group) == 1)


def one_group(group: str) -> Column:
    """The bit of the group whose number is in a column."""
    return F.expr(f"shiftleft(1, {group})")


def without(groups: Column, others: Column) -> Column:
    """The groups that are not among others; null others are none."""
    return groups.bitwiseAND(F.bitwise_not(F.coalesce(others, F.lit(0))))


def threshold_of(group: Column, thresholds: Sequence[float]) -> Column:
    """The threshold of a group."""
    return F.element_at(F.array(*(F.lit(float(threshold)) for threshold in thresholds)), group + 1)


def with_group(rows: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """Add the `group` of the column `threshold`; rows of thresholds that are not in the list are left out."""
    listed = F.array(*(F.lit(float(threshold)) for threshold in thresholds))
    group = (F.array_position(listed, F.col("threshold")) - 1).cast("int")
    return rows.withColumn("group", group).where("group >= 0")
