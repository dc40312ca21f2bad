"""A corpus whose tokens come from the part `conversations`: packed with masks, traced, read and shown."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner

from dagster_project.assets import corpora
from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.assets.parts import MaskedTokens
from dagster_project.assets.selections import listed
from dagster_project.cli import headrace
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.inspect.documents.window_tokens import token_window
from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.tokens.tokens import MASKED_TOKENS, MASKED_TOKENS_DDL, MASKED_TOKENS_SCHEMA
from tests.dagster_project.planted_lake import run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS
from tests.spark_jobs.packing.test_masked import L, Masked, masked_document, packed_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = f"main.packed_notes_{L}"


class RenderedConfig(ConfigModel):
    """Stands for a template."""

    seed: int = 0


def rendering(doc_id: str, seed: int) -> Masked:
    """Any ids, mask and rows for a document."""
    draw = random.Random(f"{doc_id}{seed}")
    made = masked_document(draw, 2)
    return Masked([draw.randrange(260) for _ in made.ids], made.bits, made.starts)


@step(version="1", scope=Scope.INCREMENT, tables=(MASKED_TOKENS,), name="rendered", any_engine=True)
def rendered(survivors: DataFrame, tokenizer: DataFrame, documents: DataFrame, config: RenderedConfig) -> DataFrame:
    """Stands for the step of a feature."""

    def render(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made = [(row, rendering(row["doc_id"], config.seed)) for row in batch.to_pylist()]
            rows = [
                {
                    **row,
                    "input_ids": one.ids[:-1],
                    "token_count": len(one.ids) - 1,
                    "trainable": one.bits,
                    "row_starts": one.starts,
                }
                for row, one in made
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=MASKED_TOKENS_SCHEMA)

    there = documents.select("doc_id").join(survivors, "doc_id")
    return there.select("dataset", "shard", "doc_id").mapInArrow(render, MASKED_TOKENS_DDL)


def conversations(
    name: str,
    declared: Mapping[str, Any],
    inputs: Mapping[str, Any],
    each: Callable[[str], tuple[str, ...]],
    window_tokens: int,
) -> MaskedTokens:
    """Stands for the part of a feature."""
    read = {name: inputs[name] for name in ("survivors", "tokenizer")}
    return MaskedTokens(rendered, {**read, "documents": each("documents")}, {**declared})


@pytest.fixture(autouse=True)
def its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part stands where a feature would bring it."""
    monkeypatch.setattr(corpora, "part", lambda name, where: {"conversations": conversations}[name])
    monkeypatch.setattr(corpora, "_listed", lambda declared: listed(declared.name, declared.select))


@pytest.mark.parametrize("setting", [{"beginning_of_document": "<b>"}, {"plan": "next_fit"}, {"cut": "line"}])
def test_settings_of_plain_text_are_refused(setting: dict[str, str]) -> None:
    """When the project loads, by name."""
    declared = dataclasses.replace(CORPUS, conversations={}, steps={"packed": setting})
    with pytest.raises(DefinitionError, match=f"corpus main: conversations: .* leave {next(iter(setting))} of packed"):
        corpus_assets(declared)
    corpus_assets(dataclasses.replace(CORPUS, steps={"packed": setting}))
    corpus_assets(dataclasses.replace(declared, steps={"packed": {"plan": "best_fit", "seed": 3}}))


def test_a_corpus_turns_to_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was packed as text is packed anew with masks; each token is traced and shown with its bit."""
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    source = tmp_path / "source"
    source.mkdir()
    lines = (json.dumps({"id": str(number), "body": f"note {number} " * 9}) for number in range(40))
    (source / "a.jsonl").write_text("\n".join(lines))
    notes = DatasetDeclaration(
        name="notes",
        source={"kind": "files", "path": str(source), "text_column": "body", "id_column": "id"},
        policy={"rules": [{"rule": "empty", "signal": "word_count", "below": 1}]},
    )
    plain = dataclasses.replace(CORPUS, window_tokens=(L,))
    masked = dataclasses.replace(plain, conversations={"seed": 7})
    with dg.DagsterInstance.ephemeral() as instance:
        for corpus in (plain, masked):
            run_declared([notes], [corpus], instance, ["notes", "main"])
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    table = catalogue.load_table(TABLE)
    windows = sorted(table.scan().to_arrow().to_pylist(), key=lambda window: window["ordinal"])
    end, padding = (int(table.properties[f"headrace.{name}-id"]) for name in ("end-of-document", "padding"))
    doc_ids = catalogue.load_table("main.tokens").scan().to_arrow()["doc_id"].to_pylist()
    made = {doc_id: rendering(doc_id, 7) for doc_id in doc_ids}
    wanted = {doc_id: dataclasses.replace(one, ids=[*one.ids[:-1], end]).parts() for doc_id, one in made.items()}
    assert packed_parts(windows, padding) == {doc_id: parts for doc_id, parts in wanted.items() if parts}

    tracer = TokenTracer(catalogue, TABLE)
    for window in windows[:3]:
        assert token_window(catalogue, TABLE, window["ordinal"]).trainable == window["trainable"]
        traced = [tracer.trace(window["ordinal"], at) for at in range(L)]
        assert [one.trained for one in traced] == window["trainable"]
        for one, token in zip(traced, window["input_ids"], strict=True):
            assert one.what != "token" or (one.token_id, one.text_start) == (token, None)
    at = windows[0]["trainable"].index(True)
    said = CliRunner().invoke(headrace, ["doc", "trace", TABLE, "0", str(at)])
    assert [line.split() for line in said.output.splitlines() if line.startswith("trained")] == [["trained", "yes"]]
