"""Edits, deletions and returns from files to packed windows, under every policy of a corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.lake_sources import pin_snapshot
from dagster_project.assets.corpora import CorpusDeclaration
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.assets.deduplication import Deduplication
from dagster_project.cli import run_command
from headrace.tables.generations import successors
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.packing.supersede import is_pending
from tests.dagster_project.planted_lake import draw, edited, run_declared

pytestmark = pytest.mark.nightly

EIGHT = [f"page-{number}.txt" for number in range(8)]
Names = set[str]


class Story:
    """A folder of texts and what a project makes of it, run by run; documents go by path and number of the run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = root / "source"
        self.catalogue: Catalog = open_catalogue(settings_at(root))
        self.source.mkdir()

    def write(self, **texts: str | None) -> None:
        """Write or delete files, by name without the extension."""
        for name, text in texts.items():
            file = self.source / f"{name.replace('_', '-')}.txt"
            if text is None:
                file.unlink()
            else:
                file.write_text(text)

    def run(self, instance: dg.DagsterInstance, *names: str) -> None:
        """Bring the dataset and these corpora up to date."""
        policy = {"extends": ["headrace"], "set": {"prose.too_few_words": 5}}
        dataset = DatasetDeclaration("notes", {"kind": "files", "path": str(self.source)}, policy=policy)
        common: dict[str, Any] = {
            "datasets": ("notes",),
            "tokenizer": {"train": {"vocabulary_size": 300, "sample_bytes": 10_000}},
            "window_tokens": (256,),
        }
        corpora = [
            CorpusDeclaration(
                "keeping", deduplication=Deduplication(levels=("exact",)), superseded="keep", on_delete="keep", **common
            ),
            CorpusDeclaration("leaving", **common),
        ]
        unread = ("token_statistics", "components", "thresholds")
        run_declared([dataset], corpora, instance, ("notes", *names), unread)

    def rows(self, table: str, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """All rows of a table, as it is or was."""
        scan = self.catalogue.load_table(table).scan(snapshot_id=snapshot_id)
        found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
        return found

    def named(self) -> dict[str, str]:
        """`path@increment` by doc_id."""
        return {row["doc_id"]: f"{row['path'][:-4]}@{row['increment']}" for row in self.rows("notes.documents")}

    def packed(self, corpus: str, snapshot_id: int | None = None) -> list[str]:
        """Documents in the windows of a corpus, sorted; one that were there twice would be listed twice."""
        names = self.named()
        return sorted(
            names[segment["doc_id"]]
            for row in self.rows(f"{corpus}.packed_notes_256", snapshot_id)
            for segment in row["segments"]
            if segment["document_start"] == 0
        )

    def doc_id(self, name: str) -> str:
        """Of a document by its name."""
        return next(doc_id for doc_id, own in self.named().items() if own == name)


def test_edits_deletions_and_returns_reach_the_windows(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Three increments of a corpus that keeps, two of one that excises and compares near-duplicates."""
    for key, value in settings_at(tmp_path).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    monkeypatch.setenv("COLUMNS", "250")
    story = Story(tmp_path)
    text = {name: draw(number, 90) for number, name in enumerate([*EIGHT, "back", "gone", "name", "x", "y", "lost"])}

    def why(name: str, corpus: str) -> str:
        capfd.readouterr()
        assert run_command(["doc", "why", story.doc_id(name), "--corpus", corpus]) == 0
        return capfd.readouterr().out

    with dg.DagsterInstance.ephemeral() as instance:
        story.write(**{name.removesuffix(".txt"): text[name] for name in EIGHT})
        story.write(back=text["back"], gone=text["gone"], old_name=text["name"], x=text["x"], y=text["y"])
        story.run(instance, "keeping", "leaving")
        first = [*(f"page-{n}@0" for n in range(8)), "back@0", "gone@0", "old-name@0", "x@0", "y@0"]
        assert story.packed("keeping") == story.packed("leaving") == sorted(first)
        leaving = "leaving.packed_notes_256"
        table = story.catalogue.load_table(leaving)
        pinned = table.metadata.current_snapshot_id
        assert pinned is not None
        pin_snapshot(table, pinned)

        story.write(**{name.removesuffix(".txt"): edited(text[name], 2, 5) for name in EIGHT})
        story.write(back=text["back"] + "\n", gone=None, old_name=None, new_name=text["name"], x=text["y"], y=text["x"])
        story.run(instance, "keeping", "leaving")
        arrivals = {row["path"]: row["status"] for row in story.rows("notes.arrivals") if row["increment"] == 1}
        assert (arrivals["gone.txt"], arrivals["old-name.txt"], arrivals["new-name.txt"]) == ("gone", "gone", "landed")
        # An edit that changes no letter goes on; swapped and renamed texts are there, under their former names.
        edits = [*(f"page-{n}@1" for n in range(8)), "back@1"]
        assert story.packed("keeping") == sorted([*first, *edits])
        removed = {row["doc_id"]: row["witness_doc_id"] for row in story.rows("keeping.exact_duplicates")}
        names = story.named()
        assert {names[one]: names[other] for one, other in removed.items()} == {
            "new-name@1": "old-name@0",
            "x@1": "y@0",
            "y@1": "x@0",
        }
        # Near-duplicates of their own past go on. What leaves is nobody's witness: each text is there once.
        assert story.packed("leaving") == sorted([*edits, "new-name@1", "x@1", "y@1"])
        # What is pinned stays as it was, is not replaced, and nothing is left to decide.
        assert story.packed("leaving", pinned) == sorted(first)
        assert successors(story.catalogue.load_table(leaving)) == {}
        assert not is_pending(story.catalogue, leaving)
        newer = f"superseded by {story.doc_id('page-0@1')} (notes page-0.txt) since increment 1"
        assert newer in why("page-0@0", "keeping")
        assert "gone since increment 1, so it leaves what is packed" in why("gone@0", "leaving")

        story.write(back=text["back"], gone=text["gone"])
        story.run(instance, "keeping")
    assert len(story.rows("notes.documents")) == len(first) + len(edits) + 3
    assert story.packed("keeping") == sorted([*first, *edits])
    assert f"superseded by {story.doc_id('back@0')} (notes back.txt) since increment 2" in why("back@1", "keeping")
    assert "the latest at its path, after" in why("back@0", "keeping") and "again" in why("gone@0", "keeping")

    capfd.readouterr()
    assert run_command(["doc", "excise", "--superseded", "keeping", "--yes", "--json"]) == 0
    (done,) = json.loads(capfd.readouterr().out)
    # x@0 and y@0 stand for the texts that are now at y and x, so they stay; old-name@0 is gone, not superseded.
    assert [names[one] for one in done["staying"]] == sorted(["x@0", "y@0"], key=story.doc_id)
    kept = [*(f"page-{n}@1" for n in range(8)), "back@0", "gone@0", "old-name@0", "x@0", "y@0"]
    assert story.packed("keeping") == sorted(kept)
