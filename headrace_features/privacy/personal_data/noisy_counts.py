"""Counts fit to leave the lake: with noise, and without small groups.

Cards say how many documents hold what, and such counts can give a single document away. So they leave with discrete
Laplace noise (Dwork et al. 2006, "Calibrating Noise to Sensitivity in Private Data Analysis"), made by OpenDP, whose
sampling is safe against attacks on floating-point numbers. It is drawn anew at each call and has no seed: who publishes
the same counts twice has spent twice the epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spark_jobs.exceptions import SetupError

Draw = Callable[[list[int], float], list[int]]
"""Adds noise of a scale to counts."""


class NoisyGroups(NamedTuple):
    """Noisy counts by group, the largest first; what smaller groups have together, or None where there are none."""

    counts: dict[str, int]
    other: int | None


def laplace(counts: list[int], scale: float) -> list[int]:
    """Add discrete Laplace noise to counts.

    Raises:
        SetupError: OpenDP is not installed.
    """
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise SetupError("noise: OpenDP is not installed; pip install 'headrace[privacy]'") from error
    dp.enable_features("contrib")
    noisy = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l1_distance(T=dp.i64), scale=scale)
    return list(noisy(counts)) if counts else []


@dataclass(frozen=True)
class Noise:
    """How counts are disturbed.

    A document changes no more than `epsilon * scale` counts by one each, so that all of them together are
    epsilon-differentially private if the list of groups is no secret. Groups are left out by their noisy counts, which
    spends nothing.

    Attributes:
        scale: of the noise.
        min_group: lowest noisy count of a named group.
        draw: makes the noise.
    """

    scale: float
    min_group: int
    draw: Draw = laplace

    def count(self, exact: int) -> int:
        """A noisy count, 0 where it would be below."""
        return max(self.draw([exact], self.scale)[0], 0)

    def groups(self, exact: Mapping[str, int]) -> NoisyGroups:
        """Noisy counts of groups in which a document is once."""
        noisy = dict(zip(exact, self.draw(list(exact.values()), self.scale), strict=True))
        named = {name: count for name, count in noisy.items() if count >= self.min_group}
        small = [count for count in noisy.values() if count < self.min_group]
        ordered = dict(sorted(named.items(), key=lambda entry: (-entry[1], entry[0])))
        return NoisyGroups(ordered, max(sum(small), 0) if small else None)

    @property
    def named_by_chance(self) -> float:
        """Probability of naming a group of one document."""
        step = math.exp(-1 / self.scale)
        return float(step ** (self.min_group - 1) / (1 + step))
