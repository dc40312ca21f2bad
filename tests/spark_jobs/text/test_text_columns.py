"""Texts of whole Arrow columns."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.text.normalization import RULES, normalize
from spark_jobs.text.text_columns import EDITS_TYPE, normalized, utf8_buffer

columns = st.lists(st.text(alphabet="aé\r\ne\u0301 \u0327\u212b", max_size=12) | st.just("plain"), max_size=12)
arrow_types = st.sampled_from([pa.string(), pa.large_string()])


@given(columns, arrow_types, st.integers(0, 3))
def test_a_column_is_normalized_as_its_texts_are(texts: list[str], kind: pa.DataType, skipped: int) -> None:
    """Every row as if it were alone, also in a slice of a larger column."""
    content = pa.array(["\r"] * skipped + texts, type=kind).slice(skipped)
    found, edits = normalized(content)
    assert found.type == kind
    assert edits.type == EDITS_TYPE
    for row, text in enumerate(texts):
        expected, expected_edits = normalize(text)
        assert found[row].as_py() == expected
        listed = [tuple(edit.values()) for edit in edits[row].as_py()]
        names = [RULES[rule] for rule in expected_edits.rule]
        spans = (expected_edits.start, expected_edits.end, expected_edits.replacement_length)
        assert listed == list(zip(names, *(span.tolist() for span in spans), strict=True))


def test_documents_in_normal_form_pass_untouched() -> None:
    """The very same buffers come out: nothing was copied."""
    content = pa.array(["def f():\n    pass\n", "", "plain"])
    found, edits = normalized(content)
    assert found is content
    assert edits.to_pylist() == [[], [], []]


@pytest.mark.parametrize("texts", [[], [""], ["", "é", ""]])
def test_utf8_buffer_holds_every_text(texts: list[str]) -> None:
    """Offsets cut the buffer into the texts."""
    offsets, data = utf8_buffer(pa.array(texts, type=pa.string()))
    found = [bytes(data[start:end]).decode() for start, end in pairwise(offsets.tolist())]
    assert found == texts
