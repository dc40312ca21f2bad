"""Propose a mix of sources worth a training run, from small runs on other mixes.

For each held-out set the loss of a run on a mix (shares of m sources, which add up to 1) follows a law (`forms`), which
is fitted to at least 2 (m + 1) runs: a form has m + 1 numbers, and the other runs show its error. Each run is predicted
by the law of all others, which is what `Law.held_out` shows. Runs with low losses count more, for the law has to be
right near the best mix. The mix with the least weighted loss is proposed, and what else could be had is a `Front`.

With models of 1M parameters it is a hint: there the order of mixes agrees with the order at 1B with a rank correlation
of .73, and above .89 from 15M on (Olmix, arXiv 2602.12237). Sources: RegMix (arXiv 2407.01492), data mixing laws (arXiv
2403.16952); for the interval Barber et al. 2021, "Predictive Inference with the Jackknife+",
and Lei et al. 2018 (section 5.2 of "Distribution-Free Predictive Inference for Regression") for errors that differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy import optimize, stats

from spark_jobs.arrays import Float64Array
from spark_jobs.exceptions import InputError
from spark_jobs.mixes.designs import Repeats, bounded, least_runs
from spark_jobs.mixes.forms import SetLaw, fit_set

# Spearman's correlation of the order of mixes with that at 1B parameters: Olmix, arXiv 2602.12237.
RANK_AGREEMENT: Final[Mapping[str, float]] = MappingProxyType({"proxy_1m": 0.73, "proxy_15m": 0.89, "proxy_125m": 0.89})
_NEAR: Final = 0.03  # of the least loss: errors of runs so far above it count 1/sqrt(2) of those of the best
_STARTS: Final = 3  # of the search for the best mix; one is enough where no source does harm
_STEP: Final = 1e-7  # of shares, for slopes
_SAME: Final = 0.005  # shares by which two mixes of a front differ at least
_STEEPNESS: Final = (1.0, 0.75, 0.5)  # how much of the weight is on one set, along the front


@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out predictions: each run's loss by the law fitted to all others.

    Attributes:
        predicted: (J,) predicted weighted losses.
        measured: (J,) measured ones.
        error: root mean square of their differences.
        baseline: the same where each run is predicted by the mean of the others; a law no better than that is useless.
        rank_correlation: Spearman's; nan where all are equal.
        set_errors: (K,) errors as above, of each set.
    """

    predicted: Float64Array
    measured: Float64Array
    error: float
    baseline: float
    rank_correlation: float
    set_errors: Float64Array


@dataclass(frozen=True)
class Law:
    """Losses as functions of the mix.

    Attributes:
        sets: the law of each of K sets.
        set_weights: (K,) weight of each set in the loss; they add up to 1.
        held_out: its leave-one-out predictions.
        run_weights: (J,) how much the error of each run counts.
        least: of the losses of the runs, as first fitted.
        repeats: what its sources consist of.
    """

    sets: tuple[SetLaw, ...]
    set_weights: Float64Array
    held_out: LeaveOneOut
    run_weights: Float64Array
    least: float
    repeats: Repeats

    def losses(self, mix: Float64Array) -> Float64Array:
        """(..., K) losses of (..., m) mixes."""
        x = self.repeats.effective(mix)
        return np.stack([law.loss(x) for law in self.sets], axis=-1)

    def by_form(self) -> list[Law]:
        """The law by each of its forms alone."""
        forms = [[replace(law, counts=count) for law in self.sets] for count in np.eye(len(self.sets[0].counts))]
        return [replace(self, sets=tuple(sets)) for sets in forms]

    def loss(self, mix: Float64Array) -> float:
        """The weighted loss of a mix."""
        return float(self.losses(mix) @ self.set_weights)

    def interval(self, mix: Float64Array, level: float = 0.9) -> tuple[float, float]:
        """Interval of a run's loss on a mix, by the jackknife+: leave-one-out predictions plus or minus their errors.

        Errors are those of a mix like this one, since far from the best mix they are larger. Valid for mixes like those
        of the design.
        """
        x = self.repeats.effective(mix)
        predicted = np.stack([law.others(x) for law in self.sets], axis=-1) @ self.set_weights
        scale = self.run_weights / _run_weights(np.array(self.loss(mix)), self.least)
        off = np.abs(self.held_out.predicted - self.held_out.measured) * scale
        rank = max(int((1 - level) * (len(off) + 1)), 1)  # 1: of few runs the ends are the outermost values
        return float(np.sort(predicted - off)[rank - 1]), float(np.sort(predicted + off)[-rank])


def _run_weights(losses: Float64Array, least: float) -> Float64Array:
    """How much the errors of runs with such losses count."""
    return np.asarray(1 / np.sqrt(1 + np.square((losses / least - 1) / _NEAR)))


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


@dataclass(frozen=True)
class Front:
    """Mixes of which none is better than another on all sets, by the law.

    Attributes:
        mixes: (P, m) of them.
        losses: (P, K) predicted.
        best: (K,) which of them is best for each set.
        natural: (K,) losses of the natural mix, within the bounds.
    """

    mixes: Float64Array
    losses: Float64Array
    best: tuple[int, ...]
    natural: Float64Array

    def conflicts(self, errors: Float64Array) -> dict[tuple[int, int], float]:
        """What the best mix for set k loses on another, by both: where it is above twice the error of the other."""
        pairs = itertools.permutations(range(len(self.best)), 2)
        lost = {
            (k, other): float(self.losses[self.best[k], other] - self.losses[self.best[other], other])
            for k, other in pairs
        }
        return {pair: loss for pair, loss in lost.items() if loss > 2 * errors[pair[1]]}


def fit(
    mixes: Float64Array,
    losses: Float64Array,
    set_weights: Sequence[float] | None = None,
    repeats: Repeats | None = None,
) -> Law:
    """Fit the law of each set.

    Args:
        mixes: (J, m) shares of each run.
        losses: (J, K) of each run on each set, or (J,) of one set: less is better, such as bits a byte.
        set_weights: (K,) weight of each set; equal by default.
        repeats: what the sources consist of, where mixes read some of them more than once.

    Raises:
        InputError: too few runs, or a loss other than a number above 0.
    """
    mixes, losses = np.asarray(mixes, np.float64), np.asarray(losses, np.float64).reshape(len(mixes), -1)
    runs, count = mixes.shape
    if runs < least_runs(count):
        raise InputError(f"mix: {runs} runs of {count} sources; a law takes {least_runs(count)} at least")
    if not (np.isfinite(losses) & (losses > 0)).all():
        bad = int(np.argmin((np.isfinite(losses) & (losses > 0)).all(axis=1)))
        raise InputError(f"mix: run {bad} has losses {losses[bad].tolist()}; leave it out or train it again")
    by_set = np.ones(losses.shape[1]) if set_weights is None else np.asarray(set_weights, np.float64)
    repeats = repeats or Repeats.of([1] * count, 1)
    aims, x = by_set / by_set.sum(), repeats.effective(mixes)
    far = np.stack([law.loss(x) for law in _fit_sets(x, losses, np.ones(runs))], axis=-1) @ aims
    least = float(far.min())
    weights = _run_weights(far, least)
    sets = _fit_sets(x, losses, weights)
    return Law(sets, aims, _held_out(sets, x, losses, aims), weights, least, repeats)


def _fit_sets(x: Float64Array, losses: Float64Array, weights: Float64Array) -> tuple[SetLaw, ...]:
    return tuple(fit_set(x, column, weights) for column in losses.T)


def _held_out(sets: Sequence[SetLaw], x: Float64Array, losses: Float64Array, aims: Float64Array) -> LeaveOneOut:
    """The predictions of each run by the laws without it."""
    by_set = np.stack([law.others(x) for law in sets], axis=-1)
    predicted, measured = by_set @ aims, losses @ aims
    means = (measured.sum() - measured) / (len(x) - 1)
    varied = np.ptp(predicted) > 0 and np.ptp(measured) > 0
    return LeaveOneOut(
        predicted,
        measured,
        error=float(np.sqrt(np.mean((predicted - measured) ** 2))),
        baseline=float(np.sqrt(np.mean((means - measured) ** 2))),
        rank_correlation=float(stats.spearmanr(predicted, measured).statistic) if varied else np.nan,
        set_errors=np.sqrt(np.mean((by_set - losses) ** 2, axis=0)),
    )


def propose(law: Law, natural: Sequence[float], most: Float64Array, least: Float64Array | None = None) -> Proposal:
    """The mix with the least predicted loss among those reading no source too often.

    Args:
        law: fitted.
        natural: natural share of each source, in any unit.
        most: (m,) largest share of each, as of `Repeats.most`.
        least: (m,) smallest share of each; 0 by default.

    Raises:
        InputError: the smallest shares add up to more than 1, or one is above the largest.
    """
    start, least = _start(natural, most, least)
    mix = min(_minima(law, law.set_weights, start, least, most), key=law.loss)
    low, high = law.interval(mix)
    is_bounded = tuple(np.flatnonzero((most < 1) & (mix > most - 1e-6)).tolist())
    return Proposal(mix, law.loss(mix), low, high, law.loss(start), is_bounded)


def front(law: Law, natural: Sequence[float], most: Float64Array, least: Float64Array | None = None) -> Front:
    """The front of mixes: the best for each set, and between those and the law's aims; arguments as of `propose`."""
    start, least = _start(natural, most, least)
    mixes, count = list[Float64Array](), len(law.set_weights)
    for steep, one in itertools.product(_STEEPNESS, np.eye(count)):
        # A hundredth of the weight is on all sets, else of mixes equal on one set any could be its best.
        weights = 0.99 * (steep * one + (1 - steep) * law.set_weights) + 0.01 / count
        found = _minima(law, weights, start, least, most)
        mixes.append(min(found, key=lambda mix: float(law.losses(mix) @ weights)))
    mixes.append(min(_minima(law, law.set_weights, start, least, most), key=law.loss))
    distinct = [mix for n, mix in enumerate(mixes) if all(np.abs(mix - other).max() > _SAME for other in mixes[:n])]
    shares, losses = np.array(distinct), law.losses(np.array(distinct))
    not_better = (losses[:, None] >= losses[None]).all(axis=2)
    under = not_better & (losses[:, None] > losses[None] + 1e-9).any(axis=2)
    kept = ~np.asarray(under).any(axis=1)
    order = np.flatnonzero(kept)[np.argsort(losses[kept, 0], kind="stable")]
    return Front(shares[order], losses[order], tuple(losses[order].argmin(axis=0).tolist()), law.losses(start))


def _start(
    natural: Sequence[float], most: Float64Array, least: Float64Array | None
) -> tuple[Float64Array, Float64Array]:
    """The natural mix within bounds, and the smallest shares."""
    least = np.zeros(len(most)) if least is None else np.asarray(least, np.float64)
    if least.sum() > 1 or bool((least > most).any()):
        raise InputError(f"mix: least shares {least.tolist()} do not go with the largest {np.round(most, 4).tolist()}")
    return _between(np.asarray(natural, np.float64), least, most), least


def _between(natural: Float64Array, least: Float64Array, most: Float64Array) -> Float64Array:
    """The mix nearest to the natural one within bounds."""
    rest = max(1 - float(least.sum()), 1e-9)
    return np.asarray(least + bounded(natural / natural.sum(), (most - least) / rest) * rest)


def _minima(
    law: Law, set_weights: Float64Array, start: Float64Array, least: Float64Array, most: Float64Array
) -> list[Float64Array]:
    """Where searches for the least weighted loss begin and end."""
    draw = np.random.default_rng(0)
    drawn = (_between(draw.dirichlet(np.ones(len(start))), least, most) for _ in range(_STARTS - 1))
    steps = np.vstack([np.zeros(len(start)), _STEP * np.eye(len(start))])

    def loss_and_slopes(mix: Float64Array) -> tuple[float, Float64Array]:
        losses = law.losses(np.maximum(mix, 0) + steps) @ set_weights
        return float(losses[0]), np.asarray((losses[1:] - losses[0]) / _STEP)

    found = []
    for first in (start, *drawn):
        optimum = optimize.minimize(
            loss_and_slopes,
            first,
            jac=True,
            bounds=list(zip(least, most, strict=True)),
            constraints={"type": "eq", "fun": lambda mix: mix.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-10, "maxiter": 500},
        )
        shares = np.clip(optimum.x, least, most)
        found += [first, shares / shares.sum()]
    return found
