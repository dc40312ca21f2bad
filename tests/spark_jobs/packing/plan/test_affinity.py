"""The theta that is chosen is the first whose plan fills the windows enough, and its facts are those of the plan."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.packing.plan.affinity import choose_plan
from spark_jobs.packing.plan.repository_runs import ALONE, EVERY_RUN
from tests.spark_jobs.packing.plan.test_best_fit import naive_best_fit_decreasing

L = 16
Histograms = dict[tuple[int, int], dict[int, int]]
THETAS = (50, 75, 90, ALONE)
KEYS = st.tuples(st.sampled_from([*THETAS, EVERY_RUN]), st.integers(0, 1))
HISTOGRAMS = st.dictionaries(KEYS, st.dictionaries(st.integers(1, L), st.integers(1, 3), max_size=4))


def units_of(histograms: Histograms, theta: int) -> list[list[int]]:
    """Lengths of the units of each of two shards."""
    parts = [histograms.get((theta, shard), {}) for shard in range(2)]
    return [[length for length, count in part.items() for _ in range(count)] for part in parts]


@given(HISTOGRAMS, st.integers(0, 16))
def test_the_first_theta_that_reaches_the_target_is_chosen(histograms: Histograms, sixteenths: int) -> None:
    """Compared in fractions by packing unit by unit; no windows are filled, and the last theta is taken in any case."""
    for theta in THETAS:
        units = units_of(histograms, theta)
        windows = sum(len(naive_best_fit_decreasing(part, L)) for part in units)
        tokens = sum(map(sum, units))
        filled = Fraction(tokens, windows * L) if windows else Fraction(1)
        if filled >= Fraction(sixteenths, 16):
            break
    chosen = choose_plan(histograms, THETAS, 2, L, sixteenths / 16)
    assert (chosen.theta, chosen.window_count, chosen.token_count) == (theta, windows, tokens)
    assert chosen.utilisation == float(filled)
    alone, every = (sum(map(len, units_of(histograms, one))) for one in (ALONE, EVERY_RUN))
    count = sum(map(len, units))
    assert (chosen.piece_count, chosen.unit_count, chosen.kept) == (alone, count, alone - count)
    assert chosen.joinable == (alone - every if every else 0)


def test_facts_are_written_as_text() -> None:
    """Two windows of 16 hold 28 tokens in four units, which join six pieces; no documents are no fault."""
    histograms = {(75, 0): {14: 1, 2: 1}, (75, 1): {11: 1, 1: 1}, (ALONE, 0): {7: 2, 2: 1}, (ALONE, 1): {10: 1, 1: 2}}
    facts = choose_plan(
        {**histograms, (EVERY_RUN, 0): {16: 1}, (EVERY_RUN, 1): {12: 1}}, (75, ALONE), 2, L, 0.8
    ).facts()
    assert facts == {
        "headrace.packing.units": "4",
        "headrace.packing.windows": "2",
        "headrace.packing.utilisation": "0.875000",
        "headrace.packing.units-per-window": "2.000",
        "headrace.packing.theta": "0.75",
        "headrace.packing.neighbours-kept": "2",
        "headrace.packing.neighbours-joinable": "4",
    }
    assert choose_plan({(ALONE, 0): {L: 1, 5: 2}}, (ALONE,), 1, L, 0.0).facts()["headrace.packing.theta"] == "none"
    one = choose_plan({(ALONE, 0): {5: 2}}, (ALONE,), 1, L, 0.0).facts()
    nothing = choose_plan({}, (ALONE,), 1, L, 1.0).facts()
    assert [facts["headrace.packing.units-per-window"] for facts in (one, nothing)] == ["2.000", "0.000"]
    assert nothing["headrace.packing.utilisation"] == "1.000000"


def test_no_theta_is_a_fault_of_the_caller() -> None:
    """There is nothing to fall back on."""
    with pytest.raises(ValueError, match="no theta to try"):
        choose_plan({}, (), 1, L, 0.5)
