"""Which survivors go on, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.shape.rates import ShapeConfig
from spark_jobs.shape.shape import SHAPE, SHAPE_HISTOGRAM, SHAPED, shape, shape_histogram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 600
KEYS = "dataset string, shard int, doc_id string"


def planted(spark: SparkSession, partitions: int = 1) -> dict[str, DataFrame]:
    """Documents of four clusters, the last without one: half, a third, a tenth, the rest; of 100 to 699 bytes."""
    rows = [("notes", 0, f"{number:04x}", *cluster_of(number), 100 + number) for number in range(COUNT)]
    names = "coarse int, cluster int, byte_count long"
    frame = spark.createDataFrame(rows, f"{KEYS}, {names}").repartition(partitions)
    keys = ["dataset", "shard", "doc_id"]
    return {
        "survivors": frame.select(keys),
        "members": frame.select(*keys, "byte_count"),
        "clusters": frame.select(*keys, "coarse", "cluster"),
    }


def cluster_of(number: int) -> tuple[int | None, int | None]:
    """Coarse cluster and cluster of a document."""
    cluster = 0 if number % 2 else 1 if number % 3 else 2 if number % 4 else None
    return (None, None) if cluster is None else (int(cluster > 0), cluster)


class Corpus:
    """The documents with their histogram, and what shapes make of them."""

    def __init__(self, spark: SparkSession, partitions: int = 1) -> None:
        """Count once."""
        self.frames = planted(spark, partitions)
        counted = shape_histogram(**self.frames)
        self.histogram = spark.createDataFrame(counted.collect(), counted.schema)

    def shaped(self, measured: DataFrame | None = None, **given: Any) -> tuple[dict[str, list[Any]], set[str]]:
        """Reasons by document that is left out, and the documents that go on."""
        config = ShapeConfig.model_validate(given)
        output = shape(**self.frames, shape_histogram=self.histogram, config=config, losses=measured)
        lost = {row.doc_id: [tuple(one) for one in row.failed] for row in output.frames["shape"].collect()}
        stays = {row.doc_id for row in output.frames["shaped"].collect()}
        for frame in output.persisted:
            frame.unpersist()
        return lost, stays


@pytest.fixture(scope="module")
def corpus(spark: SparkSession) -> Corpus:
    """The corpus, counted once."""
    return Corpus(spark)


def test_the_histogram_counts_every_class(corpus: Corpus) -> None:
    """Documents and bytes by cluster and by power of two."""
    rows = {(row["classified_by"], row["class"]): row for row in corpus.histogram.collect()}
    for cluster in (0, 1, 2, None):
        own = [number for number in range(COUNT) if cluster_of(number)[1] == cluster]
        row = rows["cluster", -1 if cluster is None else cluster]
        assert (row.document_count, row.byte_count) == (len(own), sum(100 + number for number in own))
    lengths = {key[1]: row.document_count for key, row in rows.items() if key[0] == "length"}
    assert lengths == {6: 28, 7: 128, 8: 256, 9: 188}


def test_every_survivor_goes_on_or_has_reasons(corpus: Corpus) -> None:
    """Rules hold together; a document that several leave out has them all, each with value and threshold."""
    lost, stays = corpus.shaped(
        drop=[2], downsample={0: 0.5}, topics={"keep": 0.6}, lengths={"keep": 0.7, "target": {512: 0.5}}
    )
    assert stays.isdisjoint(lost) and len(stays) + len(lost) == COUNT
    found = {reason for reasons in lost.values() for reason, *_ in reasons}
    assert found == {"dropped_cluster", "downsampled_cluster", "frequent_topic", "frequent_length"}
    assert any(len(reasons) > 2 for reasons in lost.values())
    for doc_id, reasons in lost.items():
        cluster = cluster_of(int(doc_id, 16))[1]
        for rule, value, threshold in reasons:
            assert 1 > value >= threshold
            assert rule != "dropped_cluster" or (cluster, threshold) == (2, 0.0)
            assert rule != "downsampled_cluster" or (cluster, threshold) == (0, 0.5)
    assert not [one for one in stays if cluster_of(int(one, 16))[1] == 2]


def test_the_share_that_stays_is_about_the_rate(corpus: Corpus) -> None:
    """Draws are uniform (within four deviations), and those of two rules independent."""
    _, stays = corpus.shaped(downsample={0: 0.5}, lengths={"keep": 0.8})
    own = {f"{number:04x}" for number in range(1, COUNT, 2)}
    assert abs(len(stays & own) - 300 * 0.5 * 0.8) < 4 * (300 * 0.4 * 0.6) ** 0.5
    assert abs(len(stays - own) - 300 * 0.8) < 4 * (300 * 0.8 * 0.2) ** 0.5


@pytest.mark.nightly
def test_raising_any_rate_only_adds_documents(corpus: Corpus, spark: SparkSession) -> None:
    """One rate after the other is raised, and nobody leaves."""
    losses = spark.createDataFrame([(1, 9.0), (2, 0.1)], "cluster int, loss double")
    steps = [
        {},
        {"downsample": {0: 0.7}},
        {"topics": {"keep": 0.8}},
        {"lengths": {"keep": 0.9}},
        {"losses": {"downsample_below": 1, "rate": 0.9, "drop_above": 5}},
        {"losses": {"downsample_below": 1, "rate": 0.9, "drop_above": 10}},
    ]
    given: dict[str, Any] = {
        "downsample": {0: 0.3},
        "topics": {"keep": 0.5},
        "lengths": {"keep": 0.6},
        "losses": {"downsample_below": 1, "rate": 0.4, "drop_above": 5},
    }
    before: set[str] = set()
    for step in steps:
        given |= step
        _, stays = corpus.shaped(losses, **given)
        assert stays > before
        before = stays


def test_losses_are_named_with_their_bound(corpus: Corpus, spark: SparkSession) -> None:
    """The reason has the loss of the cluster; a column of another name is one line with the nearest."""
    losses = spark.createDataFrame([(1, 9.0), (2, 0.1)], "cluster int, loss double")
    lost, _ = corpus.shaped(losses, losses={"drop_above": 5, "downsample_below": 1, "rate": 0})
    reasons = {(cluster_of(int(doc_id, 16))[1], *reasons) for doc_id, reasons in lost.items()}
    assert reasons == {(1, ("loss_too_high", 9.0, 5.0)), (2, ("loss_too_low", 0.1, 1.0))}
    with pytest.raises(InputError, match=r"no column 'loss'.*losss"):
        corpus.shaped(losses.withColumnRenamed("loss", "losss"), losses={"drop_above": 5})


def test_without_rules_all_go_on(corpus: Corpus) -> None:
    """A shape that says nothing leaves nobody out, and rows fit the tables."""
    output = shape(**corpus.frames, shape_histogram=corpus.histogram, config=ShapeConfig())
    assert output.frames["shape"].count() == 0
    assert output.frames["shaped"].count() == COUNT
    for table in (SHAPE, SHAPED):
        made = [(name, kind.replace("array<", "list<")) for name, kind in output.frames[table.name].dtypes]
        wanted = [(one.name, one.type.replace("!", "").replace(": ", ":").replace(", ", ",")) for one in table.columns]
        assert made == wanted
    assert [one.name for one in SHAPE_HISTOGRAM.columns] == corpus.histogram.columns


@pytest.mark.nightly
def test_rows_are_identical_for_1_and_7_partitions(spark: SparkSession, corpus: Corpus) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    given: dict[str, Any] = {"downsample": {0: 0.3}, "topics": {"keep": 0.5, "by": "cluster"}, "lengths": {"keep": 0.6}}
    assert Corpus(spark, 7).shaped(**given) == corpus.shaped(**given)
