"""A search for the best mix in two rounds: mixes all over, a law, mixes near its best, the law again.

two rounds    2/3 of the runs all over, 1/3 near the best mix so far: there the law has to be right
former mix    of eight sources three are new: the other five keep their ratio in it and are tried as one, so the
              search is that of four sources, 15 runs in place of 27 (Olmix, arXiv 2602.12237, "mixture reuse");
              where runs of the former search measure the same, the law is one of all eight, through them too
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from spark_jobs.arrays import Float64Array
from spark_jobs.exceptions import InputError
from spark_jobs.mixes.designs import Repeats, design, design_near, least_runs, runs_needed
from spark_jobs.mixes.law import Front, Law, Proposal, fit, front, propose

_APART: Final = 0.02  # shares by which tried mixes differ at least
_FIRST, _FIRST_AGAIN = 2 / 3, 2 / 5  # share of the runs of the first round; of it where former ones are there too


@dataclass(frozen=True)
class Bounds:
    """What a mix may be.

    Attributes:
        max_epochs: most passes over a source.
        least: (M,) least share of each; None for 0.
        most: (M,) largest share of each, whatever its epochs; None for 1.
    """

    max_epochs: float = 4
    least: Float64Array | None = None
    most: Float64Array | None = None


@dataclass(frozen=True)
class Runs:
    """Runs on (J, M) mixes with their (J, K) losses."""

    mixes: Float64Array
    losses: Float64Array

    def followed_by(self, other: Runs) -> Runs:
        """These and others."""
        return Runs(np.vstack([self.mixes, other.mixes]), np.vstack([self.losses, other.losses]))


@dataclass(frozen=True)
class Search:
    """A search over M sources, of which some may be tried at a fixed ratio, as one.

    Attributes:
        tokens: (M,) of each source.
        repeats: how often mixes of what is tried read them.
        bounds: what a mix may be.
        run_count: of both rounds.
        former: runs of an earlier search on the same sources, measured alike: they count in the law.
    """

    tokens: Float64Array
    repeats: Repeats
    bounds: Bounds
    run_count: int
    former: Runs | None = None

    @classmethod
    def of(
        cls,
        tokens: Sequence[int],
        budget_tokens: int,
        bounds: Bounds = Bounds(),
        parts: Float64Array | None = None,
        run_count: int | None = None,
        former: Runs | None = None,
    ) -> Search:
        """A search of sources by their tokens, for a run of `budget_tokens`; `parts` as of `Repeats`.

        Raises:
            InputError: too few runs.
        """
        repeats = Repeats.of(tokens, budget_tokens, parts)
        count = len(repeats.parts)
        if run_count is not None and run_count < least_runs(count):
            raise InputError(f"mix: {run_count} runs for {count} sources; a law takes {least_runs(count)} at least")
        return cls(np.asarray(tokens, np.float64), repeats, bounds, run_count or runs_needed(count), former)

    @property
    def first_count(self) -> int:
        """Runs of the first round."""
        count = len(self.repeats.parts)
        if self.former is not None:
            return max(round(self.run_count * _FIRST_AGAIN), count + 2)
        return max(round(self.run_count * _FIRST), least_runs(count))

    @property
    def _fitted(self) -> Search:
        """The search whose sources the law is of: all of them, where former runs tell them apart."""
        if self.former is None:
            return self
        return replace(self, repeats=Repeats(self.repeats.unique, np.eye(len(self.tokens))))

    @property
    def _limits(self) -> tuple[list[float], Float64Array, Float64Array]:
        """Of what is tried: its tokens, the largest shares, the smallest, which bring every source to its own.

        Raises:
            InputError: all sources are too small, or a smallest share cannot be had.
        """
        parts, least = self.repeats.parts, np.zeros(len(self.tokens))
        least = least if self.bounds.least is None else self.bounds.least
        if (least > 0)[(parts == 0).all(axis=0)].any():
            raise InputError("mix: a source with a least share had none in the former mix; search without `from`")
        needed = np.where(parts > 0, least / np.maximum(parts, 1e-9), 0).max(axis=1)
        most = self.repeats.most(self.bounds.max_epochs, self.bounds.most)
        return ((parts > 0) @ self.tokens).tolist(), most, needed

    def first_round(self, seed: int = 0) -> Float64Array:
        """(J, M) mixes all over."""
        natural, most, _ = self._limits
        return np.asarray(design(natural, most, seed, self.first_count) @ self.repeats.parts)

    def second_round(self, law: Law, seed: int = 0) -> Float64Array:
        """(J, M) mixes near the best of a law of the first round, the best by each form and for each set among them."""
        count = self.run_count - self.first_count
        if not count:
            return np.empty((0, len(self.tokens)))
        fitted = self._fitted
        natural, most, least = fitted._limits
        # By each form too, for where they disagree on the best mix a run tells which is right.
        best = [propose(each, natural, most, least).mix for each in (law, *law.by_form())]
        ends = front(law, natural, most, least)
        best += [ends.mixes[at] for at in dict.fromkeys(ends.best)]
        best = [mix for n, mix in enumerate(best) if all(np.abs(mix - other).max() > _APART for other in best[:n])]
        # Half of the round is around the best mix at least: that is the one which will be trained.
        near = design_near(best[: 1 + count // 2], most, seed, count)
        return np.asarray(near @ fitted.repeats.parts)

    def law(self, runs: Runs, set_weights: Sequence[float] | None = None) -> Law:
        """The law of runs, with the former ones."""
        repeats = self._fitted.repeats
        every = runs if self.former is None else self.former.followed_by(runs)
        return fit(every.mixes @ (repeats.parts > 0).T, every.losses, set_weights, repeats)

    def proposal(self, law: Law) -> Proposal:
        """Its best mix, of all M sources."""
        found = propose(law, *self._fitted._limits)
        return replace(found, mix=self.whole(found.mix), bounded=self._bounded(found))

    def front(self, law: Law) -> Front:
        """What else could be had, of all M sources."""
        found = front(law, *self._fitted._limits)
        return replace(found, mixes=self.whole(found.mixes))

    def whole(self, mixes: Float64Array) -> Float64Array:
        """(..., M) shares of all sources in mixes of the law's."""
        return np.asarray(mixes @ self._fitted.repeats.parts)

    def _bounded(self, found: Proposal) -> tuple[int, ...]:
        """The sources read as often as allowed."""
        read = self._fitted.repeats.epochs(found.mix)
        is_bounded = (read > self.bounds.max_epochs * (1 - 1e-5)) & (self.whole(found.mix) < 1 - 1e-6)
        return tuple(np.flatnonzero(is_bounded).tolist())


@dataclass(frozen=True)
class Reuse:
    """What of a former mix goes on.

    Attributes:
        kept: sources that are as they were, with their shares among themselves.
        added: new sources.
        removed: former sources that are no more, or are others now.
        parts: (m, M) of `Repeats`: the kept ones are the first, where there are two or more.
    """

    kept: Mapping[str, float]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    parts: Float64Array

    @property
    def saved(self) -> int:
        """Runs that it saves."""
        return runs_needed(self.parts.shape[1]) - runs_needed(len(self.parts))


def reuse(former: Mapping[str, float], is_same: Mapping[str, bool]) -> Reuse:
    """Join what is as it was in a former mix.

    Args:
        former: its share of each source by name.
        is_same: the sources now, by name, with whether the former search had them as they are.
    """
    shares = {name: former[name] for name, same in is_same.items() if same}
    total = sum(shares.values())
    # Where the former mix had nothing of them, they enter alike.
    kept = {name: share / total if total > 0 else 1 / len(shares) for name, share in shares.items()}
    joined = [[kept.get(name, 0.0) for name in is_same]] if len(kept) > 1 else []
    alone = [name for name in is_same if name not in kept or not joined]
    return Reuse(
        kept,
        tuple(name for name in is_same if name not in kept),
        tuple(name for name in former if not is_same.get(name)),
        np.array([*joined, *([float(name == source) for name in is_same] for source in alone)]),
    )
