"""The exact join by prefixes against all pairs, compared by Python's integers."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from spark_jobs.arrays import BoolArray, Int32Array, Int64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, total_weights
from spark_jobs.dedup.near import prefix_join
from spark_jobs.dedup.near.prefix_join import COUNTERS, Members, count_tokens, list_pairs, prefixes
from tests.spark_jobs.dedup.made_bags import at_the_bound
from tests.tiers import sampled

Lists = tuple[Int64Array, Int64Array, Members]
THRESHOLDS = (Fraction(7, 10), Fraction(8, 10), Fraction(9, 10))
Weights = dict[int, tuple[int, int]]


def documents_of(draw: np.random.Generator) -> list[Weights]:
    """Bags of few tokens: pages of a template, strangers, and changed copies of both."""
    tokens = draw.integers(1, 2**63, 300)
    units = draw.integers(1, 256, 300)
    rows: list[Weights] = []
    for number in range(120):
        if number % 3 == 2 and draw.random() < 0.7:
            copied = rows[draw.integers(len(rows))]
            row = {
                token: (unit, int(draw.integers(1, 5)) if draw.random() < 0.1 else level)
                for token, (unit, level) in copied.items()
                if draw.random() > 0.1
            }
        else:
            own = set(draw.integers(0, 300, draw.integers(1, 40)).tolist())
            template = set(range(draw.integers(20, 60))) if draw.random() < 0.6 else set()
            row = {int(tokens[one]): (int(units[one]), int(draw.integers(1, 5))) for one in own | template}
        rows.append(row or {int(tokens[0]): (1, 1)})
    return rows


def as_bags(rows: list[Weights]) -> Bags:
    """The same as arrays."""
    flat = [(token, *row[token]) for row in rows for token in sorted(row)]
    hashes, units, levels = zip(*flat, strict=True)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Bags(offsets, np.array(hashes, np.uint64), np.array(units, np.uint8), np.array(levels, np.uint8))


def similarity(one: Weights, other: Weights) -> Fraction:
    """Weighted Jaccard similarity."""
    shared = sum(unit * min(level, other[token][1]) for token, (unit, level) in one.items() if token in other)
    both = sum(unit * level for row in (one, other) for unit, level in row.values())
    return Fraction(shared, both - shared)


def lists_of(
    rows: list[Weights],
    thresholds: tuple[Fraction, ...],
    groups: Int32Array,
    earlier: BoolArray | None = None,
    places: Int64Array | None = None,
) -> Lists:
    """Where the list of each token in a prefix begins and ends, and the members; places are numbers of the rows."""
    bags, count = as_bags(rows), len(rows)
    earlier = np.zeros(count, np.bool_) if earlier is None else earlier
    places = np.arange(count) if places is None else places
    counters = np.zeros(COUNTERS, np.uint32)
    count_tokens(bags.hashes, counters)
    found = prefixes(bags, counters, groups, thresholds)
    order = np.lexsort((places[found.documents], ~earlier[found.documents], found.tokens))
    documents, tokens = found.documents[order], found.tokens[order]
    edges = np.append(np.flatnonzero(np.append(True, tokens[1:] != tokens[:-1])), len(tokens))
    totals = total_weights(bags)[documents]
    members = Members(places[documents], totals, found.suffixes[order], groups[documents], earlier[documents])
    return edges[:-1], edges[1:], members


@sampled(6)
@pytest.mark.parametrize("seed", range(30))
def test_every_pair_that_reaches_a_common_threshold_is_a_candidate(seed: int) -> None:
    """Whatever the order of tokens, who is compared at which thresholds, and who came earlier; few others are."""
    draw = np.random.default_rng(seed)
    rows = documents_of(draw)
    count = len(rows)
    groups = draw.integers(1, 8, count).astype(np.int32)
    earlier = draw.random(count) < 0.3
    places = draw.permutation(count).astype(np.int64)
    lists = lists_of(rows, THRESHOLDS, groups, earlier, places)
    candidates = {
        frozenset(pair)
        for first, second in list_pairs(*lists, THRESHOLDS)
        for pair in zip(first.tolist(), second.tolist(), strict=True)
    }
    expected = set()
    for one, other in itertools.combinations(range(count), 2):
        common = groups[one] & groups[other]
        reached = [t for group, t in enumerate(THRESHOLDS) if common >> group & 1]
        if not (earlier[one] and earlier[other]) and reached and similarity(rows[one], rows[other]) >= reached[0]:
            expected.add(frozenset((int(places[one]), int(places[other]))))
    assert len(expected) > 5
    assert expected <= candidates
    assert len(candidates) < count * (count - 1) / 2 / 10


@pytest.mark.parametrize("pivots", [None, 1])
@pytest.mark.parametrize("threshold", [Fraction(1, 2), Fraction(7, 10), Fraction(4, 5), Fraction(9, 10), Fraction(1)])
def test_a_pair_at_its_threshold_is_a_candidate_and_one_unit_of_weight_less_is_not(
    threshold: Fraction, pivots: int | None
) -> None:
    """The first shared token has all that is shared in its suffix, since rare ones come first: the filter is exact."""
    rows, reaching = at_the_bound(threshold)
    found = set()
    for left in range(0, len(rows), 2):
        lists = lists_of(rows[left : left + 2], (threshold,), np.ones(2, np.int32))
        for first, second in list_pairs(*lists, (threshold,), pivots):
            found |= {(left + one, left + other) for one, other in zip(first.tolist(), second.tolist(), strict=True)}
    assert found == reaching


@pytest.mark.parametrize("pivots", [None, 1, 3])
@pytest.mark.parametrize("checks", [1, 7, 100, 10_000])
def test_pairs_do_not_depend_on_how_many_one_call_checks(
    checks: int, pivots: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair once for each list it is in; a call makes more pairs than it may for one member of a long list alone."""
    lists = lists_of(documents_of(np.random.default_rng(2)), THRESHOLDS, np.full(120, 7, np.int32))
    once = [pair for call in list_pairs(*lists, THRESHOLDS, pivots) for pair in zip(*call, strict=True)]
    monkeypatch.setattr(prefix_join, "_CHECKS_A_CALL", checks)
    calls = list(list_pairs(*lists, THRESHOLDS, pivots))
    assert sorted(pair for call in calls for pair in zip(*call, strict=True)) == sorted(once)
    assert len(once) > 100 and max(len(first) for first, _ in calls) <= 2 * max(checks, 120)


@pytest.mark.parametrize("pivots", [None, 60])
def test_a_list_may_have_any_number_of_pairs(pivots: int | None) -> None:
    """1,770 of sixty equal documents, more than room is made for at first."""
    lists = lists_of([{7: (1, 1)}] * 60, THRESHOLDS, np.full(60, 7, np.int32))
    (pairs,) = list_pairs(*lists, THRESHOLDS, pivots)
    found = list(zip(*(side.tolist() for side in pairs), strict=True))
    assert sorted(found) == list(itertools.combinations(range(60), 2))


def test_pivots_are_paired_with_all_that_come_after_them_and_can_be_alike() -> None:
    """Of a list of documents of equal weight that share everything, the first two lead, the earlier ones first."""
    count = 6
    members = Members(
        places=np.arange(10, 10 + count),
        totals=np.full(count, 100),
        suffixes=np.full(count, 100),
        groups=np.full(count, 7, np.int32),
        earlier=np.array([True, True, False, False, False, False]),
    )
    edges = np.array([0]), np.array([count])
    (pairs,) = list_pairs(*edges, members, THRESHOLDS, pivots=3)
    assert sorted(zip(*(side.tolist() for side in pairs), strict=True)) == [
        *((10, place) for place in range(12, 16)),
        *((11, place) for place in range(12, 16)),
        *((12, place) for place in range(13, 16)),
    ]
