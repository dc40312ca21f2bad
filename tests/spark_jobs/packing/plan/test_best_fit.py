"""The plan from the histogram is best-fit decreasing, and its slots are places that no two units share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_jobs.exceptions import InputError
from spark_jobs.packing.plan.best_fit import plan_slots
from tests.tiers import tries


def naive_best_fit_decreasing(lengths: list[int], window_tokens: int) -> list[int]:
    """Fill levels of best-fit decreasing over single units, in O(n^2): the reference."""
    fills: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [fill for fill in fills if fill + length <= window_tokens]
        if fitting:
            fills.remove(max(fitting))
            fills.append(max(fitting) + length)
        else:
            fills.append(length)
    return sorted(fills)


def placed(lengths: list[int], window_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Every unit by descending length with its window and start, and the number of windows."""
    distinct, counts = np.unique(lengths, return_counts=True)
    plan = plan_slots(dict(zip(distinct.tolist(), counts.tolist(), strict=True)), window_tokens)
    by_length = np.array(sorted(lengths, reverse=True), dtype=np.int64)
    windows, starts = plan.look_up(np.arange(len(by_length)), by_length)
    return by_length, windows, starts, plan.window_count


@st.composite
def unit_lengths(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A window length and units for it; few distinct lengths half of the time, so that classes are large."""
    window_tokens = draw(st.one_of(st.integers(1, 40), st.integers(500, 1600), st.sampled_from([511, 512, 1024, 3000])))
    pool = draw(st.lists(st.integers(1, window_tokens), min_size=1, max_size=12))
    from_pool = st.lists(st.sampled_from(pool), max_size=80)
    anything = st.lists(st.integers(1, window_tokens), max_size=80)
    at_bounds = st.lists(st.sampled_from([n for n in (1, 511, 512, 513, 1024) if n <= window_tokens]), max_size=40)
    return window_tokens, draw(st.one_of(from_pool, anything, at_bounds))


@settings(max_examples=tries(3000, 300))
@example((3000, [2400, 2300, 1500, 100]))  # three rooms above the first 512, two of them in one word
@given(unit_lengths())
def test_fill_levels_are_those_of_best_fit_decreasing(case: tuple[int, list[int]]) -> None:
    """The multiset of fill levels equals the naive reference's; windows are dense; units abut without overlap."""
    window_tokens, lengths = case
    by_length, windows, starts, window_count = placed(lengths, window_tokens)
    assert set(windows.tolist()) == set(range(window_count))
    fills = np.zeros(window_count, dtype=np.int64)
    for row in np.lexsort((starts, windows)):
        assert starts[row] == fills[windows[row]], "a unit must begin where the one before it ends"
        fills[windows[row]] += by_length[row]
    assert sorted(fills.tolist()) == naive_best_fit_decreasing(lengths, window_tokens)


@given(st.dictionaries(st.integers(1, 20), st.integers(0, 9)))
def test_the_first_slot_of_a_length_comes_after_those_of_all_longer_units(histogram: dict[int, int]) -> None:
    """Slots are numbered over all lengths, the longest first; lengths come ascending, those without a unit not."""
    lengths, first = plan_slots(histogram, 20).first_slots()
    assert lengths.tolist() == sorted(length for length, count in histogram.items() if count)
    longer = [sum(n for other, n in histogram.items() if other > length) for length in lengths]
    assert first.tolist() == longer


def test_worked_example_of_the_docstring() -> None:
    """Units 6, 6, 4, 3, 3, 1 in windows of 10: the slot rows that the module draws."""
    plan = plan_slots({6: 2, 4: 1, 3: 2, 1: 1}, 10)
    rows = list(
        zip(
            plan.first_slot.tolist(),
            plan.copies.tolist(),
            plan.start_window.tolist(),
            plan.offset.tolist(),
            strict=True,
        )
    )
    assert rows == [(0, 1, 0, 0), (2, 1, 0, 6), (3, 1, 1, 6), (4, 1, 2, 0), (5, 1, 1, 9)]
    assert plan.window_count == 3


def test_no_unit_makes_no_window() -> None:
    """An empty histogram, or counts of zero, is a plan of no windows."""
    assert plan_slots({}, 8).window_count == 0
    assert plan_slots({3: 0}, 8).window_count == 0


def test_the_shortest_and_the_longest_unit_fit() -> None:
    """Lengths 1 and L are no fault, and one of each shares no window."""
    assert plan_slots({1: 1, 8: 1}, 8).window_count == 2


@pytest.mark.parametrize("histogram", [{9: 1}, {0: 1}, {4: -1}])
def test_lengths_outside_the_window_are_refused(histogram: dict[int, int]) -> None:
    """A length of 0 or over L, or a negative count, is an error that names it."""
    with pytest.raises(InputError, match=r"wanted counts >= 0 of lengths in 1\.\.8"):
        plan_slots(histogram, 8)


def test_plan_is_small_for_a_trillion_units() -> None:
    """The plan's size depends on the distinct lengths alone: 10^12 units of every length, at most 4 rows a length."""
    plan = plan_slots(dict.fromkeys(range(1, 2049), 10**12 // 2048), 2048)
    assert len(plan.first_slot) <= 4 * 2048
    total = sum(length * (10**12 // 2048) for length in range(1, 2049))
    assert plan.window_count <= -(-total // 2048) * 1.0001
