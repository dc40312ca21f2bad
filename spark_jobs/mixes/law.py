"""Propose a mix of sources worth a training run, from small runs on other mixes.

For each held-out set k the loss of a run on a mix r (shares of m sources, which add up to 1) follows

    loss_k(r) = c_k + exp(w_k . r)

so that a source lowers a loss by a factor, down to a floor. It is fitted to at least 3 (m + 1) runs: the law of a set
has m + 1 parameters, and the other runs show its error. Each run is predicted by the law of all others, which is
what `Law.held_out` shows. A weighted sum of such losses is convex, so the mix with the least is found for certain.

    runs on three sources      1 natural, 3 near a corner (80% of one source), 8 random
    largest share of a source  epochs x its tokens / budget

With models of 1M parameters it is a hint: there the order of mixes agrees with the order at 1B with a rank correlation
of .73, and above .89 from 15M on (Olmix, arXiv 2602.12237). Sources: RegMix (arXiv 2407.01492), data mixing laws (arXiv
2403.16952); for the interval Barber et al. 2021, "Predictive Inference with the Jackknife+".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy import optimize, stats

from spark_jobs.arrays import Float64Array
from spark_jobs.exceptions import InputError

# Spearman's correlation of the order of mixes with that at 1B parameters: Olmix, arXiv 2602.12237.
RANK_AGREEMENT: Final[Mapping[str, float]] = MappingProxyType({"proxy_1m": 0.73, "proxy_15m": 0.89, "proxy_125m": 0.89})
_CORNER: Final = 0.8  # share of the source in a run near its corner; the rest is the natural mix
_SMALLEST: Final = 1e-9


def runs_needed(source_count: int) -> int:
    """The least number of runs for so many sources."""
    return 3 * (source_count + 1)


def most_shares(source_tokens: Sequence[int], budget_tokens: int, epochs: float) -> Float64Array:
    """(m,) the largest share of each source without reading any of it more often than `epochs`.

    Raises:
        InputError: all sources together are too small for the budget.
    """
    most = np.minimum(1.0, epochs * np.asarray(source_tokens, np.float64) / budget_tokens)
    if most.sum() < 1:
        raise InputError(
            f"mix: {budget_tokens} tokens are {budget_tokens / sum(source_tokens):.2f} epochs of all sources, at most "
            f"{epochs} are allowed; lower budget_tokens or allow more"
        )
    return most


def design(natural: Sequence[float], most: Float64Array, seed: int, runs: int | None = None) -> Float64Array:
    """Mixes to train on: the natural one, one near each corner, and seeded ones around the natural one.

    Args:
        natural: natural share of each source, in any unit.
        most: (m,) of `most_shares`.
        seed: of the draws.
        runs: number of mixes; `runs_needed` is the default and the least.

    Returns:
        (runs, m): each row adds up to 1 and is nowhere above `most`.

    Raises:
        InputError: fewer than two sources, an empty source, or too few runs.
    """
    base = np.asarray(natural, np.float64)
    count = len(base)
    if count < 2 or not (base > 0).all():
        raise InputError(f"mix: natural shares are {list(natural)}; give two sources or more, each above 0")
    runs = runs_needed(count) if runs is None else runs
    if runs < runs_needed(count):
        raise InputError(f"mix: {runs} runs for {count} sources; a law takes {runs_needed(count)} at least")
    base = base / base.sum()
    draw = np.random.default_rng(seed)
    corners = _CORNER * np.eye(count) + (1 - _CORNER) * base
    # Concentrations from wide (.5 a source) to near the natural mix (5 a source), as RegMix draws them.
    wide = np.geomspace(0.5, 5, runs - count - 1)
    between = [draw.dirichlet(np.maximum(share * (base * count + 1) / 2, 0.05)) for share in wide]
    return np.array([_bounded(mix, most) for mix in (base, *corners, *between)])


def _bounded(mix: Float64Array, most: Float64Array) -> Float64Array:
    """Lower shares above `most` to it, and give the excess to the other sources in proportion."""
    is_bounded = np.zeros(len(mix), np.bool_)
    bounded = mix
    while (over := ~is_bounded & (bounded > most)).any():
        is_bounded |= over
        free = np.where(is_bounded, 0.0, np.maximum(mix, _SMALLEST))
        bounded = np.where(is_bounded, most, free * (1 - most[is_bounded].sum()) / max(free.sum(), _SMALLEST))
    return bounded


@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out predictions: each run's loss by the law fitted to all others.

    Attributes:
        predicted: (J,) predicted weighted losses.
        measured: (J,) measured ones.
        error: root mean square of their differences.
        baseline: the same where each run is predicted by the mean of the others; a law no better than that is useless.
        rank_correlation: Spearman's; nan where all are equal.
    """

    predicted: Float64Array
    measured: Float64Array
    error: float
    baseline: float
    rank_correlation: float


@dataclass(frozen=True)
class Law:
    """Losses as functions of the mix.

    Attributes:
        floors: (K,) c of each set.
        weights: (K, m) w of each set: a source with a lower one is better for it.
        set_weights: (K,) weight of each set in the loss; they add up to 1.
        held_out: its leave-one-out predictions.
        others: the laws without each run in turn, as (J, K) floors and (J, K, m) weights.
    """

    floors: Float64Array
    weights: Float64Array
    set_weights: Float64Array
    held_out: LeaveOneOut
    others: tuple[Float64Array, Float64Array]

    def loss(self, mix: Float64Array) -> float:
        """The weighted loss of a mix."""
        return float(_loss(self.floors, self.weights, self.set_weights, mix))

    def interval(self, mix: Float64Array, level: float = 0.9) -> tuple[float, float]:
        """Interval of a run's loss on a mix, by the jackknife+: leave-one-out predictions plus or minus their errors.

        Valid for mixes like those of the design; a mix chosen for its low prediction does worse.
        """
        predicted = _loss(*self.others, self.set_weights, mix)
        off = np.abs(self.held_out.predicted - self.held_out.measured)
        rank = max(int((1 - level) * (len(off) + 1)), 1)  # 1: of few runs the ends are the outermost values
        return float(np.sort(predicted - off)[rank - 1]), float(np.sort(predicted + off)[-rank])


@dataclass(frozen=True)
class Proposal:
    """A mix worth a run of its own.

    Attributes:
        mix: (m,) shares.
        loss: predicted.
        low: lower end of its 90% interval.
        high: upper end.
        natural_loss: predicted for the natural mix.
        bounded: sources at their largest allowed share, so that more of them might be better.
    """

    mix: Float64Array
    loss: float
    low: float
    high: float
    natural_loss: float
    bounded: tuple[int, ...]


def fit(mixes: Float64Array, losses: Float64Array, set_weights: Sequence[float] | None = None) -> Law:
    """Fit the law of each set.

    Args:
        mixes: (J, m) shares of each run.
        losses: (J, K) of each run on each set, or (J,) of one set: less is better, such as bits a byte.
        set_weights: (K,) weight of each set; equal by default.

    Raises:
        InputError: too few runs, or a loss other than a number above 0.
    """
    mixes, losses = np.asarray(mixes, np.float64), np.asarray(losses, np.float64).reshape(len(mixes), -1)
    runs, count = mixes.shape
    if runs < runs_needed(count):
        raise InputError(f"mix: {runs} runs of {count} sources; a law takes {runs_needed(count)} at least")
    if not (np.isfinite(losses) & (losses > 0)).all():
        bad = int(np.argmin((np.isfinite(losses) & (losses > 0)).all(axis=1)))
        raise InputError(f"mix: run {bad} has losses {losses[bad].tolist()}; leave it out or train it again")
    by_set = np.ones(losses.shape[1]) if set_weights is None else np.asarray(set_weights, np.float64)
    counts = by_set / by_set.sum()
    rows = np.arange(runs)
    without = [_fit_sets(mixes[rows != run], losses[rows != run]) for run in rows]
    others = np.array([floors for floors, _ in without]), np.array([weights for _, weights in without])
    predicted = np.array([_loss(floors, weights, counts, mixes[run]) for run, (floors, weights) in enumerate(without)])
    measured = losses @ counts
    means = (measured.sum() - measured) / (runs - 1)
    varied = np.ptp(predicted) > 0 and np.ptp(measured) > 0
    held_out = LeaveOneOut(
        predicted,
        measured,
        error=float(np.sqrt(np.mean((predicted - measured) ** 2))),
        baseline=float(np.sqrt(np.mean((means - measured) ** 2))),
        rank_correlation=float(stats.spearmanr(predicted, measured).statistic) if varied else np.nan,
    )
    floors, weights = _fit_sets(mixes, losses)
    return Law(floors, weights, counts, held_out, others)


def _fit_sets(mixes: Float64Array, losses: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The (K,) floors and (K, m) weights of all sets."""
    fits = [_fit_one(mixes, column) for column in losses.T]
    return np.array([floor for floor, _ in fits]), np.array([weights for _, weights in fits])


def _fit_one(mixes: Float64Array, losses: Float64Array) -> tuple[float, Float64Array]:
    """The floor and weights of one set, by least squares; a floor is 0 to just below the least loss.

    Given a floor, the weights of log(loss - floor) are linear; the best of a few floors is where the search begins.
    """
    least = losses.min()

    def start(share: float) -> tuple[float, Float64Array]:
        floor = share * least
        return floor, np.linalg.lstsq(mixes, np.log(losses - floor), rcond=None)[0]

    def off(numbers: Float64Array) -> Float64Array:
        return np.asarray(numbers[0] + np.exp(np.minimum(mixes @ numbers[1:], 50)) - losses)

    starts = [np.array([floor, *weights]) for floor, weights in map(start, (0.0, 0.5, 0.8, 0.95))]
    first = min(starts, key=lambda start: float(np.square(off(start)).sum()))
    low = np.array([0.0, *np.full(mixes.shape[1], -50.0)])
    high = np.array([0.999 * least, *np.full(mixes.shape[1], 50.0)])
    fitted = optimize.least_squares(off, np.clip(first, low + _SMALLEST, high - _SMALLEST), bounds=(low, high))
    return float(fitted.x[0]), fitted.x[1:]


def _loss(floors: Float64Array, weights: Float64Array, set_weights: Float64Array, mix: Float64Array) -> Float64Array:
    """(...) weighted losses of a mix, by (..., K) floors and (..., K, m) weights."""
    return np.asarray((floors + np.exp(weights @ mix)) @ set_weights)


def propose(law: Law, natural: Sequence[float], most: Float64Array) -> Proposal:
    """The mix with the least predicted loss among those reading no source too often.

    Args:
        law: fitted.
        natural: natural share of each source, in any unit.
        most: (m,) of `most_shares`.
    """
    base = np.asarray(natural, np.float64)
    start = _bounded(base / base.sum(), most)

    def slope(mix: Float64Array) -> Float64Array:
        return np.asarray((law.set_weights * np.exp(law.weights @ mix)) @ law.weights)

    optimum = optimize.minimize(
        law.loss,
        start,
        jac=slope,
        bounds=[(0.0, bound) for bound in most],
        constraints={"type": "eq", "fun": lambda mix: mix.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    shares = np.clip(optimum.x, 0, most)
    mix = min(start, shares / shares.sum(), key=law.loss)
    low, high = law.interval(mix)
    bounded = tuple(np.flatnonzero((most < 1) & (mix > most - 1e-6)).tolist())
    return Proposal(mix, law.loss(mix), low, high, law.loss(start), bounded)
