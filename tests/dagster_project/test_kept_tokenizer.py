"""A trained tokenizer stays when a threshold changes, and with it the ids of documents that were packed before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from dagster_project.assets.corpora import CorpusDeclaration
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.assets.deduplication import Deduplication
from dagster_project.inspect.corpora.dataset_card import card
from headrace.tables.settings import settings_at
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.run.refreeze import refreeze
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import draw, edited, run_declared

pytestmark = pytest.mark.nightly
MADE = ("tokenizer", "tokenizer_certificate")


class Story:
    """A folder of notes, half of them near-duplicates of the others, and one corpus over them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for key, value in settings_at(root).properties.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
        self.catalogue: Catalog = open_catalogue(settings_at(root))
        self.source = root / "source"
        self.source.mkdir()

    def land(self) -> None:
        """Write the notes."""
        for number in range(6):
            text = draw(number, 200)
            (self.source / f"{number}.txt").write_text(text)
            (self.source / f"{number}-edited.txt").write_text(edited(text, 15 * number, 1))

    def run(
        self, instance: dg.DagsterInstance, apply: float = 0.9, train: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
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
    story = Story(tmp_path, monkeypatch)
    story.land()
    with dg.DagsterInstance.ephemeral() as instance:
        story.run(instance, 0.9, {})
        before, survivors = story.rows("tokenizer", "sha256"), story.rows("survivors", "doc_id")
        tokens, commits = dict(story.rows("tokens", "doc_id", "input_ids")), story.commits(*MADE)
        assert "It stays as it was made" not in card(story.catalogue, "main")

        story.run(instance, 0.5, {})
        fewer = story.rows("survivors", "doc_id")
        assert len(fewer) < len(survivors) and story.commits(*MADE) == commits
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


def test_it_stays_without_documents_that_it_was_trained_on(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that went and documents that were taken out for good change no id of the others."""
    story = Story(tmp_path, monkeypatch)
    story.land()
    with dg.DagsterInstance.ephemeral() as instance:
        story.run(instance)
        before, commits = story.rows("tokenizer", "sha256"), story.commits(*MADE)
        tokens = dict(story.rows("tokens", "doc_id", "input_ids"))

        (story.source / "0.txt").unlink()
        (story.source / "more.txt").write_text(draw(99, 200))
        story.run(instance)
        assert story.rows("tokenizer", "sha256") == before and story.commits(*MADE) == commits

        one = sorted(tokens)[0]
        record_excisions(story.catalogue, None, [one], "by hand")
        story.run(instance)
        assert story.rows("tokenizer", "sha256") == before and story.commits(*MADE) == commits
        now = dict(story.rows("tokens", "doc_id", "input_ids"))
        assert len(now.keys() - tokens.keys()) == 1, "of the new file"
        assert {doc_id: ids for doc_id, ids in now.items() if doc_id in tokens}.items() <= tokens.items()


def test_an_increment_without_documents_trains_nothing(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first increment holds one file, which is refused; the tokenizer is that of a corpus begun with the notes."""
    story = Story(tmp_path, monkeypatch)
    (story.source / "broken.txt").write_bytes(bytes(range(256)) * 8)
    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(AssertionError, match="no document has any text to train on"):
            story.run(instance)
        assert not story.rows("members", "doc_id")
        story.land()
        story.run(instance)
        first, commits = story.rows("tokenizer", "sha256"), story.commits(*MADE)
        (story.source / "more.txt").write_text(draw(99, 200))
        story.run(instance)
        assert story.rows("tokenizer", "sha256") == first and story.commits(*MADE) == commits
    (tmp_path / "other").mkdir()
    other = Story(tmp_path / "other", monkeypatch)
    other.land()
    with dg.DagsterInstance.ephemeral() as instance:
        other.run(instance)
    assert other.rows("tokenizer", "sha256") == first
