"""The order of windows at rest: bijective, keyed, and the same in every version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.packing.plan.shuffle_at_rest import permutation_key, permute
from tests.tiers import tries


@settings(max_examples=tries(300))
@given(size=st.one_of(st.integers(1, 1030), st.integers(1, 20_000)), key=st.integers(0, 2**64 - 1))
def test_every_place_is_taken_once(size: int, key: int) -> None:
    """The images of [0, N) are [0, N)."""
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@pytest.mark.parametrize(
    ("size", "places"),
    [
        (10, [1, 7, 6, 5, 8, 9, 2, 3, 0, 4]),
        (257, [45, 90, 128, 155, 29, 146, 178, 246, 145, 218]),
        (2**20, [404805, 754746, 439028, 891140, 897612, 106086, 176676, 276997, 112806, 518338]),
        (10**9, [364372280, 758910161, 603860865, 360262511, 351961928]),
    ],
)
def test_golden_places_of_one_key(size: int, places: list[int]) -> None:
    """This key gives these places in every version; the first ones were made by another implementation."""
    assert permute(np.arange(len(places)), size, 0x72CD1FD098603B8C).tolist() == places


def test_golden_key_of_a_table() -> None:
    """Name, increment and seed make the key; each of them changes it."""
    assert permutation_key("packed_python_code_2048", 0) == 0xC7866776D1C633D9
    others = {permutation_key("packed_a_8", i, s) for i in range(3) for s in range(3)}
    assert len(others) == 9


def test_a_part_is_permuted_as_in_the_whole() -> None:
    """A value's place does not depend on what else is asked for."""
    whole = permute(np.arange(5000), 5000, 7)
    assert np.array_equal(permute(np.arange(1234, 1300), 5000, 7), whole[1234:1300])


def test_neighbours_are_separated() -> None:
    """Neighbouring windows (of like unit lengths) land far apart: their places correlate below 0.02."""
    places = permute(np.arange(100_000), 100_000, permutation_key("packed_x_2048", 3))
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(np.arange(100_000), places)[0, 1]) < 0.02
