"""Markdown loses its front matter where that is wanted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.sources.formats.front_matter import extract_front_matter
from spark_jobs.sources.records.extracted import Extracted


def test_front_matter_is_kept_or_goes_to_metadata(landing: Any, files_config: Any, data: Path) -> None:
    """The text below it is bytes of the file from `offset` on; what is no front matter stays in the text."""
    pages = {
        "a.md": "---\ntitle: Über uns\ntags: [a, b]\nheadrace.evidence: no\n---\n\n# Text\n",
        "b.md": '+++\r\ntitle = "T"\r\nday = 2026-01-02\r\n+++\r\ntext',
        "c.md": "---\n\nA rule, and no front matter.\n\n---\n",
        "d.md": "---\ntitle: [\n---\ntext\n",
        "e.md": "# No front matter\n",
        "f.md": "---\ntitle: not closed\n",
        "g.md": "---\n---\ntext\n",
        "h.txt": "---\ntitle: x\n---\n",
    }
    for name, text in pages.items():
        (data / name).write_bytes(text.encode())
    kept, _ = landing.land(files_config())
    assert {row["path"]: row["content"] for row in kept} == pages
    documents, _ = landing.__class__().land(files_config(front_matter="metadata"))
    rows = {row["path"]: row for row in documents}
    assert {path for path, row in rows.items() if row["content"] != pages[path]} == {"a.md", "b.md"}
    for path in ("a.md", "b.md"):
        offset = int(rows[path]["metadata"]["offset"])
        assert pages[path].encode()[offset:].decode() == rows[path]["content"]
    assert rows["a.md"]["metadata"]["title"] == "Über uns"
    assert rows["a.md"]["metadata"]["tags"] == '["a", "b"]'
    assert "headrace.evidence" not in rows["a.md"]["metadata"]
    assert rows["b.md"]["metadata"]["day"] == "2026-01-02"
    assert rows["d.md"]["metadata"]["front_matter"].startswith("not YAML")
    assert rows["e.md"]["metadata"] == {}


def test_yaml_that_grows_is_refused(landing: Any, files_config: Any, data: Path) -> None:
    """Aliases that would become gigabytes end the child, and not the reader."""
    laughs = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9))
    (data / "a.md").write_text(f"---\na: &a [x]\n{laughs}---\ntext\n")
    _, arrivals = landing.land(files_config(front_matter="metadata", extract_seconds=2))
    assert [row["reason"] for row in arrivals] == ["too_complex"]


def test_real_pages_keep_their_text() -> None:
    """Every page of jest's manual: front matter and text are the page, and there is a title."""
    folder = Path(os.environ.get("REAL_DATA_DIR", "../shared/data")) / "jest_docs"
    if not folder.is_dir():
        pytest.skip("REAL_DATA_DIR has no jest_docs")
    for page in folder.rglob("*.md"):
        if not page.read_bytes().startswith(b"---\n"):
            continue
        found = extract_front_matter(page.read_bytes())
        assert isinstance(found, Extracted)
        assert page.read_bytes()[int(found.metadata["offset"]) :].decode() == found.text
        assert found.metadata.get("title") or found.metadata.get("id")


def test_front_matter_is_the_same_in_every_process() -> None:
    """Sets of YAML come in one order; a value that holds itself leaves the text as it is."""
    found = extract_front_matter(b"---\na: !!set {y, x, z}\n---\nbody")
    assert isinstance(found, Extracted) and found.metadata["a"] == '["x", "y", "z"]'
    found = extract_front_matter(b"---\na: &a {b: *a}\n---\nbody")
    assert isinstance(found, Extracted) and found.text.startswith("---")
