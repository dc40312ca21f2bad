"""Deduplication of texts in hand, compared with brute force over all pairs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.dedup.removal.best_edges import compared_fractions
from spark_jobs.exceptions import InputError
from spark_jobs.in_hand.duplicates import deduplicate
from tests.spark_jobs.dedup.near_corpus import Document, boilerplate, greedy_removed, planted, true_pairs
from tests.tiers import sampled

PROSE = [
    document
    for document in planted(seed=8, originals=200, copies=300)
    if document.kind == "prose"  # weights are counted by kind
]


def in_order(documents: list[Document]) -> list[Document]:
    """Documents in the order in which they are kept."""
    return sorted(documents, key=lambda document: (document.place, document.doc_id))


@sampled(2)
@pytest.mark.parametrize("threshold", [0.7, 0.8, 0.9])
@pytest.mark.parametrize("documents", [PROSE, boilerplate(5, 120, 1)], ids=["planted", "boilerplate"])
def test_rows_that_go_are_those_of_one_after_another(documents: list[Document], threshold: float) -> None:
    """Every two texts compared by Python's integers, and kept greedily: the same rows go, for the most similar one."""
    ordered = in_order(documents)
    pairs = true_pairs(ordered, Fraction(str(threshold)))
    expected = greedy_removed(ordered, pairs, Fraction(str(threshold)))
    found = deduplicate([document.content for document in ordered], threshold=threshold)
    near = found.removed.filter(pa.compute.equal(found.removed["match"], "near")).to_pylist()
    assert {ordered[row["row"]].doc_id for row in near} == expected and len(expected) > 10
    assert found.rows == [ordered[row].content for row in found.row_numbers]
    assert len(found) == len(ordered) - len(expected)
    for row in near:
        ends = frozenset((ordered[row["row"]].doc_id, ordered[row["kept_row"]].doc_id))
        before = {document.doc_id for document in ordered[: row["row"]]} - expected
        best = max(j for pair, j in pairs.items() if ordered[row["row"]].doc_id in pair and pair & before)
        assert pairs[ends] == best and row["similarity"] == pytest.approx(float(best), abs=1e-15)


def test_copies_go_by_bytes_and_by_letters() -> None:
    """The first of equal texts stays, a short one is equal by its bytes alone, no text is none."""
    long = "The quick brown fox jumps over the lazy dog, again and again."
    texts = [long, None, long.upper(), "short", "brief", "short", None, "", long, ""]
    found = deduplicate(texts)
    assert found.rows == [long, None, "short", "brief", None, ""]
    assert [tuple(row.values()) for row in found.removed.to_pylist()] == [
        (2, 0, "letters", 1.0),
        (5, 3, "bytes", 1.0),
        (8, 0, "bytes", 1.0),
        (9, 7, "bytes", 1.0),
    ]
    assert "6 of 10 rows are kept" in repr(found) and "3 by bytes" in repr(found)


def test_a_copy_of_a_near_copy_is_like_the_kept_row() -> None:
    """Its similarity is that of the row that it equals."""
    words = [f"word{number}" for number in range(80)]
    first, second = " ".join(words), " ".join([*words[:-1], "another"])
    found = deduplicate([first, second, second], threshold=0.8)
    rows = found.removed.to_pylist()
    assert [(row["row"], row["kept_row"], row["match"]) for row in rows] == [(1, 0, "near"), (2, 0, "near")]
    assert rows[0]["similarity"] == rows[1]["similarity"] < 1


def test_batches_do_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts in one batch, in many, and as chunks that begin anywhere give the same."""
    texts = [document.content for document in in_order(PROSE)]
    expected = deduplicate(texts).removed
    column = pa.chunked_array([pa.array(texts[:7]), pa.array([], pa.string()), pa.array(["x", *texts[7:]]).slice(1)])
    assert deduplicate(pa.table({"text": column})).removed == expected
    for count in (0, 1, 2):
        assert len(deduplicate(texts[:count])) == count


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 0.0}, "threshold 0: it is above 0"),
        ({"threshold": 1.5}, "threshold 1.5"),
        ({"kind": "prosa"}, "there is no kind 'prosa'; did you mean 'prose'"),
        ({"column": "txt"}, "there is no column 'txt'; did you mean 'text'"),
        ({"column": "number"}, "number is of type int64, no texts"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments: dict[str, object], message: str) -> None:
    """What, the nearest name, the mend."""
    table = pa.table({"text": ["a", "b"], "number": np.arange(2)})
    with pytest.raises(InputError, match=message):
        deduplicate(table, **arguments)  # type: ignore[arg-type]


def test_the_more_similar_of_two_is_chosen_whatever_their_weights() -> None:
    """Weights as of texts of gigabytes, whose products are beyond 64 bits."""
    totals = np.array([3 * 10**10, 3 * 10**10 + 1, 3 * 10**10], np.int64)
    assert compared_fractions.py_func(totals[0], totals[1], totals[2] - 1, totals[1]) == 1
    assert compared_fractions.py_func(totals[0], totals[1], totals[0], totals[1]) == 0


def test_a_threshold_that_no_fraction_writes_is_refused() -> None:
    """As in a declaration: its products would be beyond 64 bits."""
    with pytest.raises(InputError, match="more than 6 decimals; round it"):
        deduplicate(["a", "b"], threshold=0.1 + 0.2)
