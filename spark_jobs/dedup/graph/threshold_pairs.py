"""Pairs at every threshold of a list, in one pass and in integers.

A threshold is written in decimals, and J = shared weight / united weight is a fraction of integers, so "J is at least
0.7" is `10 * shared >= 7 * united`: no rounding decides about a document.

Every threshold gives a graph of its own, a *group*, numbered by the index of the threshold in the list. A pair has one
row however many groups it is an edge of; bit g of its `groups` is set if it is an edge of group g.

    thresholds 0.7, 0.8, 0.9       J = 17/20: groups 0 and 1, which is 1 + 2 = 3

Each kind of document may have thresholds of its own. Two documents of different kinds have no token in common, so no
pair is of two kinds. The thresholds of all kinds together are the groups. Pairs of a kind are stored from its lowest
threshold on; in a lower group the kind has the same pairs as at its lowest.

    code 0.5, others 0.7, 0.8      groups 0.5, 0.7, 0.8; in the first one code counts from 0.5 on, others from 0.7 on
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field, model_serializer, model_validator

from spark_jobs.arrays import Int64Array
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.sources.config.file_reading import KINDS
from spark_jobs.spark_sql import Column, DataFrame, F

_DECIMALS = 6
MOST_GROUPS = 31
"""Bits of a 32-bit int without its sign."""


def ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    """Raise unless there are at most 31 thresholds, fractions of at most six decimals in ascending order."""
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
    AfterValidator(ascending),
]
DEFAULT_THRESHOLDS = (0.7, 0.8, 0.9)
_Fraction = Annotated[float, Field(gt=0, le=1, description="weighted Jaccard similarity")]


class ByKind(ConfigModel):
    """A value for each kind of document, from `0.8` for all kinds or `{code: 0.5, default: 0.8}`."""

    @model_validator(mode="before")
    @classmethod
    def _for_every_kind(cls, thresholds: Any) -> Any:
        """Expand a single value, or a mapping with `default`, to all kinds."""
        if isinstance(thresholds, ByKind):
            return thresholds
        if not isinstance(thresholds, Mapping):
            return dict.fromkeys(KINDS, thresholds)
        named = {kind: value for kind, value in thresholds.items() if kind != "default"}
        return {**dict.fromkeys(KINDS, thresholds["default"]), **named} if "default" in thresholds else named

    @model_serializer
    def _as_short_as_can_be(self) -> Any:
        """Write one value if all kinds have the same, so that data versions do not depend on the spelling."""
        values = self.values
        return next(iter(values.values())) if self.is_one else values

    @property
    def values(self) -> dict[str, Any]:
        """The value of each kind."""
        return {kind: getattr(self, kind) for kind in KINDS}

    @property
    def is_one(self) -> bool:
        """Whether all kinds have the same value."""
        return len(set(self.values.values())) == 1


class KindThreshold(ByKind):
    """A threshold for each kind of document."""

    code: _Fraction = 0.8
    prose: _Fraction = 0.8
    markup: _Fraction = 0.8
    data: _Fraction = 0.8

    def of(self, kind: str) -> float:
        """The threshold of a kind; where all have one, of anything, such as repositories (without a kind)."""
        return float(self.values[KINDS[0] if self.is_one else kind])

    @property
    def distinct(self) -> tuple[float, ...]:
        """The distinct thresholds of all kinds, ascending."""
        return tuple(sorted(set(self.values.values())))

    def __str__(self) -> str:
        """Such as `0.8`, or `0.5 (code), 0.8 (prose, markup, data)`."""
        if self.is_one:
            return f"{self.distinct[0]:g}"
        kinds = {
            threshold: ", ".join(kind for kind in KINDS if self.values[kind] == threshold)
            for threshold in self.distinct
        }
        return ", ".join(f"{threshold:g} ({named})" for threshold, named in kinds.items())


class KindThresholds(ByKind):
    """The thresholds of each kind of document."""

    code: Thresholds = DEFAULT_THRESHOLDS
    prose: Thresholds = DEFAULT_THRESHOLDS
    markup: Thresholds = DEFAULT_THRESHOLDS
    data: Thresholds = DEFAULT_THRESHOLDS

    @model_validator(mode="after")
    def _are_few_together(self) -> KindThresholds:
        """Raise if all kinds together have more than 31 thresholds."""
        ascending(self.together)
        return self

    @property
    def together(self) -> tuple[float, ...]:
        """The thresholds of all kinds, ascending."""
        return tuple(sorted({threshold for values in self.values.values() for threshold in values}))

    @property
    def lowest(self) -> KindThreshold:
        """The lowest threshold of each kind; from there on its pairs are stored."""
        return KindThreshold(**{kind: values[0] for kind, values in self.values.items()})


def of_kinds(kinds: pa.ChunkedArray, value_of: Callable[[str], int]) -> Int64Array:
    """(D,) int64 `value_of` the kind of each of D documents."""
    coded = kinds.combine_chunks().dictionary_encode()
    values = np.array([value_of(kind) for kind in coded.dictionary.to_pylist()], np.int64)
    by_document: Int64Array = values[coded.indices.to_numpy()]
    return by_document


def exact(threshold: float) -> Fraction:
    """A threshold as the fraction of its decimals: 0.7 -> 7/10."""
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
    return functools.reduce(lambda bit, other: bit.bitwiseOR(other), bits)


def own_groups(thresholds: KindThresholds) -> tuple[Column, Column]:
    """(bits, lowest number) of the groups at or above the lowest threshold of the row's `kind`.

    In lower groups a kind keeps the same documents as in that first one.
    """
    together, lowest = thresholds.together, thresholds.lowest
    every = (1 << len(together)) - 1
    firsts = {kind: together.index(value) for kind, value in lowest.values.items()}
    groups, first = (F.lit(value) for value in (every >> firsts[KINDS[0]] << firsts[KINDS[0]], firsts[KINDS[0]]))
    for kind in () if lowest.is_one else KINDS[1:]:
        here = F.col("kind") == kind
        groups = F.when(here, F.lit(every >> firsts[kind] << firsts[kind])).otherwise(groups)
        first = F.when(here, F.lit(firsts[kind])).otherwise(first)
    return groups, first


def group_numbers(groups: Column) -> Column:
    """The numbers of the groups with bits set, as an array."""
    return F.filter(F.sequence(F.lit(0), F.lit(MOST_GROUPS - 1)), lambda group: F.getbit(groups, group) == 1)


def one_group(group: str) -> Column:
    """The bit of the group numbered in a column: 3 -> 8."""
    return F.expr(f"shiftleft(1, {group})")


def without(groups: Column, others: Column) -> Column:
    """The bits of `groups` unset in `others`; null others have none set."""
    return groups.bitwiseAND(F.bitwise_not(F.coalesce(others, F.lit(0))))


def threshold_of(group: Column, thresholds: Sequence[float]) -> Column:
    """The threshold of a group."""
    return F.element_at(F.array(*(F.lit(float(threshold)) for threshold in thresholds)), group + 1)


def with_group(rows: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """Add the `group` of the column `threshold`; rows of thresholds outside of the list are left out."""
    listed = F.array(*(F.lit(float(threshold)) for threshold in thresholds))
    group = (F.array_position(listed, F.col("threshold")) - 1).cast("int")
    return rows.withColumn("group", group).where("group >= 0")
