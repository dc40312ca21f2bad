"""Mixes to train small models on: first all over, then near the best so far.

15 runs on four sources    10 of the first round: 1 natural, 4 near a corner (80% of one source), 5 random
                           5 of the second: the best by the law so far, and 4 around it
largest share of a source  epochs x its tokens / budget
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_jobs.arrays import Float64Array
from spark_jobs.exceptions import InputError

# Epochs behind the first after which a repeated token has lost all but 1/e of its worth: R* of Muennighoff et al. 2023
# (arXiv 2305.16264), "Scaling Data-Constrained Language Models".
REPEATS: Final = 15.4
_CORNER: Final = 0.8  # share of the source in a run near its corner; the rest is the natural mix
_SPREAD: Final = 0.5  # of the logarithms of shares around the best mix
_NEARBY: Final = 0.3  # of equal shares, so that a source without a share in the best mix is tried again too
_SMALLEST: Final = 1e-9


@dataclass(frozen=True)
class Repeats:
    """What sources consist of, and how often a mix reads it.

    Attributes:
        unique: (M,) tokens of each part, as a share of the budget.
        parts: (m, M) how a source's share is spread over the parts; each row adds up to 1. A source is a part of its
            own, or several at a fixed ratio.
    """

    unique: Float64Array
    parts: Float64Array

    @classmethod
    def of(cls, tokens: Sequence[int], budget_tokens: int, parts: Float64Array | None = None) -> Repeats:
        """Of sources by their tokens; each is a part of its own, unless `parts` says how they are put together."""
        unique = np.asarray(tokens, np.float64) / budget_tokens
        return cls(unique, np.eye(len(unique)) if parts is None else parts)

    def epochs(self, mixes: Float64Array) -> Float64Array:
        """(..., M) how often each part is read by (..., m) mixes."""
        return np.asarray(mixes @ self.parts / self.unique)

    def effective(self, mixes: Float64Array) -> Float64Array:
        """(..., m) shares of tokens that are worth a first one: what comes again is worth less each time."""
        shares = mixes @ self.parts
        again = np.maximum(shares / self.unique - 1, 0)
        worth = np.minimum(shares, self.unique) + self.unique * REPEATS * -np.expm1(-again / REPEATS)
        return np.asarray(worth @ (self.parts > 0).T)

    def most(self, epochs: float, cap: Float64Array | None = None) -> Float64Array:
        """(m,) the largest share of each source that reads no part more often than `epochs`, nor above its (M,) cap.

        Raises:
            InputError: all sources together are too small for the budget.
        """
        of_parts = epochs * self.unique if cap is None else np.minimum(epochs * self.unique, cap)
        ratio = np.where(self.parts > 0, of_parts / np.maximum(self.parts, _SMALLEST), np.inf)
        most = np.minimum(1.0, ratio.min(axis=1))
        if most.sum() < 1 - _SMALLEST:
            raise InputError(
                f"mix: the budget is {1 / self.unique.sum():.2f} epochs of all sources, of each at most {epochs} are "
                "allowed; lower the budget (target_tokens, budget_tokens) or allow more (max_epochs)"
            )
        return np.asarray(most)


def runs_needed(source_count: int) -> int:
    """The number of runs for so many sources, both rounds together."""
    return 3 * (source_count + 1)


def least_runs(source_count: int) -> int:
    """The least number of runs to fit a law to: those of the first round."""
    return 2 * (source_count + 1)


def most_shares(source_tokens: Sequence[int], budget_tokens: int, epochs: float) -> Float64Array:
    """(m,) the largest share of each source without reading any of it more often than `epochs`.

    Raises:
        InputError: all sources together are too small for the budget.
    """
    return Repeats.of(source_tokens, budget_tokens).most(epochs)


def design(natural: Sequence[float], most: Float64Array, seed: int, runs: int | None = None) -> Float64Array:
    """Mixes to train on: the natural one, one near each corner, and seeded ones around the natural one.

    Args:
        natural: natural share of each source, in any unit.
        most: (m,) of `most_shares`.
        seed: of the draws.
        runs: number of mixes, at least m + 2; `runs_needed` by default.

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
    if runs < count + 2:
        raise InputError(f"mix: {runs} runs for {count} sources; a first round takes {count + 2} at least")
    base = base / base.sum()
    draw = np.random.default_rng(seed)
    corners = _CORNER * np.eye(count) + (1 - _CORNER) * base
    # Concentrations from wide (.5 a source) to near the natural mix (5 a source), as RegMix draws them.
    wide = np.geomspace(0.5, 5, runs - count - 1)
    between = [draw.dirichlet(np.maximum(share * (base * count + 1) / 2, 0.05)) for share in wide]
    return np.array([bounded(mix, most) for mix in (base, *corners, *between)])


def design_near(best: Sequence[Float64Array], most: Float64Array, seed: int, runs: int) -> Float64Array:
    """(runs, m) mixes of a second round: the best ones so far, then seeded ones around the first."""
    draw = np.random.default_rng([seed, 1])
    count = len(best[0])
    middle = (best[0] + _NEARBY / count) / (1 + _NEARBY)
    mixes = list(best[:runs])
    while len(mixes) < runs:
        mix = middle * np.exp(_SPREAD * draw.standard_normal(count))
        mixes.append(mix / mix.sum())
    return np.array([bounded(mix, most) for mix in mixes])


def bounded(mix: Float64Array, most: Float64Array) -> Float64Array:
    """Lower shares above `most` to it, and give the excess to the other sources in proportion."""
    is_bounded = np.zeros(len(mix), np.bool_)
    within = mix
    while (over := ~is_bounded & (within > most)).any():
        is_bounded |= over
        free = np.where(is_bounded, 0.0, np.maximum(mix, _SMALLEST))
        within = np.where(is_bounded, most, free * (1 - most[is_bounded].sum()) / max(free.sum(), _SMALLEST))
    return within
