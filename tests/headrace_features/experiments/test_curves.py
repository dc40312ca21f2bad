"""Curves: a planted power law is found, and what it says of tokens holds the truth."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_features.experiments.curves import fit_curve, tokens_worth
from spark_jobs.exceptions import InputError


def curve(seed: int, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Losses of 2 + 40 t^-.3 over 2,000 steps of 1,000 tokens, with noise."""
    tokens = np.arange(1, 2001) * 1000
    losses = 2 + 40 * tokens**-0.3 + noise * np.random.default_rng(seed).standard_normal(2000)
    return tokens, losses


def test_a_planted_law_is_found_and_its_tokens_are_in_the_interval() -> None:
    """Twice the tokens lower the planted loss by a known size; that size is worth a factor of 2."""
    found = fit_curve(*curve(0, noise=0))
    assert (found.floor, found.power) == pytest.approx((2, 0.3), abs=0.01)
    assert found.tokens(found.loss(5e6)) == pytest.approx(5e6)
    difference = 40 * 2e6**-0.3 * (1 - 2**-0.3)
    worth = tokens_worth([curve(seed) for seed in range(5)], difference)
    assert worth.low < 2 < worth.high and worth.factor == pytest.approx(2, rel=0.1)
    assert tokens_worth([curve(seed) for seed in range(5)], 0.0).factor == pytest.approx(1)
    assert tokens_worth([curve(seed) for seed in range(5)], 3.0).high == np.inf
    with pytest.raises(InputError, match="log the loss more often"):
        fit_curve(np.arange(1, 4), np.ones(3))
