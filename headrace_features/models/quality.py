"""Quality: one number for each text, the weighted sum of what scorers measured, with its components.

    quality:
      weights: {model_scores.quality_reference: 0.5, heuristics.stop_word_fraction: 0.3, word_count: 0.2}
      ranges: {word_count: [0, 1000]}

A component is a signal as rules name it. With a range it is brought to 0 at the first number and 1 at the second (which
may be the smaller one), and cut off there; else it is taken as it is. Truth counts as 1. The score is null where a
component is, because a sum without it would compare with no other. Weights are declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import Field, field_validator, model_validator

from spark_jobs.exceptions import ConfigError, did_you_mean, nearest
from spark_jobs.filters.policy import signal_names, source_of
from spark_jobs.lake.declare.step import ConfigModel, Scope, Step, step, with_inputs
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.signals import SIGNALS

_COUNTED: Final = ("int", "long", "float", "double", "boolean")


class QualityConfig(ConfigModel):
    """The summed signals of the score: their weights and ranges."""

    weights: dict[str, float] = Field(
        default_factory=dict, validate_default=True, min_length=1, description="weight of each signal in the sum"
    )
    ranges: dict[str, tuple[float, float]] = Field(
        default_factory=dict, description="by signal, the values that count as 0 and as 1"
    )

    @field_validator("weights")
    @classmethod
    def _ordered(cls, weights: dict[str, float]) -> dict[str, float]:
        """Sort, because the order in which floats are added decides the last bits."""
        return dict(sorted(weights.items()))

    @model_validator(mode="after")
    def _ranges_fit(self) -> QualityConfig:
        """Refuse a range of nothing.

        Raises:
            ValueError: names it.
        """
        for signal, (low, high) in self.ranges.items():
            if signal not in self.weights:
                raise ValueError(f"ranges: {signal!r} has no weight{did_you_mean(signal, self.weights)}")
            if low == high:
                raise ValueError(f"ranges: {signal} is [{low}, {high}]; give two numbers")
        return self

    @property
    def sources(self) -> dict[str, tuple[str, str]]:
        """Table and column of each signal, in alphabetical order."""
        return {signal: source_of(signal) for signal in self.weights}

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables read beside `signals`."""
        return tuple(dict.fromkeys(table for table, _ in self.sources.values() if table != SIGNALS.name))


QUALITY: Final = Table(
    name="quality",
    comment="One row per text: the weighted sum of signals, and what it is made of.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("score", "double", "sum of weight times value over the components; null where one of them is"),
        Column(
            "components!",
            "list<struct<signal!: string, value: double, weight!: double>!>",
            "in alphabetical order: the signal, its value after its range, its weight",
        ),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
)


def check_components(config: QualityConfig, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse missing components, and those other than numbers.

    Raises:
        ConfigError: names the first, and the nearest signal.
    """
    measured = {table: names for table, names in columns.items() if table != "documents"}
    signals = signal_names(measured)
    for signal, (table, column) in config.sources.items():
        kind = measured.get(table, {}).get(column)
        if kind is None:
            raise ConfigError(f"quality: weights: there is no signal {signal!r}{nearest(signal, signals)}; correct it")
        if kind not in _COUNTED:
            raise ConfigError(f"quality: weights: {signal} is {kind}; only numbers and booleans can be summed")


def _quality(signals: DataFrame, config: QualityConfig, **scores: DataFrame) -> DataFrame:
    """Sum what scorers measured, by the declared weights."""
    keys = ["shard", "doc_id"]
    wanted: dict[str, list[SparkColumn]] = {}
    for at, (table, column) in enumerate(config.sources.values()):
        wanted.setdefault(table, []).append(F.col(column).cast("double").alias(f"value_{at}"))
    rows = signals.select(*keys, "kind", *wanted.pop(SIGNALS.name, []))
    for table, columns in wanted.items():
        rows = rows.join(scores[table].select(*keys, *columns), keys, "left")
    score, parts = F.lit(0.0), []
    for at, (signal, weight) in enumerate(config.weights.items()):
        value = _ranged(F.col(f"value_{at}"), config.ranges.get(signal))
        score += value * weight
        parts.append(F.struct(F.lit(signal).alias("signal"), value.alias("value"), F.lit(weight).alias("weight")))
    return rows.select(*keys, "kind", score.alias("score"), F.array(*parts).alias("components"))


def _ranged(value: SparkColumn, bounds: tuple[float, float] | None) -> SparkColumn:
    """A value within its range, from 0 to 1; null stays null."""
    if bounds is None:
        return value
    low, high = bounds
    share = (value - F.lit(low)) / F.lit(high - low)
    return F.when(share < 0, 0.0).when(share > 1, 1.0).otherwise(share)


def quality_step(scorers: Iterable[str] = ()) -> Step:
    """The step `quality`: it sums weighted signals.

    Args:
        scorers: names of the scorers with tables read beside `signals`; they are inputs.
    """
    declare = step(version="1", scope=Scope.INCREMENT, tables=(QUALITY,), name=QUALITY.name, config=QualityConfig)
    return declare(with_inputs(_quality, scorers))


quality = quality_step()
