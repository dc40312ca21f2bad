"""Counts of tokens are those of a loop over documents, and add up however documents are parted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernels.control_names import ControlName
from spark_jobs.tokens.pictures import characters_per_token, draw_token_statistics, length_histograms
from spark_jobs.tokens.text_counts import character_and_word_counts, mark_used
from spark_jobs.tokens.token_statistics import described_row
from spark_jobs.tokens.token_use import COUNTED_SCHEMA, TokenUses, count_partition, measured
from tests.spark_jobs.packing.encoders import HARD_TEXT
from tests.tiers import tries

VOCABULARY_SIZE = 21
NAMES = (ControlName("a", True), ControlName("é", True), ControlName("<|x|>", False))
DOCUMENT = st.tuples(
    st.sampled_from(["code", "prose"]),
    st.sampled_from(["Python", "en", "unknown"]),
    HARD_TEXT,
    st.lists(st.integers(0, VOCABULARY_SIZE - 1), max_size=40),
)
Document = tuple[str, str, str, list[int]]


def batch(documents: list[Document]) -> pa.RecordBatch:
    """Documents as the step gets them."""
    datasets, languages, contents, ids = zip(*documents, strict=True) if documents else ((), (), (), ())
    texts = pa.RecordBatch.from_arrays(
        [
            pa.array(datasets, pa.string()),
            pa.array(languages, pa.string()),
            pa.array([len(one) for one in ids], pa.int32()),
            pa.array(contents, pa.string()),
        ],
        names=["dataset", "language", "token_count", "content"],
    )
    (lengths,) = measured([texts], NAMES)
    return lengths.append_column("input_ids", pa.array(ids, pa.list_(pa.int32())))


def expected_row(documents: list[Document], group: tuple[str, str]) -> dict[str, object]:
    """Counts of a group, one document after the other."""
    own = [document for document in documents if document[:2] == group]
    histogram = [0] * 33
    for _, _, _, ids in own:
        histogram[len(ids).bit_length()] += 1
    used = {number for _, _, _, ids in own for number in ids}
    bits = sum(1 << number for number in used)
    return {
        "dataset": group[0],
        "language": group[1],
        "document_count": len(own),
        "token_count": sum(len(ids) for _, _, _, ids in own),
        "character_count": sum(len(text) for _, _, text, _ in own),
        "byte_count": sum(len(text.encode()) for _, _, text, _ in own),
        "word_count": sum(len(text.split()) for _, _, text, _ in own),
        "max_token_count": max(len(ids) for _, _, _, ids in own),
        "length_histogram": histogram,
        "used_ids": bits.to_bytes(3, "little"),
        "named": [sum(one.name in text for _, _, text, _ in own) for one in NAMES],
    }


@settings(max_examples=tries(200))
@given(st.lists(DOCUMENT, max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_counts_are_those_of_a_loop_however_parted(documents: list[Document], first: int, second: int) -> None:
    """Two partitions, the first of two batches, merged: each group's counts as one document after the other gives."""
    cuts = sorted((min(first, len(documents)), min(second, len(documents))))
    parts = [[batch(documents[: cuts[0]]), batch(documents[cuts[0] : cuts[1]])], [batch(documents[cuts[1] :])]]
    uses = TokenUses(VOCABULARY_SIZE, len(NAMES))
    for part in parts:
        for counted in count_partition(part, VOCABULARY_SIZE, len(NAMES)):
            assert counted.schema == COUNTED_SCHEMA
            uses.merge(counted)
    groups = sorted({(document[0], document[1]) for document in documents})
    assert uses.rows() == [expected_row(documents, group) for group in groups]


def test_no_documents_give_no_counts() -> None:
    """An empty partition has nothing to say."""
    assert list(count_partition([batch([])], VOCABULARY_SIZE, len(NAMES))) == []


@pytest.mark.parametrize("text", ["", " ", "a", " a  b ", "\u00a0a\u2028b\u3000", "a\x1cb\x1fc", "\x85a", "a\u200bb"])
def test_words_are_runs_without_white_space(text: str) -> None:
    """As Python's own `str.split` parts them."""
    assert counts_of([text]) == [(len(text), len(text.split()))]


def counts_of(texts: list[str]) -> list[tuple[int, int]]:
    """Characters and words of texts, as the step counts them."""
    data = [text.encode() for text in texts]
    starts = np.cumsum([0, *map(len, data)])
    counts = character_and_word_counts(np.frombuffer(b"".join(data), np.uint8), starts)
    return list(zip(*(values.tolist() for values in counts), strict=True))


@pytest.mark.nightly
def test_every_code_point_is_white_space_or_not_as_arrow_has_it() -> None:
    """Characters and words of a text with each code point inside, and of texts of all scripts by the slow form."""
    texts = [f"a{chr(code)}b" for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    content = pa.array(texts)
    trimmed = pc.utf8_trim_whitespace(content)
    words = pc.list_value_length(pc.utf8_split_whitespace(trimmed)).to_pylist()
    assert counts_of(texts) == list(zip(pc.utf8_length(content).to_pylist(), words, strict=True))


@settings(max_examples=tries(200))
@given(st.lists(HARD_TEXT | st.text(), max_size=12))
def test_characters_and_words_are_python_s(texts: list[str]) -> None:
    """Of texts of all scripts, one after the other."""
    assert counts_of(texts) == [(len(text), len(text.split())) for text in texts]


def test_an_id_beyond_the_vocabulary_is_refused() -> None:
    """Nothing is written beyond the bitmap."""
    for token in (-1, VOCABULARY_SIZE):
        ids, used = np.array([0, token], np.int32), np.zeros((1, VOCABULARY_SIZE), np.bool_)
        with pytest.raises(IndexError):
            mark_used(ids, np.zeros(1, np.int64), np.array([2]), used)


def test_derived_numbers_follow_from_the_counts() -> None:
    """Sizes of tokens, use of the vocabulary; null where nothing is divided by."""
    row = described_row(expected_row([("d", "l", "ab cé", [1, 1, 4])], ("d", "l")), 8, NAMES)
    assert (row["characters_per_token"], row["bytes_per_token"], row["tokens_per_word"]) == (5 / 3, 2.0, 1.5)
    assert (row["used_token_count"], row["used_fraction"], row["vocabulary_size"]) == (2, 0.25, 8)
    assert [(one["name"], one["document_count"]) for one in row["control_names"]] == [("a", 1), ("é", 1)]
    empty = described_row(expected_row([("d", "l", "", [])], ("d", "l")), 8, NAMES)
    assert (empty["characters_per_token"], empty["tokens_per_word"], empty["used_token_count"]) == (None, None, 0)


def test_pictures_add_increments_up() -> None:
    """Rows of two increments count together; a table without rows still gives a picture."""
    rows = [
        expected_row([("d", "en", "abcd", [1, 2])], ("d", "en")),
        expected_row([("d", "en", "ab", [1])], ("d", "en")),
    ]
    table = pa.Table.from_pylist(rows, schema=COUNTED_SCHEMA)
    assert np.flatnonzero(length_histograms(table)["d"]).tolist() == [1, 2]
    assert characters_per_token(table) == {"en": 2.0}
    for drawn in (table, table.slice(0, 0)):
        assert draw_token_statistics(drawn).startswith(b"\x89PNG")
