"""Planted worlds: losses of any mix by a law that the fitted ones do not know, and searches in them.

A token counts once; read again, less each time (Muennighoff et al. 2023, arXiv 2305.16264), with a half-life of the
world. By half of the worlds a set's loss is a power of a sum over sources, by half a sum of powers of each source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy import optimize

from spark_jobs.mixes.law import Front, Law
from spark_jobs.mixes.search import Bounds, Reuse, Runs, Search, reuse

# Of the loss: standard deviation between seeds of proxy_1m on 60,000 tokens, without what a seed does to all variants;
# the mean of four sets (docs/feed/experiments.md).
NOISE: Final = 0.0027
SETS: Final = 3
_UNIT: Final = 1_000_000  # tokens of the budget
_BOUNDS: Final = Bounds()


@dataclass(frozen=True)
class World:
    """Sources, and what mixes of them are worth.

    Attributes:
        unique: (m,) tokens of each source as a share of the budget.
        half: epochs after which a repeated token has lost all but 1/e.
        floors: (K,) losses that no data lowers.
        heights: (K, m) or, of a pooled world, (K, 1).
        values: (K, m) of a token of each source for each set; of a sum of powers, offsets of the shares.
        exponents: (K,) of the power laws.
        pooled: a power of a sum; else a sum of powers.
        noise: of a run, as a share of the loss.
        bounds: of mixes.
    """

    unique: np.ndarray
    half: float
    floors: np.ndarray
    heights: np.ndarray
    values: np.ndarray
    exponents: np.ndarray
    pooled: bool
    noise: float = NOISE
    bounds: Bounds = _BOUNDS

    @property
    def tokens(self) -> list[int]:
        """Tokens of each source."""
        return np.maximum(self.unique * _UNIT, 1).astype(int).tolist()

    def losses(self, mixes: np.ndarray, thinned: bool = True) -> np.ndarray:
        """(..., K) losses without noise; by small runs whose sources are not `thinned`, as if nothing came twice."""
        again = np.maximum(mixes / self.unique - 1, 0) if thinned else np.zeros_like(mixes)
        x = np.minimum(mixes, self.unique) + self.unique * self.half * -np.expm1(-again / self.half)
        x = x if thinned else mixes
        if self.pooled:
            return self.floors + self.heights[:, 0] * (x @ self.values.T) ** -self.exponents
        powers = (x[..., None, :] + self.values) ** -self.exponents[:, None]
        return self.floors + (self.heights * powers).sum(axis=-1)

    def runs(self, mixes: np.ndarray, draw: np.random.Generator, thinned: bool = True) -> np.ndarray:
        """(J, K) losses of runs on mixes."""
        losses = self.losses(mixes, thinned)
        return losses * (1 + self.noise * draw.standard_normal(losses.shape))

    def without(self, kept: np.ndarray) -> World:
        """The world of some of its sources; of the others nothing is read."""
        heights = self.heights if self.pooled else self.heights[:, kept]
        floors = self.floors
        if not self.pooled:
            rest = ~np.isin(np.arange(len(self.unique)), kept)
            floors = floors + (self.heights * self.values ** -self.exponents[:, None])[:, rest].sum(axis=1)
        return replace(self, unique=self.unique[kept], heights=heights, values=self.values[:, kept], floors=floors)

    def best(self, set_weights: np.ndarray) -> float:
        """The least weighted loss of any mix, by searches from several."""
        most = np.minimum(1, self.bounds.max_epochs * self.unique)
        draw, found = np.random.default_rng(0), []
        for _ in range(6):
            start = most * draw.uniform(0.2, 1, len(most))
            optimum = optimize.minimize(
                lambda mix: float(self.losses(np.maximum(mix, 0)) @ set_weights),
                start / start.sum(),
                bounds=[(0, bound) for bound in most],
                constraints={"type": "eq", "fun": lambda mix: mix.sum() - 1},
                method="SLSQP",
                options={"ftol": 1e-10, "maxiter": 500},
            )
            mix = np.clip(optimum.x, 0, most)
            found.append(float(self.losses(mix / mix.sum()) @ set_weights))
        return min(found)


def world(seed: int, sources: int) -> World:
    """A world by its number; in all of them some sources are too small for their part."""
    draw = np.random.default_rng([77, seed, sources])
    sizes = np.exp(draw.normal(0, 1, sources))
    unique = np.maximum(sizes / sizes.sum() * draw.uniform(1.5, 6), 0.03)
    floors, half = draw.uniform(0.6, 1.4, SETS), draw.uniform(5, 25)
    if seed % 2:
        values = draw.uniform(0.02, 0.1, (SETS, sources))
        heights = draw.dirichlet(np.full(sources, 0.7), SETS) * draw.uniform(0.3, 0.7, (SETS, 1))
        return World(unique, half, floors, heights, values, draw.uniform(0.2, 0.5, SETS), pooled=False)
    values = draw.uniform(0.05, 0.3, (SETS, sources))
    for row in values:
        row[draw.permutation(sources)[: max(1, sources // 3)]] += draw.uniform(0.5, 1.5)
    heights = draw.uniform(0.5, 1, (SETS, 1))
    return World(unique, half, floors, heights, values, draw.uniform(0.15, 0.45, SETS), pooled=True)


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        mix: (M,) shares of all sources.
        regret: by how much of the best loss it is worse.
        natural: the same of the natural mix.
        holds: whether the interval holds the true loss.
        off: predicted loss to true one, as a share of it.
        runs: that were made.
        law: of them.
        search: that made it.
    """

    mix: np.ndarray
    regret: float
    natural: float
    holds: bool
    off: float
    runs: Runs
    law: Law
    search: Search

    @property
    def front(self) -> Front:
        """What else could be had."""
        return self.search.front(self.law)


def searched(
    place: World, seed: int, parts: np.ndarray | None = None, former: Runs | None = None, thinned: bool = True
) -> Found:
    """Search a world with noise; runs that are not `thinned` read nothing twice, and the law takes no repeats."""
    draw = np.random.default_rng([5, seed])
    search = Search.of(place.tokens, _UNIT, place.bounds, parts, former=former)
    fitting = search
    if not thinned:
        fitting = replace(search, repeats=replace(search.repeats, unique=np.full(len(place.unique), 1e9)))

    def train(mixes: np.ndarray) -> Runs:
        return Runs(mixes, place.runs(mixes, draw, thinned))

    runs = train(search.first_round(seed))
    runs = runs.followed_by(train(search.second_round(fitting.law(runs), seed)))
    law = fitting.law(runs)
    proposal = search.proposal(law)
    truth = float(place.losses(proposal.mix) @ law.set_weights)
    best = place.best(law.set_weights)
    natural = float(place.losses(place.unique / place.unique.sum()) @ law.set_weights)
    holds = proposal.low <= truth <= proposal.high
    off = proposal.loss / truth - 1
    return Found(proposal.mix, truth / best - 1, natural / best - 1, holds, off, runs, law, search)


def searched_again(place: World, seed: int, added: int, with_runs: bool = True) -> tuple[Found, Reuse]:
    """Search a world whose first sources were searched before: they have their former ratio."""
    names = [f"s{number}" for number in range(len(place.unique))]
    old = names[: len(names) - added]
    before = searched(place.without(np.arange(len(old))), seed + 1000)
    ratio = dict(zip(old, before.mix.tolist(), strict=True))
    joined = reuse(ratio, {name: name in ratio for name in names})
    mixes = np.column_stack([before.runs.mixes, np.zeros((len(before.runs.mixes), added))])
    former = Runs(mixes, before.runs.losses) if with_runs else None
    return searched(place, seed, joined.parts, former), joined


def scarce(seed: int, sources: int) -> World:
    """A world with less data than the budget, read up to 16 times."""
    place = world(seed, sources)
    return replace(place, unique=place.unique / place.unique.sum() * 0.7, bounds=Bounds(16.0))


def torn(seed: int, sources: int, is_torn: bool) -> World:
    """A world in which each set wants a source of its own, or all of them the first one."""
    place = world(2 * seed, sources)
    values = np.full((SETS, sources), 0.1)
    for number, row in enumerate(values):
        row[number % sources if is_torn else 0] = 1.2
    return replace(place, values=values, unique=np.full(sources, 3.0))
