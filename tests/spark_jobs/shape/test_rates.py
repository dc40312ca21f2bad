"""Rates by class: the level that leaves the wanted share, and mistakes in the config."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.shape.rates import ShapeConfig, flattened, rules

HISTOGRAM = pa.table(
    {
        "classified_by": ["coarse"] * 2 + ["cluster"] * 4 + ["length"] * 3,
        "class": [0, 1, -1, 0, 1, 2, 8, 9, 10],
        "document_count": [70, 30, 5, 60, 10, 25, 20, 70, 10],
    }
)


def bisected(counts: dict[int, int], target: dict[int, float], keep: float) -> dict[int, float]:
    """The rates at the level that bisection finds."""
    low, high = 0.0, 1e9
    for _ in range(200):
        level = (low + high) / 2
        left = sum(min(counts[one], level * target.get(one, 1.0)) for one in counts)
        low, high = (level, high) if left < keep * sum(counts.values()) else (low, level)
    return {one: min(1.0, high * target.get(one, 1.0) / counts[one]) for one in counts}


@pytest.mark.parametrize("seed", range(20))
def test_rates_leave_the_wanted_share_at_one_level(seed: int) -> None:
    """Against bisection, for random counts and weights, weights of 0 among them."""
    draw = np.random.default_rng(seed)
    counts = dict(enumerate(draw.integers(1, 1000, draw.integers(1, 30)).tolist()))
    target = {one: float(draw.choice([0, 0.5, 1, 3])) for one in counts if draw.random() < 0.6}
    for keep in (0.01, 0.3, 0.8, 1.0):
        assert flattened(counts, target, keep) == pytest.approx(bisected(counts, target, keep), abs=1e-9)


def test_the_example_of_the_docstring_holds() -> None:
    """Of 100, 30 and 10 documents half are left: 30, 30 and 10."""
    assert flattened({0: 100, 1: 30, 2: 10}, {}, 0.5) == {0: 0.3, 1: 1.0, 2: 1.0}


def test_keeping_all_keeps_all() -> None:
    """No rounding makes a rate that is all but 1."""
    for seed in range(50):
        counts = dict(enumerate(np.random.default_rng(seed).integers(1, 10**6, 7).tolist()))
        assert set(flattened(counts, {}, 1.0).values()) == {1.0}


def test_a_larger_share_raises_every_rate() -> None:
    """Rates never fall with `keep`, so that nobody leaves where more may stay."""
    counts = dict(enumerate(np.random.default_rng(1).integers(1, 500, 40).tolist()))
    shares = [list(flattened(counts, {3: 4.0, 7: 0.1}, keep).values()) for keep in np.linspace(0.01, 1, 60)]
    assert (np.diff(shares, axis=0) >= 0).all()


def test_losses_make_rates() -> None:
    """Above one bound a cluster goes, below the other its rate counts; between them, and unmeasured, it stays."""
    losses = pa.table({"cluster": [0, 1, 2], "loss": [9.0, 2.0, 0.5]})
    config = ShapeConfig(losses={"drop_above": 4, "downsample_below": 1, "rate": 0.25})
    high, low = rules(config, HISTOGRAM, losses)
    assert (high.name, high.rates, high.seen) == ("loss_too_high", {0: 0.0}, {0: (9.0, 4.0)})
    assert (low.name, low.rates, low.seen) == ("loss_too_low", {2: 0.25}, {2: (0.5, 1.0)})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"downsample": {3: 1.5}}, "no share"),
        ({"drop": [1], "downsample": {1: 0.5}}, "both in drop and in downsample"),
        ({"losses": {"rate": 0.5}}, "neither drop_above nor downsample_below"),
        ({"losses": {"drop_above": 1, "downsample_below": 2}}, "exchange them"),
        ({"lengths": {"keep": 0.5, "target": {1000: 2}}}, "no power of two"),
        ({"topics": {"keep": 0.5, "target": {1: -1}}}, "not 0 or more"),
        ({"topics": {"keep": 0}}, "greater than 0"),
        ({"drops": [1]}, "Extra inputs"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(given: dict[str, object], said: str) -> None:
    """Before anything runs, with what is wrong."""
    with pytest.raises(ValidationError, match=said):
        ShapeConfig.model_validate(given)


def test_rules_on_what_is_not_there_are_refused() -> None:
    """A cluster that the corpus does not have, losses without a table, and a cluster with two losses."""
    with pytest.raises(ConfigError, match="drop names cluster 9, the corpus has 0 to 2"):
        rules(ShapeConfig(drop=(9,)), HISTOGRAM, None)
    with pytest.raises(ConfigError, match="topics: target names cluster 2"):
        rules(ShapeConfig(topics={"keep": 0.5, "target": {2: 3.0}}), HISTOGRAM, None)
    bounds = ShapeConfig(losses={"drop_above": 4})
    with pytest.raises(ConfigError, match="losses names no table"):
        rules(bounds, HISTOGRAM, None)
    with pytest.raises(InputError, match="3 rows for 2 clusters"):
        rules(bounds, HISTOGRAM, pa.table({"cluster": [1, 1, 2], "loss": [1.0, 2.0, 3.0]}))
