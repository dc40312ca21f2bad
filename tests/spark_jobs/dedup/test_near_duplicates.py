"""Near-duplicates from texts to removals, compared with brute force over all pairs."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup import large_buckets
from tests.spark_jobs.dedup.near_corpus import (
    Document,
    boilerplate,
    found_pairs,
    greedy_removed,
    near_steps,
    planted,
    removed_at,
    rows_of,
    true_pairs,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THRESHOLDS = (0.7, 0.8, 0.9)
LOWEST = Fraction(7, 10)


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """Documents of two increments, with near-duplicates inside and across."""
    return planted(seed=3, originals=150, copies=150, increments=2)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, documents: list[Document]) -> dict[str, DataFrame]:
    """All tables of these documents."""
    return near_steps(spark, documents)


def test_pairs_and_their_similarities_are_those_of_brute_force(
    tables: dict[str, DataFrame], documents: list[Document]
) -> None:
    """Every two documents compared by Python's integers: the same pairs, the same fractions."""
    expected = true_pairs(documents, LOWEST)
    assert len(expected) > 80
    assert found_pairs(tables) == expected


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_removals_are_those_of_one_after_another(
    tables: dict[str, DataFrame], documents: list[Document], threshold: float
) -> None:
    """At each threshold the kept set is the greedy one in the order of increment and place."""
    expected = greedy_removed(documents, true_pairs(documents, LOWEST), Fraction(str(threshold)))
    assert len(expected) > 10
    assert removed_at(tables, threshold) == expected


@pytest.mark.slow
def test_every_table_is_identical_for_1_and_7_partitions(
    spark: SparkSession, tables: dict[str, DataFrame], documents: list[Document]
) -> None:
    """Neither partitions, nor the order of documents, nor where pairs are verified show in any row of any step."""
    plain = dict(rows_of(tables))
    for partitions, driver_candidates in ((1, 100_000), (7, 0)):
        config = {"pairs": {"driver_candidates": driver_candidates}}
        again = near_steps(spark, documents[::-1], partitions, config)
        assert dict(rows_of(again)) == plain


@pytest.mark.slow
def test_large_buckets_change_nobody_who_is_kept(spark: SparkSession) -> None:
    """Of boilerplate a part of the pairs is compared, and yet no two kept documents are alike, by brute force.

    That is promised at the thresholds at which no bucket had to be split; witnesses are true at all.
    """
    documents = boilerplate(seed=5, copies=160, increments=2)
    thresholds = (0.7, 0.8)
    config = {
        "pairs": {"max_bucket_pairs": 300, "thresholds": thresholds},
        "removals": {"thresholds": thresholds},
    }
    tables = near_steps(spark, documents, config=config)
    truth = true_pairs(documents, LOWEST)
    found = found_pairs(tables)
    assert set(found.items()) < set(truth.items())
    facts = tables["large_buckets"].collect()
    assert {row.threshold for row in facts} == set(thresholds) and all(row.rounds > 1 for row in facts)
    split = {row.threshold for row in facts if row.split_bucket_count}
    assert split < set(thresholds), facts
    removals = tables["removals"].collect()
    for threshold in thresholds:
        t = Fraction(str(threshold))
        gone = {row.doc_id: row.witness_doc_id for row in removals if row.threshold == threshold}
        kept = {one.doc_id for one in documents} - set(gone)
        left = [pair for pair, j in truth.items() if j >= t and pair <= kept]
        assert not left or threshold in split
        assert set(gone.values()) <= kept
        assert all(truth[frozenset(pair)] >= t for pair in gone.items())


def test_a_bucket_that_leaders_cannot_reduce_is_split_and_reported(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents alike at 0.7 and not at 0.9: after one leader the rest is split, and the recall of that is stored."""
    monkeypatch.setattr(large_buckets, "_LEADERS", (1,))
    shared = " ".join(f"common{number}" for number in range(60))
    documents = [
        Document(0, "prose", f"{shared} " + " ".join(f"own{number}x{place}" for place in range(6)))
        for number in range(40)
    ]
    config = {"pairs": {"max_bucket_pairs": 1, "driver_candidates": 0}}
    facts = {row.threshold: row for row in near_steps(spark, documents, config=config)["large_buckets"].collect()}
    assert facts[0.9].split_bucket_count > 0
    assert facts[0.9].further_values > 0
    assert 0 < facts[0.9].recall_in_split < 1


def test_documents_without_tokens_are_nobodys_duplicate(spark: SparkSession) -> None:
    """Empty texts and bare punctuation have no bag; documents of equal words do."""
    contents = ["", "... !!", "?", "one two three four", "four three two one", "other words here"]
    tables = near_steps(spark, [Document(0, "prose", content) for content in contents])
    assert tables["bags"].count() == 3
    assert list(found_pairs(tables).values()) == [Fraction(1)]


@pytest.mark.parametrize("count", [0, 1])
def test_an_empty_corpus_and_one_document_are_no_special_case(spark: SparkSession, count: int) -> None:
    """All steps run; there is nothing to remove."""
    tables = near_steps(spark, [Document(0, "prose", "alone in the world")][:count])
    assert tables["bags"].count() == count
    assert tables["pairs"].count() == tables["removals"].count() == 0


def test_all_documents_alike_leave_one(spark: SparkSession) -> None:
    """The first by place is kept and is everybody's witness."""
    documents = [Document(0, "prose", "the same words " * 5 + "!" * number) for number in range(30)]
    tables = near_steps(spark, documents)
    first = min(documents, key=lambda one: one.place)
    for threshold in THRESHOLDS:
        assert len(removed_at(tables, threshold)) == 29
    assert {row.witness_doc_id for row in tables["removals"].collect()} == {first.doc_id}


def test_documents_of_different_kinds_are_never_compared(spark: SparkSession) -> None:
    """The same words as prose and as data share no token."""
    tables = near_steps(spark, [Document(0, kind, "the very same words") for kind in ("prose", "data", "markup")])
    assert tables["pairs"].count() == 0
    assert tables["buckets"].count() == 0


def test_the_vocabulary_counts_documents_and_weighs_by_them(
    tables: dict[str, DataFrame], documents: list[Document]
) -> None:
    """Counts are those of the first increment's documents; the row without a token weighs like one document's."""
    import math
    import re

    first = [set(re.findall(r"\w+", one.content)) for one in documents if one.increment == 0 and one.kind == "prose"]
    rows = {row.token: row for row in tables["vocabulary"].where("kind = 'prose'").collect()}
    tokens = set().union(*first)
    for token in tokens:
        number = sum(token in words for words in first)
        assert (rows[token].document_count if token in rows else 1) == number
    unknown = rows[None]
    assert unknown.unit == round(8 * math.log((len(first) + 1) / 2))
