"""Vectors of texts: exact, and as near to each other as the tf-idf vectors that they stand for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from headrace_features.models.classifier import kernel_arguments
from headrace_features.models.clusters.embedding import (
    BITS,
    SCALE,
    EmbeddingConfig,
    bucket_weights,
    count_weights,
    document_counts,
    embed,
)
from spark_jobs.arrays import Int16Array, UInt8Array
from spark_jobs.filters.scorer import HARD_TEXTS

CONFIG = EmbeddingConfig()


def made_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 40 to 120 words out of 400, some of which are frequent."""
    draw = np.random.default_rng(seed)
    return [
        " ".join(f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in draw.zipf(1.3, draw.integers(40, 120)) % 400)
        for _ in range(count)
    ]


def embedded(texts: list[str], config: EmbeddingConfig = CONFIG) -> tuple[Int16Array, UInt8Array]:
    """Vectors of some texts, weighed by these texts themselves."""
    content = pa.array(texts, pa.large_string())
    weights = bucket_weights(document_counts(content, config), len(texts), len(texts))
    return embed(content, weights, config), weights


def test_products_of_vectors_are_about_those_of_the_tf_idf_vectors() -> None:
    """Against tf-idf made of the counts by NumPy, in float64 and without a projection."""
    from headrace_features.models.classifier_kernel import count_texts

    texts = made_texts(60)
    vectors, weights = embedded(texts)
    starts, buckets, counts = count_texts(*kernel_arguments(pa.array(texts, pa.large_string()), CONFIG.features))
    plain = np.zeros((len(texts), 1 << BITS))
    for row, (start, end) in enumerate(pairwise(starts)):
        plain[row, buckets[start:end]] = count_weights()[counts[start:end]] * weights[buckets[start:end]].astype(float)
    plain /= np.linalg.norm(plain, axis=1)[:, None]
    projected = vectors.astype(float) @ vectors.T.astype(float) / SCALE**2
    error = (projected - plain @ plain.T)[~np.eye(len(texts), dtype=bool)]
    assert abs(error.mean()) < 0.01
    assert error.std() < 1.2 / np.sqrt(CONFIG.dimensions)


def test_a_weighted_sum_of_signs_is_projected_exactly() -> None:
    """Two words that occur alone have vectors of signs alone, and together the scaled sum of both."""
    weights = np.full(1 << BITS, 10, np.uint8)
    one, other, both = embed(pa.array(["sluice", "wheel", "wheel sluice"], pa.large_string()), weights, CONFIG)
    assert set(np.abs(one).tolist()) == {round(SCALE / np.sqrt(CONFIG.dimensions))}
    total = np.sign(one).astype(int) + np.sign(other)
    assert np.array_equal(both, np.rint(total * (SCALE / np.sqrt((total**2).sum()))).astype(int))


def test_a_vector_is_the_same_in_every_batch_and_version() -> None:
    """A text alone has the vector that it has among others, and the coordinates that it always had."""
    texts = made_texts(20)
    vectors, weights = embedded(texts)
    alone = embed(pa.array(texts[7:8], pa.large_string()), weights, CONFIG)
    assert np.array_equal(alone[0], vectors[7])
    ones = np.ones(1 << BITS, np.uint8)
    golden = embed(pa.array(["A mill is a house with a wheel."], pa.large_string()), ones, CONFIG)
    assert golden[0, :8].tolist() == [53, 60, 60, 60, -116, 53, -60, 4]


def test_vectors_are_short_enough_for_exact_products() -> None:
    """However the coordinates are rounded, four times the square of a length is below 2^24."""
    vectors, _ = embedded([*made_texts(200), *HARD_TEXTS])
    squares = np.square(vectors.astype(np.int64)).sum(axis=1)
    assert 4 * int(squares.max()) < 1 << 24
    assert squares[squares > 0].min() > (SCALE - 12) ** 2
    assert 4 * (SCALE + np.sqrt(512) / 2) ** 2 < 1 << 24


@pytest.mark.parametrize("character_ngrams", [0, 3])
def test_texts_without_a_word_have_no_vector(character_ngrams: int) -> None:
    """White space, and words that no other text has, weigh nothing."""
    texts = ["", " \n", "unheard", "heard", "heard"]
    vectors, _ = embedded(texts, EmbeddingConfig(character_ngrams=character_ngrams, dimensions=64))
    assert vectors.any(axis=1).tolist() == [False, False, character_ngrams > 0, True, True]


def test_words_of_fewer_documents_than_a_quarter_of_a_cluster_weigh_nothing() -> None:
    """Of 1,000 documents in 10 clusters 25 must have a word; in more clusters fewer, and never one alone."""
    counts = np.array([0, 1, 2, 24, 25, 500, 1000])
    assert bucket_weights(counts, 1000, 10).tolist() == [0, 0, 0, 0, 58, 11, 0]
    assert bucket_weights(counts, 1000, 10_000).tolist() == [0, 0, 93, 59, 58, 11, 0]


def test_scripts_without_spaces_need_character_ngrams() -> None:
    """Two texts of one Chinese topic share no run of characters, but n-grams of them."""
    texts = ["水车在河边转动磨坊", "磨坊的水车在转动", "the wheel turns", "a wheel that turns"]
    words, _ = embedded(texts)
    assert not words[:2].any()
    ngrams, _ = embedded(texts, EmbeddingConfig(character_ngrams=2))
    near = ngrams.astype(int) @ ngrams.T.astype(int)
    assert near[0, 1] > 5 * abs(near[0, 2])
