"""Lines that a template repeats: counted by document, frozen, and found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.filters.heuristics.template_kernel import count_lines, find_examples, merge_counts, score_templates
from spark_jobs.filters.heuristics.templates import TemplateLinesConfig, template_lines, templates
from spark_jobs.filters.scorer import check_scorer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = st.sampled_from(
    ["Home | About us", "Read more here", "short", "", "  Read more here ", "A line of its own", "x" * 50]
)
TEXTS = st.lists(st.lists(LINES, max_size=6).map("\n".join), max_size=12)


@pytest.mark.nightly
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
    counts = count_lines(pa.array(pages))
    templates = counts.filter(pc.field("document_count") >= 5)["line_hash"].to_numpy()
    assert find_examples(pa.array(pages), templates).to_pylist() == [{"line_hash": templates[0], "example": menu}]
    assert find_examples(pa.array(pages), templates, 4)["example"].to_pylist() == ["Home"]
    text = f"{menu}\nWords of a text.\nWords of a text.\n- an item\nSee https://a.bc/d\n"
    measured = score_templates(pa.array([text, "", "plain"]), templates)
    total = 15 + 16 + 16 + 9 + 18
    assert measured["template_fraction"].to_pylist() == [pytest.approx(15 / total), None, 0]
    assert measured["signal_density"].to_pylist() == [pytest.approx((16 + 4) / total), None, 1]


def test_an_empty_table_and_an_empty_column() -> None:
    """Without a template all is signal; without texts there are no rows."""
    nothing = count_lines(pa.array([], pa.string()))
    assert nothing.num_rows == 0
    none = nothing["line_hash"].to_numpy()
    assert find_examples(pa.array(["One plain line."]), none).num_rows == 0
    measured = score_templates(pa.array(["One plain line."]), none)
    assert [column.to_pylist() for column in measured.values()] == [[0], [1]]
    assert all(len(column) == 0 for column in score_templates(pa.array([], pa.string()), none).values())


HEAD, FOOT = ["The Mill Gazette", "Home | Archive | About us"], ["  Printed at the old mill since 1871.  ", "No rights"]
SHARED = {line.strip() for line in (*HEAD, *FOOT)}


def _page(number: int, words: int) -> str:
    return "\n".join([*HEAD, " ".join(f"word{number}x{k}" for k in range(words)), "", *FOOT])


def test_lines_of_a_site_are_found_and_its_later_pages_measured(spark: SparkSession) -> None:
    """Spelled and counted on Spark; fractions are those of a slow count, also of pages that came later."""
    first = [_page(k, k) for k in range(1, 13)] + ["A page of another site.\nIt shares nothing.\nNo rights"]
    later = [_page(40, 1), "A banner of all pages from now on.\n" + _page(41, 9), "No rights\nx", "\n \n"]
    rows = [(0, f"d{k}", "prose", text) for k, text in enumerate([*first, *later])]
    texts = spark.createDataFrame(rows, "shard int, doc_id string, kind string, content string")
    config = TemplateLinesConfig(min_documents=5)
    made = template_lines(texts.limit(len(first)).repartition(3), config).frames["template_lines"]
    counted = {row["example"]: row["document_count"] for row in made.collect()}
    assert counted == {**dict.fromkeys(SHARED, 12), "No rights": 13}
    found = {row["doc_id"]: row for row in templates(texts=texts, template_lines=made).collect()}
    for _, doc_id, _, text in rows:
        own = [line.strip() for line in text.split("\n")]
        total = sum(map(len, own))
        shared = sum(len(line) for line in own if line in SHARED)
        wanted = None if total == 0 else pytest.approx(shared / total)
        assert found[doc_id]["template_fraction"] == wanted
        assert (found[doc_id]["signal_density"] is None) == (total == 0)
    few = template_lines(texts, TemplateLinesConfig(min_documents=5, max_lines=1)).frames["template_lines"]
    assert [row["example"] for row in few.collect()] == ["No rights"]
    none = template_lines(texts.where("false"), config).frames["template_lines"]
    assert none.collect() == []


def test_templates_of_hard_texts() -> None:
    """Any text has its measures, also without a line in the table."""
    tried = check_scorer(templates, np.array([], np.int64))
    assert set(tried["template_fraction"].to_pylist()) == {0, None}
    assert templates.inputs == ("texts", "template_lines")
