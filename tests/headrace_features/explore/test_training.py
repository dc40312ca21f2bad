"""A run's losses stand beside their offsets; from the largest rises a link leads to the batch."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.blend.store import open_store
from blender_service.server.blender import Blender
from blender_service.server.run_register import RunRegister
from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.training_runs import running_medians, spikes, take_losses
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.lake.run.evaluations import record
from spark_jobs.lake.session.catalogue import ensure_table
from tests.blender_service.packed_tables import create_packed, open_lake
from tests.headrace_features.explore.served import asked, pages

KEY = "ab" * 32


def evaluation(blend: str, table: str, **changed: Any) -> dict[str, Any]:
    """A row of `system.evaluations` with a spike at offset 80."""
    losses = [{"offset": 4 * at, "loss": 3 - at / 100 + (at == 20)} for at in range(40)]
    scores = [{"set": "held", "measure": "bits_per_byte", "value": 1.5, "chance": None}]
    row = {"key": KEY, "run": KEY, "experiment": "trial", "variant": "one", "seed": 0, "learning_rate": 0.01}
    row |= {"model": "tiny", "blend": blend, "snapshots": [f"{table}@1"], "rows_digest": "", "tokens": 100}
    row |= {"sources": "{}", "left_out": "{}", "document_count": 3, "losses": losses, "scores": scores}
    return {**row, "seconds": 1.0, "device": "cpu", "commit": "", **changed}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Catalog, str]:
    """A blend, a named run that read it twice, and a run of an experiment."""
    catalogue = open_lake(tmp_path_factory.mktemp("training"))
    packed = create_packed(catalogue, "main.packed_notes_16").append(200, 1)
    ensure_table(catalogue, "main.members", MEMBERS, {})
    blend = Blender(catalogue).create(BlendSpec(sources=(SourceSpec(packed.identifier, max_epochs=0),), seed=1))
    register = RunRegister(open_store(catalogue).objects)
    facts = {"blend": blend.blend_id, "principal": "bo", "world_size": 2, "step_rows": 8, "code_version": "v1"}
    for day, first, end in ((1, 0, 64), (2, 48, 120)):
        read = {**facts, "first": first, "end": end, "consumed": end - 8, "began": f"2026-01-0{day}", "notes": "<b>"}
        register.write("big-run", f"2026010{day}T000000000000-0000000{day}.began", read)
    record(catalogue, evaluation(blend.blend_id, packed.identifier))
    return catalogue, blend.blend_id


@pytest.fixture(scope="module")
def client(lake: tuple[Catalog, str], tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    return pages(lake[0], tmp_path_factory.mktemp("pages"))


@given(st.lists(st.floats(0, 10), max_size=60))
def test_spikes_are_the_largest_rises_over_the_running_median(losses: list[float]) -> None:
    """Compared with a loop over the losses."""
    medians = [statistics.median(losses[max(0, at - 15) : at]) if at >= 3 else None for at in range(len(losses))]
    assert np.allclose(running_medians(losses), [np.nan if one is None else one for one in medians], equal_nan=True)
    rises = [0.0 if m is None else loss - m for loss, m in zip(losses, medians, strict=True)]
    peaks = [
        at
        for at, rise in enumerate(rises)
        if rise > 0 and (at == 0 or rise >= rises[at - 1]) and (at + 1 == len(rises) or rise > rises[at + 1])
    ]
    expected = sorted(peaks, key=lambda at: -rises[at])[:10]
    assert [one.offset for one in spikes(range(len(losses)), losses)] == expected


def test_the_list_has_named_runs_and_those_of_experiments(lake: tuple[Catalog, str], client: TestClient) -> None:
    """With what they read."""
    named, trial = asked(client, "/training")["runs"]
    assert (named["run"], named["rows"], named["blends"]) == ("big-run", 112, [lake[1]])
    assert (trial["run"], trial["experiment"]) == (KEY, "trial")


def test_a_spike_leads_to_its_batch(lake: tuple[Catalog, str], client: TestClient) -> None:
    """The one planted is the first of the list, and a point of the plot; its batch is a page."""
    found = asked(client, f"/training/{KEY}")
    first = found["spikes"][0]
    assert (first["offset"], first["loss"]) == (80, pytest.approx(3.8))
    assert first["median"] == pytest.approx(statistics.median(3 - at / 100 for at in range(5, 20)))
    batch = f"/blends/{lake[1]}/rows/80?rows=4"
    assert f'<a href="{batch}" aria-label=' in client.get(f"/training/{KEY}").text
    assert asked(client, batch)["rows"][0]["offset"] == 80


def test_a_named_run_leads_to_its_blend_and_back(lake: tuple[Catalog, str], client: TestClient) -> None:
    """Its reads are those of the register; a batch that it was trained on names it, one beyond does not."""
    found = asked(client, "/training/big-run")
    assert [(one["first"], one["end"], one["consumed"]) for one in found["reads"]] == [(0, 64, 56), (48, 120, 112)]
    page = client.get("/training/big-run").text
    assert "No loss of this run is known" in page
    assert "&lt;b&gt;" in page
    for offset, runs in ((111, ["big-run"]), (112, [])):
        assert asked(client, f"/blends/{lake[1]}/rows/{offset}?rows=1")["runs"] == runs


def test_losses_of_a_log_are_taken_over(lake: tuple[Catalog, str], tmp_path: Path) -> None:
    """By offset or by step, each once, the last one told; the page leads from the rise to the rows of that step."""
    catalogue, blend = lake
    log, facts = tmp_path / "log.jsonl", {"blend": blend, "principal": "", "world_size": 1, "notes": ""}
    read = {**facts, "first": 16, "end": 200, "step_rows": 8, "began": "2026-01-03", "code_version": ""}
    RunRegister(open_store(catalogue).objects).write("logged", "20260103T000000000000-00000003.began", read)
    lines = [{"step": at, "loss": 3.0 + (at == 6), "lr": 0.1} for at in range(12)]
    log.write_text("\n".join(map(json.dumps, [*lines, {"eval": 2}, {"step": 12, "loss": float("nan")}])))
    assert take_losses(catalogue, "logged", log) == (12, 12, 2)
    log.write_text("\n".join(map(json.dumps, [*lines, {"offset": 16, "loss": 9.0}, {"step": 12, "loss": 3}])))
    assert take_losses(catalogue, "logged", log) == (14, 2, 0)
    client = pages(catalogue, tmp_path)
    found = asked(client, "/training/logged")
    assert found["losses"] == [[16 + 8 * at, 9.0 if at == 0 else 3.0 + (at == 6)] for at in range(13)]
    assert [(one["offset"], one["batch"]) for one in found["spikes"]] == [(64, f"/blends/{blend}/rows/64?rows=8")]
    batch = asked(client, found["spikes"][0]["batch"])
    assert [one["offset"] for one in batch["rows"]] == list(range(64, 72)) and "logged" in batch["runs"]
    for line in ("no JSON", "[1]", '{"loss": 1}', '{"step": "x", "loss": 1}'):
        log.write_text(f'{{"step": 1, "loss": 3}}\n{line}\n')
        with pytest.raises(CommandError, match=r"log.jsonl:2: .* is no line as"):
            take_losses(catalogue, "logged", log)


def test_runs_of_others_do_not_exist(lake: tuple[Catalog, str], tmp_path: Path) -> None:
    """Neither named ones nor those of experiments on tables that the reader may not see."""
    few = pages(lake[0], tmp_path, reader=lambda who: lambda table: False)
    assert asked(few, "/training")["runs"] == []
    for name in ("big-run", KEY):
        answer = few.get(f"/training/{name}")
        assert answer.status_code == 404
        assert "did you mean" not in answer.text


def test_the_batch_of_a_step_is_what_the_run_read(lake: tuple[Catalog, str], tmp_path: Path) -> None:
    """By the assistant's tool: of a named run and of an experiment's; a step that the run does not have is refused."""
    pytest.importorskip("mcp")
    from headrace_features.explore.assistant import Assistant
    from headrace_features.explore.explorer import Explorer

    catalogue, blend = lake
    tools = Assistant(Explorer(catalogue, tmp_path / "explore", lambda dataset: True), "ann")
    for run, step, offset, rows in (("big-run", 0, 0, 8), ("big-run", 14, 112, 8), (KEY, 20, 80, 4), (KEY, 39, 156, 4)):
        told = json.loads(tools.batch(run, step).split("\n")[1])
        assert (told["blend"], told["offset"], told["rows"], told["shown"]) == (blend, offset, rows, rows)
        assert [row["offset"] for row in told["batch"]] == list(range(offset, offset + rows))
    for run, step, last in (("big-run", 15, 14), (KEY, 40, 39), ("big-run", -1, 14)):
        with pytest.raises(CommandError, match=f"has the steps 0 to {last}, not {step}"):
            tools.batch(run, step)
    with pytest.raises(CommandError, match="training run big-rum is not known; did you mean 'big-run'"):
        tools.batch("big-rum", 0)
