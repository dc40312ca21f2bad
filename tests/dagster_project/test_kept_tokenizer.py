"""A trained tokenizer stays when a threshold changes, and with it the ids of documents that were packed before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from dagster_project.assets.corpora import CorpusDeclaration
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.assets.deduplication import Deduplication
from dagster_project.inspect.corpora.dataset_card import card
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.run.refreeze import refreeze
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import settings_at
from tests.dagster_project.planted_lake import draw, edited, run_declared

pytestmark = pytest.mark.nightly


class Story:
    """A folder of notes, half of them near-duplicates of the others, and one corpus over them."""

    def __init__(self, root: Path) -> None:
        self.catalogue: Catalog = open_catalogue(settings_at(root))
        self.source = root / "source"
        self.source.mkdir()
        for number in range(6):
            text = draw(number, 200)
            (self.source / f"{number}.txt").write_text(text)
            (self.source / f"{number}-edited.txt").write_text(edited(text, 15 * number, 1))

    def run(self, instance: dg.DagsterInstance, apply: float, train: Mapping[str, Any]) -> None:
        """Bring the corpus up to date, at one threshold of similarity."""
        dataset = DatasetDeclaration("notes", {"kind": "files", "path": str(self.source)})
        corpus = CorpusDeclaration(
            "main",
            ("notes",),
            deduplication=Deduplication(levels=("exact", "near"), thresholds=[0.5, 0.9], apply=apply),
            tokenizer={"train": {"vocabulary_size": 300, "sample_bytes": 100_000, **train}},
            window_tokens=(256,),
        )
        run_declared([dataset], [corpus], instance, ("notes", "main"), ("token_statistics", "components", "thresholds"))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of a table of the corpus, sorted."""
        scan = self.catalogue.load_table(f"main.{table}").scan(selected_fields=columns).to_arrow()
        return sorted(tuple(row.values()) for row in scan.to_pylist())

    def commits(self, *tables: str) -> list[int]:
        """How many snapshots some tables have."""
        return [len(self.catalogue.load_table(f"main.{table}").metadata.snapshots) for table in tables]


def test_a_threshold_changes_no_token_id(tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer and its certificate stay until a refresh; `retrain: always` trains with the survivors."""
    for key, value in settings_at(tmp_path).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    story = Story(tmp_path)
    made = ("tokenizer", "tokenizer_certificate")
    with dg.DagsterInstance.ephemeral() as instance:
        story.run(instance, 0.9, {})
        before, survivors = story.rows("tokenizer", "sha256"), story.rows("survivors", "doc_id")
        tokens, commits = dict(story.rows("tokens", "doc_id", "input_ids")), story.commits(*made)
        assert "It stays as it was made" not in card(story.catalogue, "main")

        story.run(instance, 0.5, {})
        fewer = story.rows("survivors", "doc_id")
        assert len(fewer) < len(survivors) and story.commits(*made) == commits
        assert dict(story.rows("tokens", "doc_id", "input_ids")) == {one: tokens[one] for (one,) in fewer}
        assert "It stays as it was made before main.survivors[0] changed" in card(story.catalogue, "main")

        story.run(instance, 0.5, {"retrain": "always"})
        anew = story.rows("tokenizer", "sha256")
        assert anew != before, "an equal config, so trained of the survivors that there are"

        story.run(instance, 0.9, {})
        assert story.rows("survivors", "doc_id") == survivors and story.rows("tokenizer", "sha256") == anew
        lake = Lake(story.catalogue, Ledger.fresh(story.catalogue), session=lambda: pytest.fail("no session"))
        refreeze(lake, "main")
        story.run(instance, 0.9, {})
        assert story.rows("tokenizer", "sha256") == before, "as in a corpus that is made now"
