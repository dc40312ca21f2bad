"""Near-duplicates from texts to removals, compared with brute force over all pairs."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup.near import large_buckets, pool_batches
from spark_jobs.dedup.removal.thresholds import ThresholdsConfig, thresholds
from tests.spark_jobs.dedup.near_corpus import (
    Document,
    boilerplate,
    forms,
    found_pairs,
    greedy_removed,
    near_steps,
    planted,
    removed_at,
    rows_of,
    templated,
    true_pairs,
)
from tests.tiers import tries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THRESHOLDS = (0.7, 0.8, 0.9)
LOWEST = Fraction(7, 10)
NOTHING_DDL = (
    "increment int, threshold double, doc_id string, witness_doc_id string, component string, document_count int"
)
REVISIONS_DDL = "dataset string, doc_id string, path_id string, standing string, other_doc_id string, leaves boolean"


SPECIAL = {
    "without tokens": [Document(0, "prose", content) for content in ("", "... !!", "?")],
    "of equal words": [Document(0, "prose", f"one {words} four") for words in ("two three", "three two")],
    # There is no other document of kind data, so that the background has a kind without pairs.
    "of other kinds": [Document(0, kind, "the very same words") for kind in ("data", "markup")],
    "all alike": [Document(0, "prose", "words of water " * 5 + "!" * number) for number in range(30)],
}


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """Documents of two increments, with near-duplicates inside and across, and those that are special in some way."""
    special = [one for group in SPECIAL.values() for one in group]
    return [*planted(seed=3, originals=150, copies=150, increments=2), *special]


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


@pytest.mark.nightly
def test_recall_is_measured_against_documents_that_the_method_never_compared(
    spark: SparkSession, tables: dict[str, DataFrame], documents: list[Document]
) -> None:
    """All similar documents of all kept ones by brute force; of removals that are left out every one counts as missed.

    The documents of the second increment are the sample, so that a pair of two of the first is not counted.
    """
    nothing = spark.createDataFrame([], NOTHING_DDL)
    truth = true_pairs(documents, LOWEST)
    new = {one.doc_id for one in documents if one.increment == 1}
    forgotten = sorted(removed_at(tables, 0.7) & new)[::2]
    for lost in ([], forgotten):
        left = tables["removals"].where(~tables["removals"]["doc_id"].isin(lost)) if lost else tables["removals"]
        members = tables["bags"].selectExpr("doc_id", "token_count AS byte_count", "increment")
        counted = thresholds(members, nothing, left, nothing, tables["bags"], tables["bands"], 1, ThresholdsConfig())
        rows = {row.threshold: row for row in counted.collect()}
        for threshold in THRESHOLDS:
            gone = removed_at(tables, threshold) - set(lost)
            kept = new - gone
            ends = [
                other
                for pair, j in truth.items()
                if j >= Fraction(str(threshold))
                for one, other in (sorted(pair), sorted(pair)[::-1])
                if one in kept
            ]
            row = rows[threshold]
            assert (row.sampled_count, row.similar_count) == (len(kept), len(ends))
            assert row.found_count == sum(end in gone for end in ends)
            assert row.recall == (row.found_count / len(ends) if ends else None)
        assert (rows[0.7].recall == 1) == (not lost)


@pytest.mark.nightly
def test_each_kind_has_the_thresholds_that_are_its_own(spark: SparkSession) -> None:
    """Code from .5 on, prose from .7 on, also in large buckets: pairs, kept sets and recall are those of brute force.

    Below the lowest threshold of a kind its kept set is that of the lowest. The same words as code and as prose are no
    pair.
    """
    kinds = {"prose": "prose", "markup": "code"}
    documents = [one._replace(kind=kinds[one.kind]) for one in planted(seed=8, originals=120, copies=160, increments=2)]
    documents += [Document(1, kind, "the very same words of two kinds") for kind in ("code", "prose")]
    documents += [Document(0, "code", one.content) for one in boilerplate(seed=5, copies=40, increments=1)]
    given = {"code": [0.5, 0.6], "default": [0.7, 0.8]}
    lowest = {"code": Fraction(1, 2), "prose": Fraction(7, 10)}
    for most in (131_072, 200):
        config = {
            "buckets": {"threshold": {"code": 0.5, "default": 0.7}},
            "pairs": {"thresholds": given, "max_bucket_pairs": most},
            "removals": {"thresholds": [0.5, 0.6, 0.7, 0.8]},
        }
        tables = near_steps(spark, documents, config=config)
        assert min(row.recall for row in tables["bands"].collect()) >= 0.9999
        truth = {
            pair: j
            for kind, least in lowest.items()
            for pair, j in true_pairs([one for one in documents if one.kind == kind], least).items()
        }
        assert sum(j < Fraction(7, 10) for j in truth.values()) > 20
        found = found_pairs(tables)
        assert found == truth if most > 200 else set(found.items()) < set(truth.items())
        assert bool(tables["large_buckets"].count()) == (most == 200)
        for threshold in (0.5, 0.6, 0.7, 0.8):
            expected = greedy_removed(documents, truth, Fraction(str(threshold)))
            assert removed_at(tables, threshold) == expected and len(expected) > 20
        nothing = spark.createDataFrame([], NOTHING_DDL)
        asked = ThresholdsConfig(thresholds=given)
        members = tables["bags"].selectExpr("doc_id", "token_count AS byte_count", "increment")
        counted = thresholds(
            members, nothing, tables["removals"], nothing, tables["bags"], tables["bands"], 1, asked
        ).collect()
        assert {row.threshold: row.recall for row in counted} == dict.fromkeys((0.5, 0.6, 0.7, 0.8), 1.0)
        new = [one for one in documents if one.increment == 1]
        kept = {one.doc_id for one in new} - removed_at(tables, 0.5)
        similar = sum(one in kept for pair in truth for one in pair)
        assert next(row for row in counted if row.threshold == 0.5).similar_count == similar
        for row in tables["large_buckets"].collect():
            assert row.kept_count <= row.document_count


@pytest.mark.nightly
def test_every_table_is_identical_for_1_and_7_partitions(
    spark: SparkSession, tables: dict[str, DataFrame], documents: list[Document]
) -> None:
    """Neither partitions, nor the order of documents, nor where pairs are verified show in any row of any step."""
    plain = dict(rows_of(tables))
    for partitions, driver_candidates in ((1, 100_000), (7, 0)):
        config = {"pairs": {"driver_candidates": driver_candidates}}
        again = near_steps(spark, documents[::-1], partitions, config)
        assert dict(rows_of(again)) == plain


@pytest.mark.nightly
def test_large_buckets_change_nobody_who_is_kept(spark: SparkSession) -> None:
    """Of boilerplate a part of the pairs is compared, and yet no two kept documents are alike, by brute force."""
    documents = boilerplate(seed=5, copies=160, increments=2)
    config = {"pairs": {"max_bucket_pairs": 300}}
    tables = near_steps(spark, documents, config=config)
    truth = true_pairs(documents, LOWEST)
    found = found_pairs(tables)
    assert set(found.items()) < set(truth.items())
    facts = tables["large_buckets"].collect()
    assert {row.threshold for row in facts} == set(THRESHOLDS) and all(row.rounds > 1 for row in facts)
    assert_nobody_is_left(tables, documents)


@pytest.mark.nightly
def test_forms_filled_from_closed_lists_are_compared_in_batches(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all pairs would be candidates; no list of them is made, and yet nobody like a kept one is left."""
    compared = []
    in_batches = large_buckets._Comparisons.compare_in_batches
    monkeypatch.setattr(large_buckets, "_DOCUMENT_PAIRS", 0)
    monkeypatch.setattr(pool_batches, "BATCH_DOCUMENTS", 64)
    monkeypatch.setattr(
        large_buckets._Comparisons, "compare_in_batches", lambda state: compared.append(state) or in_batches(state)
    )
    documents = forms(seed=6, count=160)
    tables = near_steps(spark, documents, config={"pairs": {"max_bucket_pairs": 300}})
    assert compared and tables["large_buckets"].count()
    assert set(found_pairs(tables).items()) <= set(true_pairs(documents, LOWEST).items())
    assert_nobody_is_left(tables, documents)


@pytest.mark.nightly
def test_pages_of_one_template_keep_no_near_duplicates(spark: SparkSession) -> None:
    """Pages that share most of their words are in large buckets and no duplicates; of each and its twin one goes.

    The twins come in a later increment, and between 0.7 and 0.9 alike. Bands alone, of which many are shared by all
    pages, would have to compare everything with everything.
    """
    pages = tries(250, 80)
    documents = templated(seed=9, pages=pages)
    tables = near_steps(spark, documents, config={"pairs": {"max_bucket_pairs": 4 * pages}})
    facts = tables["large_buckets"].collect()
    assert facts and all(row.document_count >= pages for row in facts), "the pages were to fill large buckets"
    assert_nobody_is_left(tables, documents)
    assert len(removed_at(tables, 0.8)) > 0.8 * pages


@pytest.mark.nightly
def test_what_revisions_acquit_is_compared_in_large_buckets(spark: SparkSession) -> None:
    """A text that has left, or that is the former text of the path, removes nobody; so those it is like are compared.

    In the first increment come the first copies of a boilerplate of which one leaves in the second, and of another one
    which is edited then. Of the copies that come with the second increment one of each stays.
    """
    draw = random.Random(4)

    def copy(words: list[str], count: int, number: int) -> str:
        changed = list(words)
        for at, place in enumerate(draw.sample(range(len(words)), count)):
            changed[place] = f"own{number}x{at}"
        return " ".join(changed)

    base = [f"word{number}" for number in range(150)]
    other = [f"other{number}" for number in range(150)]
    edit = copy(other, 14, 0)
    left, edited, edits = (
        Document(number, "prose", text) for number, text in ((0, " ".join(base)), (0, " ".join(other)), (1, edit))
    )
    documents = [left, edited, edits]
    documents += [Document(1, "prose", copy(base, 1, number)) for number in range(1, 41)]
    documents += [Document(1, "prose", copy(edit.split(), 8, number)) for number in range(41, 81)]
    documents += [Document(0, "prose", " ".join(draw.choices(base + other, k=60))) for _ in range(10)]
    rows = [
        (1, "d", left.doc_id, None, "gone", None, True),
        (1, "d", edited.doc_id, "path", "superseded", edits.doc_id, False),
        (1, "d", edits.doc_id, "path", "latest", edited.doc_id, False),
    ]
    told = spark.createDataFrame(rows, "increment int, " + REVISIONS_DDL)
    tables = near_steps(spark, documents, config={"pairs": {"max_bucket_pairs": 100}}, revisions=told)
    assert tables["large_buckets"].count()
    truth = true_pairs(documents, LOWEST)
    for threshold in THRESHOLDS:
        kept = {one.doc_id for one in documents} - removed_at(tables, threshold)
        together = {pair for pair, j in truth.items() if j >= Fraction(str(threshold)) and pair <= kept}
        assert {pair for pair in together if left.doc_id not in pair} <= {frozenset((edited.doc_id, edits.doc_id))}
        assert {left.doc_id, edited.doc_id} <= kept


def assert_nobody_is_left(tables: dict[str, DataFrame], documents: list[Document]) -> None:
    """By brute force, no two kept documents reach a threshold, and every witness is kept and alike."""
    truth = true_pairs(documents, LOWEST)
    removals = tables["removals"].collect()
    for threshold in THRESHOLDS:
        t = Fraction(str(threshold))
        gone = {row.doc_id: row.witness_doc_id for row in removals if row.threshold == threshold}
        kept = {one.doc_id for one in documents} - set(gone)
        assert not [pair for pair, j in truth.items() if j >= t and pair <= kept]
        assert set(gone.values()) <= kept
        assert all(truth[frozenset(pair)] >= t for pair in gone.items())


def gone_of(tables: dict[str, DataFrame], documents: list[Document]) -> list[set[str]]:
    """Which of these documents are removed at each threshold."""
    return [removed_at(tables, threshold) & {one.doc_id for one in documents} for threshold in THRESHOLDS]


def test_documents_without_tokens_are_nobodys_duplicate(
    tables: dict[str, DataFrame], documents: list[Document]
) -> None:
    """Empty texts and bare punctuation have no bag, all others do; documents of equal words are alike."""
    bags = {row.doc_id for row in tables["bags"].select("doc_id").collect()}
    assert {one.doc_id for one in documents} - bags == {one.doc_id for one in SPECIAL["without tokens"]}
    assert gone_of(tables, SPECIAL["without tokens"]) == [set()] * 3
    assert found_pairs(tables)[frozenset(one.doc_id for one in SPECIAL["of equal words"])] == 1
    assert [len(gone) for gone in gone_of(tables, SPECIAL["of equal words"])] == [1] * 3


@pytest.mark.parametrize("count", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_an_empty_corpus_and_one_document_are_no_special_case(spark: SparkSession, count: int) -> None:
    """All steps run; there is nothing to remove."""
    tables = near_steps(spark, [Document(0, "prose", "alone in the world")][:count])
    assert tables["bags"].count() == count
    assert tables["pairs"].count() == tables["removals"].count() == 0


def test_all_documents_alike_leave_one(tables: dict[str, DataFrame]) -> None:
    """The first by place is kept and is everybody's witness."""
    alike = SPECIAL["all alike"]
    first = min(alike, key=lambda one: one.place)
    assert gone_of(tables, alike) == [{one.doc_id for one in alike} - {first.doc_id}] * 3
    of_alike = tables["removals"].where(tables["removals"]["doc_id"].isin([one.doc_id for one in alike]))
    assert {row.witness_doc_id for row in of_alike.collect()} == {first.doc_id}


def test_documents_of_different_kinds_are_never_compared(tables: dict[str, DataFrame]) -> None:
    """The same words as data and as markup share no token."""
    others = {one.doc_id for one in SPECIAL["of other kinds"]}
    assert not [pair for pair in found_pairs(tables) if pair & others]
    assert gone_of(tables, SPECIAL["of other kinds"]) == [set()] * 3


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
    unknown = tables["vocabulary"].where("kind = 'prose' and token_hash is null").collect()[0]
    assert unknown.unit == round(8 * math.log((len(first) + 1) / 2))
