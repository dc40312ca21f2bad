"""A benchmark enters the registry late: what is packed from then on holds none of it, and all is said."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blender_service.blend.requests import BlendSpec, SourceSpec, Stage, UpdateSpec
from blender_service.exceptions import InvalidBlendError
from blender_service.server.blender import Blender
from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.assets.deduplication import Deduplication
from dagster_project.assets.selections import listed
from dagster_project.cli.quality.evals import evals
from dagster_project.exceptions import CommandError, DefinitionError
from dagster_project.inspect.corpora.contamination import contamination_report
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.documents.document_story import corpus_findings
from dagster_project.inspect.lake.corpus_facts import find_corpus
from headrace.tables.settings import settings_at
from spark_jobs.filters.contamination.decontaminated import EVALS_PROPERTY, present_evals
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import WORDS
from tests.dagster_project.project import Project, failures, lake_settings

PACKED = "main.packed_notes_64"
QUESTIONS = [" ".join(random.Random(f"question {n}").choices(WORDS, k=40)) for n in range(3)]
HELD = {"first", "shouted"}


def assets(root: Path, *select: Any) -> list[Any]:
    """A dataset and a corpus without near-duplicates, as they are declared now."""
    source = {"kind": "files", "path": str(root / "source"), "text_column": "body", "id_column": "name"}
    corpus = CorpusDeclaration(
        "main",
        ("notes",),
        deduplication=Deduplication(levels=("exact",)),
        select=select,
        tokenizer={"train": {"vocabulary_size": 300}},
        window_tokens=(64,),
    )
    with lake_settings(root):
        return [*dataset_assets(DatasetDeclaration("notes", source)), *corpus_assets(corpus)]


@pytest.mark.nightly
def test_a_benchmark_that_comes_late(tmp_path: Path) -> None:
    """Nothing before it; a run leaves out what holds it, blends and reports tell, `off` says off."""
    texts = {f"note {n}": " ".join(random.Random(n).choices(WORDS, k=90)) for n in range(12)}
    texts["first"] = f"{texts['note 0']} {QUESTIONS[0]} {texts['note 1']}"
    texts["shouted"] = f"{texts['note 2']}\n> {QUESTIONS[1].upper().replace(' ', chr(10) + '> ')}"
    (tmp_path / "source").mkdir()
    lines = [json.dumps({"name": name, "body": text}) for name, text in texts.items()]
    (tmp_path / "source" / "a.jsonl").write_text("\n".join(lines))
    catalogue = open_catalogue(settings_at(tmp_path))
    project = Project(tmp_path, *assets(tmp_path))
    assert project.run().success
    assert not catalogue.table_exists("main.decontaminated")
    assert EVALS_PROPERTY not in catalogue.load_table(PACKED).properties
    blender = Blender(catalogue)
    before = blender.create(BlendSpec((SourceSpec(PACKED),), name="before"))

    (tmp_path / "eval.jsonl").write_text("\n".join(json.dumps({"q": question}) for question in QUESTIONS))
    with lake_settings(tmp_path):
        done = CliRunner().invoke(evals, ["add", "quiz", "--from", str(tmp_path / "eval.jsonl"), "--columns", "q"])
        assert done.exit_code == 0, done.output
    (said,) = failures(project.run(PACKED))
    assert "the registry now holds quiz@1, this run was planned with none; run it again" in said
    with pytest.raises(CommandError, match="quiz@1 were not searched for in all that it holds"):
        contamination_report(catalogue, "main")

    project = project.changed(*assets(tmp_path))
    (said,) = failures(project.run(PACKED))
    assert "quiz@1 have not been searched for in increment 0; headrace run main" in said
    assert project.run("main.decontaminated", "main.contaminated").success
    found = contamination_report(catalogue, "main")
    held = {one.doc_id for one in found.documents}
    assert len(held) == len(HELD) and found.packed == found.documents
    assert found.blends == {PACKED: ("before",)} and found.evals == ("quiz@1",)
    assert {one.items for one in found.documents} == {("quiz, exact",)}

    assert project.run().success
    digest = present_evals(catalogue).digest
    assert catalogue.load_table(PACKED).properties[EVALS_PROPERTY] == digest
    packed = {part["doc_id"] for _, segments in project.rows(PACKED, "ordinal", "segments") for part in segments}
    everything = {doc_id for (doc_id,) in project.rows("notes.documents", "doc_id")}
    assert packed == everything - held
    later = contamination_report(catalogue, "main")
    old = f"{PACKED}@{before.sources[0].snapshot_id}"
    assert later.blends == {old: ("before",)}
    document = find_document(catalogue, min(held))
    findings, _ = corpus_findings(catalogue, find_corpus(catalogue, "main"), document)
    assert (
        "holds items of benchmarks: 1 of quiz (exact), at most 100% of one; it does not go on" in findings[-1].sentence
    )

    _blends_demand(blender, digest, str(before.sources[0].snapshot_id))
    assert project.changed(*assets(tmp_path, {"decontaminate": "off"})).run().success
    assert catalogue.load_table(PACKED).properties[EVALS_PROPERTY] == "off"
    packed = {part["doc_id"] for _, segments in project.rows(PACKED, "ordinal", "segments") for part in segments}
    assert packed == everything


def _blends_demand(blender: Blender, digest: str, old: str) -> None:
    """A demand is met by what was packed since, by nothing older, and children keep to it."""
    made = blender.create(BlendSpec((SourceSpec(PACKED),), name="clean", evals=digest))
    assert made.evals == digest and blender.searched_evals(made.blend_id) == {PACKED: digest}
    child = blender.update(UpdateSpec("clean", (Stage(3, align=True),)))
    assert child.evals == digest and child.parent == made.blend_id
    for spec, said in (
        (BlendSpec((SourceSpec(PACKED, snapshot=old),), evals=digest), "is of an earlier packing than was searched"),
        (BlendSpec((SourceSpec(PACKED),), evals="f" * 64), f"was searched for {digest}, demanded is ffff"),
        (BlendSpec((SourceSpec(PACKED),), evals="quiz"), "evals: is 'quiz'; give the 64 hex digits"),
    ):
        with pytest.raises(InvalidBlendError, match=said):
            blender.create(spec)
    with pytest.raises(InvalidBlendError, match="demanded is ffff"):
        blender.update(UpdateSpec("clean", (Stage(3),), evals="f" * 64))


def test_a_word_that_is_none_is_refused() -> None:
    """The settings are those of the search."""
    with pytest.raises(DefinitionError, match="decontaminate is 'of'; write its settings, such as"):
        listed("main", [{"decontaminate": "of"}])
