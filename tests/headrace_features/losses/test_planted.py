"""What was planted comes first: noise by loss, repeats by fall between epochs, another language of sources."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from blender_service.client import SourceSpec, connect
from blender_service.server.server import start
from dagster_project.assets.datasets import DatasetDeclaration
from headrace.tables.settings import settings_at
from headrace_features.losses.reading import groups, worst
from headrace_features.losses.service import add_losses
from headrace_features.losses.tables import counting
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS

pytest.importorskip("torch", reason="torch is in the extra torch")

RUN, STEPS = "planted", 140
ENGLISH = "the a old miller grinds sees brings turns grain flour water wheel stone near under by mill river gate slowly"
POLISH = (
    "ten stary mlynarz miele widzi niesie obraca ziarno maka woda kolo kamien blisko pod przy mlyn rzeka brama wolno"
)


def sentences(seed: int, words: str, count: int, freedom: int = 8) -> str:
    """Sentences of eight words in an order with some freedom: each word is one of so many at its place."""
    draw, there = random.Random(seed), words.split()
    return "\n".join(
        " ".join(there[(5 * place + draw.randrange(freedom)) % len(there)] for place in range(8)) + "."
        for _ in range(count)
    )


def noise(seed: int, characters: int) -> str:
    """Letters, digits and signs in no order at all."""
    draw = random.Random(seed)
    return "".join(chr(draw.randrange(33, 127)) for _ in range(characters))


def texts() -> dict[str, dict[str, str]]:
    """Texts by dataset and id: English with noise among it, a little Polish, and three texts that are read often."""
    english = {f"plain-{at}": sentences(at, ENGLISH, 14) for at in range(60)}
    english |= {f"noise-{at}": noise(at, 400) for at in range(3)}
    polish = {f"polish-{at}": sentences(900 + at, POLISH, 14, 19) for at in range(12)}
    repeats = {f"repeat-{at}": sentences(800 + at, ENGLISH, 3) for at in range(3)}
    return {"english": english, "polish": polish, "repeats": repeats}


@pytest.fixture
def example() -> Any:
    """The training job of the demo."""
    path = Path(__file__).parents[3] / "examples" / "train_tiny.py"
    spec = importlib.util.spec_from_file_location("train_tiny", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_tiny"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["train_tiny"]


@pytest.mark.nightly
def test_what_was_planted_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Any) -> None:
    """In a training of the demo's model, in some epochs; and its losses are those that it reports."""
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    datasets = []
    for name, of in texts().items():
        (tmp_path / name).mkdir()
        rows = [{"id": key, "text": text} for key, text in of.items()]
        (tmp_path / name / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
        source = {"kind": "files", "path": str(tmp_path / name), "text_column": "text", "id_column": "id"}
        datasets.append(DatasetDeclaration(name=name, source=source, policy={"rules": []}))
    corpus = dataclasses.replace(CORPUS, datasets=tuple(texts()), window_tokens=(128,))
    with dg.DagsterInstance.ephemeral() as instance:
        run_declared(datasets, [corpus], instance, [*texts(), "main"])
    lake = open_catalogue(settings_at(tmp_path / "lake"))
    log = tmp_path / "log.jsonl"
    with start(lake, add_services=[add_losses]) as server:
        with connect(server.address) as client:
            weights = {"english": "6", "polish": "1", "repeats": "1"}
            sources = [
                SourceSpec(f"main.packed_{name}_128", weights[name], name=name, max_epochs=0) for name in weights
            ]
            blend = client.create_blend(sources, seed=7)
        arguments = ["--address", server.address, "--blend", blend.blend_id, "--run", RUN, "--losses", str(log)]
        assert example.main([*arguments, "--steps", str(STEPS)]) == 0
    check_steps(lake, log)
    names = name_of(lake)
    for by, planted in (("loss", "noise"), ("excess", "noise"), ("fall", "repeat")):
        first = [(names(row), row) for row in worst(lake, RUN, by, 8)]
        assert {name.partition("-")[0] for name, _ in first[:3]} == {planted}, (by, first)
    by_source = groups(lake, RUN, "source")
    assert by_source[0]["group"] == "polish", by_source


def check_steps(lake: Any, log: Path) -> None:
    """The sum over a step's segments by their tokens is the loss that the job reported."""
    rows = counting(lake.load_table("main.losses").scan().to_arrow()).to_pylist()
    for line in map(json.loads, log.read_text().splitlines()):
        step = [row for row in rows if line["offset"] <= row["offset"] < line["offset"] + 8]
        mean = sum(row["sum"] for row in step) / sum(row["tokens"] for row in step)
        assert mean == pytest.approx(line["loss"], rel=1e-6)


def name_of(lake: Any) -> Callable[[dict[str, Any]], str]:
    """Give the id that a document of a line had in its file."""
    paths = {
        row["doc_id"]: row["path"].rpartition("#")[2]
        for name in texts()
        for row in lake.load_table(f"{name}.documents").scan(selected_fields=("doc_id", "path")).to_arrow().to_pylist()
    }
    return lambda row: paths[row["doc_id"]]
