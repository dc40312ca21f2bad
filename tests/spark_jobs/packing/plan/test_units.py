"""Documents are cut into the fewest pieces, and units are ranked by prefix sums."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.packing.plan.best_fit import plan_slots
from spark_jobs.packing.plan.units import Cuts, UnitCounts, cut_documents, with_specials
from tests.tiers import tries


@settings(max_examples=tries(300))
@given(st.lists(st.integers(0, 60), max_size=30), st.integers(2, 12), st.integers(0, 1))
def test_documents_are_cut_into_the_fewest_pieces(token_counts: list[int], window_tokens: int, leading: int) -> None:
    """Pieces cover a document's tokens and its specials once, in ceil(n / L) pieces; an empty document has none."""
    pieces = cut_documents(np.array(token_counts, dtype=np.int64), window_tokens, leading)
    for document, tokens in enumerate(token_counts):
        rows = np.flatnonzero(pieces.document == document)
        length = tokens + 1 + leading if tokens else 0
        assert len(rows) == -(-length // window_tokens)
        assert pieces.first[rows].tolist() == [number == 0 for number in range(len(rows))]
        assert pieces.begins[rows].tolist() == [number == 0 and leading == 1 for number in range(len(rows))]
        assert pieces.ends[rows].tolist() == [number == len(rows) - 1 for number in range(len(rows))]
        own = 0
        for row in rows:
            assert 1 <= pieces.length[row] <= window_tokens
            assert pieces.document_start[row] == own
            own += int(pieces.own_tokens[row])
        assert own == tokens
        assert pieces.length[rows].sum() == length


@settings(max_examples=tries(300))
@given(st.lists(st.integers(1, 100), max_size=300), st.integers(2, 12))
def test_cuts_are_as_many_as_no_packing_can_do_without(token_counts: list[int], window_tokens: int) -> None:
    """Over all documents: sum of ceil(n / L) - 1, so nothing that fits a window is cut."""
    pieces = cut_documents(np.array(token_counts, dtype=np.int64), window_tokens)
    cuts = len(pieces.length) - len(token_counts)
    assert cuts == sum(-(-(tokens + 1) // window_tokens) - 1 for tokens in token_counts)


def test_given_cuts_replace_those_of_their_documents_alone() -> None:
    """Documents 1 and 3 of four are cut where told, document 2 every L tokens."""
    cuts = Cuts(np.array([1, 1, 3]), np.array([3, 6, 2]))
    pieces = cut_documents(np.array([2, 9, 9, 5]), 4, 0, cuts)
    assert pieces.document.tolist() == [0, 1, 1, 1, 2, 2, 2, 3, 3]
    assert pieces.start.tolist() == [0, 0, 3, 6, 0, 4, 8, 0, 2]
    assert pieces.length.tolist() == [3, 3, 3, 4, 4, 4, 2, 2, 4]


@settings(max_examples=tries(300, 100))
@given(st.lists(st.integers(0, 30), max_size=8), st.integers(0, 1), st.data())
def test_pieces_begin_at_the_cuts_of_their_document(token_counts: list[int], leading: int, data: st.DataObject) -> None:
    """Any documents have cuts of their own, the first and the last too; what lies between is cut every L tokens."""
    starts, own = [], []
    for document, tokens in enumerate(token_counts):
        length = tokens + 1 + leading if tokens else 0
        cuts = sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=5))) if length > 1 else []
        own += [(document, cut) for cut in cuts]
        bounds = [0, *cuts, length]
        starts += [(document, start) for first, end in pairwise(bounds) for start in range(first, end, 7)]
    table = np.array(own, dtype=np.int64).reshape(-1, 2)
    pieces = cut_documents(np.array(token_counts, dtype=np.int64), 7, leading, Cuts(table[:, 0], table[:, 1]))
    assert list(zip(pieces.document.tolist(), pieces.start.tolist(), strict=True)) == starts


def test_the_example_of_an_end_alone() -> None:
    """A document of exactly L tokens: one full piece, and its end of document alone."""
    pieces = cut_documents(np.array([4]), 4)
    assert pieces.length.tolist() == [4, 1]
    assert pieces.document_start.tolist() == [0, 4]
    assert pieces.own_tokens.tolist() == [4, 0]


def test_no_documents_make_no_pieces() -> None:
    """Nothing in, nothing out; and empty documents have no specials."""
    assert len(cut_documents(np.zeros(0, dtype=np.int64), 4).length) == 0
    assert with_specials(np.array([0, 1]), 1).tolist() == [0, 3]
    nothing = np.zeros(0, dtype=np.int64)
    counts = UnitCounts(nothing, nothing, nothing)
    assert len(counts.ranks(*plan_slots({}, 4).first_slots()).bucket) == 0


@settings(max_examples=tries(300))
@given(st.dictionaries(st.tuples(st.integers(0, 4), st.integers(1, 9)), st.integers(1, 5)), st.randoms())
def test_ranks_are_units_of_the_same_length_in_earlier_buckets(
    units: dict[tuple[int, int], int], random: object
) -> None:
    """First slots are prefix sums over the buckets within a length, in whatever order the counts come."""
    order = list(units)
    random.shuffle(order)  # type: ignore[attr-defined]
    rows = np.array([(*key, units[key]) for key in order], dtype=np.int64).reshape(-1, 3)
    counts = UnitCounts(rows[:, 0], rows[:, 1], rows[:, 2])
    histogram: Counter[int] = Counter()
    for (_, length), count in units.items():
        histogram[length] += count
    plan = plan_slots(histogram, 9)
    lengths, first_slots = plan.first_slots()
    ranks = counts.ranks(lengths, first_slots)
    first_of = dict(zip(lengths.tolist(), first_slots.tolist(), strict=True))
    for bucket, length in units:
        before = sum(count for (other, size), count in units.items() if size == length and other < bucket)
        assert ranks.of_bucket(bucket, 9)[length] == first_of[length] + before
