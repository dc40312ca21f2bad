"""Statements of real lakes; examples/verify_statement.py finds whatever was tampered with, without headrace."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from blender_service.blend.config import BlendConfig
from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.blend.store import open_store
from blender_service.order.offsets import offsets_of
from blender_service.server.blender import Blender
from blender_service.tables.text_packing import TextRule
from dagster_project.exceptions import CheckFailedError, CommandError
from headrace.tables.rights_root import OPT_OUTS, ROOT_PROPERTY
from headrace_features.rights.proof.statement import statement_of
from headrace_features.rights.proof.statement_page import page_of
from headrace_features.rights.register import register
from headrace_features.rights.register.merkle import leaf_hash, root_of
from headrace_features.rights.register.register import OptOut
from spark_jobs.lake.plan.excisions import EXCISIONS, record_excisions
from tests.blender_service.packed_tables import PackedFixture, create_packed, open_lake

SCRIPT = Path(__file__).parents[3] / "examples" / "verify_statement.py"
NOTES, CODE, TEXTS = "main.packed_notes_16", "main.packed_code_16", "notes.texts"
ASKED = OptOut("Ann <b>", "domain", ("example.org",), request="letter 7")


@dataclass
class Stated:
    """A lake with an entry whose documents are out, its statement, and documents that are still in."""

    catalogue: Catalog
    folder: Path
    entry: str
    gone: tuple[str, ...]
    kept: str
    notes: PackedFixture


def make(folder: Path) -> Stated:
    """A table with three generations: of the first a blend pins a snapshot, the second nothing serves; a text blend."""
    catalogue = open_lake(folder)
    catalogue.is_guarded = True  # type: ignore[attr-defined]
    notes = create_packed(catalogue, NOTES).append(4, 1).append(3, 2)
    code = create_packed(catalogue, CODE).append(5, 3)
    blend = Blender(catalogue).create(BlendSpec((SourceSpec(NOTES), SourceSpec(CODE)))).blend_id
    config = open_store(catalogue).get(blend)
    gone = next(row.segments[0][0] for row in code.rows if len(row.segments) > 1)
    kept = notes.rows[0].segments[0][0]
    texts_in(catalogue, config, [gone, kept])
    for name in ("b", "c"):
        notes.repack(4, 5 + ord(name), f"generation {name}")
    others = [OptOut(f"asker {number}", "domain", (f"site{number}.example",)) for number in range(3)]
    register.add_entries(catalogue, others[:2])
    [entry] = register.add_entries(catalogue, [ASKED])
    held = next(number for number, row in enumerate(code.rows) if row.segments[0][0] == gone)
    snapshot = code.table.current_snapshot()
    assert snapshot is not None
    windows = [{"table": CODE, "snapshot_id": str(snapshot.snapshot_id), "windows": 1, "ordinals": [held]}]
    run = {
        "run": "llm-7b",
        "blend": blend,
        "names": ["mix"],
        "table": CODE,
        "first": 0,
        "before": 40,
        "windows": 1,
        "reads": 1,
    }
    code.excise(held)
    record_excisions(catalogue, None, [gone], "run")
    excised = {"documents": [document(gone)], "windows": windows, "runs": [run]}
    register.note_excision(catalogue, {entry.entry: excised})
    code.append(1, 9)
    register.add_entries(catalogue, others[2:])
    return Stated(catalogue, folder, entry.entry, (gone,), kept, notes)


def document(doc_id: str) -> dict[str, str]:
    """As a row of an excision names it."""
    return {"doc_id": doc_id, "dataset": "code", "path": "a.py", "how": "the page itself"}


def texts_in(catalogue: Catalog, config: BlendConfig, doc_ids: list[str]) -> None:
    """A table of texts and a blend that pins it."""
    catalogue.create_namespace("notes")
    rows = pa.table({"doc_id": doc_ids, "content": ["text"] * len(doc_ids)})
    table = catalogue.create_table(TEXTS, rows.schema)
    table.append(rows)
    head = table.current_snapshot()
    assert head is not None
    source = config.sources[0].model_copy(
        update={"name": TEXTS, "table": TEXTS, "snapshot_id": str(head.snapshot_id), "rows": 2}
    )
    rule = TextRule(doc_id="doc_id", text="content", group_documents=1, whole=False)
    open_store(catalogue).put(config.model_copy(update={"sources": (source,), "texts": rule}))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stated, Path]:
    """The lake as it was stated, and its catalogue beside it: metadata of Iceberg never changes, so that is all."""
    stated = make(tmp_path_factory.mktemp("stated") / "lake")
    stated.catalogue.engine.dispose()  # type: ignore[attr-defined]
    return stated, Path(shutil.copy(stated.folder / "catalog.db", stated.folder.parent / "before.db"))


@pytest.fixture
def stated(original: tuple[Stated, Path]) -> Iterator[Stated]:
    """The lake, for a test to tamper with."""
    stated, before = original
    yield replace(stated, catalogue=open_lake(stated.folder))
    shutil.copy(before, stated.folder / "catalog.db")


def verified(statement: dict[str, Any], folder: Path, tmp_path: Path) -> tuple[int, str]:
    """Status and output of the script, in a process that cannot import headrace."""
    (tmp_path / "statement.json").write_text(json.dumps(statement))
    code = (
        f"import runpy, sys; sys.argv[1:] = ['statement.json', {str(folder)!r}]\n"
        f"try: runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        "finally: assert not [name for name in sys.modules if name.startswith(('headrace', 'spark_jobs'))]"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSTARTUP")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "Error" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def verified_here(
    statement: dict[str, Any], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The same in this process, in a tenth of the time."""
    (tmp_path / "statement.json").write_text(json.dumps(statement))
    status = runpy.run_path(str(SCRIPT))["_main"](tmp_path / "statement.json", folder)
    return status, capsys.readouterr().out


def test_a_statement_holds_and_rows_that_come_later_do_not_break_it(
    stated: Stated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names all pairs that are served, what is only kept, who read the documents, and how they were reached."""
    made = statement_of(stated.catalogue, stated.entry)
    assert made["verdict"] == "absent" and made == {**statement_of(stated.catalogue, "letter 7"), "about": stated.entry,
        "made_at": made["made_at"]}  # fmt: skip
    pairs = {(part["table"], tuple(sorted(by.split()[0] for by in part["by"]))) for part in made["windows"]}
    assert pairs == {(NOTES, ("head",)), (NOTES, ("blend", "tag")), (CODE, ("head",)), (CODE, ("blend", "tag"))}
    assert [part["generation"] for part in made["kept"] if part["table"] == NOTES] and not made["packed_again"]
    assert made["texts"][0]["table"] == TEXTS and made["texts"][0]["rows"] == 2
    [run] = made["read_before"]
    [ordinal] = json.loads(made["leaves"][-1]["row"]["detail"])["windows"][0]["ordinals"]
    order = Blender(stated.catalogue).order(run["blend"])
    reads = [offset for offset, _ in offsets_of(order, CODE, ordinal)]
    assert run["offsets"] == reads != [] and made["documents"][0]["how"] == "the page itself"
    status, told = verified(made, stated.folder, tmp_path)
    assert status == 0 and "holds" in told, told
    register.add_entries(stated.catalogue, [replace(ASKED, values=("later.example",))])
    create_packed(stated.catalogue, "main.packed_later_16").append(2, 12)
    status, told = verified_here(made, stated.folder, tmp_path, capsys)
    assert status == 0 and "main.packed_later_16" in told, told


def rewritten(catalogue: Catalog, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Replace the rows of the register, with numbers, hashes and root as they would be, as a forger does."""
    rows = change(register.read_log(catalogue))
    for number, row in enumerate(rows):
        row["leaf"] = number
        row["leaf_hash"] = leaf_hash(register.leaf_bytes(row)).hex()
    table = catalogue.load_table(OPT_OUTS)
    table.overwrite(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    root = root_of([bytes.fromhex(row["leaf_hash"]) for row in rows]).hex()
    table.transaction().set_properties({ROOT_PROPERTY: f"{len(rows)}:{root}"}).commit_transaction()


def a_row_changed(stated: Stated, statement: dict[str, Any]) -> None:
    """Somebody else's entry names another asker, without its hash."""
    table = stated.catalogue.load_table(OPT_OUTS)
    [row] = table.scan(EqualTo("leaf", 1)).to_arrow().to_pylist()
    changed = pa.Table.from_pylist([{**row, "asker": "nobody"}], schema=table.schema().as_arrow())
    table.overwrite(changed, EqualTo("leaf", 1))


def an_entry_removed(stated: Stated, statement: dict[str, Any]) -> None:
    """A row is deleted."""
    stated.catalogue.load_table(OPT_OUTS).delete(EqualTo("leaf", 0))


def an_entry_removed_and_all_hashed(stated: Stated, statement: dict[str, Any]) -> None:
    """And all behind it is numbered and hashed anew."""
    rewritten(stated.catalogue, lambda rows: rows[1:])


def an_entry_inserted_late(stated: Stated, statement: dict[str, Any]) -> None:
    """It stands in the past, and all behind it is numbered and hashed anew."""
    rewritten(stated.catalogue, lambda rows: [rows[0], {**rows[0], "asker": "late"}, *rows[1:]])


def an_entry_appended_late(stated: Stated, statement: dict[str, Any]) -> None:
    """Past the register, with a time of before."""
    table = stated.catalogue.load_table(OPT_OUTS)
    row = {**register.read_log(stated.catalogue)[0], "leaf": 5}
    row["leaf_hash"] = leaf_hash(register.leaf_bytes(row)).hex()
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))


def a_window_that_holds_a_document(stated: Stated, statement: dict[str, Any]) -> None:
    """The tag of what the blend pins goes back to the snapshot before the excision."""
    table = stated.catalogue.load_table(CODE)
    table.transaction().remove_properties("headrace.successors").commit_transaction()


def a_table_left_out(stated: Stated, statement: dict[str, Any]) -> None:
    """The statement does not name a table."""
    for part in ("windows", "kept"):
        statement[part] = [pair for pair in statement[part] if pair["table"] != NOTES]


def a_document_left_out(stated: Stated, statement: dict[str, Any]) -> None:
    """The statement does not name a document."""
    statement["documents"] = []


def a_leaf_changed(stated: Stated, statement: dict[str, Any]) -> None:
    """The row of the statement says another asker."""
    statement["leaves"][0]["row"]["asker"] = "nobody"


def a_path_changed(stated: Stated, statement: dict[str, Any]) -> None:
    """A hash of a path is another one."""
    statement["leaves"][0]["audit_path"][0] = "00" * 32


def a_text_let_in(stated: Stated, statement: dict[str, Any]) -> None:
    """The list of excisions does not name the document any more, so the blend of texts reads it."""
    stated.catalogue.load_table(EXCISIONS).delete(EqualTo("doc_id", stated.gone[0]))


def a_verdict_changed(stated: Stated, statement: dict[str, Any]) -> None:
    """The statement of an entry that waits says that its documents are out."""
    [waits] = register.add_entries(stated.catalogue, [replace(ASKED, values=("b.example",), request="new")])
    statement |= {**statement_of(stated.catalogue, waits.entry), "verdict": "absent", "claim": statement["claim"]}


def another_request(stated: Stated, statement: dict[str, Any]) -> None:
    """A statement without leaves about what nobody asked."""
    statement |= {"about": "letter 9", "entries": [], "leaves": [], **{key: [] for key in FACTS}}


def a_reader_left_out(stated: Stated, statement: dict[str, Any]) -> None:
    """The statement does not name a run."""
    statement["read_before"] = []


def another_value(stated: Stated, statement: dict[str, Any]) -> None:
    """The statement is about what another entry asks."""
    statement["entries"][0]["values"] = ["other.example"]


def a_packed_table_called_another(stated: Stated, statement: dict[str, Any]) -> None:
    """A table holds a document again, and has not the property of packed tables any more."""
    a_window_that_holds_a_document(stated, statement)
    table = stated.catalogue.load_table(CODE)
    table.transaction().remove_properties("headrace.window-tokens").commit_transaction()


FACTS = ("documents", "read_before", "derived", "models")
TAMPERED = [
    (a_row_changed, "leaf 1 (entry of entry"),
    (an_entry_removed, "leaf 0: its row was removed"),
    (an_entry_removed_and_all_hashed, "root of snapshot"),
    (an_entry_inserted_late, "in system.rights_roots: over 2 leaves"),
    (an_entry_appended_late, "leaf 5: was inserted beside"),
    (a_window_that_holds_a_document, "still holds document"),
    (a_table_left_out, f"FAULT {NOTES} at"),
    (a_document_left_out, "FAULT document"),
    (a_leaf_changed, "leaf 2 of the statement: is not the row"),
    (a_path_changed, "leaf 2 of the statement: its path"),
    (a_text_let_in, f"FAULT {TEXTS} at"),
    (a_verdict_changed, "'waiting'"),
    (another_request, "Its entries are none"),
    (a_reader_left_out, "FAULT read_before"),
    (another_value, "is not that of leaf 2"),
    (a_packed_table_called_another, "still holds document"),
]
Tamper = Callable[[Stated, dict[str, Any]], None]


@pytest.mark.parametrize(("tamper", "fault"), TAMPERED)
def test_whatever_was_tampered_with_is_named(
    stated: Stated, tmp_path: Path, capsys: pytest.CaptureFixture[str], tamper: Tamper, fault: str
) -> None:
    """By PyIceberg alone; the script ends with 1."""
    statement = statement_of(stated.catalogue, stated.entry)
    tamper(stated, statement)
    status, told = verified_here(statement, stated.folder, tmp_path, capsys)
    assert status == 1 and fault in told, told


@pytest.mark.nightly
@pytest.mark.parametrize(("tamper", "fault"), TAMPERED)
def test_it_is_named_without_headrace(stated: Stated, tmp_path: Path, tamper: Tamper, fault: str) -> None:
    """In a process that cannot import it."""
    statement = statement_of(stated.catalogue, stated.entry)
    tamper(stated, statement)
    status, told = verified(statement, stated.folder, tmp_path)
    assert status == 1 and fault in told, told


def test_a_document_that_is_still_there_is_stated(
    stated: Stated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its windows and its texts; the register says that it is out."""
    register.note_excision(stated.catalogue, {stated.entry: {"documents": [document(stated.kept)]}})
    statement = statement_of(stated.catalogue, stated.entry)
    assert statement["verdict"] == "present" and NOTES in statement["claim"] and TEXTS in statement["claim"]
    holding = [part for part in statement["windows"] if part["holding"]]
    assert {hit["doc_id"] for part in holding for hit in part["holding"]} == {stated.kept}
    assert all(not any(by == "head" for by in part["by"]) for part in holding)
    assert verified_here(statement, stated.folder, tmp_path, capsys)[0] == 1
    assert "Still there" in page_of(statement)


def test_what_waits_or_was_refused_is_not_absent(stated: Stated) -> None:
    """And a name that nothing has is told."""
    [waits, refused] = register.add_entries(
        stated.catalogue, [replace(ASKED, values=(f"{name}.example",), request="new") for name in ("a", "b")]
    )
    register.decide(stated.catalogue, [refused.entry], "refused", "not theirs")
    assert statement_of(stated.catalogue, refused.entry)["verdict"] == "refused"
    assert waits.entry in statement_of(stated.catalogue, "new")["claim"]
    with pytest.raises(CommandError, match="no entry or request"):
        statement_of(stated.catalogue, "letter 8")
    a_row_changed(stated, {})
    with pytest.raises(CheckFailedError, match="leaf 1"):
        statement_of(stated.catalogue, "new")


def test_the_page_is_a_file_without_scripts_that_escapes_what_strangers_wrote(stated: Stated) -> None:
    """And says the root, the pairs and the runs."""
    statement = statement_of(stated.catalogue, stated.entry)
    statement["documents"].append({"doc_id": "deleted", "how": "author", "leaf": 3})
    statement["models"].append({"model": "small@1", "trained": "yes", "on": ["code"]})
    page = page_of(statement)
    assert "Ann &lt;b&gt;" in page and "<script" not in page and "http" not in page
    assert statement["register"]["root"] in page and "llm-7b" in page and "the page itself" in page
    assert all(part["snapshot_id"] in page for part in statement["windows"])
