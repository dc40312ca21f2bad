"""Noise and minimum group size of counts that leave the lake."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_features.privacy.personal_data.noisy_counts import Noise, laplace


def seeded(counts: list[int], scale: float) -> list[int]:
    """Discrete Laplace noise as the difference of two geometric numbers, of one seed."""
    rng, stop = np.random.default_rng(5), 1 - np.exp(-1 / scale)
    return (np.array(counts) + rng.geometric(stop, len(counts)) - rng.geometric(stop, len(counts))).tolist()


def test_the_noise_of_opendp_has_the_width_that_the_scale_says() -> None:
    """The mean absolute noise of a discrete Laplace of scale 2 is 1.92; bounds that chance passes once in 10^9 runs."""
    pytest.importorskip("opendp")
    errors = [abs(count - 1000) for count in laplace([1000] * 2000, 2.0)]
    assert 1.6 < sum(errors) / len(errors) < 2.4
    assert laplace([], 2.0) == []


def test_groups_below_the_bound_are_one() -> None:
    """A group whose noisy count is the bound is named, one below is in `other`, which is never negative."""
    exact = {"large": 1000, **{f"g{n}": 20 for n in range(40)}}
    noisy = dict(zip(exact, seeded(list(exact.values()), 3.0), strict=True))
    found = Noise(3.0, 20, seeded).groups(exact)
    assert 0 < len(found.counts) < len(exact) and next(iter(found.counts)) == "large"
    assert found.counts == {name: count for name, count in noisy.items() if count >= 20}
    assert found.other == sum(count for count in noisy.values() if count < 20)
    assert Noise(3.0, 20, lambda counts, _: [-5] * len(counts)).groups({"a": 3}) == ({}, 0)
    assert Noise(3.0, 5, seeded).groups({"a": 1000}).other is None


def test_the_chance_that_one_document_is_named_is_that_of_the_noise() -> None:
    """Counted in 200,000 draws."""
    noise = Noise(3.0, 8, seeded)
    named = np.mean(np.array(seeded([1] * 200_000, 3.0)) >= 8)
    assert named == pytest.approx(noise.named_by_chance, rel=0.05)
