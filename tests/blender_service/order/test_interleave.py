"""Weights and cycles: exact proportions at every prefix."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blender_service.order.interleave import MAX_CYCLE_ROWS, build_cycle, parse_weight, quantize, reduce_weights
from tests.tiers import tries

positive = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)


def letters(*weights: int) -> str:
    """Write a cycle as letters."""
    return "".join("abcdefgh"[i] for i in build_cycle(weights).source)


def test_golden_cycles_never_change() -> None:
    """These weights give these cycles in every version of order 1."""
    assert letters(5, 3, 2, 1) == "abacabadbac"
    assert letters(1, 1, 1, 6) == "ddaddbcdd"
    assert letters(2, 1) == "aba"
    assert letters(1) == "a"


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12))
@settings(max_examples=tries(150))
def test_every_prefix_is_within_tijdemans_bound(weights: list[int]) -> None:
    """At every prefix of a cycle each source is within 1 - 1/(2n-2) rows of its exact share; at its end exact."""
    reduced = reduce_weights([Fraction(weight) for weight in weights])
    cycle = build_cycle(reduced)
    assert cycle.rows == sum(reduced)
    n = len(reduced)
    lengths = np.arange(1, cycle.rows + 1)
    for i, weight in enumerate(reduced):
        counts = np.cumsum(cycle.source == i)
        assert counts[-1] == weight
        error = np.abs(counts * cycle.rows - lengths * weight)  # times P, in whole numbers
        assert n == 1 or error.max() * (2 * n - 2) <= cycle.rows * (2 * n - 3)
        assert np.array_equal(cycle.rank[cycle.source == i], np.arange(weight))


@given(st.lists(positive, min_size=1, max_size=8), positive)
def test_equal_proportions_give_equal_weights(weights: list[Fraction], factor: Fraction) -> None:
    """0.5 : 0.25, 2 : 1 and 2/3 : 1/3 are one blend: the whole weights are the same."""
    assert reduce_weights(weights) == reduce_weights([weight * factor for weight in weights])


def test_weights_are_exact_text() -> None:
    """0.1 is one tenth, not the double nearest to it; 1/3 is a third."""
    assert parse_weight("0.1") == Fraction(1, 10)
    assert parse_weight(" 1/3 ") == Fraction(1, 3)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1/0", "", "many", "1e9", "1e999999999", "9" * 65])
def test_what_is_no_weight_is_refused(text: str) -> None:
    """Zero, negative, endless and unreadable weights are refused at once, whatever exponent they carry."""
    with pytest.raises(ValueError, match="weight"):
        parse_weight(text)


@given(st.lists(positive, min_size=1, max_size=20), st.integers(20, 5000))
def test_quantized_weights_fill_the_cycle(weights: list[Fraction], cycle_rows: int) -> None:
    """They sum to the cycle, none is 0, and none are nearer: no row that one gives to another lessens the squares.

    None is off by a row unless one was raised to 1.
    """
    whole = quantize(weights, cycle_rows)
    assert sum(whole) == cycle_rows
    assert min(whole) >= 1
    exact = [weight * cycle_rows / sum(weights) for weight in weights]
    over = [w - e for w, e in zip(whole, exact, strict=True)]
    assert max((o for w, o in zip(whole, over, strict=True) if w > 1), default=0) - min(over) <= 1
    if min(exact) >= 1:
        assert all(abs(o) < 1 for o in over)


def test_of_equal_sources_the_first_takes_what_is_left_over_and_gives_what_lacks() -> None:
    """Ties go to the lower number, as in the cycle; a source that has one row gives none."""
    assert quantize([Fraction(1)] * 3, 4) == (2, 1, 1)
    assert quantize([Fraction(1)] * 3, 8) == (3, 3, 2)
    tiny = Fraction(1, 10**9)
    assert quantize([tiny, tiny, Fraction(1), Fraction(1)], 6) == (1, 1, 2, 2)
    assert quantize([tiny, tiny, tiny, Fraction(1), Fraction(1)], 6) == (1, 1, 1, 1, 2)
    assert quantize([tiny, Fraction(1)], 2) == (1, 1)
    assert quantize([Fraction(1), Fraction(2)]) == (349525, 699051)


def test_the_longest_text_of_a_weight_is_read() -> None:
    """64 characters; one more is refused below."""
    assert parse_weight("9" * 64) == int("9" * 64)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_slots_are_counted_and_found(weights: list[int]) -> None:
    """The slots of each source before any slot, and the slot of each of its rows, as a walk over the cycle has them."""
    cycle = build_cycle(reduce_weights([Fraction(weight) for weight in weights]))
    before = [0] * len(weights)
    for slot, source in enumerate(cycle.source.tolist()):
        assert cycle.counts_before(slot).tolist() == before
        assert cycle.slot_of(source, before[source]) == slot
        before[source] += 1
    assert cycle.counts_before(cycle.rows).tolist() == before == list(cycle.weights)


def test_the_longest_cycle_is_built() -> None:
    """Weights that sum to 2**20 are the largest allowed, and give a cycle of that length."""
    assert build_cycle((1, MAX_CYCLE_ROWS - 1)).rows == MAX_CYCLE_ROWS
