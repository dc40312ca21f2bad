"""What is similar to a sample of documents, against all pairs compared by Python's integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from spark_jobs.dedup.evaluate.recall import sample_index, similar_to_sample
from tests.spark_jobs.dedup.near.test_prefix_join import as_bags, documents_of, similarity


@pytest.mark.parametrize("seed", range(20))
def test_every_document_finds_all_sampled_ones_that_it_is_like(seed: int) -> None:
    """With the exact similarity, and nothing else."""
    rows = documents_of(np.random.default_rng(seed))
    threshold = Fraction(7, 10)
    picked = list(range(seed % 5, len(rows), 5))
    index = sample_index(as_bags([rows[one] for one in picked]), threshold)
    found = similar_to_sample(as_bags(rows), index, threshold)
    pairs = {
        (document, picked[sampled]): Fraction(shared, united)
        for document, sampled, shared, united in zip(*(column.tolist() for column in found), strict=True)
    }
    truth = {(one, other): similarity(rows[one], rows[other]) for one in range(len(rows)) for other in picked}
    assert pairs == {pair: j for pair, j in truth.items() if j >= threshold}


def test_an_empty_sample_finds_nothing() -> None:
    """No kept document was sampled, so nobody is like one."""
    rows = documents_of(np.random.default_rng(1))
    nobody = as_bags(rows[:1])
    nobody = type(nobody)(np.zeros(1, np.int64), nobody.hashes[:0], nobody.units[:0], nobody.levels[:0])
    index = sample_index(nobody, Fraction(7, 10))
    assert not similar_to_sample(as_bags(rows), index, Fraction(7, 10)).rows.size
