"""A corpus with the level semantic, from its declaration to what is packed and what `doc why` says.

The encoder is made here: static vectors in which two words that mean the same have nearly the same random vector. A
paraphrase replaces every word by the other one, so it shares no word with its original.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from click.testing import CliRunner
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from tokenizers import Tokenizer, models, pre_tokenizers

from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.assets.deduplication import Deduplication
from dagster_project.cli import headrace
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.packing.supersede import _selections_of_duplicates
from tests.dagster_project.planted_lake import WORDS, run_declared

SEMANTIC = {"vectors": "mini", "datasets": ["notes"], "threshold": 0.9}
CORPUS = CorpusDeclaration(
    name="main",
    datasets=("notes",),
    deduplication=Deduplication(levels=("exact", "near")),
    select=({"decontaminate": "off"},),
    tokenizer={"train": {"vocabulary_size": 300, "sample_bytes": 50_000}},
    window_tokens=(256,),
)
TABLES = {"semantic_centroids", "semantic_cells", "semantic_pairs", "semantic_removals", "semantic_recall"}


def keys_of(*select: Any, levels: tuple[Any, ...] = ("exact", "near")) -> set[str]:
    """Names of the tables of the corpus."""
    made = corpus_assets(dataclasses.replace(CORPUS, deduplication=Deduplication(levels=levels), select=select))
    return {key.path[1] for asset in made for key in asset.keys}


def test_tables_are_there_where_they_are_declared() -> None:
    """Whatever the levels of deduplication; at the head of the list it leaves `survivors`, elsewhere a table beside."""
    for levels in (("exact",), ("exact", "near"), ("exact", "near", "repository")):
        plain = keys_of(levels=levels)
        assert plain.isdisjoint(TABLES)
        assert keys_of({"semantic": SEMANTIC}, levels=levels) - plain == TABLES | {"distinct"}
    shape = {"shape": {"lengths": {"keep": 0.5}}}
    later = keys_of(shape, {"semantic": SEMANTIC}) - keys_of(shape)
    assert later == TABLES | {"semantic_survivors"}


@pytest.mark.parametrize(
    ("semantic", "said"),
    [
        ({"vectors": "mini", "datasets": ["notes"]}, "threshold"),
        ({**SEMANTIC, "datasets": ["nots"]}, "'nots' is none of the datasets of corpus main; did you mean"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(semantic: Any, said: str) -> None:
    """When the project loads."""
    with pytest.raises(DefinitionError, match=said):
        keys_of({"semantic": semantic})


@pytest.mark.parametrize("levels", [["semantic"], ["exact", "semantic"], ["exact", "near", "semantic"]])
def test_the_level_of_earlier_versions_is_refused_with_what_to_write(levels: list[str]) -> None:
    """With the settings that were declared."""
    written = "select: [semantic: {vectors: mini, datasets: [notes], threshold: 0.9}]"
    with pytest.raises(ValidationError, match=re.escape(written)):
        Deduplication.model_validate({"levels": levels, "semantic": SEMANTIC})


def write_encoder(folder: Path) -> None:
    """Static vectors of words: that of the other word of a pair is nearly the same."""
    folder.mkdir()
    names = ["[UNK]", *WORDS, *(f"{word}x" for word in WORDS)]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(len(WORDS), 32))
    again = rows + 0.1 * rng.normal(size=rows.shape)
    np.save(folder / "embeddings.npy", np.vstack([np.zeros((1, 32)), rows, again]).astype(np.float32))


def text(seed: int, other: bool = False) -> str:
    """Eighty words of few that are drawn for a text, so that texts differ; or the other word of each."""
    rng = np.random.default_rng(seed)
    words = rng.choice(rng.choice(WORDS, 12, replace=False), 80)
    return "\n".join(" ".join(f"{word}x" if other else word for word in words[at : at + 10]) for at in range(0, 80, 10))


def record(name: str, body: str, **metadata: str) -> str:
    """A line of a file."""
    nothing = dict.fromkeys(("parent", "parent_dataset", "model"))
    return json.dumps({"id": name, "body": body, **nothing, **metadata}) + "\n"


@pytest.mark.nightly
def test_paraphrases_go_and_kin_stay_over_two_increments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paraphrase goes for what came before; what a model wrote of that stays; texts without vector have reasons."""
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    write_encoder(tmp_path / "mini")
    added = CliRunner().invoke(headrace, ["model", "add", "mini", "--from", str(tmp_path / "mini"), "--encoder"])
    assert added.exit_code == 0 and "scorers: {vectors: {model: mini@" in added.output
    label = added.output.partition(":")[0]
    source = tmp_path / "source"
    source.mkdir()
    files: dict[str, Any] = {"kind": "files", "path": str(source), "text_column": "body", "id_column": "id"}
    files |= {"metadata_columns": ["parent", "parent_dataset", "model"]}
    notes = DatasetDeclaration(name="notes", source=files, scorers={"vectors": {"model": label}})
    dedup = Deduplication.model_validate({"levels": ["exact", "near"], "features": "words"})
    corpus = dataclasses.replace(CORPUS, deduplication=dedup, select=({"semantic": SEMANTIC}, {"decontaminate": "off"}))
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    near = f"{text(0)} {text(0)[:4]}"
    first = [record(f"text-{number}", text(number)) for number in range(30)]
    first += [record("near-0", near), record("other-1", text(1, other=True))]
    first += [record("unheard", text(50).replace(" ", "q ").replace("\n", "q\n") + "q")]
    (source / "a.jsonl").write_text("".join(first))
    with dg.DagsterInstance.ephemeral() as instance:
        run_declared([notes], [corpus], instance, ["notes", "main"])
        ids = names(catalogue)
        kin = {"parent": ids["text-3"], "parent_dataset": "notes", "model": "made"}
        second = [record("other-2", text(2, other=True)), record("child-3", text(3, other=True), **kin)]
        (source / "b.jsonl").write_text("".join([*second, record("new", text(99))]))
        run_declared([notes], [corpus], instance, ["notes", "main"])
    ids = names(catalogue)
    named = {doc_id: name for name, doc_id in ids.items()}
    rows = read_rows(catalogue, *whole("main.semantic_removals"))
    removals = {named[row["doc_id"]]: named[row["witness_doc_id"]] for row in rows}
    assert set(map(frozenset, removals.items())) == {frozenset(("text-1", "other-1")), frozenset(("text-2", "other-2"))}
    assert removals["other-2"] == "text-2"
    survivors = {row["doc_id"] for row in read_rows(catalogue, *whole("main.survivors"))}
    members, near_ones = set(ids.values()), {ids["near-0"], ids["text-0"]}
    assert (
        survivors == members - {ids[name] for name in removals} - (near_ones - survivors)
        and len(near_ones & survivors) == 1
    )
    assert survivors == {row["doc_id"] for row in read_rows(catalogue, *whole("main.tokens"))}
    assert _selections_of_duplicates(catalogue, "main") == ["semantic_removals"]
    ledger = Ledger.fresh(catalogue)
    assert set(ledger.increments("notes.vectors_mini")) == set(ledger.increments("main.semantic_cells")) == {0, 1}
    recall = read_rows(catalogue, *whole("main.semantic_recall"))
    assert [row["found_count"] for row in recall] == [row["similar_count"] for row in recall]
    said = {name: OpenedLake(catalogue).why(ids[name], "main") for name in ("other-2", "unheard", "child-3")}
    findings = {name: {one.outcome: one.sentence for one in story.findings} for name, story in said.items()}
    assert "removed: cosine = 0.9" in findings["other-2"]["removed"] and "b.jsonl" in said["other-2"].document.path
    assert [(one.doc_id, one.why) for one in said["other-2"].witnesses] == [(ids["text-2"], "semantic")]
    assert "no vector (no_known_token)" in findings["unheard"]["not_compared"]
    assert any(
        "no better document that is kept was found at a cosine" in one.sentence for one in said["child-3"].findings
    )
    shown = CliRunner().invoke(headrace, ["doc", "why", ids["other-2"]])
    assert "witness in main" in shown.output and "cosine = 0.9" in shown.output


def whole(table: str) -> tuple[str, tuple[str, ...], Any]:
    """Arguments that read the columns of a table that are asked for here."""
    columns = {
        "main.semantic_removals": ("doc_id", "witness_doc_id"),
        "main.semantic_recall": ("similar_count", "found_count"),
    }
    return table, columns.get(table, ("doc_id",)), EVERYTHING


def names(catalogue: Catalog) -> dict[str, str]:
    """The doc_id of each record."""
    rows = read_rows(catalogue, "notes.documents", ("doc_id", "path"), EVERYTHING)
    return {row["path"].partition("#")[2]: row["doc_id"] for row in rows}
