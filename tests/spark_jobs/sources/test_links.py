"""Links that lead out of a source's folder are refused by name, in every kind of source, unless `links: follow`."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace_features.apis.stream_folder import StreamFolder
from spark_jobs.sources.config.source_config import DocumentsConfig
from tests.spark_jobs.sources.conftest import Landing

SOURCES: dict[str, dict[str, Any]] = {
    "files": {"kind": "files", "path": "{root}"},
    "files by URI": {"kind": "files", "path": "file://{root}"},
    "python_code": {"kind": "python_code", "directories": ["{root}"], "kinds": ["code", "prose"]},
    "python_docs": {"kind": "python_docs", "directories": ["{root}"]},
    "packages": {"kind": "packages", "path": "{root}"},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file, links inside of it, and links out of it to a file and to a folder."""
    root, beside = tmp_path / "root", tmp_path / "beside"
    for folder in (root / "kept", beside / "notes"):
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(f"# {folder.name}\n")
    (root / "copy.md").symlink_to("kept/README.md")
    (root / "file.md").symlink_to(beside / "notes" / "README.md")
    (root / "folder").symlink_to(beside / "notes")
    (root / "folder_again").symlink_to("folder")
    return root


def config(source: dict[str, Any], root: Path, **more: Any) -> DocumentsConfig:
    """A dataset of the folder."""
    places = {
        name: [text.format(root=root) for text in value] if name == "directories" else str(value).format(root=root)
        for name, value in source.items()
        if name in ("path", "directories")
    }
    return DocumentsConfig.model_validate({"dataset": "notes", "source": {**source, **places, **more}})


def by_place(arrivals: list[dict[str, Any]], root: Path) -> dict[str, dict[str, Any]]:
    """Arrivals of files by where they are below the root, whatever path their kind gives them."""
    return {row["location"].removeprefix("file://").removeprefix(f"{root}/"): row for row in arrivals}


@pytest.mark.parametrize("kind", SOURCES)
def test_links_that_lead_out_are_refused_by_name(kind: str, root: Path) -> None:
    """A file, a folder and a link to such a link; with `follow` each is what it leads to, and folders come once."""
    landed = Landing().land(config(SOURCES[kind], root))
    assert landed is not None
    rows = by_place(landed[1], root)
    assert {path for path, row in rows.items() if row["reason"] == "outside_link"} == {
        "file.md",
        "folder",
        "folder_again",
    }
    details = {path: row["detail"] for path, row in rows.items()}
    assert details["file.md"] == (
        f"a link to {root.parent}/beside/notes/README.md, out of the source's folder; `links: follow` reads it"
    )
    assert {"kept/README.md", "copy.md"} <= rows.keys()
    followed = Landing().land(config(SOURCES[kind], root, links="follow"))
    assert followed is not None
    reasons = {path: row["reason"] for path, row in by_place(followed[1], root).items()}
    assert "outside_link" not in reasons.values() and "file.md" in reasons
    assert reasons["folder_again"] == "listed_twice" and "folder/README.md" in reasons


def test_what_was_followed_is_gone_where_it_is_no_more(root: Path) -> None:
    """Documents behind links that lead out go when the setting goes, and come back with it; others stay."""
    landing, followed, inside = (
        Landing(),
        config(SOURCES["files"], root, links="follow"),
        config(SOURCES["files"], root),
    )
    documents, _ = landing.land(followed) or ([], [])
    assert sorted(row["path"] for row in documents) == ["copy.md", "file.md", "folder/README.md", "kept/README.md"]
    assert landing.land(followed) is None
    _, arrivals = landing.land(inside) or ([], [])
    gone = {row["path"] for row in arrivals if row["status"] == "gone"}
    assert gone == {"file.md", "folder/README.md"}
    assert {row["path"] for row in arrivals if row["status"] == "rejected"} >= {"folder/"}
    _, arrivals = landing.land(followed) or ([], [])
    assert {row["path"] for row in arrivals if row["status"] == "unchanged"} == {"file.md", "folder/README.md"}


def test_a_directory_that_a_pattern_finds_behind_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    """Nothing of it is read, its licence neither; named without a pattern it is the folder itself."""
    shelf, beside = tmp_path / "shelf", tmp_path / "beside"
    (shelf / "own").mkdir(parents=True)
    (shelf / "own" / "a.py").write_text("x = 1\n")
    (shelf / "own" / "LICENSE").symlink_to(beside / "LICENSE")
    shutil.copy(Path(__file__).parents[3] / "LICENSE", beside / "LICENSE")
    (shelf / "linked").symlink_to(beside)
    source = {"kind": "python_code", "kinds": ["code", "prose"]}
    landed = Landing().land(config({**source, "directories": [f"{shelf}/*"]}, root))
    assert landed is not None
    rows = {(row["repository"], row["path"]): row["reason"] for row in landed[1]}
    assert rows == {("linked", "/"): "outside_link", ("own", "LICENSE"): "outside_link", ("own", "a.py"): None}
    assert {row["licence"] for row in landed[0]} == {None}
    landed = Landing().land(config({**source, "directories": [f"{shelf}/linked"]}, root))
    assert landed is not None and len(landed[0]) == 2
    followed = Landing().land(config({**source, "directories": [f"{shelf}/*"]}, root, links="follow"))
    assert followed is not None and {row["licence"] for row in followed[0]} >= {"Apache-2.0"}


def test_a_stream_tells_of_a_link_that_leads_out_once(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files are read or not as those of other sources."""
    (tmp_path / "beside" / "records.jsonl").write_text('{"id": 1}\n')
    (root / "in.jsonl").symlink_to(tmp_path / "beside" / "records.jsonl")
    stream = StreamFolder(str(root), 100, [], tmp_path)
    with caplog.at_level(logging.WARNING):
        batch = stream.next_batch()
        assert stream.next_batch() is None
    assert batch is not None and batch.key == [["copy.md", "kept/README.md"]]
    assert caplog.text.count("in.jsonl is not read: a link to") == 1
    followed = StreamFolder(str(root), 100, [], tmp_path, "follow").next_batch()
    assert followed is not None and "in.jsonl" in str(followed.key)


def test_facts_behind_a_link_that_leads_out_are_not_read(root: Path, tmp_path: Path) -> None:
    """`repositories.jsonl` in the root counts where it is there itself."""
    facts = tmp_path / "beside" / "facts.jsonl"
    facts.write_text('{"repository": "kept", "stars": 3}\n')
    (root / "repositories.jsonl").symlink_to(facts)
    landed = Landing().land(config(SOURCES["files"], root))
    assert landed is not None
    assert [row["reason"] for row in landed[1] if row["path"] == "repositories.jsonl"] == ["outside_link"]
