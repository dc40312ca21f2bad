"""Rates: the share of each class of documents that stays, by every rule of a shape.

Every rule gives some classes a rate. A document stays if the number that is drawn for it under each rule (a hash of its
id, from 0 up to 1) is below the rate of its class. So a higher rate keeps more documents and removes none that a lower
one kept. Rates are computed from the config and from tables with a row per cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.lake.declare.step import ConfigModel

NO_CLUSTER: Final = -1


class LossRule(ConfigModel):
    """Drop or downsample clusters by a model's loss on them."""

    drop_above: float | None = Field(None, description="clusters with a larger loss are dropped as not learnable")
    downsample_below: float | None = Field(None, description="of clusters with a smaller loss only a share stays")
    rate: float = Field(0.5, ge=0, le=1, description="share of the documents of such clusters that stays")

    @model_validator(mode="after")
    def _apart(self) -> LossRule:
        if self.drop_above is not None and self.downsample_below is not None:
            if self.drop_above < self.downsample_below:
                raise ValueError(
                    f"drop_above {self.drop_above:g} is below downsample_below {self.downsample_below:g}; exchange them"
                )
        elif self.drop_above is None and self.downsample_below is None:
            raise ValueError("neither drop_above nor downsample_below is given; give one of them")
        return self


class Flattened(ConfigModel):
    """How firmly the classes of documents are brought to a target histogram."""

    keep: float = Field(gt=0, le=1, description="share of all documents that stays; the smaller, the nearer the target")
    target: dict[int, float] = Field(
        default_factory=dict, description="weight of each class in the target, 1 for all others; 0 drops a class"
    )

    @model_validator(mode="after")
    def _weights_are_possible(self) -> Flattened:
        if bad := [key for key, weight in self.target.items() if not 0 <= weight < np.inf]:
            raise ValueError(
                f"target: weight {self.target[bad[0]]} of {bad[0]} is not 0 or more; write a number from 0 on"
            )
        return self


class FlattenedTopics(Flattened):
    """How firmly topics are brought to a target histogram."""

    by: Literal["coarse", "cluster"] = Field("coarse", description="which clusters are the topics")


class FlattenedLengths(Flattened):
    """How firmly lengths are brought to a target histogram; key 1024 is the class of 1024 to 2047 bytes."""

    @model_validator(mode="after")
    def _powers_of_two(self) -> FlattenedLengths:
        if bad := [key for key in self.target if key < 1 or key & (key - 1)]:
            raise ValueError(f"target: {bad[0]} is no power of two; name lengths by their least bytes, such as 1024")
        return self

    @property
    def by_exponent(self) -> dict[int, float]:
        """The weights by the binary logarithm of the least bytes: {1024: 2.0} -> {10: 2.0}."""
        return {key.bit_length() - 1: weight for key, weight in self.target.items()}


class ShapeConfig(ConfigModel):
    """Which survivors stay in the corpus. A rule that is not given removes nothing."""

    drop: tuple[int, ...] = Field((), description="numbers of the clusters that are dropped")
    downsample: dict[int, float] = Field(default_factory=dict, description="share that stays, by number of the cluster")
    losses: LossRule | None = Field(None, description="rules on losses, read from a table (cluster, loss)")
    topics: FlattenedTopics | None = Field(None, description="bring topics towards a target, by default equal shares")
    lengths: FlattenedLengths | None = Field(None, description="the same for lengths in bytes, by powers of two")
    seed: int = Field(0, ge=0, lt=1 << 63, description="seed of the choice of documents that stay")

    @model_validator(mode="after")
    def _rates_are_shares(self) -> ShapeConfig:
        if bad := [cluster for cluster, rate in self.downsample.items() if not 0 <= rate <= 1]:
            raise ValueError(f"downsample: {self.downsample[bad[0]]} of cluster {bad[0]} is no share; give 0 to 1")
        if both := sorted(set(self.drop) & set(self.downsample)):
            raise ValueError(f"cluster {both[0]} is both in drop and in downsample; take it out of one of them")
        return self

    @property
    def needs_clusters(self) -> bool:
        """Whether a rule asks for the cluster of a document."""
        return bool(self.drop or self.downsample or self.losses or self.topics)


@dataclass(frozen=True)
class ClassRates:
    """The share of each class that one rule keeps.

    Attributes:
        name: the reason in the column `failed`, such as `loss_too_high`.
        classified_by: what its classes are: cluster, coarse or length.
        rates: by class; documents of other classes stay.
        seen: by class, (value, threshold) for the reason, such as (loss, drop_above); else it has (number drawn, rate).
    """

    name: str
    classified_by: str
    rates: Mapping[int, float]
    seen: Mapping[int, tuple[float, float]]

    def rows(self) -> pa.Table:
        """A row for each class: class, rate, value, threshold."""
        classes = sorted(self.rates)
        values, thresholds = (
            pa.array([self.seen[one][side] if one in self.seen else None for one in classes], pa.float64())
            for side in (0, 1)
        )
        return pa.table(
            {
                "class": pa.array(classes, pa.int64()),
                "rate": pa.array([float(self.rates[one]) for one in classes], pa.float64()),
                "value": values,
                "threshold": thresholds,
            }
        )


def rules(config: ShapeConfig, histogram: pa.Table, losses: pa.Table | None) -> list[ClassRates]:
    """The rules that a config gives, in the order in which `failed` lists them.

    Raises:
        ConfigError: a rule names a cluster that does not exist, or needs losses and no table is bound.
        InputError: a cluster has two losses.
    """
    clusters = _counts(histogram, "cluster")
    _refuse_unknown("drop", config.drop, clusters)
    _refuse_unknown("downsample", config.downsample, clusters)
    found = [
        ClassRates("dropped_cluster", "cluster", dict.fromkeys(config.drop, 0.0), {}),
        ClassRates("downsampled_cluster", "cluster", config.downsample, {}),
    ]
    if config.losses is not None:
        if losses is None:
            raise ConfigError("shape: losses names no table; add `table: NAMESPACE.TABLE`, of cluster and loss")
        found += _loss_rules(config.losses, losses)
    if config.topics is not None:
        counts = _counts(histogram, config.topics.by)
        _refuse_unknown("topics: target", config.topics.target, counts)
        rates = flattened(counts, config.topics.target, config.topics.keep)
        found.append(ClassRates("frequent_topic", config.topics.by, rates, {}))
    if config.lengths is not None:
        rates = flattened(_counts(histogram, "length"), config.lengths.by_exponent, config.lengths.keep)
        found.append(ClassRates("frequent_length", "length", rates, {}))
    return [rule for rule in found if rule.rates]


def flattened(counts: Mapping[int, int], target: Mapping[int, float], keep: float) -> dict[int, float]:
    """The share of each class to keep, so that the kept documents are as near to a target histogram as possible.

    Class c keeps min(N_c, f t_c) of its N_c documents; the one level f for all classes is that at which a share `keep`
    of all documents is kept. A larger `keep` raises f and with it every rate. Example, all weights 1, keep .5:

        documents   100   30   10   ->   f = 30   ->   30   30   10   (rates .3, 1, 1)

    Args:
        counts: N_c, documents by class.
        target: t_c, weights by class; 1 where none is given.
        keep: share of all documents to keep; where the classes of weight 0 leave fewer, all others are kept whole.
    """
    left = keep * sum(counts.values())
    weights = {one: target.get(one, 1.0) for one in counts}
    # Classes become whole in the order of N / t, the level at which each is; the rest share what is then left.
    order = sorted((one for one in counts if weights[one] > 0), key=lambda one: (counts[one] / weights[one], one))
    sharing = sum(weights[one] for one in order)
    level = 0.0
    for one in order:
        level = left / sharing
        if level < (1 - 1e-12) * counts[one] / weights[one]:  # a class below it by rounding alone is whole
            break
        left -= counts[one]
        sharing -= weights[one]
        level = np.inf
    return {one: min(1.0, level * weights[one] / counts[one]) if weights[one] > 0 else 0.0 for one in sorted(counts)}


def _loss_rules(config: LossRule, losses: pa.Table) -> list[ClassRates]:
    """The rules `loss_too_high` and `loss_too_low`, each with the clusters that it concerns."""
    of = dict(zip(losses.column("cluster").to_pylist(), losses.column("loss").to_pylist(), strict=True))
    if len(of) < losses.num_rows:
        raise InputError(
            f"shape: the losses have {losses.num_rows} rows for {len(of)} clusters; leave one row for each cluster"
        )
    measured = {cluster: loss for cluster, loss in of.items() if cluster is not None and loss is not None}
    found = []
    if (most := config.drop_above) is not None:
        high = {cluster: (loss, most) for cluster, loss in measured.items() if loss > most}
        found.append(ClassRates("loss_too_high", "cluster", dict.fromkeys(high, 0.0), high))
    if (least := config.downsample_below) is not None:
        low = {cluster: (loss, least) for cluster, loss in measured.items() if loss < least}
        found.append(ClassRates("loss_too_low", "cluster", dict.fromkeys(low, config.rate), low))
    return found


def _counts(histogram: pa.Table, classified_by: str) -> dict[int, int]:
    """Number of documents of each class, of the rows of `shape_histogram` for one `classified_by`."""
    return {
        row["class"]: row["document_count"] for row in histogram.to_pylist() if row["classified_by"] == classified_by
    }


def _refuse_unknown(where: str, named: Iterable[int], there: Iterable[int]) -> None:
    """Raise a ConfigError if the key `where` names a cluster that the corpus does not have."""
    if unknown := sorted(set(named) - set(there)):
        known = sorted(set(there) - {NO_CLUSTER})
        have = f"the corpus has {known[0]} to {known[-1]}" if known else "the corpus has none; declare clusters"
        raise ConfigError(f"shape: {where} names cluster {unknown[0]}, {have}; take it out")
