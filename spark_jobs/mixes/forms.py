"""The forms that a loss may have as a function of the mix, and one law made of them.

A form is fitted in effective shares x (`Repeats`), as m + 1 numbers by least squares:

    exponential   c + exp(w . x)                         sources stand for one another
    powers        c + sum over sources of b / (x + d)^a  each teaches something of its own; b >= 0, a and d of a grid

Which of the two holds is a matter of the data: the exponential misses the best mix by 4% of the loss where powers hold,
powers by little where the exponential does. So both are fitted, and count by how well each foretells runs left out of
its fit: as error^-J of J runs, which is their likelihood.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import optimize

from spark_jobs.arrays import BoolArray, Float64Array

EXPONENTS: Final = (0.1, 0.3, 0.6, 1.0)  # of power laws; .1 is nearly a logarithm
OFFSETS: Final = (0.01, 0.03, 0.1, 0.3)  # shares below which a source's first tokens make no difference any more
_SMALLEST: Final = 1e-9
_MOST_STEPS: Final = 60


@dataclass(frozen=True)
class Exponential:
    """c + exp(w . x), with 0 <= c below the least loss."""

    def loss(self, numbers: Float64Array, x: Float64Array) -> Float64Array:
        """(...) losses of (..., m) shares, by (..., m + 1) numbers: c, then w."""
        return np.asarray(numbers[..., 0] + np.exp(np.minimum((x * numbers[..., 1:]).sum(axis=-1), 50)))

    def fit(
        self, x: Float64Array, losses: Float64Array, weights: Float64Array, start: Float64Array | None = None
    ) -> Float64Array:
        """(m + 1,) numbers by weighted least squares.

        Given c, the w of log(loss - c) are linear; the best of a few c is where the search begins.
        """
        least = losses.min()

        def off(numbers: Float64Array) -> Float64Array:
            return np.asarray((self.loss(numbers, x) - losses) * weights)

        def slopes(numbers: Float64Array) -> Float64Array:
            rise = np.exp(np.minimum(x @ numbers[1:], 50))[:, None]
            return np.asarray(np.column_stack([np.ones(len(x)), rise * x]) * weights[:, None])

        def linear(floor: float) -> Float64Array:
            logs = np.linalg.lstsq(x * weights[:, None], np.log(losses - floor) * weights, rcond=None)[0]
            return np.array([floor, *logs])

        if start is None:
            starts = [linear(share * least) for share in (0.0, 0.5, 0.8, 0.95)]
            start = min(starts, key=lambda numbers: float(np.square(off(numbers)).sum()))
        low = np.array([0.0, *np.full(x.shape[1], -50.0)])
        high = np.array([0.999 * least, *np.full(x.shape[1], 50.0)])
        start = np.clip(start, low + _SMALLEST, high - _SMALLEST)
        fitted = optimize.least_squares(off, start, jac=slopes, bounds=(low, high), max_nfev=_MOST_STEPS)
        return np.asarray(fitted.x)


@dataclass(frozen=True)
class Powers:
    """c + sum of b / (x + d)^a, with c and every b at least 0.

    Attributes:
        exponent: a.
        offset: d.
    """

    exponent: float
    offset: float

    def loss(self, numbers: Float64Array, x: Float64Array) -> Float64Array:
        """(...) losses of (..., m) shares, by (..., m + 1) numbers: c, then b."""
        return np.asarray(numbers[..., 0] + ((x + self.offset) ** -self.exponent * numbers[..., 1:]).sum(axis=-1))

    def fit(
        self, x: Float64Array, losses: Float64Array, weights: Float64Array, start: Float64Array | None = None
    ) -> Float64Array:
        """(m + 1,) numbers by weighted least squares."""
        columns = np.column_stack([np.ones(len(x)), (x + self.offset) ** -self.exponent])
        sizes = columns.max(axis=0)
        return np.asarray(optimize.nnls(columns / sizes * weights[:, None], losses * weights)[0] / sizes)


Form = Exponential | Powers
_GROUPS: Final[tuple[tuple[Form, ...], ...]] = (
    (Exponential(),),
    tuple(Powers(*pair) for pair in itertools.product(EXPONENTS, OFFSETS)),
)


@dataclass(frozen=True)
class _Fitted:
    """A form, its (m + 1,) numbers, and those (J, m + 1) without each run in turn."""

    form: Form
    numbers: Float64Array
    others: Float64Array


@dataclass(frozen=True)
class SetLaw:
    """The loss on a set, as a mean of forms.

    Attributes:
        forms: as fitted.
        counts: (F,) of each in the mean; they add up to 1.
    """

    forms: tuple[_Fitted, ...]
    counts: Float64Array

    def loss(self, x: Float64Array) -> Float64Array:
        """(...) losses of (..., m) effective shares."""
        each = [form.form.loss(form.numbers, x) for form in self.forms]
        return np.asarray(np.tensordot(self.counts, each, axes=1))

    def others(self, x: Float64Array) -> Float64Array:
        """(J,) losses of (m,) shares, or of (J, m) each, by the laws without run j."""
        each = [form.form.loss(form.others, x) for form in self.forms]
        return np.asarray(np.tensordot(self.counts, each, axes=1))


def fit_set(x: Float64Array, losses: Float64Array, weights: Float64Array) -> SetLaw:
    """Fit all forms to (J, m) effective shares and (J,) losses, whose errors count `weights` (J,) times."""
    without = ~np.eye(len(x), dtype=np.bool_)
    best: list[tuple[float, _Fitted]] = []
    for group in _GROUPS:
        fits = [_fit(form, x, losses, weights, without) for form in group]
        errors = [np.square((fit.form.loss(fit.others, x) - losses) * weights).sum() for fit in fits]
        at = int(np.argmin(errors))
        best.append((float(errors[at]), fits[at]))
    logs = -len(x) / 2 * np.log([max(error, _SMALLEST**2) for error, _ in best])
    counts = np.exp(logs - logs.max())
    return SetLaw(tuple(fit for _, fit in best), counts / counts.sum())


def _fit(form: Form, x: Float64Array, losses: Float64Array, weights: Float64Array, without: BoolArray) -> _Fitted:
    """A form by all runs, and by all but each."""
    numbers = form.fit(x, losses, weights)
    others = [form.fit(x[rows], losses[rows], weights[rows], numbers) for rows in without]
    return _Fitted(form, numbers, np.array(others))
