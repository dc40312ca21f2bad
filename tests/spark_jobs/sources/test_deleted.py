"""What was deleted for good does not land again, and only bytes that nothing else landed with go."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.landing.deleted import tombstones

Configs = Callable[..., DocumentsConfig]


def sha256(text: str) -> str:
    """As objects are named."""
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_deleted_files_land_with_other_bytes_alone(
    files_config: Configs, data: Path, landing: Any, tmp_path: Path, mode: str
) -> None:
    """Touched, read anew, back after another version, gone and back: never, and their bytes are not kept again."""
    config, objects = files_config(landing=mode), ObjectFolder(str(tmp_path / "kept"))
    file, other = data / "a.txt", data / "b.txt"

    def write(text: str, time: int) -> None:
        file.write_text(text)
        os.utime(file, (time, time))

    write("deleted", 1000)
    landing.land(config, objects)
    gone = landing.delete(0)
    for name in gone.objects:
        objects.delete(name)
    assert gone.objects == {sha256("deleted")} and landing.documents == []
    assert landing.land(config, objects) is None and landing.land(config, objects, reread=True) is None
    for time, text, lands in ((2, "deleted", False), (3, "new", True), (4, "deleted", False)):
        write(text, time)
        documents, arrivals = landing.land(config, objects)
        assert ([row["content"] for row in documents], arrivals[0]["status"]) == (
            ([text], "landed") if lands else ([], "unchanged")
        )
        assert arrivals[0]["reason"] == (None if lands else "deleted") and arrivals[0]["content_sha256"] == sha256(text)
    other.write_text("deleted")
    assert [row["path"] for row in landing.land(config, objects)[0]] == ["b.txt"], "another path is another document"
    file.unlink()
    landing.land(config, objects)
    write("deleted", 5)
    assert landing.land(config, objects)[0] == []
    kept = {Path(path).name for path in objects.older(float("inf"))}
    assert kept == ({sha256("new"), sha256("deleted")} if mode == "copy" else set()), "for the other path alone"


def test_a_file_that_grew_lands_its_new_records_alone(
    files_config: Configs, data: Path, landing: Any, tmp_path: Path
) -> None:
    """Each deleted record has a row with its path; sorted anew, the file is kept for nothing, and goes too."""
    config, objects = files_config(text_column="t", landing="copy"), ObjectFolder(str(tmp_path / "kept"))
    file = data / "r.jsonl"
    lines = ['{"t": "one"}\n', '{"t": "two"}\n']
    file.write_text("".join(lines))
    documents, _ = landing.land(config, objects)
    file.write_text("".join(reversed(lines)))
    landing.land(config, objects)
    gone = landing.delete(0)
    assert gone.objects == {sha256("".join(lines)), sha256("".join(reversed(lines)))} and gone.later == (1,)
    told = [row for row in landing.arrivals if row["doc_id"]]
    assert {(row["doc_id"], row["path"], row["status"]) for row in told} == {
        (row["doc_id"], row["path"], "deleted") for row in documents
    }
    assert all(row["location"] == f"{file}#record:{row['doc_id']}" for row in told)
    assert {row["object"] for row in landing.arrivals} == {None}
    file.write_text("".join([*lines, '{"t": "three"}\n']))
    assert [row["content"] for row in landing.land(config, objects)[0]] == ["three"]


def test_bytes_that_another_increment_landed_with_stay(
    files_config: Configs, data: Path, landing: Any, tmp_path: Path
) -> None:
    """Deleted first or second; the row of the file itself has none of them any more."""
    config, objects = files_config(landing="copy"), ObjectFolder(str(tmp_path / "kept"))
    for name in ("a.txt", "b.txt"):
        (data / name).write_text("same")
        landing.land(config, objects)
    assert landing.delete(0).objects == frozenset()
    held = {(row["increment"], row["path"]): row["object"] is not None for row in landing.arrivals}
    assert held == {(0, "a.txt"): False, (1, "b.txt"): True}
    assert landing.delete(1).objects == {sha256("same")}


def test_of_versions_that_landed_together_one_stands_for_the_path() -> None:
    """The one that an arrival names, else the lowest doc_id; a repository's own row stays, and refused bytes go."""
    unset = dict.fromkeys(("repository", "path", "object", "doc_id", "reason", "content_sha256"))
    arrivals = [
        {**unset, "location": "/r", "repository": "r", "status": "landed", "increment": 3},
        {**unset, "location": "/r@1:p", "repository": "r", "path": "p", "status": "landed", "increment": 3},
        {**unset, "location": "/r@2:p", "repository": "r", "path": "p", "status": "landed", "increment": 3}
        | {"doc_id": "2"},
        {**unset, "location": "/bad", "path": "bad", "status": "rejected", "object": "o", "increment": 3},
        {**unset, "location": "/none", "path": "none", "status": "rejected", "reason": "empty", "increment": 3},
    ]
    documents = [{"doc_id": one, "repository": "r", "path": "p"} for one in "21"]
    documents += [{"doc_id": one, "repository": None, "path": "x#1"} for one in "54"]
    told = {row["location"]: (row["status"], row["path"], row["doc_id"]) for row in tombstones(arrivals, documents)}
    assert told == {
        "/r": ("landed", None, None),
        "/r@1:p": ("deleted", "p", None),
        "/r@1:p#record:1": ("deleted", None, "1"),
        "/r@1:p#record:2": ("deleted", None, "2"),
        "/r@2:p": ("deleted", "p", "2"),
        "/bad": ("deleted", "bad", None),
        "/none": ("rejected", "none", None),
        "x#1#record:4": ("deleted", "x#1", "4"),
        "x#1#record:5": ("deleted", None, "5"),
    }
