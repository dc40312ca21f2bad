"""Curves: how often each part of the data is read, by its quantile of a measure, from the lowest at 0 to the best at 1.

A curve is written in one of three ways; a bin of the measure is read as often as the mean of the curve over the bin's
share of the tokens::

    points: [[0, 0], [0.4, 0.5], [1, 4]]      straight lines between points
    steps: {0.4: 0, 0.95: 1, 1: 7}            up to .4 never, up to .95 once, the best twentieth 7 times
    drop: 0.4, most: 7                        of the family below, with the total that is wanted

The family is that of Olmo 3: never below a, and above it C (x - a)^p e^(lambda (x - a)), with the integral that gives
the total, and a mean over the best bin of at most `most`. The steepest curve is taken, first by p, then by lambda.
Source: Olmo Team 2025, "Olmo 3", section 3.4.4; the rule and its ranges of p and lambda are those of its procedures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_jobs.arrays import Float64Array, Int64Array

POWERS: Final = np.linspace(0.01, 2.0, 20)
MOST_LAMBDA: Final = 2.0
_HALVINGS: Final = 50
_TERMS: Final = 40  # of the series of e^x for x up to 2: the last is below 1e-35

Repeats = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Quantile = Annotated[float, Field(ge=0, le=1)]


class RepeatCurve(BaseModel):
    """How often the bins of a measure are read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: tuple[tuple[Quantile, Repeats], ...] = Field((), description="quantile and repeats, ascending, from 0 to 1")
    steps: dict[Quantile, Repeats] = Field({}, description="repeats up to each quantile; the last is 1")
    drop: float = Field(0, ge=0, lt=1, description="share of the tokens below which nothing is read")
    most: float | None = Field(None, gt=0, allow_inf_nan=False, description="most repeats, of the best bin")
    none: Repeats = Field(0, description="repeats of documents without a value")

    @model_validator(mode="after")
    def _is_one_curve(self) -> RepeatCurve:
        if sum((bool(self.points), bool(self.steps), self.most is not None)) != 1:
            raise ValueError("a curve has either points, or steps, or most (with drop)")
        if self.drop and self.most is None:
            raise ValueError("drop belongs to most; in points and steps write 0 repeats")
        quantiles = [quantile for quantile, _ in self.points] or list(self.steps) or [0, 1]
        if quantiles != sorted(quantiles) or quantiles[-1] != 1 or (self.points and quantiles[0] != 0):
            raise ValueError("quantiles ascend to 1; those of points begin at 0")
        return self

    def repeats(self, tokens: Int64Array, wanted: float | None) -> Float64Array:
        """(K,) how often each bin is read.

        Args:
            tokens: (K,) of the bins, the lowest first; each above 0.
            wanted: tokens in all; decides the curve of the family, others stay as they are written.
        """
        edges = np.concatenate([[0], np.cumsum(tokens)])
        if self.most is not None:
            return _steepest(edges, self.drop, self.most, (wanted or 0) / float(edges[-1]))
        # Steps are flat lines, with two points at each of their quantiles.
        flat = [(side, self.steps[right]) for left, right in pairwise([0.0, *self.steps]) for side in (left, right)]
        integral = _integral_of_lines(self.points or flat, edges / edges[-1])
        means: Float64Array = np.diff(integral) / np.diff(edges / edges[-1])
        return means


def _integral_of_lines(points: Sequence[tuple[float, float]], x: Float64Array) -> Float64Array:
    """(K,) the integral from 0 to each x of the lines between points; two at one quantile are a step."""
    total = np.zeros(len(x))
    for (left, low), (right, high) in pairwise(points):
        if right > left:
            inside = np.clip(x, left, right) - left
            total += inside * low + inside**2 * (high - low) / (right - left) / 2
    return total


def _steepest(edges: Int64Array, drop: float, most: float, mean: float) -> Float64Array:
    """(K,) the means of the steepest curve of the family over bins; flat, and above `most`, where none is in bounds.

    Args:
        edges: (K + 1,) tokens below each edge of the bins.
        drop: bins are left out while what is below their upper edge is no more than this share.
        most: bound of the last mean.
        mean: of all bins together, those left out included.
    """
    total = int(edges[-1])
    first = int(np.searchsorted(edges, math.floor(Fraction(str(drop)) * total), side="right")) - 1
    x = (edges[first:] - edges[first]) / total
    means = np.zeros(len(edges) - 1)

    def curve(power: float, rate: float) -> Float64Array:
        integral = _integral(x, power, rate)
        of_bins: Float64Array = mean / integral[-1] * np.diff(integral) / np.diff(x)
        return of_bins

    powers = [power for power in POWERS if curve(power, 0)[-1] <= most]
    low, high = 0.0, MOST_LAMBDA
    if not powers:
        means[first:] = mean / x[-1]
        return means
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if curve(powers[-1], middle)[-1] <= most else (low, middle)
    means[first:] = curve(powers[-1], low)
    return means


def _integral(x: Float64Array, power: float, rate: float) -> Float64Array:
    """(K,) the integral of t^power e^(rate t) from 0 to each x, by the series of e."""
    terms = np.arange(_TERMS)
    factors = rate**terms / np.array([math.factorial(term) for term in terms], float) / (power + terms + 1)
    integral: Float64Array = (x[:, None] ** (power + terms + 1) * factors).sum(axis=1)
    return integral
