"""K-means in integers: exact, independent of blocks, and as good as scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_features.models.clusters import k_means
from headrace_features.models.clusters.embedding import SCALE
from spark_jobs.arrays import Int16Array
from tests.tiers import sampled


def planted(count: int, topics: int, noise: float, seed: int = 0) -> tuple[Int16Array, Int16Array]:
    """Vectors around some directions, and the directions that they are of."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(topics, 64))
    topic = draw.integers(topics, size=count)
    vectors = centres[topic] / 8 + noise * draw.normal(size=(count, 64)) / 8
    vectors *= SCALE / np.linalg.norm(vectors, axis=1)[:, None]
    return np.rint(vectors).astype(np.int16), topic.astype(np.int16)


def test_distances_are_those_of_integers() -> None:
    """The product in float32 gives the nearest centroid and the distance that int64 gives, to the last bit."""
    vectors, _ = planted(500, 7, 1.0)
    centroids = vectors[::25]
    labels, squares = k_means.assign(vectors, centroids)
    exact = np.square(vectors[:, None].astype(np.int64) - centroids[None]).sum(axis=2)
    assert np.array_equal(squares, exact.min(axis=1))
    assert np.array_equal(labels, exact.argmin(axis=1))


def test_opposite_vectors_have_an_exact_distance() -> None:
    """The largest distance that there can be is below 2^24, where float32 would begin to round."""
    vector = np.full((1, 512), round(SCALE / np.sqrt(512)), np.int16)
    assert int(k_means.assign(vector, -vector)[1][0]) == 4 * int(np.square(vector.astype(np.int64)).sum())


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors assigned in blocks of a few go where they go in one."""
    vectors, _ = planted(300, 5, 1.0)
    whole = k_means.assign(vectors, vectors[:11])
    monkeypatch.setattr(k_means, "_CELLS", 40)
    parts = k_means.assign(vectors, vectors[:11])
    assert all(np.array_equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_planted_topics_are_found() -> None:
    """Well separated topics are clusters, one each, the largest first."""
    vectors, topic = planted(600, 8, 0.5)
    centroids = k_means.fit(vectors, 8, seed=3)
    labels, _ = k_means.assign(vectors, centroids)
    assert all(len(set(topic[labels == label].tolist())) == 1 for label in range(8))
    sizes = np.bincount(labels)
    assert (np.diff(sizes) <= 0).all()


@sampled()
@pytest.mark.parametrize("k", [4, 40])
def test_inertia_is_scikit_learns(k: int) -> None:
    """Within 3% of the best of four runs of another implementation, on the same vectors."""
    from sklearn.cluster import KMeans

    vectors, _ = planted(1500, 12, 1.5)
    inertia = k_means.assign(vectors, k_means.fit(vectors, k, seed=0))[1].sum() / SCALE**2
    peer = KMeans(k, n_init=4, random_state=0).fit(vectors / SCALE).inertia_
    assert inertia < 1.03 * peer


def test_a_centroid_is_the_mean_of_its_cluster() -> None:
    """Where nothing moves any more, each centroid is the rounded mean of the vectors nearest to it."""
    vectors, _ = planted(400, 6, 1.0)
    centroids = k_means.fit(vectors, 6, seed=1)
    labels, _ = k_means.assign(vectors, centroids)
    means = np.stack([vectors[labels == label].mean(axis=0) for label in range(6)])
    assert np.abs(means - centroids).max() <= 0.5


def test_there_are_no_more_clusters_than_distinct_vectors() -> None:
    """Three vectors that come often make three clusters; none makes none."""
    vectors = np.repeat(planted(3, 3, 0.1)[0], 10, axis=0)
    assert len(k_means.fit(vectors, 8, seed=0)) == 3
    assert len(k_means.fit(vectors[:1], 8, seed=0)) == 1
    assert k_means.fit(vectors[:0], 8, seed=0).shape == (0, 64)
