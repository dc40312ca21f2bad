"""Curves over quantiles: against numerical integration, and the figures of Olmo 3's procedure."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.integrate import quad

from headrace_features.composition.curves import POWERS, RepeatCurve

counts = st.lists(st.integers(1, 1000), min_size=1, max_size=24)


def means(curve: Callable[[float], float], tokens: list[int], breaks: list[float]) -> list[float]:
    """The mean of a curve over each bin, by integration between the places where it has corners."""
    edges = np.concatenate([[0], np.cumsum(tokens)]) / sum(tokens)
    found = []
    for left, right in pairwise(edges):
        cuts = [left, *(at for at in breaks if left < at < right), right]
        parts = [quad(curve, a, b, limit=200)[0] for a, b in pairwise(cuts)]
        found.append(sum(parts) / (right - left))
    return found


def solved(tokens: list[int], drop: float, most: float, total: float) -> list[float] | None:
    """Olmo 3's procedure, written down from its description: the largest p, then the largest lambda in bounds."""
    edges = np.concatenate([[0], np.cumsum(tokens)]) / sum(tokens)
    first = max(at for at, edge in enumerate(edges) if edge <= drop + 1e-12)
    a, b, mean = edges[first], edges[-2], total / sum(tokens)

    def last(p: float, rate: float) -> tuple[float, float]:
        whole = quad(lambda x: (x - a) ** p * math.exp(rate * (x - a)), a, 1, limit=500)[0]
        best = quad(lambda x: (x - a) ** p * math.exp(rate * (x - a)), b, 1, limit=500)[0]
        return mean / whole, mean / whole * best / (1 - b)

    powers = [p for p in POWERS if last(p, 0)[1] <= most]
    if not powers:
        return None
    low, high = 0.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if last(powers[-1], middle)[1] <= most else (low, middle)
    scale = last(powers[-1], low)[0]
    return means(lambda x: scale * max(x - a, 0) ** powers[-1] * math.exp(low * (x - a)) if x > a else 0.0, tokens, [a])


@given(counts, st.sampled_from([0, 0.1, 0.4, 0.5]), st.sampled_from([2.0, 4.0, 7.0]), st.floats(0.05, 4))
@example([100] * 20, 0.4, 7.0, 2.0)
@example([100] * 20, 0.4, 7.0, 5.0)
def test_the_family_is_that_of_olmo_3(tokens: list[int], drop: float, most: float, mean: float) -> None:
    """Repeats of each bin by numerical integration; where no curve is in bounds it is flat, and above the bound."""
    edges = np.cumsum(tokens) / sum(tokens)
    assume(all(abs(edge - drop) > 1e-9 or edge == drop for edge in edges))
    total = mean * sum(tokens)
    repeats = RepeatCurve(drop=drop, most=most).repeats(np.array(tokens), total)
    assert float(repeats @ tokens) == pytest.approx(total)
    assert (np.diff(repeats) >= -1e-9).all()
    wanted = solved(tokens, drop, most, total)
    if wanted is None:
        assert len({round(one, 9) for one in repeats if one}) == 1
        return
    assert repeats == pytest.approx(wanted, abs=2e-4)
    assert repeats[-1] <= most + 1e-6


def test_the_published_example_of_the_procedure() -> None:
    """Medicine 1,000 and 2,000 tokens, science 3,000 and 4,000, half thrown away, 20,000 wanted, .3 and .7 of them."""
    curve = RepeatCurve(drop=0.5, most=7)
    assert curve.repeats(np.array([1000, 2000]), 6000) == pytest.approx([0, 3])
    assert curve.repeats(np.array([3000, 4000]), 14000) == pytest.approx([0, 3.5])


def test_olmo_3_as_typed_from_the_report() -> None:
    """Twenty bins of equal size, the lowest 40% dropped, twice the tokens: the best 5% come 7 times."""
    repeats = RepeatCurve(drop=0.4, most=7).repeats(np.full(20, 10**9), 2 * 20 * 10**9)
    assert repeats[:8].tolist() == [0] * 8
    assert repeats[19] == pytest.approx(7, abs=1e-6)
    assert repeats.mean() == pytest.approx(2)


places = st.integers(1, 99).map(lambda percent: percent / 100)
points = st.lists(st.tuples(places, st.floats(0, 9)), max_size=5).map(
    lambda drawn: [(0.0, 1.0), *sorted(drawn), (1.0, 3.0)]
)


@given(counts, points)
def test_straight_lines_are_integrated_exactly(tokens: list[int], drawn: list[tuple[float, float]]) -> None:
    """A bin's repeats are the mean of the lines over it; two points at one quantile are a step."""
    repeats = RepeatCurve(points=tuple(drawn)).repeats(np.array(tokens), None)
    at = [place for place, _ in drawn]
    wanted = means(lambda x: float(np.interp(x, at, [value for _, value in drawn])), tokens, at)
    assert repeats == pytest.approx(wanted, abs=1e-6)


@given(counts, st.dictionaries(places, st.floats(0, 9), max_size=5))
def test_steps_hold_up_to_their_quantile(tokens: list[int], drawn: dict[float, float]) -> None:
    """The last one to the best."""
    steps = dict(sorted(drawn.items())) | {1.0: 7.0}
    repeats = RepeatCurve(steps=steps).repeats(np.array(tokens), None)
    wanted = means(lambda x: next(value for place, value in steps.items() if x <= place), tokens, list(steps))
    assert repeats == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({}, "either points, or steps, or most"),
        ({"points": [[0, 1], [1, 2]], "most": 7}, "either points, or steps, or most"),
        ({"points": [[0, 1], [0.9, 2]]}, "ascend to 1"),
        ({"points": [[0.5, 1], [0.2, 2], [1, 3]]}, "ascend to 1"),
        ({"steps": {0.4: 0}}, "ascend to 1"),
        ({"steps": {0.4: 0, 1: 7}, "drop": 0.4}, "drop belongs to most"),
        ({"steps": {0.4: -1, 1: 7}}, "greater than or equal to 0"),
        ({"most": 7, "droop": 0.4}, "Extra inputs"),
    ],
)
def test_what_is_no_curve_is_refused(written: dict[str, object], problem: str) -> None:
    """Before anything is read."""
    with pytest.raises(ValidationError, match=problem):
        RepeatCurve.model_validate(written)
