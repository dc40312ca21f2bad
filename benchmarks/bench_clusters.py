"""Clusters: speed of vectors and of assignment, inertia beside scikit-learn's K-means, planted topics, bytes a row.

    python benchmarks/bench_clusters.py [--documents 9000]

Documents are real, with what they are as their topic: parts of RFCs, installed Python files, news articles, pages of
jest's manual, 20 sentences each in ten languages. scikit-learn's KMeans gets the same vectors as float32, in the same
process. Times are CPU seconds of one thread, the best of three where it says so. *Purity* is the share of documents
whose topic is the most frequent one of their cluster.
"""

from __future__ import annotations

import io
import random
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from corpora import articles, manual, rfcs, sentences, source_paths
from cpu_time import megabytes
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from threadpoolctl import threadpool_limits

from headrace_features.models.clusters import k_means
from headrace_features.models.clusters.centroids import CellPlan
from headrace_features.models.clusters.clusters import Centroids
from headrace_features.models.clusters.embedding import (
    BITS,
    SCALE,
    EmbeddingConfig,
    bucket_weights,
    document_counts,
    embed,
)

LANGUAGES = ("de", "fr", "ru", "es", "ar", "hi", "fi", "zh", "ja", "th")
CHARACTERS = 4000


def documents(count: int) -> Iterator[tuple[str, str]]:
    """Topic and text; at most `count` of RFCs and of files."""
    draw = random.Random(17)
    for text in rfcs(count):
        first = draw.randrange(max(1, len(text) - CHARACTERS))
        yield "rfc", text[first : first + CHARACTERS]
    installed = [path for path in source_paths() if path.is_relative_to(sysconfig.get_path("purelib"))]
    yield from (("python", path.read_text(errors="replace")[:CHARACTERS]) for path in draw.sample(installed, count))
    for size in (100, 1000, 2500):
        yield from (("news", text) for text in articles(size).values())
    yield from (("jest", text) for text in manual().values())
    for language in LANGUAGES:
        lines = sentences(language)[language]
        yield from ((language, "\n".join(draw.sample(lines, 20))) for _ in range(200))


def best(run: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """CPU seconds of the fastest of some runs, and what the last one gave."""
    seconds = []
    for _ in range(times):
        began = time.process_time()
        found = run()
        seconds.append(time.process_time() - began)
    return min(seconds), found


def purity(labels: np.ndarray, topics: np.ndarray) -> float:
    """Share of documents of the most frequent topic of their cluster."""
    most = sum(np.unique(topics[labels == label], return_counts=True)[1].max() for label in np.unique(labels))
    return float(most / len(topics))


def two_levels(vectors: np.ndarray, coarse: int, fine: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, CellPlan]:
    """Clusters as the step `centroids` makes them: coarse labels, labels, squares of distances, plan."""
    found = k_means.fit(vectors, coarse, 0)
    of, _ = k_means.assign(vectors, found)
    plan = CellPlan(found, np.bincount(of, minlength=len(found)), fine)
    labels, squares = np.empty(len(vectors), np.int64), np.empty(len(vectors), np.int64)
    for number in range(len(found)):
        own = of == number
        inside = k_means.fit(vectors[own], int(plan.counts[number]), number + 1 << 64)
        nearest, squares[own] = k_means.assign(vectors[own], inside)
        labels[own] = plan.firsts[number] + nearest
    return of, labels, squares, plan


def embedding_part(content: pa.Array, topics: np.ndarray) -> np.ndarray:
    """Speed, and how well topics are told apart, by what a vector is; gives the default vectors."""
    size = megabytes(content.to_pylist())
    print(f"{len(content):,} documents, {size:.1f} MB")
    print("\n| vectors | MB/s embedded | purity, 16 | purity, 64 |\n|---|---|---|---|")
    kept = None
    for dimensions, ngrams in ((512, 0), (256, 0), (128, 0), (512, 3)):
        config = EmbeddingConfig(dimensions=dimensions, character_ngrams=ngrams)
        embed(content.slice(0, 2), np.zeros(1 << BITS, np.uint8), config)
        shares = []
        for k in (16, 64):
            weights = bucket_weights(document_counts(content, config), len(content), k)
            seconds, vectors = best(lambda weights=weights, config=config: embed(content, weights, config))
            there = vectors.any(axis=1)
            labels, _ = k_means.assign(vectors[there], k_means.fit(vectors[there], k, 0))
            shares.append(purity(labels, topics[there]))
        called = f"{dimensions}, words" + (f" and {ngrams}-grams" if ngrams else "")
        print(f"| {called} | {size / seconds:.0f} | {shares[0]:.3f} | {shares[1]:.3f} |")
        kept = vectors if kept is None else kept
    assert kept is not None
    return kept[kept.any(axis=1)]


def packages_part(packages_count: int) -> None:
    """Topics inside one kind of text: which package a Python file is of, beside tf-idf that is not projected."""
    root = Path(sysconfig.get_path("purelib"))
    files: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.py")):
        if path.stat().st_size > 500:
            files.setdefault(path.relative_to(root).parts[0], []).append(path)
    largest = sorted(files, key=lambda name: (-len(files[name]), name))[:packages_count]
    draw = random.Random(3)
    chosen = [(name, path) for name in largest for path in draw.sample(files[name], min(60, len(files[name])))]
    packages = np.array([name for name, _ in chosen])
    texts = [path.read_text(errors="replace")[:CHARACTERS] for _, path in chosen]
    content = pa.array(texts, pa.large_string())
    config = EmbeddingConfig()
    tf_idf = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
    head = f"{len(texts):,} Python files of {len(largest)} packages"
    print(f"\n| {head} | purity | scikit-learn: tf-idf, K-means |\n|---|---|---|")
    for k in (20, 64):
        vectors = embed(content, bucket_weights(document_counts(content, config), len(texts), k), config)
        labels, _ = k_means.assign(vectors, k_means.fit(vectors, k, 0))
        peer = KMeans(k, n_init=3, random_state=0).fit(tf_idf).labels_
        print(f"| {k} clusters | {purity(labels, packages):.3f} | {purity(peer, packages):.3f} |")


def inertia_part(vectors: np.ndarray, ks: tuple[int, ...]) -> None:
    """Inertia and seconds beside scikit-learn, and what two levels cost."""
    plain = vectors.astype(np.float32) / SCALE
    print("\n| K-means | inertia | scikit-learn, best of 3 | ratio | seconds | scikit-learn, one of them |")
    print("|---|---|---|---|---|---|")
    for k in ks:
        seconds, centroids = best(lambda k=k: k_means.fit(vectors, k, 0), 1)
        inertia = k_means.assign(vectors, centroids)[1].sum() / SCALE**2
        peer_seconds, peer = best(lambda k=k: KMeans(k, n_init=3, random_state=0, max_iter=50).fit(plain), 1)
        ratio = inertia / peer.inertia_
        print(f"| {k} | {inertia:.1f} | {peer.inertia_:.1f} | {ratio:.4f} | {seconds:.2f} | {peer_seconds / 3:.2f} |")
        if k == ks[-1]:
            _, _, squares, _ = two_levels(vectors, 16, k)
            ratio = squares.sum() / SCALE**2 / peer.inertia_
            print(f"| 16, then {k} | {squares.sum() / SCALE**2:.1f} | {peer.inertia_:.1f} | {ratio:.4f} | | |")


def assignment_part(vectors: np.ndarray, cells: tuple[tuple[int, int], ...]) -> None:
    """Documents a second that go to their cluster, with few and with many centroids."""
    print("\n| centroids | documents/s, vector to cluster | scikit-learn's predict, flat |\n|---|---|---|")
    draw = np.random.default_rng(0)
    rows = np.ascontiguousarray(np.tile(vectors, (3, 1))[:20_000])
    for coarse, fine in cells:
        centres = rows[draw.integers(len(rows), size=coarse + fine)]
        counts = np.full(coarse, fine // coarse)
        starts = np.append(0, np.cumsum(counts))
        frozen = Centroids(
            EmbeddingConfig(),
            np.zeros(0, np.uint8),
            centres[:coarse],
            centres[coarse:],
            np.arange(fine, dtype=np.int32),
            starts,
        )
        seconds, _ = best(lambda frozen=frozen: frozen.nearest(rows), 1)
        said = ""
        if fine <= 20_000:
            peer = KMeans(fine, n_init=1, max_iter=1, init=centres[coarse:] / SCALE)
            peer.cluster_centers_, peer._n_threads, peer.n_features_in_ = centres[coarse:] / np.float32(SCALE), 1, 512
            plain = rows.astype(np.float32) / SCALE
            said = f"{len(rows) / best(lambda peer=peer, plain=plain: peer.predict(plain), 1)[0]:,.0f}"
        print(f"| {coarse:,}, {fine:,} inside | {len(rows) / seconds:,.0f} | {said} |")
    _, *columns = frozen.nearest(rows)
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, names=["coarse", "cluster", "distance"]), sink, compression="zstd")
    print(f"\nbytes a row of `clusters` without its keys: {len(sink.getvalue()) / len(rows):.1f}")


def main() -> None:
    """Run all parts."""
    parser = command.parser(__doc__)
    parser.add_argument("--documents", type=int, default=9000, help="most of them, drawn by a seed")
    parser.set_defaults(ks=(16, 64, 256), cells=((16, 256), (2_000, 20_000), (15_000, 60_000)), packages=20)
    given = command.read(parser, documents=300, ks=(4, 16), cells=((4, 64),), packages=3)
    found = [(topic, text) for topic, text in command.readable(documents(given.documents // 6)) if text]
    random.Random(1).shuffle(found)
    topics = np.array([topic for topic, _ in found[: given.documents]])
    content = pa.array([text for _, text in found[: given.documents]], pa.large_string())
    with threadpool_limits(1):
        vectors = embedding_part(content, topics)
        packages_part(given.packages)
        inertia_part(vectors, given.ks)
        assignment_part(vectors, given.cells)


if __name__ == "__main__":
    main()
