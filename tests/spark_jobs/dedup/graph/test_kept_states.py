"""The kept set in memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.dedup.graph.in_memory import KEPT, REMOVED, UNDECIDED, kept_states


def by_hand(pairs: list[tuple[int, int]], vertex_count: int) -> list[int]:
    """One vertex after another, the least (best) first; pairs are (worse, better) with worse > better."""
    state: list[int] = []
    for vertex in range(vertex_count):
        betters = [better for worse, better in pairs if worse == vertex]
        state.append(REMOVED if any(state[better] == KEPT for better in betters) else KEPT)
    return state


def decided(pairs: list[tuple[int, int]], vertex_count: int) -> list[int]:
    """What the kernel says."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return kept_states(table[:, 0].copy(), table[:, 1].copy(), vertex_count).tolist()


@given(
    st.integers(2, 25).flatmap(
        lambda n: st.tuples(
            st.permutations(range(n)), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2).filter(lambda e: e[0] != e[1]))
        )
    )
)
def test_states_are_those_of_one_after_another(case: tuple[list[int], list[tuple[int, int]]]) -> None:
    """Any acyclic graph, repeated edges among them, whatever numbers its vertices have."""
    numbers, drawn = case
    pairs = [(max(pair), min(pair)) for pair in drawn]
    expected = by_hand(pairs, len(numbers))
    found = decided([(numbers[worse], numbers[better]) for worse, better in pairs], len(numbers))
    assert [found[number] for number in numbers] == expected


def test_worked_example() -> None:
    """The example of the module's docstring: b goes, so c and d stay."""
    assert decided([(2, 1), (1, 0), (3, 1)], 4) == [KEPT, REMOVED, KEPT, KEPT]


def test_a_chain_of_a_million_edges_keeps_every_second_vertex() -> None:
    """The longest wait is one pass."""
    place = np.arange(1_000_000)
    state = kept_states(place + 1, place, 1_000_001)
    assert (state[::2] == KEPT).all()
    assert (state[1::2] == REMOVED).all()


def test_a_cycle_stays_undecided_with_what_waits_for_it() -> None:
    """0 is kept and removes 1; 2, 3 and 4 wait for each other, and 5 for 4."""
    assert decided([(1, 0), (2, 3), (3, 4), (4, 2), (5, 4)], 6) == [KEPT, REMOVED, *[UNDECIDED] * 4]


def test_no_edge_removes_nobody() -> None:
    """Vertices without edges are kept; so are none."""
    assert decided([], 2) == [KEPT, KEPT]
    assert decided([], 0) == []
