"""Verification in memory and on an engine, against Python's fractions."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, exact
from spark_jobs.dedup.near import comparison, verification
from spark_jobs.dedup.near.comparison import SIGNATURE_LOSS, BagRows, similar_pairs, taken
from spark_jobs.dedup.near.verification import SignatureIndex, verified_buckets, verified_pairs
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES
from spark_jobs.dedup.sketches.similarity import least_agreement
from tests.spark_jobs.dedup.made_bags import at_the_bound
from tests.tiers import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.dedup.bags.bag_arrays import Bags

Bag = dict[int, int]


def made(seed: int, count: int) -> tuple[pa.Table, pa.Table, list[Bag]]:
    """Signatures and bags of documents, several at one place; signatures that agree everywhere hide nothing."""
    draw = random.Random(seed)
    base = {draw.getrandbits(63): draw.randrange(1, 250) for _ in range(30)}
    bags: list[Bag] = [{token: weight for token, weight in base.items() if draw.random() < 0.9} for _ in range(count)]
    ids = [f"{draw.getrandbits(128):032x}" for _ in range(count)]
    places = [draw.randrange(count // 2) for _ in range(count)]
    known, stored = tables(
        bags,
        doc_id=ids,
        increment=pa.array([draw.randrange(2) for _ in range(count)], pa.int32()),
        place=pa.array(places, pa.int64()),
        kind=[draw.choice(["prose", "code"]) for _ in range(count)],
    )
    return known, stored.take(pa.array(draw.sample(range(count), count))), bags


def tables(bags: list[Bag], **columns: list[str] | pa.Array) -> tuple[pa.Table, pa.Table]:
    """Rows of `signatures` and of `bags`; without other columns all are prose at places of their own."""
    count = len(bags)
    known = {
        "dataset": ["d"] * count,
        "doc_id": [f"{number:05}" for number in range(count)],
        "increment": pa.array([0] * count, pa.int32()),
        "place": pa.array(range(count), pa.int64()),
        "kind": ["prose"] * count,
        "total_weight": pa.array([sum(bag.values()) for bag in bags], pa.int64()),
        "signature": pa.array([bytes(SIGNATURE_VALUES)] * count, pa.binary()),
        "signature_version": ["1"] * count,
        **columns,
    }
    stored = {
        "doc_id": known["doc_id"],
        "place": known["place"],
        "token_hashes": [np.array(sorted(bag), "<u8").tobytes() for bag in bags],
        "units": [bytes(bag[token] for token in sorted(bag)) for bag in bags],
        "levels": [b"\1" * len(bag) for bag in bags],
    }
    return pa.table(known), pa.table(stored)


def neighbours(count: int) -> pa.Table:
    """Candidates: the document at each even place with the one after it."""
    return pa.table({"first": pa.array(range(0, count, 2), pa.int64()), "second": pa.array(range(1, count, 2))})


def found_at(found: pa.Table) -> set[tuple[int, int]]:
    """Places of the pairs found."""
    return set(zip(found["left_place"].to_pylist(), found["right_place"].to_pylist(), strict=True))


def bound_weights(threshold: Fraction) -> tuple[list[Bag], set[tuple[int, int]]]:
    """`at_the_bound` with the weight of each token."""
    bags, reaching = at_the_bound(threshold)
    return [{token: unit * level for token, (unit, level) in bag.items()} for bag in bags], reaching


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_those_of_fractions_also_where_documents_share_a_place(seed: int) -> None:
    """Every document meets every other at the places of a candidate, once, and the first in the order is the left.

    Each pair is judged by the lowest threshold of its kind.
    """
    known, bags, contents = made(seed, 24)
    rows = known.to_pylist()
    candidates = [(a, b) for a in range(12) for b in range(a, 12)]
    table = pa.table({"first": [a for a, _ in candidates], "second": [b for _, b in candidates]})
    lowest = KindThreshold(code=0.75, prose=0.7)
    found = similar_pairs(table, known, bags, lowest).to_pylist()

    expected = {}
    for left, one in enumerate(rows):
        for right, other in enumerate(rows):
            first, second = ((row["increment"], row["place"], row["doc_id"]) for row in (one, other))
            if first < second and one["kind"] == other["kind"]:
                x, y = contents[left], contents[right]
                shared = sum(min(weight, y.get(token, 0)) for token, weight in x.items())
                united = sum(x.values()) + sum(y.values()) - shared
                if Fraction(shared, united) >= exact(lowest.of(one["kind"])):
                    expected[one["doc_id"], other["doc_id"]] = (shared, united)
    assert len(expected) > 10
    named = {(row["left_doc_id"], row["right_doc_id"]): (row["shared_weight"], row["united_weight"]) for row in found}
    assert named == expected and len(found) == len(expected)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.75, 0.8, 0.9, 1.0])
def test_a_pair_at_its_threshold_is_found_and_one_unit_of_weight_less_is_not(
    threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J = 4/5 exactly is common in short documents; so is a pair of sizes of which one is 4/5 of the other."""
    monkeypatch.setattr(comparison, "BLOCK", 4)
    bags, reaching = bound_weights(exact(threshold))
    known, stored = tables(bags)
    lowest = KindThreshold.model_validate(threshold)
    found = similar_pairs(neighbours(len(bags)), known, stored, lowest)
    assert found_at(found) == reaching


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_signatures_hide_a_pair_below_the_least_agreement_alone(threshold: float) -> None:
    """Equal texts whose signatures agree in as few values as are allowed, and in one value less."""
    least = least_agreement(exact(threshold), SIGNATURE_LOSS)
    agreeing = [SIGNATURE_VALUES, least, least - 1, 0]
    signatures = [
        one
        for count in agreeing
        for one in (bytes(SIGNATURE_VALUES), bytes(count) + b"\1" * (SIGNATURE_VALUES - count))
    ]
    known, stored = tables([{7: 1}] * len(signatures), signature=pa.array(signatures, pa.binary()))
    lowest = KindThreshold.model_validate(threshold)
    found = similar_pairs(neighbours(len(signatures)), known, stored, lowest)
    assert found_at(found) == {(0, 1), (2, 3)}


def test_equal_texts_of_two_kinds_or_two_versions_of_signatures_are_no_pair() -> None:
    """Only the first two of six are of one kind and one version."""
    known, stored = tables(
        [{7: 1}] * 6, kind=["code", "code", "prose", "code", "data", "data"], signature_version=[*"1111", "1", "2"]
    )
    assert found_at(similar_pairs(neighbours(6), known, stored, KindThreshold())) == {(0, 1)}


def test_bags_are_copied_by_bytes_and_not_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bag of 80 kB among small ones: no copy has more than the bound and one pair more."""
    monkeypatch.setattr(comparison, "_BLOCK_BYTES", 4_000)
    bags: list[Bag] = [{token + 1: 1 for token in range(10_000 if number in (10, 11) else 40)} for number in range(400)]
    known, stored = tables(bags)
    sizes, take = list[int](), BagRows.take

    def watched(self: BagRows, rows: np.ndarray) -> Bags:
        bags = take(self, rows)
        sizes.append(bags.hashes.nbytes)
        return bags

    monkeypatch.setattr(BagRows, "take", watched)
    found = similar_pairs(neighbours(len(bags)), known, stored, KindThreshold())
    assert found.num_rows == 200 and max(sizes) <= 80_000 + 4_000 and sorted(sizes)[-3] <= 4_000


def test_rows_of_a_table_are_taken_from_its_chunks() -> None:
    """In any order and with repeats, of tables of no, one and many chunks, some of them empty slices."""
    draw = np.random.default_rng(7)
    whole = pa.table({"text": [str(number) * (number % 5) for number in range(100)], "number": range(100)})
    for cuts in ([], [0, 50], [0, 0, 3, 3, 99]):
        chunks = [whole.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, 100])]
        rows = draw.integers(0, 100, 40)
        assert taken(pa.concat_tables(chunks), rows).equals(whole.take(pa.array(rows)))
    assert taken(whole.slice(0, 0), np.zeros(0, np.int64)).num_rows == 0


@pytest.mark.parametrize("few", [0, 10**6])
def test_an_engine_finds_the_pairs_that_the_driver_finds(
    spark: SparkSession, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several parts, whether the keys of their documents are broadcast or not."""
    for name in ("_PART_SIGNATURES", "_PART_BAGS"):
        monkeypatch.setattr(verification, name, 5)
    monkeypatch.setattr(verification, "_BROADCAST_CANDIDATES", few)
    bags, reaching = bound_weights(Fraction(4, 5))
    signatures, stored = (spark.createDataFrame(rows) for rows in tables(bags))
    candidates = spark.createDataFrame(neighbours(len(bags)))
    rows = []
    for driver_candidates in (0, len(bags) // 2):
        index = SignatureIndex(signatures, stored, driver_candidates)
        found, _ = verified_pairs(candidates, len(bags) // 2, index, KindThreshold())
        rows.append(sorted(found.collect()))
    assert rows[0] == rows[1] and {(row.left_place, row.right_place) for row in rows[0]} == reaching


@needs_spark
@pytest.mark.parametrize("repeats", [1, 2, 9])
def test_parts_are_of_different_candidates(spark: SparkSession, repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Similar documents share many buckets: more parts for that would receive their documents again and again."""
    asked = []
    brought = verification._brought
    monkeypatch.setattr(verification, "_brought", lambda *given: (asked.append(given[4]), brought(*given))[1])
    monkeypatch.setattr(verification, "_PART_SIGNATURES", 10)
    bags, reaching = bound_weights(Fraction(4, 5))
    signatures, stored = (spark.createDataFrame(rows) for rows in tables(bags))
    rows = [([first, first + 1], []) for first in range(0, len(bags), 2)]
    buckets = spark.createDataFrame(rows * repeats, "members array<bigint>, earlier array<bigint>")
    index = SignatureIndex(signatures, stored, 0)
    found, _ = verified_buckets(buckets, len(rows) * repeats, index, KindThreshold(), 0)
    assert {(row.left_place, row.right_place) for row in found.collect()} == reaching
    assert asked[0] == -(-len(rows) // 10)


def test_nothing_is_found_among_nothing() -> None:
    """No candidate, no document: an empty table with all columns."""
    known, bags, _ = made(0, 4)
    none = pa.table({"first": pa.array([], pa.int64()), "second": pa.array([], pa.int64())})
    lowest = KindThreshold()
    found = similar_pairs(none, known.slice(0, 0), bags.slice(0, 0), lowest)
    assert found.num_rows == 0
    assert {"left_doc_id", "right_place", "shared_weight"} < set(found.column_names)
