"""Soft cuts lie at line ends where that makes no more pieces; a line end is a token whose bytes end in LF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.packing.plan.line_cuts import cut_batches, line_end_tokens, soft_line_cuts
from spark_jobs.tokens.hf_tokenizer import ExactEncoder, train_byte_pairs
from tests.tiers import tries


def cuts_by_loop(ends_line: list[bool], window_tokens: int, leading: int) -> list[int]:
    """The rule in words: cut i at the last line end in [n - (K - i) L, previous + L], else at previous + L."""
    length = len(ends_line) + 1 + leading
    pieces = -(-length // window_tokens)
    cuts: list[int] = []
    for number in range(1, pieces):
        before = cuts[-1] if cuts else 0
        earliest, latest = length - (pieces - number) * window_tokens, before + window_tokens
        found = [
            place
            for place in range(max(earliest, before + 1), latest + 1)
            if place - leading >= 1 and ends_line[place - leading - 1]
        ]
        cuts.append(found[-1] if found else latest)
    return cuts


@settings(max_examples=tries(1000, 300))
@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(2, 20), st.integers(0, 1))
def test_soft_cuts_follow_the_rule(ends_line: list[bool], window_tokens: int, leading: int) -> None:
    """Cuts are those of the rule, K = ceil(n / L) pieces come out, and each fits a window."""
    cuts = soft_line_cuts(np.array(ends_line), window_tokens, leading).tolist()
    assert cuts == cuts_by_loop(ends_line, window_tokens, leading)
    length = len(ends_line) + 1 + leading
    sizes = np.diff([0, *cuts, length])
    assert len(sizes) == -(-length // window_tokens)
    assert sizes.min() >= 1 and sizes.max() <= window_tokens


def test_the_example_of_the_module() -> None:
    """L = 8, 18 tokens with the end: cut before 7 and 11, not every 8."""
    ends_line = np.isin(np.arange(17), [4, 6, 10])
    assert soft_line_cuts(ends_line, 8, 0).tolist() == [7, 11]


def test_batches_keep_their_rows_and_skip_foreign_ids() -> None:
    """Every row comes back with its cuts, whatever slice it came in; an id outside the vocabulary ends no line."""
    ids = pa.array([[1], [0, 1, 0, 0, 0], [9, 9, 9, 9]], pa.list_(pa.int32()))
    batch = pa.RecordBatch.from_pydict({"doc_id": ["skipped", "a", "b"], "input_ids": ids}).slice(1)
    (found,) = cut_batches([batch], np.array([False, True]), 3, 0)
    assert found.to_pydict() == {"doc_id": ["a", "b"], "cuts": [[3], [3]]}
    (found,) = cut_batches([batch], np.array([False, True]), 4, 0)
    assert found.to_pydict()["cuts"] == [[2], [4]]


def test_the_first_and_the_last_id_of_a_vocabulary_are_in_it() -> None:
    """Of five ids at the start of a document only those of the vocabulary, 0 and 2, end a line."""
    ids = pa.array([[first, 1, 1, 1] for first in (-1, 0, 2, 3, 4)], pa.list_(pa.int32()))
    batch = pa.RecordBatch.from_pydict({"input_ids": ids})
    (found,) = cut_batches([batch], np.array([True, False, True]), 4, 0)
    assert found.to_pydict()["cuts"] == [[4], [1], [1], [4], [4]]


def test_line_ends_are_tokens_that_end_in_a_line_feed(real_data: Path) -> None:
    """Of GPT-2: by its bytes, with the alphabet that its file spells LF with."""
    import json

    file = (real_data / "tokenizers" / "gpt2.json").read_text()
    vocabulary: dict[str, int] = json.loads(file)["model"]["vocab"]
    wanted = {token for text, token in vocabulary.items() if text.endswith("Ċ")}
    assert {198, 628} <= wanted
    assert set(np.flatnonzero(line_end_tokens(file, 50257)).tolist()) == wanted


def test_line_ends_of_a_trained_tokenizer_are_where_the_text_has_them() -> None:
    """Cutting a text after the tokens that end a line cuts it after line feeds alone."""
    text = "one two\nthree\n\n  four five\nsix" * 20
    file = train_byte_pairs([text], 300, 2)
    ids = next(iter(ExactEncoder(file).encode([text], 1 << 20)))
    from tokenizers import Tokenizer

    ends = line_end_tokens(file, 300)
    tokenizer = Tokenizer.from_str(file)
    for place in np.flatnonzero(ends[ids])[:30]:
        assert tokenizer.decode(ids[: place + 1].tolist()).endswith("\n")
