"""Searches in planted worlds: little regret, also of those that go on from a former one; trade-offs; bounds hold."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.mixes.designs import Repeats
from spark_jobs.mixes.law import fit
from spark_jobs.mixes.search import Bounds, Runs, Search, reuse
from tests.spark_jobs.mixes.worlds import scarce, searched, searched_again, torn, world

TOKENS = [700, 200, 60, 40]


@pytest.mark.parametrize("sources", [2, 3, 4, pytest.param(8, marks=pytest.mark.nightly)])
def test_the_mix_of_a_search_is_nearly_the_best(sources: int) -> None:
    """Worse by at most .002 of the best loss in each world, in 3 (m + 1) runs; the natural mix is worse by percents."""
    found = [searched(world(seed, sources), seed) for seed in range(4)]
    assert max(each.regret for each in found) <= 0.002 < np.mean([each.natural for each in found])
    assert {len(each.runs.mixes) for each in found} == {3 * (sources + 1)}
    assert all(each.holds for each in found)


@pytest.mark.nightly
def test_intervals_of_proposed_mixes_hold_the_true_loss() -> None:
    """Of 100 of 90%, at least 90."""
    assert sum(searched(world(seed, 2 + seed % 4), seed).holds for seed in range(100)) >= 90


def test_a_search_from_a_former_mix_has_little_regret_in_few_runs() -> None:
    """Two of nine sources are new: 12 runs in place of 30."""
    for seed in range(2):
        found, former = searched_again(world(seed, 9), seed, 2)
        assert (len(found.runs.mixes), former.saved) == (12, 18) and found.regret <= 0.002


@pytest.mark.nightly
def test_a_search_from_a_former_mix_is_as_good_as_one_anew() -> None:
    """Its regret is 1.2 of that of a search of all sources at most, over 16 worlds."""
    again = np.mean([searched_again(world(seed, 9), seed, 2)[0].regret for seed in range(16)])
    assert again <= 1.2 * np.mean([searched(world(seed, 9), seed).regret for seed in range(16)])


def test_runs_that_repeat_nothing_foretell_a_run_that_does_badly() -> None:
    """Where data is scarce, the matched way is off by a fifth of the unmatched way's error at most."""
    matched = [searched(scarce(seed, 3), seed) for seed in range(4)]
    unmatched = [searched(scarce(seed, 3), seed, thinned=False) for seed in range(4)]
    assert 3 * np.mean([abs(each.off) for each in matched]) < np.mean([abs(each.off) for each in unmatched])
    assert all(each.holds for each in matched)


@pytest.mark.parametrize("is_torn", [True, False])
def test_a_trade_off_is_told_where_there_is_one_alone(is_torn: bool) -> None:
    """Sets that want other sources conflict; the front has the best mix for each, and none that another beats."""
    for seed in range(2):
        found = searched(torn(seed, 3, is_torn), seed)
        front, errors = found.front, found.law.held_out.set_errors
        assert bool(front.conflicts(errors)) == is_torn
        assert (front.losses[list(front.best)].diagonal() == front.losses.min(axis=0)).all()
        for losses in front.losses:
            assert not ((front.losses <= losses).all(axis=1) & (front.losses < losses - 1e-9).any(axis=1)).any()
        if is_torn:
            assert [front.mixes[at].argmax() for at in front.best] == [0, 1, 2]


def test_all_mixes_of_a_search_are_within_its_bounds() -> None:
    """Also of sources that are tried as one: each has its least share in the proposal, none is read too often."""
    bounds = Bounds(2.0, np.array([0, 0.3, 0.1, 0]))
    joined = np.array([[0.7, 0.2, 0.1, 0], [0, 0, 0, 1.0]])
    draw = np.random.default_rng(0)
    for parts, budget in ((None, 600), (joined, 600), (joined, 300)):
        search = Search.of(TOKENS, budget, bounds, parts)
        if parts is not None and budget == 600:
            with pytest.raises(InputError, match="least shares"):
                search.proposal(search.law(Runs(search.first_round(), draw.uniform(1, 2, (search.first_count, 1)))))
            continue
        bounded = Search.of(TOKENS, budget, Bounds(2.0, np.array([0, 0.1, 0.05, 0])), parts)
        mixes = bounded.first_round()
        law = bounded.law(Runs(mixes, draw.uniform(1, 2, (len(mixes), 2))))
        for rows in (mixes, bounded.second_round(law), bounded.proposal(law).mix[None], bounded.front(law).mixes):
            np.testing.assert_allclose(rows.sum(axis=1), 1)
            assert (rows * budget <= 2 * np.array(TOKENS) + 1e-6).all() and (rows >= 0).all()
        assert (bounded.proposal(law).mix >= np.array([0, 0.1, 0.05, 0]) - 1e-9).all()
    with pytest.raises(InputError, match="takes 10 at least"):
        Search.of(TOKENS, 600, run_count=9)
    with pytest.raises(InputError, match="none in the former mix"):
        Search.of(
            TOKENS, 600, Bounds(2.0, np.array([0, 0, 0.1, 0])), np.array([[1.0, 0, 0, 0], [0, 1, 0, 0]])
        ).proposal(fit(np.eye(2).repeat(3, axis=0), np.ones(6)))


def test_a_token_that_comes_again_counts_less() -> None:
    """Up to an epoch a share counts as it is; then less, and of sources put together as of each."""
    repeats = Repeats.of([300, 100], 1000)
    effective = repeats.effective(np.array([[0.3, 0.1], [0.6, 0.2]]))
    np.testing.assert_allclose(effective[0], [0.3, 0.1])
    assert (effective[1] < [0.6, 0.2]).all() and (effective[1] > [0.58, 0.19]).all()
    np.testing.assert_allclose(repeats.epochs(np.array([0.6, 0.4])), [2, 4])
    one = Repeats.of([300, 100], 1000, np.array([[0.75, 0.25]]))
    np.testing.assert_allclose(one.effective(np.array([[0.8]])), effective[1].sum())


@pytest.mark.parametrize(
    ("former", "now", "kept", "added", "removed", "count"),
    [
        (
            {"a": 0.5, "b": 0.3, "c": 0.2},
            {"a": True, "b": True, "new": False},
            {"a": 0.625, "b": 0.375},
            ("new",),
            ("c",),
            2,
        ),
        ({"a": 0.5, "b": 0.5}, {"a": True, "b": True}, {"a": 0.5, "b": 0.5}, (), (), 1),
        ({"a": 0.5, "b": 0.5}, {"x": False, "y": False}, {}, ("x", "y"), ("a", "b"), 2),
        ({"a": 0.5, "b": 0.5}, {"a": True, "b": False, "x": False}, {"a": 1.0}, ("b", "x"), ("b",), 3),
        ({"a": 0.0, "b": 0.0, "c": 1.0}, {"a": True, "b": True, "x": False}, {"a": 0.5, "b": 0.5}, ("x",), ("c",), 2),
    ],
)
def test_what_is_as_it_was_is_one_source(
    former: dict[str, float],
    now: dict[str, bool],
    kept: dict[str, float],
    added: tuple[str, ...],
    removed: tuple[str, ...],
    count: int,
) -> None:
    """Sources added, removed, changed, all as they were, none; those with nothing in the former mix enter alike."""
    found = reuse(former, now)
    assert found.kept == pytest.approx(kept) and (found.added, found.removed) == (added, removed)
    assert found.parts.shape == (count, len(now)) and found.saved == 3 * (len(now) - count)
    np.testing.assert_allclose(found.parts.sum(axis=1), 1)
