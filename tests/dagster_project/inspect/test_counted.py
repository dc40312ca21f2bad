"""Documents that count: against a source that is simulated, and the same figure in every command and page."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents import counted
from dagster_project.inspect.documents.counted import At, count_documents, documents_that_count, members_that_count
from dagster_project.inspect.documents.dataset_view import dataset_view
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.lake_status import lake_status
from dagster_project.inspect.lake.run_history import changes
from headrace.tables.settings import load_settings, settings_at
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.membership.revisions import REVISIONS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.plan.increments import INCREMENTS
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from spark_jobs.tokens.tokens import TOKENS
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.explore.served import asked, pages
from tests.tiers import sampled, tries

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
Row = dict[str, Any]
STATES = st.lists(st.tuples(*(st.sampled_from([None, "A", "B", "C"]) for _ in range(4))), min_size=1, max_size=6)


def _story(states: list[tuple[str | None, ...]], lost: int | None) -> tuple[list[Row], list[Row], set[str], set[str]]:
    """What a dataset writes while files at four paths become what `states` say; increment `lost` is deleted for good.

    Returns:
        Rows of documents and of arrivals; documents that count in the end; of the others, the last of files that went.
    """
    documents: list[Row] = []
    arrivals: list[Row] = []
    before: dict[int, str | None] = {}
    for increment, state in enumerate(states):
        for path, text in enumerate(state):
            was = before.get(path)
            if text == was:
                continue
            where = {"repository": None if path % 2 else "shelf", "path": f"p{path}", "increment": increment}
            known = any(row["doc_id"] == f"{text}{path}" for row in documents)
            if text is None:
                arrivals.append({**where, "status": "gone", "doc_id": f"{was}{path}"})
            elif known:
                arrivals.append({**where, "status": "returned", "doc_id": f"{text}{path}"})
            else:
                documents.append({**where, "doc_id": f"{text}{path}", "byte_count": path + 1})
                arrivals.append({**where, "status": "landed", "doc_id": None})
            before[path] = text
    deleted = [row for row in documents if row["increment"] == lost]
    arrivals += [{**row, "status": "deleted"} for row in deleted]
    there = [row for row in documents if row not in deleted]
    ids = {row["doc_id"] for row in there}
    last = {f"{text}{path}" for path, text in before.items() if text is not None}
    went = {row["doc_id"] for row in arrivals if row["status"] == "gone"}
    gone = {one for one in went if before[int(one[1])] is None and _last_text(states, int(one[1])) == one[0]}
    return there, arrivals, last & ids, gone & ids


def _last_text(states: list[tuple[str | None, ...]], path: int) -> str | None:
    return next((state[path] for state in reversed(states) if state[path] is not None), None)


def _as_tables(documents: list[Row], arrivals: list[Row]) -> Any:
    """Stands for reading: the rows in columns, as `counted` asks for them."""

    def read(_: object, namespace: str, table: str, columns: tuple[str, ...], at: At, *condition: object) -> pa.Table:
        rows = documents if table == "documents" else [row for row in arrivals if row["doc_id"]]
        rows = [row for row in rows if at.increment is None or row["increment"] <= at.increment]
        kinds = {"increment": pa.int64(), "byte_count": pa.int64()}
        schema = pa.schema([(name, kinds.get(name, pa.large_string())) for name in columns])
        return pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows], schema=schema)

    return read


@settings(max_examples=tries(1000, 100))
@given(states=STATES, lost=st.none() | st.integers(0, 5))
def test_what_counts_is_what_the_source_has(states: list[tuple[str | None, ...]], lost: int | None) -> None:
    """Any history of edits, deletions, returns and deleted increments: the present texts count, the rest went."""
    documents, arrivals, present, gone = _story(states, lost)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "_read", _as_tables(documents, arrivals))
        counts = count_documents(None, "notes")  # type: ignore[arg-type]
        assert set(documents_that_count(None, "notes")["doc_id"].to_pylist()) == present  # type: ignore[arg-type]
        if lost is None:
            for number in range(len(states)):
                until = count_documents(None, "notes", At(increment=number))  # type: ignore[arg-type]
                assert until.documents == sum(text is not None for text in states[number])
    sizes = {row["doc_id"]: row["byte_count"] for row in documents}
    assert (counts.documents, counts.landed, counts.gone) == (len(present), len(documents), len(gone))
    assert counts.superseded == len(documents) - len(present) - len(gone)
    assert counts.byte_count == sum(sizes[one] for one in present)
    by_increment = Counter(row["increment"] for row in documents if row["doc_id"] in present)
    assert {number: count for number, (count, _) in counts.increments.items()} == by_increment


def test_paths_of_one_document_each_are_not_compared() -> None:
    """Of a dataset that nobody edited, comparing them would be most of the time of a run's last line."""
    documents = [{"doc_id": f"{n}", "increment": n % 3, "byte_count": n, "path": f"p{n}"} for n in range(50)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "_read", _as_tables(documents, []))
        patch.setattr(counted, "_latest", lambda *_: pytest.fail("compared"))
        assert count_documents(None, "notes").documents == 50  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """Ten documents of which one was edited, two deleted and, of the corpus, one excised by name; then the commands."""
    root = tmp_path_factory.mktemp("counted")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings_at(root / "lake").properties.items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        patch.setenv("DAGSTER_HOME", str(root / "dagster"))
        patch.setenv("COLUMNS", "200")
        package = root / "declared"
        (package / "defs" / "notes").mkdir(parents=True)
        for file in (package / "__init__.py", package / "defs" / "__init__.py"):
            file.touch()
        (root / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "declared"\n')
        (package / "defs" / "notes" / "defs.yaml").write_text(
            "type: headrace.Dataset\nattributes: {name: notes, source: {kind: files, path: /nowhere}}\n"
        )
        patch.setenv("HEADRACE_PROJECT", str(root))
        catalogue = open_catalogue(load_settings())
        _fill(catalogue)
        yield catalogue


def _fill(catalogue: Catalog) -> None:
    first = [{"doc_id": f"{n}" * 32, "path": f"{n}.txt", "byte_count": 100, "kind": "prose"} for n in range(10)]
    edit = {"doc_id": "a" * 32, "path": "5.txt", "byte_count": 7, "kind": "prose"}
    gone = [{"doc_id": row["doc_id"], "path": row["path"], "status": "gone"} for row in first[3:5]]
    for increment, rows in enumerate((first, [edit])):
        source = {"dataset": "notes", "source": {"kind": "files", "path": "/nowhere"}}
        run = {"run_id": "second" if increment else "first", "config": json.dumps(source)}
        put(catalogue, "notes", DOCUMENTS, increment, rows, **run)
        events = [{"path": row["path"], "status": "landed"} for row in rows] + (gone if increment else [])
        put(catalogue, "notes", ARRIVALS, increment, events)
        judged = [{"doc_id": row["doc_id"], "kept": True, "failed": []} for row in rows]
        put(catalogue, "notes", VERDICTS, increment, judged)
        taken = {"notes.arrivals": {"snapshot_id": "1", "versions": {f"{increment}": "v1:1:1:1"}}}
        put(catalogue, "main", INCREMENTS, increment, [{"dataset": "notes"}], inputs=taken)
        members = [{"doc_id": row["doc_id"], "dataset": "notes"} for row in rows]
        put(catalogue, "main", MEMBERS, increment, members, config='{"datasets": ["notes"]}')
        left = [("gone", row) for row in first[3:5]] + [("superseded", first[5])] if increment else []
        standing = [{"doc_id": row["doc_id"], "dataset": "notes", "standing": s, "leaves": True} for s, row in left]
        put(catalogue, "main", REVISIONS, increment, standing)
        put(catalogue, "main", SURVIVORS, increment, members, run_id="second" if increment else "first")
        put(
            catalogue,
            "main",
            TOKENS,
            increment,
            [{"doc_id": r["doc_id"], "token_count": 10, "input_ids": []} for r in rows],
        )
    record_excisions(catalogue, None, ["9" * 32], "asked for")


def _said(*words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_command(list(words)) == 0
    return out.getvalue()


def test_every_command_and_page_counts_the_same(lake: Catalog, tmp_path: Path) -> None:
    """8 documents of 11 with 707 bytes of text, 7 members: `dataset show`, status, card, run, home page."""
    counts = count_documents(lake, "notes")
    assert (counts.documents, counts.byte_count, counts.landed, counts.gone, counts.superseded) == (8, 707, 11, 2, 1)
    assert members_that_count(lake, "main").num_rows == 7
    (row,) = json.loads(_said("dataset", "show", "--json"))
    assert (row["documents"], row["bytes"]) == (8, 707)
    shown = json.loads(_said("dataset", "show", "notes", "20", "--json"))
    assert (shown["documents"], shown["byte_count"], len(shown["first"])) == (8, 707, 8)
    assert [(one["came"], one["documents"], one["bytes"]) for one in shown["increments"]] == [(10, 7, 700), (1, 1, 7)]
    assert "8 documents, 707 bytes of text; 3 went of 11 that came" in _said("dataset", "show", "notes")
    assert dataset_view(lake, "notes").documents == 8
    status = {one.name: one for one in lake_status(lake, Thresholds())}
    assert (status["notes"].documents, status["main"].documents) == (8, 7)
    assert sum(status["notes"].backlog.values()) == 8, "no packed table has any"
    card = _said("dataset", "show", "notes", "--card")
    assert (
        "8 documents, 707 bytes of text." in card and "| prose | 8 | 707 |" in card and "8 of 8 documents pass" in card
    )
    card = _said("corpus", "show", "main", "--card")
    assert "| members | 7 |" in card and "| survivors | 7 |" in card and "70 tokens." in card
    client = pages(lake, tmp_path)
    home = asked(client, "/lake")
    assert [(one["documents"], one["byte_count"]) for one in home["datasets"]] == [(8, 707)]
    assert [one["documents"] for one in home["corpora"]] == [7]
    assert re.search(r">8 <span>documents<", client.get("/lake").text)
    assert changes(lake, ["second"]) == ["main: 10 -> 7 documents kept", "notes: 10 -> 8 documents"]


@sampled()
@pytest.mark.parametrize(("name", "went"), [("notes", 3), ("main", 4)])
def test_a_comparison_counts_what_went(lake: Catalog, tmp_path: Path, name: str, went: int) -> None:
    """One came, the edited and the deleted ones went, of the corpus the excised one too; by command and by page."""
    table = "documents" if name == "notes" else "members"
    first = lake.load_table(f"{name}.{table}").history()[0].snapshot_id
    found = json.loads(_said("diff", f"{name}@{first}", name, "--json"))
    assert (found["before"], found["after"], found["added"], found["removed"]) == (10, 11 - went, 1, went)
    page = asked(pages(lake, tmp_path), f"/compare?first={name}@{first}&second={name}")
    assert {key: page[key] for key in found if key != "examples"} == {k: v for k, v in found.items() if k != "examples"}
    if name == "notes":
        assert found["changed"] == 1
        assert "removed             3" in _said("diff", f"{name}@{first}", name)
    else:
        assert found["totals"]["tokens"] in ([0, 70], [100, 70])
    back = json.loads(_said("diff", name, f"{name}@{first}", "--json"))
    assert (back["added"], back["removed"]) == (went, 1)


def test_tables_that_a_step_wrote_together_are_one_state(lake: Catalog) -> None:
    """Arrivals are published after the documents of the same step, so the later snapshot goes with the earlier one."""
    from dagster_project.inspect.corpora.snapshot_diff import find_state

    with contextlib.ExitStack() as stack:
        tables = [lake.load_table(f"notes.{name}") for name in ("documents", "arrivals")]
        heads = [table.current_snapshot() for table in tables]
        for head in heads:
            assert head is not None and head.summary is not None
            facts = head.summary.additional_properties
            stack.callback(facts.pop, "headrace.step-key")
            facts["headrace.step-key"] = "one key"
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        load = lake.load_table
        known = {("notes", name): table for name, table in zip(("documents", "arrivals"), tables, strict=True)}
        patch.setattr(lake, "load_table", lambda name: known.get(name) or load(name))
        documents, arrivals = (head.snapshot_id for head in heads if head is not None)
        assert find_state(lake, f"notes@{documents}").snapshots["arrivals"] == arrivals


@pytest.mark.nightly
def test_a_path_names_its_latest_document(lake: Catalog, capfd: pytest.CaptureFixture[str]) -> None:
    """After an edit too, which is told on standard error; --increment names the others, in every mode."""
    modes = ([], ["--raw"], ["--duplicates"], ["--source"], ["--windows"])
    for words in (["doc", "why"], *(["doc", "show", *mode] for mode in modes)):
        for path, told in (("5.txt", True), ("3.txt", False)):
            capfd.readouterr()
            run_command([*words, path])
            err = capfd.readouterr().err
            assert "may be any of" not in err
            said = "5.txt: the latest of 2, of increment 1; others by --increment: 0 (555555555555)"
            assert (said in err) == told, err
        run_command([*words, "5.txt", "--increment", "7"])
        assert "document 5.txt did not land in increment 7, but in 0, 1" in capfd.readouterr().err
    assert _said("doc", "why", "5.txt").startswith("a" * 32)
    assert _said("doc", "why", "5.txt", "--increment", "0").startswith("5" * 32)


@sampled()
@pytest.mark.parametrize(("events", "latest"), [([], "b"), ([("returned", "a")], "a"), ([("gone", "b")], "b")])
def test_the_latest_at_a_path_is_what_the_source_has(
    lake_env: Path, events: list[tuple[str, str]], latest: str
) -> None:
    """An older text that returned, else that of the newest increment, gone or not; another repository's is apart."""
    catalogue = open_catalogue(load_settings())
    for increment, one in enumerate("ab"):
        put(catalogue, "notes", DOCUMENTS, increment, [{"doc_id": one * 32, "path": "x.md"}])
    happened = [{"path": "x.md", "status": status, "doc_id": one * 32} for status, one in events]
    put(catalogue, "notes", ARRIVALS, 2, happened)
    assert find_document(catalogue, "x.md").doc_id == latest * 32
    assert find_document(catalogue, "x.md", 0).doc_id == "a" * 32
    put(catalogue, "notes", DOCUMENTS, 3, [{"doc_id": "c" * 32, "path": "x.md", "repository": "other"}])
    with pytest.raises(CommandError, match="may be any of 3"):
        find_document(catalogue, "x.md")
    assert find_document(catalogue, "x.md", 3).doc_id == "c" * 32


def test_the_assistant_says_what_status_says(lake: Catalog, tmp_path: Path) -> None:
    """The same figures, null for what was not measured; of what a reader may not see nothing."""
    pytest.importorskip("mcp")
    from headrace_features.explore.assistant import Assistant
    from headrace_features.explore.explorer import Explorer

    everything = Assistant(Explorer(lake, tmp_path, lambda name: True), "ann")
    said = json.loads(everything.status())
    shown = json.loads(_said("status", "--json"))["namespaces"]
    assert [{**one, "alerts": []} for one in said] == [{**one, "alerts": []} for one in shown]
    assert (said[0]["rejected"], said[0]["documents"], said[0]["backlog"]) == (None, 8, {"main": 8})
    one_dataset = Explorer(lake, tmp_path, lambda name: True, lambda who: lambda table: table.startswith("notes."))
    (told,) = json.loads(Assistant(one_dataset, "bo").status())
    assert (told["name"], told["backlog"]) == ("notes", {})
    with pytest.raises(CommandError, match="main is not here"):
        Assistant(one_dataset, "bo").status("main")
