"""A source that is read again, for other code or config, makes an increment only where it tells something new."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.due import Due, Upcoming
from spark_jobs.lake.plan.plan import due, tasks
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents
from tests.conftest import LakeAt
from tests.tiers import sampled

SOURCES = {
    "files": {"kind": "files", "text_column": "body"},
    "records": {"kind": "files", "text_column": "body", "id_column": "id"},
    "code": {"kind": "python_code"},
}


def write(folder: Path) -> None:
    """Text, records, packages; among them what is refused, empty, twice the same, and of no known form."""
    records = [{"id": 1, "body": "water"}, {"id": 2, "body": "stone"}, {"id": 2, "body": "stone"}, {"id": 3}]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "pump").mkdir(parents=True)
    for name, data in {
        "one.txt": b"The mill turns.",
        "two.txt": b"The mill turns.",
        "empty.txt": b"",
        "records.jsonl": lines.encode(),
        "records.jsonl.gz": gzip.compress(lines.encode(), mtime=0),
        "broken.parquet": b"PAR1",
        "strange.xyz": b"\x00\x01",
        "pump/__init__.py": b'"""Pumps."""\n',
        "pump/LICENSE": b"MIT License",
    }.items():
        (folder / name).write_bytes(data)


def bound(folder: Path, version: str, source: dict[str, Any], **others: Any) -> Binding:
    """The step at a version."""
    place = {"directories": [str(folder)]} if source["kind"] == "python_code" else {"path": str(folder)}
    config = DocumentsConfig.model_validate({"dataset": "web", "source": {**source, **place}, "shards": 2, **others})
    step = dataclasses.replace(documents, version=version)
    return Binding(step, "web", {}, config, driving_table="web.arrivals")


def increments(lake: Lake, binding: Binding) -> tuple[str, ...]:
    """What a run computes; the next one has nothing to look at."""
    lake.ledger.refresh()
    computed = materialize(lake, binding)[0].computed
    lake.ledger.refresh()
    assert [task.place.key for task in tasks(lake.ledger, binding)] == []
    return computed


def foreseen(lake: Lake, binding: Binding) -> list[Due]:
    """What a plan tells of the step."""
    lake.ledger.refresh()
    return list(due(lake.ledger, binding, Upcoming()))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "files" else pytest.mark.nightly) for kind in SOURCES]
)
def test_other_code_makes_no_increment_of_what_is_as_before(tmp_path: Path, lake_at: LakeAt, kind: str) -> None:
    """Every file is read once more, and no table has a row of it; what is new afterwards is an increment."""
    folder, lake = tmp_path / "web", lake_at(tmp_path / "lake")
    write(folder)
    assert increments(lake, bound(folder, "90", SOURCES[kind])) == ("0",)
    before = {table: lake.catalogue.load_table(f"web.{table}").metadata for table in ("documents", "arrivals")}
    for version in ("91", "92"):
        assert [place.certain for place in foreseen(lake, bound(folder, version, SOURCES[kind]))] == [False]
        assert increments(lake, bound(folder, version, SOURCES[kind])) == ()
    for table, metadata in before.items():
        now = lake.catalogue.load_table(f"web.{table}").metadata
        assert now.current_snapshot_id == metadata.current_snapshot_id
        assert set(now.refs) == {"main"}
    assert {row.code_version for row in lake.ledger.increments("web.documents").values()} == {"92"}
    (folder / "pump" / "new.py").write_text("wheel = 1\n")
    (folder / "new.jsonl").write_text('{"id": 9, "body": "new"}\n')
    (folder / "new.txt").write_text("new")
    assert [place.certain for place in foreseen(lake, bound(folder, "93", SOURCES[kind]))] == [True]
    assert increments(lake, bound(folder, "93", SOURCES[kind])) == ("1",)


OTHERS = ({"max_document_bytes": 3}, {"landing": "copy"})


@sampled()
@pytest.mark.parametrize("others", OTHERS, ids=lambda others: next(iter(others)))
def test_a_config_that_tells_something_new_makes_one(tmp_path: Path, lake_at: LakeAt, others: dict[str, Any]) -> None:
    """Another refusal, a copy of the bytes; the same once more makes none."""
    folder, lake = tmp_path / "web", lake_at(tmp_path / "lake")
    write(folder)
    source = SOURCES["files"]
    assert increments(lake, bound(folder, "90", source)) == ("0",)
    assert increments(lake, bound(folder, "90", source, **others)) == ("1",)
    assert increments(lake, bound(folder, "91", source, **others)) == ()


@pytest.mark.nightly
def test_a_file_that_was_touched_is_listed_as_it_is_now(tmp_path: Path, lake_at: LakeAt) -> None:
    """Else each later run would read it again."""
    folder, lake = tmp_path / "web", lake_at(tmp_path / "lake")
    write(folder)
    assert increments(lake, bound(folder, "90", SOURCES["files"])) == ("0",)
    os.utime(folder / "one.txt", (1, 1))
    assert increments(lake, bound(folder, "91", SOURCES["files"])) == ("1",)
