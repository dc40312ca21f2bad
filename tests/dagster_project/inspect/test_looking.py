"""Data looked at from the terminal: lines that were edited, hits of a search, and what a run changed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from dagster_project.cli import run_command
from dagster_project.inspect.documents.document_windows import decoded_window
from dagster_project.inspect.documents.search import search
from dagster_project.inspect.documents.shown_text import edited_lines
from dagster_project.inspect.lake.run_history import changes, past_runs
from headrace.tables.settings import load_settings, settings_at
from spark_jobs.dedup.membership.revisions import REVISIONS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.exceptions import InputError
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.plan.excisions import SUPERSEDE_PREFIX, record_excisions
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.packing.packed import packed_step
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from spark_jobs.text.texts import TEXTS
from spark_jobs.tokens.tokenizer import TOKENIZER
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.inspect.test_lake_status import put
from tests.tiers import sampled

_DECLARED = """\
type: headrace.Dataset
attributes:
  name: notes
  samples: ids
  source: {kind: files, path: /nowhere}
"""
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
    """In any case, any white space between words, or as an expression; the text as it is, which printers escape."""
    catalogue = open_catalogue(settings_at(tmp_path))
    texts = ["No word of it.", "The Mill\nrace (old) \x1b[31m.", "a mill race", "MILL RACE"]
    ids = [f"{number:032x}" for number in range(4)]
    for increment in (0, 1):
        rows = [{"doc_id": one, "content": text} for one, text in zip(ids, texts, strict=True)][increment * 3 :][:3]
        put(catalogue, "notes", TEXTS, increment, rows)
        put(catalogue, "notes", DOCUMENTS, increment, [{"doc_id": one["doc_id"], "path": "p"} for one in rows])
    found = search(catalogue, "notes", "mill race", 9)
    assert sorted(one.doc_id for one in found.hits) == ids[1:] and (found.searched, found.total) == (4, 4)
    assert sorted(one.words for one in found.hits) == ["MILL RACE", "Mill race", "mill race"]
    (hit,) = search(catalogue, "notes", "(OLD)", 9).hits
    assert (hit.before, hit.words, hit.behind, hit.path) == ("The Mill race ", "(old)", " \x1b[31m.", "p")
    assert len(search(catalogue, "notes", r"mill\srace", 9, is_regex=True).hits) == 3
    few = search(catalogue, "notes", "mill", 1)
    assert len(few.hits) == 1 and few.searched < few.total
    assert search(catalogue, "none", "mill", 1).hits == []


def test_a_run_counts_what_it_took_out_and_what_stays(tmp_path: Path) -> None:
    """Not what an earlier run took out, nor what leaves by its policy and stays as the only copy of a text."""
    catalogue = open_catalogue(settings_at(tmp_path))
    standings = {"edited": "superseded", "deleted": "gone", "only copy": "superseded", "before": "gone"}
    rows = [{"doc_id": one, "standing": how, "leaves": True} for one, how in standings.items()]
    rows += [{"doc_id": "kept", "standing": "gone", "leaves": False}, {"doc_id": "new", "standing": "latest"}]
    put(catalogue, "main", REVISIONS, 0, rows, run_id="two")
    packed = replace(packed_step("notes", 8).table, properties={})
    put(catalogue, "main", packed, 0, [{"ordinal": 0}], run_id="two")
    record_excisions(catalogue, "main.packed_notes_8", {"before"}, f"{SUPERSEDE_PREFIX}one")
    record_excisions(catalogue, "main.packed_notes_8", {"edited", "deleted"}, f"{SUPERSEDE_PREFIX}two")
    record_excisions(catalogue, "other.packed_notes_8", {"only copy"}, f"{SUPERSEDE_PREFIX}two")
    (line,) = changes(catalogue, ["two"])
    assert "2 left the windows (1 gone, 1 replaced)" in line
    assert line.endswith("1 stay in windows, superseded or on_delete: keep (1 gone)")


def test_a_window_is_decoded_document_by_document(tmp_path: Path) -> None:
    """By the tokenizer that its table names, not by one that the corpus has beside it; what is padding is left."""
    catalogue = open_catalogue(settings_at(tmp_path))
    facts = {"headrace.tokenizer-sha256": "right", "headrace.window-tokens": "8"}
    declared = replace(packed_step("notes", 8).table, properties=facts)
    segments = [
        {"doc_id": "a", "document_start": 3, "token_count": 2, "window_start": 0},
        {"doc_id": "b", "document_start": 0, "token_count": 3, "window_start": 2},
    ]
    ids = [1, 2, 2, 1, 1, 0, 0, 0]
    put(catalogue, "main", declared, 0, [{"ordinal": 7, "input_ids": ids, "token_count": 5, "segments": segments}])
    catalogue.load_table("main.packed_notes_8").transaction().set_properties(facts).commit_transaction()
    for sha256, words in (("wrong", ("-", "x", "y")), ("right", ("-", "one", "two"))):
        file = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)})).to_str()
        put(catalogue, "main", TOKENIZER, 0, [{"sha256": sha256, "file": file}])
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": "a", "path": "a.txt"}])
    first, second = decoded_window(catalogue, "main.packed_notes_8", 7)
    assert (first.path, first.text, first.document_start) == ("a.txt", "one two", 3)
    assert (second.path, second.text) == ("", "two one one")
    with pytest.raises(InputError, match="has no window 8"):
        decoded_window(catalogue, "main.packed_notes_8", 8)


@sampled()
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


def test_commands_show_texts_where_the_declaration_says_so(
    declare: WriteDefs, lake_env: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A document, a search, a dataset's first documents and what failed a rule; without texts until `samples: text`."""
    file = declare("notes", _DECLARED)
    catalogue = open_catalogue(load_settings())
    texts = {"a.md": "# Mills\nThe race\x07.\n", "b.md": "Nothing of it."}
    ids = {path: f"{number:032x}" for number, path in enumerate(texts, start=10**30)}
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": ids[one], "path": one, "kind": "prose"} for one in texts])
    edits = [{"rule": "nfc", "start": 8, "end": 12, "replacement_length": 3}]
    rows = [{"doc_id": ids[one], "content": text, "edits": edits} for one, text in texts.items()]
    put(catalogue, "notes", TEXTS, 0, rows)
    failed = [{"rule": "too_short", "value": value, "threshold": 50.0} for value in (3.0, 48.0)]
    judged = zip(ids.values(), failed, strict=True)
    put(catalogue, "notes", VERDICTS, 0, [{"doc_id": one, "kept": False, "failed": [why]} for one, why in judged])
    refused = [{"location": f"/{one}", "status": "rejected", "reason": "binary"} for one in "xy"]
    put(catalogue, "notes", ARRIVALS, 0, refused)

    def said(*words: str, status: int = 0) -> str:
        capfd.readouterr()
        assert run_command(list(words)) == status
        out, err = capfd.readouterr()
        return err if status else out

    assert "does not say `samples: text`" in said("doc", "show", "a.md")
    assert "does not say `samples: text`" in said("doc", "show", "a.md", "--raw", status=2)
    assert "does not say `samples: text`" in said("search", "RACE", "--dataset", "notes", status=2)
    assert "begins" not in json.loads(said("dataset", "show", "notes", "--json"))["first"][0]
    file.write_text(_DECLARED.replace("ids", "text"))
    shown = said("doc", "show", "a.md").splitlines()
    assert shown[0].startswith("a.md  notes, prose") and shown[1] == ids["a.md"]
    assert shown[2].startswith("rejected: failed too_short (3, the bound is 50)") and shown[3] == "edits: nfc 1"
    assert shown[4:7] == ["", "  # Mills", r"~ The race\x07."]
    assert said("doc", "show", "a.md", "--raw") == texts["a.md"]
    view = json.loads(said("dataset", "show", "notes", "1", "--json"))
    assert view["refused"] == [{"refused for": "binary", "count": 2, "e.g.": "/x"}]
    assert [one["begins"] for one in view["first"]] == ["# Mills The race\\x07."]
    hit, words, end = said("search", "the RACE").splitlines()
    assert hit.endswith("  a.md") and words.strip() == r"# Mills The race\x07." and "searched 2 of 2 documents" in end
    assert "stopped at 1 documents" in said("search", "t", "--limit", "1")
    assert "missing )" in said("search", "(", "--regex", status=2)
    rows = json.loads(said("table", "show", "notes.verdicts", "--failed", "too_short", "--json"))
    assert [(one["path"], one["value"], one["bound"]) for one in rows] == [("b.md", 48.0, 50.0), ("a.md", 3.0, 50.0)]
    assert "did you mean 'too_short'" in said("table", "show", "notes.verdicts", "--failed", "too_shrt", status=2)
    assert "give it with NAME.verdicts" in said("table", "show", "notes.texts", "--failed", "too_short", status=2)
