"""Brute force over all pairs, and datasketch with the same weights, on bags whose similarity is known."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from spark_jobs.dedup.evaluate.peer_pairs import datasketch_pairs, true_pairs
from tests.spark_jobs.dedup.made_bags import Bag, bags_of, jaccard, random_bag


def made() -> list[Bag]:
    """Forty bags, of each of which another one has most tokens, and two that are empty."""
    rng = np.random.default_rng(4)
    bags: list[Bag] = []
    for number in range(40):
        tokens = list(random_bag(rng, 60).items())
        changed = list(random_bag(rng, number).items())
        bags += [dict(tokens), {}, dict(tokens[number:] + changed)] if number in (3, 9) else [dict(tokens)]
        bags.append(dict(tokens[number:] + changed))
    return bags


def test_pairs_are_those_of_python_integers() -> None:
    """Every two bags by the definition of J, at thresholds that some pairs just reach."""
    bags = made()
    similar = {pair: jaccard(bags[pair[0]], bags[pair[1]]) for pair in combinations(range(len(bags)), 2)}
    some = sorted(value for value in similar.values() if value > Fraction(1, 2))
    for least in (some[0], some[len(some) // 2], Fraction(1)):
        expected = {pair for pair, value in similar.items() if value >= least}
        assert set(map(tuple, true_pairs(bags_of(bags), least).tolist())) == expected and expected
    assert true_pairs(bags_of([]), Fraction(1)).shape == (0, 2)


def test_datasketch_finds_what_is_far_above_its_threshold() -> None:
    """Its answer holds the pairs of J from .9 on, hardly any below .4, no pair twice, and no empty bag."""
    pytest.importorskip("datasketch", reason="datasketch is an extra")
    bags = made()
    found = list(map(tuple, datasketch_pairs(bags_of(bags), 0.7).tolist()))
    similar = {pair: jaccard(bags[pair[0]], bags[pair[1]]) for pair in combinations(range(len(bags)), 2)}
    assert {pair for pair, value in similar.items() if value >= Fraction(9, 10)} <= set(found)
    assert len(found) == len(set(found))
    assert sum(similar[pair] < Fraction(2, 5) for pair in found) <= 2
    assert datasketch_pairs(bags_of([{}]), 0.7).shape == (0, 2)


def test_the_sketch_of_own_tokens_is_that_of_all() -> None:
    """What is given to LSH is what `minhash` makes of the vector of all tokens of the sample."""
    datasketch = pytest.importorskip("datasketch", reason="datasketch is an extra")
    bags, inserted = made(), dict[int, object]()
    with pytest.MonkeyPatch.context() as patch:
        insert = datasketch.MinHashLSH.insert

        def noted(self: object, row: int, sketch: object, **others: object) -> None:
            inserted[row] = sketch
            insert(self, row, sketch, **others)

        patch.setattr(datasketch.MinHashLSH, "insert", noted)
        datasketch_pairs(bags_of(bags), 0.7)
    words = sorted({token for bag in bags for token in bag})
    generator = datasketch.WeightedMinHashGenerator(len(words), 256, seed=1)
    for row, bag in enumerate(bags):
        vector = np.array([bag[word][0] * bag[word][1] if word in bag else 0 for word in words], np.float32)
        assert (row in inserted) == bool(bag) and (not bag or inserted[row] == generator.minhash(vector))
