"""From texts to frozen centroids and to the cluster of each document, on Spark."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from headrace_features.models.clusters.centroids import (
    CENTROID_WEIGHTS,
    CENTROIDS,
    CellPlan,
    CentroidsConfig,
    centroids,
)
from headrace_features.models.clusters.clusters import CLUSTERS, Centroids, clusters
from headrace_features.models.clusters.embedding import SCALE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS = {
    "mill": ["sluice", "wheel", "millstone", "flour", "grain", "water", "shaft", "gear"],
    "court": ["judge", "verdict", "appeal", "statute", "defendant", "counsel", "hearing", "ruling"],
    "kernel": ["scheduler", "interrupt", "driver", "syscall", "paging", "mutex", "register", "cache"],
}
PER_TOPIC = 30
CONFIG = CentroidsConfig(coarse=3, fine=7, embedding={"dimensions": 128})
Made = tuple[list[Any], list[Any], list[Any]]


def planted(count: int, first: int = 0) -> dict[str, str]:
    """Texts by id: so many of each topic, and words that all share."""
    texts = {}
    for topic, words in TOPICS.items():
        for number in range(first, first + count):
            draw = np.random.default_rng([number, len(topic)])
            own = draw.choice(words, 12).tolist()
            texts[f"{topic}-{number}"] = " ".join([*own, *draw.choice(["the", "of", "and"], 10).tolist()])
    return texts


def frames(spark: SparkSession, texts: dict[str, str], partitions: int, order: int = 1) -> tuple[DataFrame, DataFrame]:
    """Survivors, and texts with one more that did not survive."""
    rows = [("notes", 0, name, text) for name, text in texts.items()][::order]
    content = spark.createDataFrame([*rows, ("notes", 0, "gone", "sluice court")], CONTENT).repartition(partitions)
    return content.where("doc_id <> 'gone'").select("dataset", "shard", "doc_id"), content


CONTENT = "dataset string, shard int, doc_id string, content string"


def run(spark: SparkSession, partitions: int = 2, order: int = 1) -> Made:
    """Rows of centroids, of weights, and of clusters, where the last have further documents."""
    made = centroids(*frames(spark, planted(PER_TOPIC), partitions, order), CONFIG)
    rows = {name: frame.collect() for name, frame in made.frames.items()}
    for frame in made.persisted:
        frame.unpersist()
    frozen, weights = (spark.createDataFrame(rows[name], made.frames[name].schema) for name in rows)
    later = {**planted(PER_TOPIC), **planted(5, first=PER_TOPIC), "empty": "", "odd": "\x00 unheard"}
    found = clusters(*frames(spark, later, partitions, order), frozen, weights).frames["clusters"]
    by_number = sorted(rows["centroids"], key=lambda row: (row.coarse, -1 if row.cluster is None else row.cluster))
    return by_number, sorted(rows["centroid_weights"]), sorted(found.collect(), key=lambda row: str(row.doc_id))


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> Made:
    """The rows, made once."""
    return run(spark)


@pytest.mark.nightly
def test_planted_topics_are_the_coarse_clusters(made: Made) -> None:
    """Every document of a topic, those that came later too, is in the coarse cluster of that topic."""
    topics = defaultdict(set)
    for row in made[2]:
        topics[row.coarse].add(row.doc_id.split("-")[0])
    assert sorted(topics.pop(None)) == ["empty", "odd"]
    assert sorted(map(sorted, topics.values())) == [["court"], ["kernel"], ["mill"]]


@pytest.mark.nightly
def test_a_centroid_says_what_it_is_of(made: Made) -> None:
    """Its words are those of its topic, its typical documents are in it, and the sizes add up to the sample."""
    where = {row.doc_id: row for row in made[2]}
    for row in made[0]:
        topic = row.typical[0].split("-")[0]
        assert set(row.label[:4]) <= set(TOPICS[topic])
        assert all(where[one].coarse == row.coarse for one in row.typical)
        assert row.cluster is None or all(where[one].cluster == row.cluster for one in row.typical)
    coarse, fine = ([row for row in made[0] if (row.cluster is None) is wanted] for wanted in (True, False))
    assert [row.coarse for row in coarse] == [0, 1, 2]
    assert [row.cluster for row in fine] == list(range(7))
    assert sum(row.document_count for row in coarse) == sum(row.document_count for row in fine) == 3 * PER_TOPIC


@pytest.mark.nightly
def test_typical_documents_are_the_nearest_by_the_table(made: Made) -> None:
    """The five documents of the sample with the least distance, of equal ones the lower id."""
    sample = planted(PER_TOPIC)
    for row in made[0]:
        if row.cluster is not None:
            own = [(one.distance, one.doc_id) for one in made[2] if one.cluster == row.cluster and one.doc_id in sample]
            assert row.typical == [doc_id for _, doc_id in sorted(own)[:5]]


@pytest.mark.nightly
def test_a_document_is_at_the_nearest_centroid_of_its_coarse_cluster(made: Made) -> None:
    """Against distances in float64 to all centroids, from vectors made anew."""
    from headrace_features.models.clusters.embedding import embed

    frozen = Centroids.of(
        pa.Table.from_pylist([row.asDict() for row in made[0]]), pa.Table.from_pylist([row.asDict() for row in made[1]])
    )
    texts = {**planted(PER_TOPIC), **planted(5, first=PER_TOPIC)}
    names = sorted(texts)
    vectors = embed(pa.array([texts[name] for name in names], pa.large_string()), frozen.weights, frozen.config)
    where = {row.doc_id: row for row in made[2]}
    for name, vector in zip(names, vectors.astype(float), strict=True):
        to_coarse = np.linalg.norm(frozen.coarse - vector, axis=1)
        assert to_coarse[where[name].coarse] == to_coarse.min()
        inside = slice(*frozen.starts[where[name].coarse : where[name].coarse + 2])
        to_fine = np.linalg.norm(frozen.fine[inside] - vector, axis=1)
        assert where[name].distance == pytest.approx(to_fine.min() / SCALE, abs=1e-12)
        assert frozen.numbers[inside][to_fine.argmin()] == where[name].cluster


def test_rows_fit_the_tables(spark: SparkSession) -> None:
    """Columns and types are those declared, and a corpus without words has no cluster and stops nothing."""
    survivors, texts = frames(spark, {"one": "", "two": "word"}, 1)
    output = centroids(survivors, texts, CONFIG)
    for table in (CENTROIDS, CENTROID_WEIGHTS):
        types = {
            name: kind.replace("bigint", "long").replace("array", "list")
            for name, kind in output.frames[table.name].dtypes
        }
        assert types == {column.name: column.type.replace("!", "") for column in table.columns}
    found = clusters(survivors, texts, *output.frames.values()).frames[CLUSTERS.name]
    assert dict(found.dtypes) == {column.name: column.type for column in CLUSTERS.columns}
    assert [row.cluster for row in found.collect()] == [None, None]


@pytest.mark.nightly
def test_rows_are_identical_for_1_and_7_partitions(spark: SparkSession, made: Made) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    for partitions in (1, 7):
        assert run(spark, partitions, order=-1) == made


def test_clusters_are_shared_out_by_size() -> None:
    """Largest remainders; each coarse cluster has one, and none has more clusters than documents."""
    vectors = np.zeros((4, 64), np.int16)
    plan = CellPlan(vectors, np.array([60, 30, 9, 1]), fine=20)
    assert plan.counts.tolist() == [11, 6, 2, 1]
    assert plan.firsts.tolist() == [0, 11, 17, 19]
    assert CellPlan(vectors, np.array([2, 1, 1, 1]), fine=256).counts.tolist() == [2, 1, 1, 1]
    assert CellPlan(vectors, np.array([5, 5, 5, 5]), fine=1).counts.tolist() == [1, 1, 1, 1]


@pytest.mark.nightly
def test_fewer_documents_than_clusters_make_fewer_clusters(spark: SparkSession) -> None:
    """Two documents that are alike, and one without a word of its own that counts: one cluster, and nothing stops."""
    survivors, texts = frames(spark, {"one": "sluice wheel", "two": "sluice wheel", "three": "wheel flour"}, 2)
    config = CONFIG.model_copy(update={"coarse": 1, "fine": 7})
    output = centroids(survivors, texts, config)
    rows = output.frames["centroids"].where("cluster is not null").collect()
    assert [(row.cluster, row.document_count) for row in rows] == [(0, 2)]
    found = clusters(survivors, texts, *output.frames.values()).frames["clusters"].collect()
    assert {row.doc_id: row.cluster for row in found} == {"one": 0, "two": 0, "three": None}
