"""Lines that a template repeats: counted by document, frozen, and found again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.filters.heuristics.templates import count_lines, frozen, merge_counts, score_templates

LINES = st.sampled_from(
    ["Home | About us", "Read more here", "short", "", "  Read more here ", "A line of its own", "x" * 50]
)
TEXTS = st.lists(st.lists(LINES, max_size=6).map("\n".join), max_size=12)


@given(TEXTS, st.integers(0, 12))
def test_counts_are_the_same_in_any_batches(texts: list[str], cut: int) -> None:
    """Counting in two batches and merging, in either order, is counting in one."""
    column = pa.array(texts, pa.string())
    whole = count_lines(column)
    parts = [count_lines(column[:cut]), count_lines(column[cut:])]
    assert merge_counts(parts).equals(whole)
    assert merge_counts(parts[::-1]).equals(whole)


@given(TEXTS)
def test_counts_are_documents_that_have_the_line(texts: list[str]) -> None:
    """A line counts once a document, without the white space around it, and only if it is long enough."""
    sets = [{line.strip() for line in text.split("\n") if len(line.strip()) >= 8} for text in texts]
    expected = sorted(sum(line in one for one in sets) for line in set().union(*sets))
    assert sorted(count_lines(pa.array(texts, pa.string()))["document_count"].to_pylist()) == expected


def test_template_and_signal_of_a_page() -> None:
    """The fraction is of characters; density leaves out template, repeats, lists, tables and links."""
    menu = "Home | About us"
    pages = [f"{menu}\nOwn text {number}" for number in range(5)]
    templates = frozen(count_lines(pa.array(pages)), min_documents=5)
    assert templates.num_rows == 1
    text = f"{menu}\nWords of a text.\nWords of a text.\n- an item\nSee https://a.bc/d\n"
    measured = score_templates(pa.array([text, "", "plain"]), templates)
    total = 15 + 16 + 16 + 9 + 18
    assert measured["template_fraction"].to_pylist() == [pytest.approx(15 / total), None, 0]
    assert measured["signal_density"].to_pylist() == [pytest.approx((16 + 4) / total), None, 1]


def test_an_empty_table_and_an_empty_column() -> None:
    """Without a template all is signal; without texts there are no rows."""
    nothing = count_lines(pa.array([], pa.string()))
    assert nothing.num_rows == 0
    measured = score_templates(pa.array(["One plain line."]), nothing)
    assert [column.to_pylist() for column in measured.values()] == [[0], [1]]
    assert all(len(column) == 0 for column in score_templates(pa.array([], pa.string()), nothing).values())
