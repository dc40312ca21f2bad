"""A corpus that cuts passages, from its declaration to what is packed, told and traced."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.cli import headrace
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.corpora.funnel import funnel
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.documents.document_story import corpus_findings
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.inspect.lake.corpus_facts import find_corpus
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.inspect.test_corpus_documents import spelled
from tests.dagster_project.planted_lake import run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS

FOUND = {"anchors", "passages"}
CUT = {"trimmed", "cut_texts"}


def tables_of(**declared: Any) -> dict[str, set[str]]:
    """By table of a corpus, the tables that it is made of."""
    made = corpus_assets(dataclasses.replace(CORPUS, **declared))
    return {key.path[1]: {read.path[1] for read in asset.dependency_keys} for asset in made for key in asset.keys}


def test_tables_are_there_where_they_are_declared() -> None:
    """Found alone, passages change no other table; cut, all that follows reads what is left."""
    plain = tables_of()
    found = tables_of(select=({"passages": {}},))
    assert set(found) - set(plain) == FOUND and {name: found[name] for name in plain} == plain
    cut = tables_of(select=({"shape": {"lengths": {"keep": 0.5}}}, {"passages": {"cut": True}}))
    assert set(cut) - set(plain) == FOUND | CUT | {"shape_histogram", "shape", "shaped"}
    assert "shaped" in cut["anchors"] and "shaped" in cut["trimmed"]
    assert {name for name in plain if "cut_texts" in cut[name]} == {
        "tokenizer",
        "tokenizer_certificate",
        "tokens",
        "token_statistics",
    }
    assert all("trimmed" in cut[name] for name in ("tokenizer", "tokens", "ordered"))


@pytest.mark.parametrize(
    ("passages", "said"),
    [
        ({"min_words": 60}, "write cut: true too"),
        ({"cut": "yes"}, "cut: Input should be a valid boolean"),
        ({"cut": True, "min_word": 60}, "min_word"),
        ({"cut": True, "min_words": 40}, "min_words"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(passages: dict[str, Any], said: str) -> None:
    """When the project loads, in one line."""
    with pytest.raises(DefinitionError, match=said):
        tables_of(select=({"passages": passages},))


def made(seed: int, words: int) -> str:
    """Lines of nine made-up words."""
    draw = random.Random(seed)
    named = [f"{draw.choice('bdgklmnprst')}{draw.choice('aeiouü')}{draw.randrange(4000)}" for _ in range(words)]
    return "".join(" ".join(named[at : at + 9]) + ".\r\n" for at in range(0, words, 9))


@pytest.mark.nightly
def test_passages_are_cut_told_and_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two increments: the first copy stays, what was packed too, and a token leads back to its bytes over the cut."""
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    source = tmp_path / "source"
    source.mkdir()
    shared, short = made(1, 63), made(2, 54)
    increments = [
        {"first": made(3, 45) + shared, "alone": made(4, 90) + short},
        {"later": made(5, 90) + shared + made(6, 45), "little": short + "Nothing else.\r\n"},
    ]
    notes = DatasetDeclaration(
        name="notes",
        source={"kind": "files", "path": str(source), "text_column": "body", "id_column": "id"},
        policy={"rules": [{"rule": "empty", "signal": "word_count", "below": 1}]},
    )
    corpus = dataclasses.replace(CORPUS, select=({"passages": {"cut": True}},))
    packed, columns = list[dict[int, list[int]]](), ("ordinal", "input_ids")
    with dg.DagsterInstance.ephemeral() as instance:
        for number, texts in enumerate(increments):
            lines = (json.dumps({"id": name, "body": text}) for name, text in texts.items())
            (source / f"{number}.jsonl").write_text("\n".join(lines))
            run_declared([notes], [corpus], instance, ["notes", "main"])
            rows = read_columns(open_catalogue(settings_at(tmp_path / "lake")), "main.packed_notes_256", columns)
            assert rows is not None
            packed.append({row["ordinal"]: row["input_ids"] for row in rows.to_pylist()})
    assert all(packed[1][ordinal] == ids for ordinal, ids in packed[0].items())
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    documents = OpenedLake(catalogue).documents("main").to_arrow().to_pylist()
    assert {(row["dataset"], row["doc_id"]): row["content"] for row in documents} == spelled(catalogue, "main")
    facts = find_corpus(catalogue, "main")
    stages = {stage.step: stage.documents for stage in funnel(catalogue, facts)}
    assert (stages["survivors"], stages["trimmed"], stages["tokens"]) == (4, 3, 3)

    found = {}
    for name, number in (("first", 0), ("later", 1), ("little", 1)):
        document = find_document(catalogue, f"{number}.jsonl#{name}")
        findings, _ = corpus_findings(catalogue, facts, document)
        found[name] = {one.table: one for one in findings}
    assert found["first"]["main.trimmed"].outcome == "whole"
    said = found["later"]["main.cut_texts"]
    assert (said.outcome, "0.jsonl#first" in said.sentence) == ("cut", True)
    assert found["little"]["main.cut_texts"].outcome == "left_out"
    assert "too_little_left (13, the bound is 200)" in found["little"]["main.cut_texts"].sentence
    assert "main.tokens" not in found["little"]
    listed = CliRunner().invoke(headrace, ["corpus", "show", "main", "--json"])
    assert json.loads(listed.output)[-1]["step"] == "tokens"

    later = find_document(catalogue, "1.jsonl#later").doc_id
    windows = read_columns(catalogue, "main.packed_notes_256", ("ordinal", "segments"))
    assert windows is not None
    tracer = TokenTracer(catalogue, "main.packed_notes_256")
    spans = {}
    for row in windows.to_pylist():
        for segment in row["segments"]:
            if segment["doc_id"] == later:
                first = segment["window_start"]
                traced = [tracer.trace(row["ordinal"], first + at) for at in range(segment["token_count"])]
                spans |= {one.document_token: (one.source_start, one.source_end) for one in traced if one.token_id}
    source_bytes = increments[1]["later"].encode()
    read = b"".join(source_bytes[start:end] for _, (start, end) in sorted(spans.items()))
    assert read.replace(b"\r", b"") == (made(5, 90) + made(6, 45)).encode().replace(b"\r", b"")
