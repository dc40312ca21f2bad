"""Mix law: planted laws are found, the best mix is brute force's, bounds and intervals hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.mixes.designs import design, most_shares, runs_needed
from spark_jobs.mixes.law import fit, propose

NATURAL = [0.7, 0.2, 0.1]
# Sets: one of the first source, one of the second; the third source is bad for both.
FLOORS, WEIGHTS = np.array([1.5, 1.2]), np.array([[-0.9, 0.2, 0.6], [0.3, -0.8, 0.7]])


def losses(mixes: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """(J, 2) of the planted laws, with noise."""
    drawn = np.random.default_rng(seed).standard_normal((len(mixes), 2))
    return FLOORS + np.exp(mixes @ WEIGHTS.T) + noise * drawn


def test_designs_are_mixes_within_the_bounds() -> None:
    """Seeded, at least 3 (m + 1), the natural mix first, near every corner; of a bounded source never more."""
    for count in (2, 3, 8):
        natural = np.random.default_rng(count).uniform(0.1, 1, count)
        found = design(natural, np.ones(count), seed=1)
        assert found.shape == (3 * (count + 1), count) and runs_needed(count) == len(found)
        np.testing.assert_allclose(found.sum(axis=1), 1)
        np.testing.assert_allclose(found[0], natural / natural.sum())
        assert (found[1 : count + 1].argmax(axis=1) == np.arange(count)).all()
        assert (found == design(natural, np.ones(count), seed=1)).all()
        assert np.linalg.matrix_rank(found) == count and len(np.unique(found.round(6), axis=0)) == len(found)
    most = most_shares([9000, 600, 500], budget_tokens=4000, epochs=2)
    np.testing.assert_allclose(most, [1, 0.3, 0.25])
    bounded = design(NATURAL, most, seed=1)
    assert (bounded <= most + 1e-12).all() and (bounded >= 0).all()
    np.testing.assert_allclose(bounded.sum(axis=1), 1)
    with pytest.raises(InputError, match=r"budget is 4\.00 epochs"):
        most_shares([500, 500], 4000, epochs=2)
    with pytest.raises(InputError, match="takes 5 at least"):
        design(NATURAL, most, seed=0, runs=4)


@pytest.mark.parametrize("most", [np.ones(3), np.array([1.0, 0.25, 1.0])])
def test_the_proposed_mix_is_that_of_brute_force(most: np.ndarray) -> None:
    """No mix of a grid of 1/200 has a lower loss by the law, and by the planted law it is as good as the best."""
    mixes = design(NATURAL, np.ones(3), seed=2, runs=24)
    law = fit(mixes, losses(mixes, noise=0.002))
    found = propose(law, NATURAL, most)
    grid = np.array([(a, b, 200 - a - b) for a, b in itertools.product(range(201), repeat=2) if a + b <= 200]) / 200
    grid = grid[(grid <= most).all(axis=1)]
    assert found.loss <= min(map(law.loss, grid)) + 1e-9
    truth = losses(np.vstack([grid, found.mix]), noise=0).mean(axis=1)
    assert truth[-1] < truth[:-1].min() + 0.003 < losses(np.array([NATURAL]), 0).mean()
    assert found.mix.sum() == pytest.approx(1) and (found.mix <= most + 1e-9).all()
    assert found.bounded == ((1,) if most[1] < 1 else ())
    assert found.low <= found.loss <= found.high < found.natural_loss


def test_held_out_runs_show_whether_there_is_a_law() -> None:
    """With a planted law errors are near the noise and ranks agree; without one it is no better than the mean."""
    mixes = design(NATURAL, np.ones(3), seed=3)
    law = fit(mixes, losses(mixes, noise=0.01), set_weights=[3, 1])
    assert law.set_weights.tolist() == [0.75, 0.25]
    assert law.held_out.rank_correlation > 0.9 and law.held_out.error < 0.03 < law.held_out.baseline
    without = fit(mixes, np.random.default_rng(0).normal(2, 0.1, 12)).held_out
    assert without.error > without.baseline * 0.95
    # The law of all but run 4, fitted apart, is what run 4 is predicted by.
    rest = np.arange(12) != 4
    apart = fit(np.vstack([mixes[rest], mixes[0]]), losses(mixes, 0)[[*np.flatnonzero(rest), 0]])
    assert apart.loss(mixes[4]) == pytest.approx(losses(mixes, 0)[4].mean(), abs=1e-3)


@pytest.mark.nightly
def test_intervals_hold_what_a_new_run_gives() -> None:
    """Of 90% intervals for new mixes of the same kind at least 80% hold the run (the jackknife+'s guarantee)."""
    held = []
    for seed in range(12):
        mixes = design(NATURAL, np.ones(3), seed=seed, runs=20)
        law = fit(mixes, losses(mixes, 0.02, seed)[:, 0])
        new = design(NATURAL, np.ones(3), seed=100 + seed, runs=20)[4:]
        for mix, measured in zip(new, losses(new, 0.02, 100 + seed)[:, 0], strict=True):
            low, high = law.interval(mix)
            held.append(low <= measured <= high)
    assert np.mean(held) >= 0.8


def test_runs_without_a_loss_are_refused_by_number() -> None:
    """A run that came to nothing is no point of a law."""
    mixes = design(NATURAL, np.ones(3), seed=0)
    values = losses(mixes, 0)
    values[7, 1] = np.nan
    with pytest.raises(InputError, match="run 7 has losses"):
        fit(mixes, values)
    with pytest.raises(InputError, match="7 runs of 3 sources"):
        fit(mixes[:7], values[:7])
