"""An increment is deleted for good: nothing of it is left or lands again, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from dagster_project.deletion.increments import delete_increment, plan_increment
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import find_document
from headrace.tables.catalogue import tables_in
from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files import objects, replacement
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.verification import recount
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.decisions import RELEASE, decide, increments_of, is_deleted
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import ARRIVALS, documents
from spark_jobs.text.texts import texts
from tests.conftest import LakeAt
from tests.dagster_project.waiting_lake import publish
from tests.headrace_features.privacy.test_released import carrying, landing, scanning
from tests.tiers import is_nightly, sampled

TEXTS = Table(
    name="documents",
    comment="one row per document",
    columns=(
        Column("doc_id!", "string", "identity"),
        Column("repository", "string", "none"),
        Column("path!", "string", "its file"),
        Column("content!", "string", "its text"),
        Column("byte_count", "long", "of its file"),
    ),
    partition=("increment",),
)


def rows(catalogue: Catalog, table: str, increments: Collection[int] = ()) -> list[dict[str, Any]]:
    """Rows of a table of `web`, of some increments or all."""
    found = catalogue.load_table(f"web.{table}").scan().to_arrow().to_pylist()
    return [row for row in found if not increments or row["increment"] in increments]


def small_lake(root: Path) -> Catalog:
    """Two files of `web` in each of two increments, one of which has the bytes of another; kept, and with lengths."""
    catalogue = open_catalogue(settings_at(root))
    lengths = Table(
        "lengths", "a measure of each", (Column("doc_id!", "string", "identity"),), partition=("increment",)
    )
    for declared in (TEXTS, ARRIVALS, lengths):
        ensure_table(catalogue, f"web.{declared.name}", declared, {SCOPE_PROPERTY: "increment"})
    folder = ObjectFolder.of(catalogue, "web")
    landed: list[dict[str, Any]] = []
    for number, files in enumerate(({"a": "text a", "b": "shared"}, {"c": "text c", "d": "shared"})):
        landed = [{**row, "status": "unchanged"} for row in landed]
        made = []
        for path, text in files.items():
            (root / "source").mkdir(exist_ok=True)
            (root / "source" / path).write_text(text)
            with (root / "source" / path).open("rb") as stream:
                kept = folder.keep(stream)
            landed.append(
                dict.fromkeys(column.name for column in ARRIVALS.columns)
                | {"location": f"/{path}", "path": path, "status": "landed", "content_sha256": kept.sha256}
                | {"object": kept.location, "byte_count": kept.byte_count}
            )
            made.append({"doc_id": path * 32, "repository": None, "path": path, "content": text, "byte_count": 9})
        publish(catalogue, "web", TEXTS, number, made)
        publish(catalogue, "web", lengths, number, [{"doc_id": row["doc_id"]} for row in made])
        publish(catalogue, "web", ARRIVALS, number, landed)
    return catalogue


def opened(root: Path) -> Lake:
    """A lake that nothing of Spark is asked of."""
    catalogue = open_catalogue(settings_at(root))
    return Lake(catalogue, Ledger(catalogue), lambda: None, "test", 20)  # type: ignore[arg-type, return-value]


def in_child(work: Callable[[], None]) -> int:
    """Do something in a process of its own, which may be killed; gives its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as the test
            os._exit(1)
    return pid


def status_of(pid: int) -> int:
    """How a child ended: its exit status, or the signal negated."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def delete_first(root: Path, most: int | None = None) -> None:
    """Delete increment 0; killed before the change of the lake after so many."""
    left = iter(range(most)) if most is not None else None

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if left is not None and next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **named)

        return call

    SqlCatalog.commit_table = counted(SqlCatalog.commit_table)  # type: ignore[method-assign]
    objects.remove = counted(objects.remove)
    lake = opened(root)
    list(delete_increment(lake, plan_increment(lake.catalogue, "web", 0), "asked to"))


@sampled()
@pytest.mark.parametrize("killed", [False, True])
def test_increments_that_wait_to_be_computed_anew_are_not_missed(
    tmp_path: Path, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that failed left marks; after any deletion the ledger says which increments a table has, and all go.

    Also where the deletion was killed before the ledger had its row.
    """
    catalogue = small_lake(tmp_path)
    lake = opened(tmp_path)
    lake.ledger.refresh()
    lake.ledger.forget(["web.lengths"], 1)
    if killed:
        with monkeypatch.context() as dying, pytest.raises(ZeroDivisionError):
            dying.setattr(Ledger, "record", lambda *ignored: 1 // 0)
            row = lake.ledger.increments("web.lengths")[0]
            replacement.replace_increment(lake.ledger, row, None, None)
    for number in (0, 1):
        list(delete_increment(opened(tmp_path), plan_increment(catalogue, "web", number), "asked to"))
        there = Ledger.fresh(catalogue).increments_there("web.lengths")
        held = {row["increment"] for row in rows(catalogue, "lengths")}
        assert held == {place for place, row in there.items() if row.row_count} <= {one for one in (1,) if number == 0}


@pytest.mark.nightly
@pytest.mark.parametrize("at_once", [False, True])
def test_a_deletion_that_is_killed_between_two_changes_is_finished(tmp_path: Path, at_once: bool) -> None:
    """By the same command, again and again; two of them at once are one. Other increments are as they were."""
    catalogue = small_lake(tmp_path)
    before = {table: rows(catalogue, table, [1]) for table in ("documents", "lengths")}
    tagged = catalogue.load_table("web.documents")
    tagged.manage_snapshots().create_tag(tagged.metadata.snapshots[0].snapshot_id, "release_first").commit()
    assert any("web.documents: release_first hold it" in line for line in plan_increment(catalogue, "web", 0).lines())
    folder = ObjectFolder.of(catalogue, "web")
    kills = 0
    if at_once:
        assert [status_of(pid) for pid in [in_child(lambda: delete_first(tmp_path)) for _ in range(2)]] == [0, 0]
    else:
        most = 1
        while status_of(in_child(lambda: delete_first(tmp_path, most))) == -signal.SIGKILL:  # noqa: B023 - called here
            kills, most = kills + 1, most + (1 if is_nightly() else 3)
        assert kills > 2
    assert status_of(in_child(lambda: delete_first(tmp_path))) == 0

    assert rows(catalogue, "documents", [0]) == rows(catalogue, "lengths", [0]) == []
    assert {table: rows(catalogue, table, [1]) for table in before} == before
    told = {row["location"]: row for row in rows(catalogue, "arrivals", [0])}
    assert {name: (row["status"], row["doc_id"], row["object"]) for name, row in told.items()} == {
        "/a": ("deleted", "a" * 32, None),
        "/b": ("deleted", "b" * 32, None),
    }
    later = {row["location"]: (row["status"], row["reason"]) for row in rows(catalogue, "arrivals", [1])}
    gone, landed = ("unchanged", "deleted"), ("landed", None)
    assert later == {"/a": gone, "/b": gone, "/c": landed, "/d": landed}
    kept = {row["location"]: row["object"] for row in rows(catalogue, "arrivals", [1]) if row["object"]}
    assert kept.keys() == {"/c", "/d"} and all(Path(one).is_file() for one in kept.values())
    assert {Path(one).read_text() for one in folder.older(float("inf"))} == {"text c", "shared"}
    ledger = Ledger.fresh(catalogue)
    for table in ("documents", "lengths", "arrivals"):
        there = ledger.increments(f"web.{table}")
        assert {number: is_deleted(row) for number, row in there.items()} == {0: True, 1: False}, table
        assert len(catalogue.load_table(f"web.{table}").metadata.snapshots) == 1, "no earlier one can be read"
    acts = catalogue.load_table("system.audit").scan().to_arrow().to_pylist()
    assert [(row["act"], row["subject"], row["increment"]) for row in acts] == [("delete", "web", 0)]
    with pytest.raises(CommandError, match="no increment 7; there are 0, 1"):
        plan_increment(catalogue, "web", 7)
    for named in ("a" * 32, "a"):
        with pytest.raises(CommandError, match="was deleted for good with increment 0 of web"):
            find_document(catalogue, named)


def run(lake: Lake, source: Path, **more: Any) -> None:
    """Land what is new, and make texts."""
    given = {"dataset": "web", "source": {"kind": "files", "path": str(source), "text_column": "t"}, "landing": "copy"}
    config = DocumentsConfig.model_validate({**given, **more})
    materialize(lake, Binding(documents, "web", {}, config, driving_table="web.arrivals"))
    materialize(
        lake, Binding(texts, "web", {"documents": "web.documents"}, texts.config(), driving_table="web.arrivals")
    )


def delete(lake: Lake, number: int) -> None:
    """Delete an increment of `web`."""
    list(delete_increment(lake, plan_increment(lake.catalogue, "web", number), "asked to"))


def holding(root: Path, text: bytes) -> list[Path]:
    """Files that hold a text as it is; small pages of Parquet do."""
    return [file for file in root.rglob("*") if file.is_file() and text in file.read_bytes()]


def state(lake: Lake) -> dict[str, Any]:
    """Data versions of all tables, which the ledger has and the rows have; arrivals but for the folder of the lake."""
    lake.ledger.refresh()
    found: dict[str, Any] = {}
    for table in tables_in(lake.catalogue, "web"):
        places = lake.ledger.places(table)
        assert not recount(lake.session(), table, lake.catalogue.load_table(table), places).changed
        found[table] = {place: str(row.data_version) for place, row in places.items()}
    found["web.arrivals"] = sorted(
        json.dumps({**row, "object": str(row["object"]).removeprefix(lake.ledger.warehouse)}, default=str)
        for row in rows(lake.catalogue, "arrivals")
    )
    return found


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_nothing_of_an_increment_is_left_or_lands_again(tmp_path: Path, lake_at: LakeAt) -> None:
    """Files, records, a copy under another name; touched, grown and read anew; as if deleted before the rest landed."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("secret of a")
    (source / "same.txt").write_text("shared by two")
    (source / "r.jsonl").write_text('{"t": "secret record"}\n')
    one, other = lake_at(tmp_path / "one"), lake_at(tmp_path / "other")
    for lake in (one, other):
        run(lake, source)
    assert len(holding(tmp_path / "one", b"secret of a")) > 2
    delete(other, 0)
    (source / "b.txt").write_text("stays")
    (source / "twin.txt").write_text("shared by two")
    with (source / "r.jsonl").open("a") as grown:
        grown.write('{"t": "new record"}\n')
    for lake in (one, other):
        run(lake, source)
    delete(one, 0)
    run(one, source)
    assert state(one) == state(other)
    left = ["new record", "shared by two", "stays"]
    assert sorted(row["content"] for row in rows(one.catalogue, "texts")) == left

    for root in (tmp_path / "one", tmp_path / "other"):
        assert not holding(root, b"secret of a"), "neither snapshots nor objects hold it"
        kept = {file.read_bytes() for file in root.rglob("landed/*/*")}
        assert kept == {b"shared by two", b"stays", (source / "r.jsonl").read_bytes()}, "the grown file holds both"
    assert [row["status"] for row in rows(one.catalogue, "arrivals", [0])] == ["deleted"] * 4, "three files, a record"

    os.utime(source / "a.txt", (1, 1))
    run(one, source)
    os.utime(source / "same.txt", (1, 1))
    run(one, source, max_document_bytes=1000)
    assert sorted(row["content"] for row in rows(one.catalogue, "documents")) == left
    assert not holding(tmp_path / "one", b"secret of a")
    (source / "a.txt").write_text("other bytes")
    run(one, source)
    assert [row["content"] for row in rows(one.catalogue, "documents", [4])] == ["other bytes"]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_what_was_released_goes_with_what_waited(tmp_path: Path, lake_at: LakeAt) -> None:
    """Of both namespaces, as of a trusted dataset; what carries increments over brings nothing of it back."""
    source = tmp_path / "source"
    source.mkdir()
    trusted, waiting = lake_at(tmp_path / "trusted"), lake_at(tmp_path / "waiting")
    for number, text in enumerate(("first", "second")):
        (source / f"{number}.txt").write_text(text)
        materialize(trusted, landing("web", source))
        materialize(waiting, landing("web_quarantine", source))
    materialize(waiting, scanning())
    decide(waiting.catalogue, "web", [0, 1], RELEASE, "looked at")
    materialize(waiting, carrying())
    for lake in (trusted, waiting):
        delete(lake, 0)
    materialize(waiting, scanning())
    materialize(waiting, carrying())
    assert state(waiting) == state(trusted)
    assert [row["content"] for row in rows(waiting.catalogue, "documents")] == ["second"]
    assert {file.read_bytes() for file in (tmp_path / "waiting").rglob("landed/*/*")} == {b"second"}
    assert [one.increment for one in increments_of(waiting.ledger, "web")] == [1]


@pytest.mark.nightly
def test_a_table_of_a_dataset_that_has_the_increments_of_a_corpus_keeps_its_rows(tmp_path: Path) -> None:
    """Its increment 0 is another one, also where it reads the corpus by way of another table; a run computes it."""
    catalogue = small_lake(tmp_path)
    identities = (Column("doc_id!", "string", "identity"),)
    for space, name, scope, inputs in (
        ("both", "increments", "intake", ["web.arrivals"]),
        ("both", "survivors", "increment", ["both.increments", "web.documents"]),
        ("web", "joined", "increment", ["both.survivors", "web.lengths"]),
        ("web", "again", "history", ["web.joined", "web.again"]),
        ("web", "copied", "increment", ["web.lengths"]),
    ):
        declared = Table(name, "rows of a user's", identities, partition=("increment",))
        ensure_table(catalogue, f"{space}.{name}", declared, {SCOPE_PROPERTY: scope})
        publish(catalogue, space, declared, 0, [{"doc_id": "c" * 32}], inputs=inputs)
    plan = plan_increment(catalogue, "web", 0)
    assert sorted(plan.tables) == ["web.arrivals", "web.copied", "web.documents", "web.lengths"]


@pytest.mark.nightly
def test_files_that_replace_others_have_their_types(tmp_path: Path) -> None:
    """Else Sail does not read them together with those of other increments: it makes no string of a large one."""
    catalogue = small_lake(tmp_path)
    lake = opened(tmp_path)
    list(delete_increment(lake, plan_increment(catalogue, "web", 0), "asked to"))
    files = [task.file.file_path for task in catalogue.load_table("web.arrivals").scan().plan_files()]
    kinds = {path: pq.read_schema(path.removeprefix("file://")).types for path in files}
    replaced = [path for path in files if "increment=0" in path]
    assert replaced and all(pa.large_string() not in kinds[path] for path in replaced)
