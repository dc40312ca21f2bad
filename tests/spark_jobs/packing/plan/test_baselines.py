"""Next-fit and concatenation, against loops over single tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.packing.plan.baselines import (
    SEQUENCE_PIECES,
    SEQUENCE_TOKENS,
    OpenWindow,
    Sequence,
    SequencePlacer,
    count_windows,
    fill_windows,
)
from spark_jobs.packing.plan.placement import EMPTY_DOCUMENTS, UnitRules
from spark_jobs.packing.plan.repository_runs import ALONE
from spark_jobs.packing.plan.window_order import WindowOrder
from tests.spark_jobs.packing.plan.test_placement import Document, arranged, in_order
from tests.tiers import tries


def windows_by_loop(token_counts: list[int], window_tokens: int, leading: int, sequence: Sequence) -> list[list[str]]:
    """Windows as lists of tokens `document:place`, one token after the other: the reference."""
    windows: list[list[str]] = []
    for document, tokens in enumerate(token_counts):
        stream = [f"{document}:{place}" for place in range(tokens + 1 + leading)] if tokens else []
        if sequence == "concat_and_slice":
            for token in stream:
                if not windows or len(windows[-1]) == window_tokens:
                    windows.append([])
                windows[-1].append(token)
            continue
        for start in range(0, len(stream), window_tokens):
            piece = stream[start : start + window_tokens]
            if not windows or len(windows[-1]) + len(piece) > window_tokens:
                windows.append([])
            windows[-1] += piece
    return windows


@pytest.mark.parametrize("sequence", ["next_fit", "concat_and_slice"])
@settings(max_examples=tries(300, 100))
@given(st.lists(st.integers(0, 40), max_size=40), st.integers(2, 16), st.integers(1, 9), st.integers(0, 1))
def test_windows_are_those_of_a_loop(
    sequence: Sequence, token_counts: list[int], window_tokens: int, batch_rows: int, leading: int
) -> None:
    """Batch by batch, every token lands where filling windows token by token puts it."""
    rows = arranged([(0, None, tokens) for tokens in token_counts])
    window = OpenWindow()
    found: dict[int, dict[int, str]] = {}
    for start in range(0, rows.num_rows, batch_rows):
        part = rows.slice(start, batch_rows)
        pieces, windows, places = fill_windows(part, UnitRules(window_tokens, leading), sequence, window)
        assert (pieces.length > 0).all(), "an empty document has no piece"
        for number in range(len(windows)):
            for place in range(int(pieces.length[number])):
                token = f"{start + pieces.document[number]}:{pieces.start[number] + place}"
                found.setdefault(int(windows[number]), {})[int(places[number]) + place] = token
    laid = [[found[number][place] for place in sorted(found[number])] for number in sorted(found)]
    assert laid == windows_by_loop(token_counts, window_tokens, leading, sequence)
    assert window.window_count == len(laid)


@settings(max_examples=tries(200))
@given(
    st.lists(st.tuples(st.integers(0, 2), st.none(), st.integers(0, 40)), max_size=40),
    st.sampled_from(["next_fit", "concat_and_slice"]),
)
def test_shards_follow_each_other(documents: list[Document], sequence: Sequence) -> None:
    """Each shard begins a window of its own; ordinals are dense over all of them."""
    rows = arranged(in_order(documents))
    rules = UnitRules(16)
    counts = [row for batch in count_windows([rows], rules, sequence) for row in batch.to_pylist()]
    windows = [sum(r["units"] for r in counts if r["bucket"] == b and r["length"] == 16) for b in range(3)]
    first_windows = tuple(np.cumsum([0, *windows]).tolist())
    order = WindowOrder(10, sum(windows), 3)
    found = [
        row
        for batch in SequencePlacer(rules, sequence, first_windows, order).place_batches([rows])
        for row in batch.to_pylist()
    ]
    assert {row["ordinal"] for row in found} == set(range(10, 10 + sum(windows)))
    shards: dict[int, set[int]] = {}
    for row in found:
        shards.setdefault(row["ordinal"], set()).add(in_order(documents)[row["data_row"]][0])
    assert all(len(shard) == 1 for shard in shards.values())


@given(
    st.lists(st.tuples(st.integers(0, 2), st.none(), st.integers(0, 40)), max_size=40),
    st.sampled_from(["next_fit", "concat_and_slice"]),
    st.integers(1, 7),
)
def test_counts_are_those_of_a_loop(documents: list[Document], sequence: Sequence, batch_rows: int) -> None:
    """Windows, pieces, tokens and empty documents of each shard, whatever the batches; each fact once."""
    documents = in_order(documents)
    rows = arranged(documents)
    batches = [rows.slice(start, batch_rows) for start in range(0, rows.num_rows, batch_rows)]
    batches.insert(1, rows.slice(0, 0))
    found = [row for batch in count_windows(batches, UnitRules(16), sequence) for row in batch.to_pylist()]
    expected = []
    for shard in sorted({shard for shard, *_ in documents}):
        counts = [tokens for other, _, tokens in documents if other == shard]
        windows = windows_by_loop(counts, 16, 0, sequence)
        pieces = sum(len({token.split(":")[0] for token in window}) for window in windows)
        if sequence == "next_fit":  # pieces of one document may share a window
            pieces = sum(-(-(tokens + 1) // 16) for tokens in counts if tokens)
        tokens = sum(tokens + 1 for tokens in counts if tokens)
        facts = {EMPTY_DOCUMENTS: counts.count(0), SEQUENCE_PIECES: pieces, SEQUENCE_TOKENS: tokens}
        expected.append((ALONE, shard, 16, len(windows)))
        expected += [(theta, shard, 0, number) for theta, number in facts.items()]
    assert [(row["theta"], row["bucket"], row["length"], row["units"]) for row in found] == expected
