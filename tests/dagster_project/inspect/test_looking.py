"""Data looked at from the terminal: lines that were edited, hits of a search, and what a run changed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_project.inspect.documents.search import search
from dagster_project.inspect.documents.shown_text import edited_lines
from dagster_project.inspect.lake.run_history import changes, past_runs
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import settings_at
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.inspect.test_lake_status import put

pieces = st.lists(st.tuples(st.text("aä\n", max_size=3), st.text("bß\n", max_size=3), st.text("cé\n", max_size=3)))


@given(pieces)
def test_a_line_is_marked_where_it_holds_something_replaced(parts: list[tuple[str, str, str]]) -> None:
    """Against the text built up character by character; line ends that were made one form mark none."""
    text, edits, at = "", [], 0
    marked = set()
    for kept, old, new in parts:
        text += kept
        at += len(kept.encode())
        end = at + len(old.encode())
        edits.append({"rule": "nfc", "start": at, "end": end, "replacement_length": len(new.encode())})
        at = end
        marked.add(text.count("\n"))
        for character in new:
            marked.add(text.count("\n"))
            text += character
    assert edited_lines(text, edits) == marked
    assert edited_lines(text, [{**one, "rule": "line_ends"} for one in edits]) == set()


def test_a_search_reads_until_it_has_enough(tmp_path: Path) -> None:
    """In any case, as it stands or as an expression; what does not print in a terminal is escaped."""
    catalogue = open_catalogue(settings_at(tmp_path))
    texts = ["No word of it.", "The Mill\nrace (old) \x1b[31m.", "a mill race", "MILL RACE"]
    ids = [f"{number:032x}" for number in range(4)]
    for increment in (0, 1):
        rows = [{"doc_id": one, "content": text} for one, text in zip(ids, texts, strict=True)][increment * 3 :][:3]
        put(catalogue, "notes", TEXTS, increment, rows)
        put(catalogue, "notes", DOCUMENTS, increment, [{"doc_id": one["doc_id"], "path": "p"} for one in rows])
    found = search(catalogue, "notes", "mill race", 9)
    assert sorted(one.doc_id for one in found.hits) == ids[2:] and (found.searched, found.total) == (4, 4)
    assert sorted(one.words for one in found.hits) == ["MILL RACE", "mill race"]
    (hit,) = search(catalogue, "notes", "(OLD)", 9).hits
    assert (hit.before, hit.words, hit.behind, hit.path) == ("The Mill race ", "(old)", r" \x1b[31m.", "p")
    assert len(search(catalogue, "notes", r"mill\srace", 9, is_regex=True).hits) == 3
    few = search(catalogue, "notes", "mill", 1)
    assert len(few.hits) == 1 and few.searched < few.total
    assert search(catalogue, "none", "mill", 1).hits == []


@pytest.mark.parametrize("later", [False, True])
def test_a_run_says_what_it_changed(tmp_path: Path, later: bool) -> None:
    """Files that came, changed and went, and rows before and after it, whatever ran later."""
    catalogue = open_catalogue(settings_at(tmp_path))
    landed = [{"location": one, "status": "landed"} for one in ("/a", "/b", "/c")]
    put(catalogue, "notes", ARRIVALS, 0, landed, run_id="one")
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": one} for one in "abc"], run_id="one")
    put(catalogue, "main", SURVIVORS, 0, [{"doc_id": one} for one in "ab"], run_id="one")
    second = [{"location": "/a", "status": "landed"}, {"location": "/d", "status": "landed"}]
    second += [{"location": "/b", "status": "gone"}, {"location": "/e", "status": "rejected", "reason": "binary"}]
    put(catalogue, "notes", ARRIVALS, 1, second, run_id="two", hours=1)
    put(catalogue, "notes", DOCUMENTS, 1, [{"doc_id": one} for one in "de"], run_id="two", hours=1)
    put(catalogue, "main", SURVIVORS, 1, [{"doc_id": "d"}], run_id="two", hours=1)
    if later:
        put(
            catalogue,
            "main",
            SURVIVORS,
            2,
            [{"doc_id": "e"}],
            run_id="headrace doc excise by ada, " + 32 * "0",
            hours=2,
        )
    assert changes(catalogue, ["one"]) == ["main: 0 -> 2 documents kept", "notes: +3 ~0 -0 files; 0 -> 3 documents"]
    assert changes(catalogue, ["two"]) == ["main: 2 -> 3 documents kept", "notes: +1 ~1 -1 files; 3 -> 5 documents"]
    assert changes(catalogue, ["none"]) == changes(catalogue, []) == []
    runs = past_runs(catalogue, None, 9)
    assert [(one.what, one.by) for one in runs] == [
        *([("doc excise", "ada")] if later else []),
        ("run", ""),
        ("run", ""),
    ]
    assert len(runs[-1].computed) == 3 and runs[-1].began < datetime.now(UTC)
    assert len(past_runs(catalogue, None, 1)) == 1
