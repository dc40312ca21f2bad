"""An increment is deleted for good: nothing of it is left or lands again, whatever is killed on the way."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from dagster_project.increment_deletion import delete_increment, plan_increment
from spark_jobs.lake.files.verification import changed_places
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.catalogue import tables_in
from spark_jobs.sources.documents import documents
from spark_jobs.sources.source_config import DocumentsConfig
from spark_jobs.text.texts import texts
from tests.conftest import LakeAt

pytestmark = [pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def binding(source: Path, **more: Any) -> Binding:
    """The step that lands the files of a folder."""
    given = {"dataset": "web", "source": {"kind": "files", "path": str(source), "text_column": "t"}, "landing": "copy"}
    return Binding(documents, "web", {}, DocumentsConfig.model_validate({**given, **more}), clock="web.arrivals")


def run(lake: Lake, source: Path, **more: Any) -> None:
    """Land what is new, and make texts."""
    materialize(lake, binding(source, **more))
    materialize(lake, Binding(texts, "web", {"documents": "web.documents"}, texts.config(), clock="web.arrivals"))


def delete(lake: Lake, number: int) -> list[str]:
    """Delete an increment of `web`."""
    return list(delete_increment(lake, plan_increment(lake.catalogue, "web", number), "asked to"))


def rows(lake: Lake, table: str, increments: Collection[int] = ()) -> list[dict[str, Any]]:
    """Rows of a table, of some increments or all."""
    found = lake.catalogue.load_table(f"web.{table}").scan().to_arrow().to_pylist()
    return [row for row in found if not increments or row["increment"] in increments]


def state(lake: Lake) -> dict[str, Any]:
    """Data versions of all tables, which the ledger has and the rows have; arrivals but for the folder of the lake."""
    lake.ledger.refresh()
    found: dict[str, Any] = {}
    for table in tables_in(lake.catalogue, "web"):
        places = lake.ledger.places(table)
        iceberg = lake.catalogue.load_table(table)
        assert not changed_places(lake.session(), table, iceberg, {p: r.data_version for p, r in places.items()})
        found[table] = {place: str(row.data_version) for place, row in places.items()}
    found["web.arrivals"] = sorted(
        json.dumps({**row, "object": str(row["object"]).removeprefix(lake.ledger.warehouse)}, default=str)
        for row in rows(lake, "arrivals")
    )
    return found


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
    delete(other, 0)
    (source / "b.txt").write_text("stays")
    (source / "twin.txt").write_text("shared by two")
    with (source / "r.jsonl").open("a") as grown:
        grown.write('{"t": "new record"}\n')
    for lake in (one, other):
        run(lake, source)
    said = delete(one, 0)
    run(one, source)
    assert state(one) == state(other), said
    assert sorted(row["content"] for row in rows(one, "texts")) == ["new record", "shared by two", "stays"]

    for root in (tmp_path / "one", tmp_path / "other"):
        held = {file for file in root.rglob("*") if file.is_file() and b"secret of a" in file.read_bytes()}
        assert not held, "neither snapshots nor objects hold it"
        kept = {file.read_bytes() for file in root.rglob("landed/*/*")}
        assert kept == {b"shared by two", b"stays", (source / "r.jsonl").read_bytes()}, "the grown file holds both"
    verdicts = [row["status"] for row in rows(one, "arrivals", [0])]
    assert verdicts.count("deleted") == 4 and len(verdicts) == 4, "three files, one record"

    os.utime(source / "a.txt", (1, 1))
    run(one, source)
    os.utime(source / "same.txt", (1, 1))
    run(one, source, max_document_bytes=1000)
    assert sorted(row["content"] for row in rows(one, "documents")) == ["new record", "shared by two", "stays"]
    assert not [
        file for file in (tmp_path / "one").rglob("*") if file.is_file() and b"secret of a" in file.read_bytes()
    ]
    (source / "a.txt").write_text("other bytes")
    run(one, source)
    assert [row["content"] for row in rows(one, "documents", [4])] == ["other bytes"]
