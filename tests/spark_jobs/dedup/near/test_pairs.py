"""The step `pairs` on bags that are given: small buckets compared in full, large ones until nobody else can go."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_jobs.dedup.bags.bag_arrays import binary_column
from spark_jobs.dedup.near import large_buckets, pool_batches
from spark_jobs.dedup.near.pairs import PairsConfig, pairs
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES
from spark_jobs.lake.declare.step import Output
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.ledger.step_key import config_json
from tests.spark_jobs.dedup.near.test_pool_batches import forms, greedy
from tests.spark_jobs.dedup.near.test_prefix_join import THRESHOLDS, Weights, as_bags, similarity
from tests.tiers import sampled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BUCKETS_DDL = "increment int, members array<bigint>, earlier array<bigint>"
HISTORY_DDL = (
    "increment int, doc_id string, better_doc_id string, place bigint, better_place bigint, shared_weight bigint, "
    "united_weight bigint"
)
REVISIONS_DDL = "dataset string, doc_id string, path_id string, standing string, other_doc_id string, leaves boolean"
Pairs = dict[tuple[int, int], Fraction]


class Corpus(NamedTuple):
    """Documents by number, which is their doc_id; `old` of them came in increment 0, the others in 1."""

    rows: list[Weights]
    old: int
    places: list[int]

    def order(self) -> list[int]:
        """Documents in keeping order."""
        return sorted(range(len(self.rows)), key=lambda number: (number >= self.old, self.places[number]))

    def similar(self) -> Pairs:
        """J of all pairs that reach the lowest threshold; the document that comes first in the order on the left."""
        found = {
            pair: similarity(*(self.rows[one] for one in pair)) for pair in itertools.combinations(self.order(), 2)
        }
        return {pair: j for pair, j in found.items() if j >= THRESHOLDS[0]}


def corpus_of(rows: list[Weights], old: int = 0) -> Corpus:
    """Documents at places like those of a corpus."""
    return Corpus(rows, old, np.random.default_rng(len(rows)).integers(0, 1 << 60, len(rows)).tolist())


def copies(draw: np.random.Generator, count: int) -> list[Weights]:
    """Copies of two texts that are 0.8 alike, in which some words are others, and strangers."""
    base = dict.fromkeys(range(1, 41), (5, 1))
    other = {token if token > 4 else 100 + token: weight for token, weight in base.items()}
    rows = []
    for number in range(count):
        row = dict((base, other)[number % 2])
        for token in draw.choice(list(row), draw.integers(0, 5), replace=False).tolist():
            del row[token]
            row[int(draw.integers(1000, 1200))] = (5, 1)
        rows.append(row)
    return rows


def strangers(draw: np.random.Generator) -> list[Weights]:
    """Five texts that are like no other."""
    return [{int(token): (7, 1) for token in draw.integers(5000, 9000, 20)} for _ in range(5)]


def tables_of(spark: SparkSession, corpus: Corpus, buckets: Sequence[Sequence[int]]) -> dict[str, DataFrame]:
    """Buckets of documents, signatures that hide nothing, and bags."""
    bags, count = as_bags(corpus.rows), len(corpus.rows)
    documents = {
        "dataset": ["d"] * count,
        "doc_id": [f"{number:05}" for number in range(count)],
        "increment": pa.array([int(number >= corpus.old) for number in range(count)], pa.int32()),
        "place": pa.array(corpus.places, pa.int64()),
        "kind": ["prose"] * count,
        "total_weight": pa.array([sum(u * n for u, n in row.values()) for row in corpus.rows], pa.int64()),
    }
    signed = {"signature": [bytes(SIGNATURE_VALUES)] * count, "signature_version": ["1"] * count}
    stored = {"token_hashes": bags.hashes, "units": bags.units, "levels": bags.levels}
    members = [
        [sorted(corpus.places[one] for one in bucket if (one >= corpus.old) == new) for new in (True, False)]
        for bucket in buckets
    ]
    history = [
        (0, f"{worse:05}", f"{better:05}", corpus.places[worse], corpus.places[better], j.numerator, j.denominator)
        for (better, worse), j in corpus.similar().items()
        if worse < corpus.old
    ]
    return {
        "buckets": spark.createDataFrame([(1, *bucket) for bucket in members], BUCKETS_DDL),
        "signatures": spark.createDataFrame(pa.table({**documents, **signed})),
        "bags": spark.createDataFrame(
            pa.table({**documents, **{name: binary_column(one, bags.offsets) for name, one in stored.items()}})
        ),
        "pairs": spark.createDataFrame(history, HISTORY_DDL),
    }


def stored_pairs(output: Output, corpus: Corpus) -> Pairs:
    """J by document and better document, after looking at the other columns."""
    found: Pairs = {}
    for row in output.frames["pairs"].collect():
        better, worse = int(row.better_doc_id), int(row.doc_id)
        assert (row.better_place, row.place) == (corpus.places[better], corpus.places[worse])
        assert (row.kind, row.dataset, row.better_dataset, row.better_increment) == (
            "prose",
            "d",
            "d",
            int(better >= corpus.old),
        )
        assert row.similarity == row.shared_weight / row.united_weight
        assert (better, worse) not in found
        found[better, worse] = Fraction(row.shared_weight, row.united_weight)
    for frame in output.persisted:
        frame.unpersist()
    return found


def by_numbers(pairs_of: Pairs) -> Pairs:
    """The same pairs, the lesser number first."""
    return {(min(pair), max(pair)): j for pair, j in pairs_of.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("most", [10, 9])
def test_a_bucket_is_large_above_the_pairs_that_are_compared_at_once(spark: SparkSession, most: int) -> None:
    """Five new documents are ten pairs, as are one new one and ten earlier ones: all compared, or two large buckets."""
    corpus = corpus_of(copies(np.random.default_rng(1), 20), old=10)
    buckets = [range(10, 15), [15, *range(10)], [16, 17], [15, 16]]
    output = pairs(**tables_of(spark, corpus, buckets), increment=1, config=PairsConfig(max_bucket_pairs=most))
    met = {frozenset(pair) for bucket in buckets for pair in itertools.combinations(bucket, 2)}
    new = {pair: j for pair, j in corpus.similar().items() if frozenset(pair) in met and max(pair) >= corpus.old}
    facts = [row.asDict() for row in output.frames["large_buckets"].collect()]
    found = stored_pairs(output, corpus)
    if most == 10:
        assert (found, facts) == (new, [])
        return
    assert found.items() <= corpus.similar().items()
    assert [fact["threshold"] for fact in facts] == [0.7, 0.8, 0.9]
    assert {(fact["bucket_count"], fact["document_count"]) for fact in facts} == {(2, 16)}
    assert {pair for pair in new if not set(pair) <= set(range(16))} <= found.keys()


@sampled()
@pytest.mark.parametrize("old", [pytest.param(0, marks=pytest.mark.nightly), 25])
@pytest.mark.parametrize("road", ["lists", "many", "batches"])
def test_large_buckets_keep_whom_all_pairs_keep(
    spark: SparkSession, road: str, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each threshold the kept set is the greedy one of all pairs, by lists of tokens, by long ones, or in batches.

    Facts count the documents of the bucket, and whom of them the pairs keep.
    """
    draw = np.random.default_rng(7)
    most = {"lists": 300, "many": 30, "batches": 30}[road]
    if road == "batches":
        monkeypatch.setattr(large_buckets, "_DOCUMENT_PAIRS", 0)
        monkeypatch.setattr(pool_batches, "BATCH_DOCUMENTS", 9)
    corpus = corpus_of((forms(draw, 60, 2) if road == "batches" else copies(draw, 60)) + strangers(draw), old)
    outside = 62  # three strangers are in small buckets alone
    tables = tables_of(spark, corpus, [range(outside), [30, 62], [31, 62], [63, 64]])
    output = pairs(**tables, increment=1, config=PairsConfig(max_bucket_pairs=most))
    facts = {row.threshold: row for row in output.frames["large_buckets"].collect()}
    found = stored_pairs(output, corpus)
    truth = corpus.similar()
    assert found.items() <= truth.items() and all(max(pair) >= old for pair in found)
    known = found | {pair: j for pair, j in truth.items() if max(pair) < old}
    assert len(known) < len(truth)
    for threshold in THRESHOLDS:
        kept = greedy(by_numbers(known), corpus.order(), threshold)
        assert kept == greedy(by_numbers(truth), corpus.order(), threshold)
        fact = facts[float(threshold)]
        assert (fact.bucket_count, fact.document_count) == (1, outside)
        assert fact.kept_count == len(kept & set(range(outside)))
        assert fact.rounds > 1 and fact.candidate_count > 0


@pytest.mark.nightly
def test_documents_that_have_left_are_not_in_the_pool(spark: SparkSession) -> None:
    """They remove nobody; so those like them are compared with each other, and they are not counted."""
    corpus = corpus_of(copies(np.random.default_rng(3), 40), old=1)
    told = [(1, "d", "00000", None, "gone", None, True)]
    revisions = spark.createDataFrame(told, f"increment int, {REVISIONS_DDL}")
    tables = tables_of(spark, corpus, [range(40)])
    output = pairs(**tables, increment=1, config=PairsConfig(max_bucket_pairs=60), revisions=revisions)
    assert {row.document_count for row in output.frames["large_buckets"].collect()} == {39}
    found = stored_pairs(output, corpus)
    order = [one for one in corpus.order() if one]
    truth = by_numbers(corpus.similar())
    for threshold in THRESHOLDS:
        assert greedy(by_numbers(found), order, threshold) == greedy(truth, order, threshold)


def test_settings_end_at_their_bounds() -> None:
    """No candidate need be verified in the driver; a bucket has two members and more, so at least a pair."""
    for field in ("driver_candidates", "max_bucket_pairs", "driver_edges"):
        with pytest.raises(ValidationError, match=field):
            PairsConfig(**{field: -1})
    config = PairsConfig()
    assert PairsConfig(driver_candidates=0).driver_candidates == 0 and config.driver_candidates == 32_768
    assert config_json(config) == config_json(PairsConfig(driver_candidates=0))  # it decides no row
    assert [float(one) for one in config.thresholds.together] == [0.7, 0.8, 0.9]


@pytest.mark.nightly
@pytest.mark.parametrize("old", [0, 40])
def test_the_last_rounds_in_one_process_are_those_over_all_lists(
    spark: SparkSession, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pairs, facts and rounds, where whom a removed document had removed comes back several times."""
    if not is_embedded(spark):
        pytest.skip("Spark's rounds go over all lists")
    draw = np.random.default_rng(7)
    texts = []
    for _ in range(160):
        text = dict.fromkeys(range(1, 41), (5, 1))
        for token in draw.choice(list(text), int(draw.integers(0, 5)), replace=False).tolist():
            del text[token]
            text[int(draw.integers(1000, 1015))] = (5, 1)
        texts.append(text)
    corpus = corpus_of(texts + strangers(draw), old)
    tables = tables_of(spark, corpus, [range(len(corpus.rows))])

    def found() -> tuple[Pairs, list[Row]]:
        output = pairs(**tables, increment=1, config=PairsConfig(max_bucket_pairs=30))
        facts = sorted(output.frames["large_buckets"].collect())
        return stored_pairs(output, corpus), facts

    here = found()
    monkeypatch.setattr(large_buckets, "is_embedded", lambda frame: False)
    over_lists = found()
    assert here == over_lists and here[1][0].rounds > 2 + (not old)
