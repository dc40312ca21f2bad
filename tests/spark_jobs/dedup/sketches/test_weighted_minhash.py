"""Signatures agree as often as bags overlap, and depend on nothing but the bag and the seed."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from datasketch import WeightedMinHashGenerator
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.dedup.sketches.darts import SIGNATURE_VERSION, make_darts
from spark_jobs.dedup.sketches.weighted_minhash import signatures
from spark_jobs.exceptions import EmptyBagError
from tests.spark_jobs.dedup.made_bags import Bag, bags_of, hot_tokens, jaccard, random_bag, random_pair, real_bags
from tests.tiers import tries

Float64Array = npt.NDArray[np.float64]

MASK = 2**64 - 1
G = 0x9E3779B97F4A7C15
K = 256

POISSON_4 = [int(Fraction("0.0183156388887341802937180212732424512") * share * 2**64) for share in (1, 5, 13)]  # e^-4
GOLDEN_VALUES: list[list[int]] = [
    [42, 223, 47, 84, 186, 100],
    [254, 91, 223, 241, 140, 217],
    [100, 167, 61, 248, 234, 170],
    [3, 92, 158, 91, 238, 149],
    [186, 144, 3, 0, 154, 165],
]
GOLDEN_SHA256 = "7a97df5b6b67b7660cd16b8c0eb6843046c3ae87cfbc244e32bc7f36680b67e7"


def mix(z: int) -> int:
    """The mixer in Python's integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def plain_signature(bag: Bag, seed: int, last_rank: float) -> list[int]:
    """All darts of a bag up to a rank by the rules of `darts`, then the least of each slot: the reference."""
    thresholds = make_darts(0, 1).thresholds
    best = [MASK] * K
    for token, (unit, level) in bag.items():
        bits = 37 - (unit - 1).bit_length()
        for strip in range(1, level + 1):
            for cell in range(int(last_rank * 2**35) // 2**bits + 1):
                stream = mix((token + mix(seed) + G * (strip * 2**32 + cell)) & MASK)
                count = int(np.searchsorted(thresholds[unit], np.uint64(stream)))
                for number in range(1, count + 1):
                    z = mix((stream + G * number) & MASK)
                    dart = (cell * 2**bits + (z >> (64 - bits))) << 16 | z & 0xFFFF
                    best[dart >> 8 & 255] = min(best[dart >> 8 & 255], dart)
    assert max(best) < last_rank * 2**51, "the reference must look further"
    return [dart & 255 for dart in best]


def plain_icws(bag: Bag, count: int, seed: int) -> list[tuple[int, int]]:
    """Ioffe 2010, section 3: the winning token and its t, for each of `count` draws; symbols as there."""
    tokens = sorted(bag)
    log_weights = np.log([bag[token][0] * bag[token][1] for token in tokens])
    draws = [np.random.default_rng([seed, token]) for token in tokens]
    r, c = (np.stack([rng.gamma(2.0, 1.0, count) for rng in draws]) for _ in range(2))
    beta = np.stack([rng.random(count) for rng in draws])
    t = np.floor(log_weights[:, None] / r + beta)
    log_a = np.log(c) - r * (t - beta + 1)
    winners = log_a.argmin(axis=0)
    return [(tokens[winner], int(t[winner, draw])) for draw, winner in enumerate(winners)]


def agreements(pairs: list[tuple[Bag, Bag]], seeds: int) -> Float64Array:
    """(seeds, pairs) share of equal values."""
    left, right = bags_of([pair[0] for pair in pairs]), bags_of([pair[1] for pair in pairs])
    return np.array(
        [
            (signatures(left, make_darts(seed, 4)) == signatures(right, make_darts(seed, 4))).mean(axis=1)
            for seed in range(seeds)
        ]
    )


def expected(pairs: list[tuple[Bag, Bag]]) -> tuple[Float64Array, Float64Array]:
    """(P,) J by brute force, and (P,) p = J + (1 - J) / 256."""
    similarity = np.array([float(jaccard(*pair)) for pair in pairs])
    return similarity, similarity + (1 - similarity) / 256


small_bags = st.dictionaries(
    st.integers(0, MASK), st.tuples(st.integers(20, 255), st.integers(1, 5)), min_size=3, max_size=6
)


@settings(max_examples=tries(12))
@given(small_bags, st.integers(0, MASK))
def test_signatures_follow_the_rules_of_darts(bag: Bag, seed: int) -> None:
    """The kernel gives what enumerating every dart of the bag gives."""
    total = sum(unit * level for unit, level in bag.values())
    assert signatures(bags_of([bag]), make_darts(seed, 4))[0].tolist() == plain_signature(bag, seed, 4000 / total)


def test_golden_signatures() -> None:
    """These bags have these bytes in every version of this name; another definition needs another name."""
    made = [{mix(token): (mix(~token & MASK) % 255 + 1, token % 4 + 1) for token in range(n)} for n in (5, 200, 3000)]
    found = signatures(bags_of([{1: (1, 1)}, {MASK: (255, 4)}, *made]), make_darts(7, 4))
    assert SIGNATURE_VERSION == "darts-1:k256:b8"
    assert found[:, :6].tolist() == GOLDEN_VALUES
    assert hashlib.sha256(found.tobytes()).hexdigest() == GOLDEN_SHA256


def test_counts_of_darts_follow_poisson() -> None:
    """The thresholds of unit q are P[n or fewer darts], of a mean in (2, 4] that is q times the length of a cell."""
    darts = make_darts(0, 1)
    assert darts.thresholds[1, :3].tolist() == POISSON_4
    for unit in range(1, 256):
        mean = unit * 2.0 ** (int(darts.cell_bits[unit]) - 35)
        assert 2 < mean <= 4
        above = 1 - darts.thresholds[unit].astype(np.float64) / 2**64
        assert above.sum() == pytest.approx(mean, rel=1e-12)  # E[n] is the sum of P[n > i]


@pytest.mark.parametrize("size", [0, 1, 7, 100, 1500])
def test_signatures_are_equal_for_every_hot_table(size: int) -> None:
    """The table of hot tokens changes no byte: none, a few, all; of fewer levels, or with other units than the bags."""
    rng = np.random.default_rng(2)
    bags = bags_of([random_bag(rng, n) for n in (1, 2, 10, 60, 400, 1000)] + [{3: (1, 1)}, {4: (200, 255)}])
    wanted = signatures(bags, make_darts(5, 4))
    hashes, units = hot_tokens(bags, size)
    for max_level in (1, 4, 6):
        assert np.array_equal(signatures(bags, make_darts(5, max_level, hashes, units)), wanted)
    assert np.array_equal(signatures(bags, make_darts(5, 4, hashes, units // 2)), wanted)


def test_tokens_that_share_a_slot_are_told_apart() -> None:
    """Hot tokens whose hashes agree in their low bits find each their own darts."""
    bag = {number << 32 | 9: (40 + number, 2) for number in range(30)}
    bags = bags_of([bag])
    darts = make_darts(5, 4, bags.hashes, bags.units)
    assert np.array_equal(signatures(bags, darts), signatures(bags, make_darts(5, 4)))


def test_a_signature_depends_on_its_own_bag_alone() -> None:
    """Neighbours in a batch, and tokens without weight, change nothing."""
    rng = np.random.default_rng(3)
    bags = [random_bag(rng, size) for size in (3, 900, 30, 1)]
    darts = make_darts(1, 4, *hot_tokens(bags_of(bags), 50))
    together = signatures(bags_of(bags), darts)
    weightless = {**bags[2], 17: (0, 3), 18: (9, 0)}
    for row, bag in enumerate(bags):
        assert np.array_equal(signatures(bags_of([bag]), darts)[0], together[row])
    assert np.array_equal(signatures(bags_of([weightless]), darts)[0], together[2])


@pytest.mark.parametrize("weight", [(1, 1), (1, 4), (2, 1), (255, 1), (255, 255)])
def test_documents_of_one_token_have_whole_signatures(weight: tuple[int, int]) -> None:
    """All values are drawn, about uniformly; the same token at another level agrees in level / level of them."""
    unit, level = weight
    tokens = range(40)
    found = signatures(bags_of([{token: weight} for token in tokens]), make_darts(1, 4))
    assert len(np.unique(found)) == 256
    assert abs(found.mean() - 127.5) < 5 * 74 / np.sqrt(found.size)
    more = signatures(bags_of([{token: (unit, min(255, level * 2))} for token in tokens]), make_darts(1, 4))
    share = level / min(255, level * 2)
    assert abs((found == more).mean() - share) < 0.03


def test_an_empty_bag_is_refused() -> None:
    """A bag without tokens, or whose tokens weigh nothing, is an error that names its row."""
    for bag in ({}, {5: (0, 4)}):
        with pytest.raises(EmptyBagError, match="row 1 of the batch has no weight; leave empty documents out"):
            signatures(bags_of([{1: (1, 1)}, bag]), make_darts(1, 4))
    assert signatures(bags_of([]), make_darts(1, 4)).shape == (0, 256)


def test_agreement_is_binomial_about_the_similarity() -> None:
    """On unrelated pairs over many seeds: no bias, per pair and on the whole, and the variance of a binomial."""
    rng = np.random.default_rng(4)
    pairs = [random_pair(rng, share) for share in np.linspace(0, 1, 120)]
    found = agreements(pairs, seeds=100)
    similarity, p = expected(pairs)
    estimated = (found.mean(axis=0) - 1 / 256) / (1 - 1 / 256)
    deviation = np.sqrt(p * (1 - p) / (K * len(found)))
    assert abs((estimated - similarity).mean()) < 4 * np.sqrt((deviation**2).sum()) / len(pairs)
    assert abs((estimated - similarity).mean()) < 0.002
    assert np.all(np.abs(found.mean(axis=0) - p) <= 4.5 * deviation + 1e-12)
    inside = (p > 0.02) & (p < 0.98)
    ratio = found.var(axis=0, ddof=1)[inside] / (p * (1 - p) / K)[inside]
    assert 0.94 < ratio.mean() < 1.06  # 4 standard errors: sqrt(2 / 99 / pairs)


@pytest.mark.nightly
def test_agreement_of_real_texts_has_no_bias(real_data: Path) -> None:
    """On pairs of real prose, of J from 0 to 1, the mean error of every range of J is at most 0.005."""
    bags = real_bags(real_data, 400)
    rng = np.random.default_rng(5)
    cut = [{t: bag[t] for t in list(bag)[: int(len(bag) * rng.uniform(0.2, 1))]} for bag in bags]
    pairs = [pair for pair in zip(bags + bags[1:], cut + bags[:-1], strict=True) if pair[1]]
    found = agreements(pairs, seeds=40).mean(axis=0)
    similarity, p = expected(pairs)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = (similarity >= low) & (similarity <= low + 0.2)
        assert inside.sum() >= 20
        assert abs((found - p)[inside].mean()) <= 0.005


def test_estimates_agree_with_two_other_implementations() -> None:
    """Plain ICWS and datasketch estimate J of the same pairs; all three are as near to brute force as theory says."""
    rng = np.random.default_rng(6)
    pairs = [random_pair(rng, share, size=30) for share in (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)]
    similarity, p = expected(pairs)
    seeds = 6
    ours = (agreements(pairs, seeds).mean(axis=0) - 1 / 256) / (1 - 1 / 256)
    plain, foreign = np.zeros(len(pairs)), np.zeros(len(pairs))
    for row, pair in enumerate(pairs):
        tokens = sorted(pair[0].keys() | pair[1].keys())
        vectors = [[float(np.prod(bag.get(token, (0, 0)))) for token in tokens] for bag in pair]
        for seed in range(seeds):
            x, y = (plain_icws(bag, K, seed) for bag in pair)
            plain[row] += np.mean([a == b for a, b in zip(x, y, strict=True)]) / seeds
            generator = WeightedMinHashGenerator(len(tokens), sample_size=K, seed=seed + 1)
            foreign[row] += generator.minhash(vectors[0]).jaccard(generator.minhash(vectors[1])) / seeds
    deviation = np.sqrt(p * (1 - p) / (K * seeds))
    for estimate in (ours, plain, foreign):
        assert np.all(np.abs(estimate - similarity) < 4 * deviation)
        assert abs((estimate - similarity).mean()) < 4 * np.sqrt((deviation**2).sum()) / len(pairs)
