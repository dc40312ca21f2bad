"""How many more tokens a difference in loss is worth, by a power law fitted to loss curves.

A loss falls as c + k t^-g with the tokens t (Kaplan et al. 2020, arXiv 2001.08361). The law through the curve of a run
says how much longer it would have to train for its loss to fall by as much as two variants differ. It is a hint: within
one run the falling rate bends the curve, and a larger budget has a schedule of its own (Hoffmann et al. 2022, arXiv
2203.15556, section 3.1). So a difference is given in tokens only with its interval over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import optimize, stats

from spark_jobs.arrays import Float64Array, Int64Array
from spark_jobs.exceptions import InputError

_BINS: Final = 40  # bins of tokens, equal in the logarithm, so that the curve's long end does not decide alone
_STEEPEST: Final = 2.0


@dataclass(frozen=True)
class Curve:
    """A loss of floor + scale * tokens ** -power."""

    floor: float
    scale: float
    power: float

    def loss(self, tokens: float) -> float:
        """The loss after so many tokens."""
        return float(self.floor + self.scale * tokens**-self.power)

    def tokens(self, loss: float) -> float:
        """Tokens until the curve reaches a loss; infinite where it never does."""
        if loss <= self.floor or self.scale <= 0:
            return np.inf
        return float(np.exp(np.log(self.scale / (loss - self.floor)) / self.power))


@dataclass(frozen=True)
class Worth:
    """By what factor runs would have to be longer for their loss to fall by a difference.

    Attributes:
        factor: tokens needed / tokens read, the median over seeds; infinite where no number suffices.
        low: lower end of the 95% interval over seeds.
        high: upper end.
    """

    factor: float
    low: float
    high: float

    def __str__(self) -> str:
        """Such as `1.12 times (95% interval 1.05 to 1.20)`."""
        if not np.isfinite(self.factor):
            return "no number of times"
        return f"{self.factor:.2f} times (95% interval {self.low:.2f} to {self.high:.2f})"


def fit_curve(tokens: Int64Array, losses: Float64Array, warm_share: float = 0.05) -> Curve:
    """Fit a power law to a loss curve after its warm-up, by least squares over means of bins.

    Raises:
        InputError: the curve has too few steps.
    """
    later = tokens > warm_share * tokens[-1]
    t, y = tokens[later] / tokens[-1], losses[later]
    edges = np.geomspace(t[0], 1, _BINS + 1) if len(t) else np.ones(1)
    bins = np.clip(np.searchsorted(edges, t), 1, _BINS) if len(t) else np.empty(0, np.int64)
    _, bins, counts = np.unique(bins, return_inverse=True, return_counts=True)
    if len(counts) < 4:
        raise InputError(f"fit_curve: {len(t)} steps after the warm-up; a curve takes more, so log the loss more often")
    t, y = np.bincount(bins, t) / counts, np.bincount(bins, y) / counts

    def solve(power: float) -> tuple[Float64Array, float]:
        solution, rest = optimize.nnls(np.column_stack([np.ones_like(t), t**-power]), y)
        return solution, float(rest)

    power = float(optimize.minimize_scalar(lambda g: solve(g)[1], bounds=(0.01, _STEEPEST), method="bounded").x)
    (floor, scale), _ = solve(power)
    return Curve(float(floor), float(scale * float(tokens[-1]) ** power), power)


def tokens_worth(curves: Sequence[tuple[Int64Array, Float64Array]], difference: float, level: float = 0.95) -> Worth:
    """By what factor runs would have to train longer for their loss to fall by a difference.

    Args:
        curves: for each seed of one variant, (tokens, losses) of its steps, each (S,).
        difference: in the unit of the losses, such as nats a token.
        level: of the interval.
    """
    factors = []
    for tokens, losses in curves:
        curve = fit_curve(tokens, losses)
        end = float(tokens[-1])
        factors.append(curve.tokens(curve.loss(end) - abs(difference)) / end)
    worth = np.array(factors)
    factor = float(np.median(worth))
    if len(worth) < 2 or not np.isfinite(worth).all():
        return Worth(factor, 1.0 if len(worth) < 2 else float(worth.min()), np.inf)
    logs = np.log(worth)
    half = stats.t.isf((1 - level) / 2, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return Worth(factor, float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half)))
