"""Verification in memory, against Python's fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, exact
from spark_jobs.dedup.near.verification import agreeing_ends, similar

Bag = dict[int, int]


def made(seed: int, count: int) -> tuple[pa.Table, pa.Table, list[Bag]]:
    """Signatures and bags of documents, several at one place; signatures that agree everywhere hide nothing."""
    draw = random.Random(seed)
    base = {draw.getrandbits(63): draw.randrange(1, 250) for _ in range(30)}
    bags: list[Bag] = [{token: weight for token, weight in base.items() if draw.random() < 0.9} for _ in range(count)]
    ids = [f"{draw.getrandbits(128):032x}" for _ in range(count)]
    places = [draw.randrange(count // 2) for _ in range(count)]
    known = pa.table(
        {
            "dataset": ["d"] * count,
            "doc_id": ids,
            "increment": pa.array([draw.randrange(2) for _ in range(count)], pa.int32()),
            "place": pa.array(places, pa.int64()),
            "kind": [draw.choice(["prose", "code"]) for _ in range(count)],
            "total_weight": pa.array([sum(bag.values()) for bag in bags], pa.int64()),
            "signature": pa.array([bytes(256)] * count, pa.binary()),
            "signature_version": ["1"] * count,
        }
    )
    columns = {
        "doc_id": ids,
        "token_hashes": [np.array(sorted(bag), "<u8").tobytes() for bag in bags],
        "units": [bytes(bag[token] for token in sorted(bag)) for bag in bags],
        "levels": [b"\1" * len(bag) for bag in bags],
    }
    return known, pa.table(columns).take(pa.array(draw.sample(range(count), count))), bags


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
    found = similar(agreeing_ends(table, known, lowest), bags, lowest).to_pylist()

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


def test_nothing_is_found_among_nothing() -> None:
    """No candidate, no document: an empty table with all columns."""
    known, bags, _ = made(0, 4)
    none = pa.table({"first": pa.array([], pa.int64()), "second": pa.array([], pa.int64())})
    lowest = KindThreshold()
    found = similar(agreeing_ends(none, known.slice(0, 0), lowest), bags.slice(0, 0), lowest)
    assert found.num_rows == 0
    assert {"left_doc_id", "right_place", "shared_weight"} < set(found.column_names)
