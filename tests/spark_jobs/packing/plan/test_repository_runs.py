"""Neighbours of a repository join while they fit, and runs that stay too empty are split again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.packing.plan.repository_runs import ALONE, EVERY_RUN, greedy_starts, join_runs, unit_lengths
from spark_jobs.packing.plan.units import cut_documents
from tests.tiers import tries


def greedy_by_loop(lengths: list[int], hard: list[bool], limit: int) -> list[bool]:
    """Runs as one would make them by hand: the reference."""
    starts, fill = [], 0
    for length, boundary in zip(lengths, hard, strict=True):
        begins = boundary or fill + length > limit
        fill = length if begins else fill + length
        starts.append(begins)
    return starts


@settings(max_examples=tries(500, 100))
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=80), st.integers(1, 40))
def test_greedy_runs_are_those_of_a_loop(pieces: list[tuple[int, bool]], limit: int) -> None:
    """Orbits by doubling give what one piece after the other gives; a piece above the limit is alone."""
    lengths = [length for length, _ in pieces]
    hard = [boundary or number == 0 for number, (_, boundary) in enumerate(pieces)]
    found = greedy_starts(np.array(lengths, dtype=np.int64), np.array(hard, dtype=np.bool_), limit)
    assert found.tolist() == greedy_by_loop(lengths, hard, limit)


def loosened_by_loop(token_counts: list[int], groups: list[int], window_tokens: int, theta: int) -> list[list[int]]:
    """Units as lists of pieces' lengths, from the rules in words: the reference."""
    runs: list[list[int]] = []
    closed, group = True, -1
    for tokens, own_group in zip(token_counts, groups, strict=True):
        length = tokens + 1 if tokens else 0
        full, rest = divmod(length, window_tokens)
        parts = [window_tokens] * full + ([rest] if rest else [])
        for number, part in enumerate(parts):
            joins = not closed and group == own_group and len(parts) == 1 and sum(runs[-1]) + part <= window_tokens
            if joins:
                runs[-1].append(part)
            else:
                runs.append([part])
            closed = number < len(parts) - 1
            group = own_group
    units: list[list[int]] = []
    for run in runs:
        if sum(run) * 100 >= theta * window_tokens:
            units.append(run)
            continue
        fillers: list[list[int]] = []
        for part in run:
            if fillers and sum(fillers[-1]) + part <= max(1, window_tokens // 16):
                fillers[-1].append(part)
            else:
                fillers.append([part])
        units += fillers
    return units


@settings(max_examples=tries(1000, 300))
@given(
    st.lists(st.tuples(st.integers(0, 90) | st.integers(0, 4), st.integers(0, 3)), max_size=60),
    st.integers(2, 64) | st.sampled_from([20, 40, 60, 80]),  # theta L is whole: a run can be exactly so full
    st.sampled_from([EVERY_RUN, 50, 75, 95]),
)
def test_runs_below_theta_become_fillers(documents: list[tuple[int, int]], window_tokens: int, theta: int) -> None:
    """Units equal those of the rules in words: joined to L, kept from theta L on, else split to L / 16."""
    documents = sorted(documents, key=lambda d: d[1])
    token_counts, groups = [t for t, _ in documents], [g for _, g in documents]
    pieces = cut_documents(np.array(token_counts, dtype=np.int64), window_tokens)
    starts = np.diff(np.array(groups, dtype=np.int64), prepend=-1) != 0
    runs = join_runs(pieces, starts, window_tokens).unit_starts(theta)
    units = [part.tolist() for part in np.split(pieces.length, np.flatnonzero(runs)[1:])] if len(runs) else []
    assert units == loosened_by_loop(token_counts, groups, window_tokens, theta)
    assert all(sum(unit) <= window_tokens for unit in units)


@pytest.mark.parametrize("theta", [50, 75, 95])
def test_a_run_exactly_as_full_as_wanted_is_kept(theta: int) -> None:
    """With one piece of two tokens less it is split into runs of at most L / 16."""
    window = 320
    count = theta * window // 100 // 2
    for pieces_of_two, units in ((count, 1), (count - 1, -(-(count - 1) // (window // 16 // 2)))):
        pieces = cut_documents(np.ones(pieces_of_two, dtype=np.int64), window)
        runs = join_runs(pieces, np.arange(pieces_of_two) == 0, window)
        assert len(unit_lengths(pieces.length, runs.unit_starts(theta))) == units


def test_short_runs_have_a_sixteenth_of_the_window_at_most() -> None:
    """L = 304: 19 tokens, so nine pieces of two."""
    pieces = cut_documents(np.ones(80, dtype=np.int64), 304)
    units = unit_lengths(pieces.length, join_runs(pieces, np.arange(80) == 0, 304).unit_starts(95))
    assert units.tolist() == [18] * 8 + [16]


def test_the_example_of_the_module() -> None:
    """L = 32: 25 is kept at theta .75, the run of 12 is split, and a document alone is as it was."""
    pieces = cut_documents(np.array([10, 12, 3, 2, 9, 1, 30]) - 1, 32)
    runs = join_runs(pieces, np.array([True, False, False, True, False, False, True]), 32)
    assert unit_lengths(pieces.length, runs.unit_starts(EVERY_RUN)).tolist() == [25, 11, 30]
    assert unit_lengths(pieces.length, runs.unit_starts(75)).tolist() == [25, 2, 9, 30]
    assert unit_lengths(pieces.length, runs.unit_starts(ALONE)).tolist() == [10, 12, 3, 2, 9, 30]


@pytest.mark.parametrize("theta", [ALONE, 50])
def test_no_pieces_make_no_units(theta: int) -> None:
    """Nothing in, nothing out."""
    nothing = np.zeros(0, dtype=np.int64)
    pieces = cut_documents(nothing, 8)
    starts = join_runs(pieces, np.zeros(0, dtype=np.bool_), 8).unit_starts(theta)
    assert unit_lengths(pieces.length, starts).tolist() == []


def test_a_repository_of_200_000_files_joins_in_a_second() -> None:
    """No loop over files: a large repository is a matter of array passes."""
    counts = np.random.default_rng(1).integers(1, 3000, 200_000)
    pieces = cut_documents(counts, 2048)
    first = np.arange(len(counts)) == 0
    runs = join_runs(pieces, first, 2048)
    lengths = unit_lengths(pieces.length, runs.unit_starts(75))
    assert lengths.sum() == pieces.length.sum()
    assert lengths.max() <= 2048
