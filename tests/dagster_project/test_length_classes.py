"""A corpus packed by length classes, from its declaration to traced tokens and a blend whose steps have one class."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.documents.trace import TokenTracer
from headrace.tables.cells import cell_values
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import draw, run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS

TABLE, L, CLASSES = "main.packed_notes_256", 256, (256, 64, 16)
STEPS = {"packed_notes_256": {"plan": {"length_classes": [16, 64, 256]}}}


def test_a_corpus_packed_by_length_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows have the class in their cell, tokens lead to their texts, and a blend takes turns of classes."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "data").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    texts = {f"n{at}": draw(at, 5 + 7 * (at % 40)) for at in range(160)}
    records = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "data" / "0.jsonl").write_text("\n".join(records))
    source = {"kind": "files", "path": str(tmp_path / "data"), "text_column": "text", "id_column": "id"}
    notes = DatasetDeclaration(name="notes", source=source, policy={"rules": []})
    with dg.DagsterInstance.ephemeral() as instance:
        run_declared([notes], [dataclasses.replace(CORPUS, steps=STEPS)], instance, ["notes", "main"])
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    windows = sorted(catalogue.load_table(TABLE).scan().to_arrow().to_pylist(), key=lambda row: row["ordinal"])
    classes = [cell_values(window["cell"])["length_class"] for window in windows]
    assert Counter(classes).keys() == {*CLASSES}
    tokens = {row["doc_id"]: row for row in catalogue.load_table("main.tokens").scan().to_arrow().to_pylist()}
    parts: dict[str, list[tuple[int, list[int]]]] = {}
    for window, length in zip(windows, classes, strict=True):
        for segment in window["segments"]:
            start, count = segment["window_start"], segment["token_count"]
            assert start // length == (start + count - 1) // length
            ids = window["input_ids"][start : start + count]
            parts.setdefault(segment["doc_id"], []).append((segment["document_start"], ids))
    for doc_id, row in tokens.items():
        joined = [token for _, ids in sorted(parts[doc_id]) for token in ids]
        assert joined[:-1] == row["input_ids"]
    tracer = TokenTracer(catalogue, TABLE)
    last = next(at for at, length in enumerate(classes) if length == 16)
    for segment in windows[last]["segments"]:
        place = tracer.trace(last, segment["window_start"])
        assert place.doc_id == segment["doc_id"]
    blender = Blender(catalogue)
    names = {length: f"{TABLE}[length_class={length}]" for length in CLASSES}
    made = blender.create(
        BlendSpec(tuple(SourceSpec(name, on_exhausted="CONTINUE") for name in names.values()), turn_rows=2)
    )
    assert sum(source.rows or 0 for source in made.sources) == len(windows)
    for batch in blender.open(made.blend_id).read(0, 0):
        ordinals = batch.ordinals.reshape(-1, 2) if batch.rows % 2 == 0 else batch.ordinals[:0].reshape(0, 2)
        assert all(classes[one] == classes[other] for one, other in ordinals.tolist())


def test_a_wrong_plan_is_a_mistake_of_the_declaration() -> None:
    """Said where definitions load: a length that divides no window."""
    with pytest.raises(DefinitionError, match="give divisors of window_tokens"):
        corpus_assets(dataclasses.replace(CORPUS, steps={"packed": {"plan": {"length_classes": [100]}}}))
