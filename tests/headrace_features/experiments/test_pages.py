"""An experiment's page shows its rows, their means, and what `headrace experiment show` says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.recently_used import RecentlyUsed
from blender_service.server.blender import Blender
from dagster_project.exceptions import CommandError
from headrace_features.experiments.comparison import compare
from headrace_features.experiments.mix_report import FittedMix
from headrace_features.experiments.report import Report
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.lake.run.evaluations import record
from spark_jobs.lake.session.catalogue import ensure_table
from spark_jobs.mixes.designs import design
from spark_jobs.mixes.search import Runs, Search
from tests.blender_service.packed_tables import create_packed, open_lake
from tests.headrace_features.explore.served import asked, pages
from tests.headrace_features.explore.test_training import evaluation

SCORES = {"plain": [1.50, 1.51, 1.49], "<b>": [1.70, 1.71, 1.72]}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Three seeds of two variants."""
    catalogue = open_lake(tmp_path_factory.mktemp("experiments"))
    packed = create_packed(catalogue, "main.packed_notes_16").append(50, 1)
    ensure_table(catalogue, "main.members", MEMBERS, {})
    blend = Blender(catalogue).create(BlendSpec(sources=(SourceSpec(packed.identifier),), seed=1))
    for variant, values in SCORES.items():
        for seed, value in enumerate(values):
            scores = [{"set": "held", "measure": "bits_per_byte", "value": value, "chance": None}]
            key = f"{ord(variant[0]):02x}{seed:02x}" * 16
            sources = '{"notes": {"tokens": 90, "epochs": 1.5}}'
            given = {"variant": variant, "seed": seed, "key": key, "scores": scores, "sources": sources}
            record(catalogue, evaluation(blend.blend_id, packed.identifier, **given))
    return catalogue


@pytest.mark.nightly
def test_rows_and_means_need_no_declaration(lake: Catalog, tmp_path: Path) -> None:
    """They are those of `system.evaluations`; each run leads to its losses, each variant to its blend."""
    client = pages(lake, tmp_path)
    assert asked(client, "/experiments")["experiments"][0]["variants"] == list(SCORES)
    found = asked(client, "/experiments/trial")
    (means,) = found["means"]
    assert {name: float(means[name]) for name in SCORES} == {
        name: pytest.approx(np.mean(values)) for name, values in SCORES.items()
    }
    assert [one["variant"] for one in found["variants"]] == list(SCORES)
    assert found["variants"][0]["sources"] == {"notes": 90}
    page = client.get("/experiments/trial").text
    assert "<b></" not in page
    for row in found["rows"]:
        assert client.get(f"/training/{row['key']}").status_code == 200
        assert f'href="/training/{row["key"]}"' in page
    assert f'href="/blends/{found["variants"][0]["blend"]}"' in page
    assert "experiment trial is not declared" in client.get("/experiments/trial/report").text


def test_the_plot_is_a_picture_of_its_own(lake: Catalog, tmp_path: Path) -> None:
    """The page may load pictures of its own server alone."""
    client = pages(lake, tmp_path)
    assert 'src="/experiments/trial/scores.png"' in client.get("/experiments/trial").text
    answer = client.get("/experiments/trial/scores.png")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")


def test_verdicts_are_those_of_the_command(lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With interval and seeds; made once for each state of the rows; an experiment that is not declared says so."""
    made = []

    def report(name: str) -> Report:
        made.append(name)
        if name != "trial":
            raise CommandError(f"experiment {name} is not declared")
        scores = {one: {"held": {s: {0.01: v} for s, v in enumerate(values)}} for one, values in SCORES.items()}
        compared = compare(scores, lower_is_better=["held"], read_share=lambda first, second: 0.0)
        return Report(name, [], 6, compared, ("plain: <i>as it is</i>",))

    monkeypatch.setattr("headrace_features.experiments.pages.declared_report", report)
    client = pages(lake, tmp_path)
    found = asked(client, "/experiments/trial/report")
    assert found["verdicts"] == list(report("trial").verdict_rows())
    assert "plain" in found["verdicts"][0]["variants"]
    page = client.get("/experiments/trial/report").text
    assert "&lt;i&gt;as it is" in page
    assert made == ["trial", "trial"], "once for the pages, once here"


def test_experiments_of_others_do_not_exist(lake: Catalog, tmp_path: Path) -> None:
    """On tables that the reader may not see."""
    few = pages(lake, tmp_path, reader=lambda who: lambda table: False)
    assert asked(few, "/experiments")["experiments"] == []
    for path in ("/experiments/trial", "/experiments/trial/report", "/experiments/trial/scores.png"):
        assert few.get(path).status_code == 404


def test_a_search_for_a_mix_has_its_front(lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a table with what each mix wins and loses, and as a picture of its own; variants have none."""
    mixes = design([2, 1], np.ones(2), seed=0)
    search = Search.of([2000, 1000], 1000)
    runs = Runs(mixes, np.column_stack([2 - mixes[:, 0], 2 - mixes[:, 1] ** 0.5]))
    law = search.law(runs)
    about = ("trial", ("x", "y"), ("one", "other"), search.proposal(law), law, search.front(law), "proxy_1m", runs)
    found = FittedMix(*about, search.tokens, 1000, 0.5, (0.01, -0.02), ("kept",), 9, "ab" * 32)
    module = "headrace_features.experiments.pages"
    monkeypatch.setattr(f"{module}._REPORTS", RecentlyUsed(4))
    monkeypatch.setattr(f"{module}.declared_report", lambda name: found)
    client = pages(lake, tmp_path)
    shown = asked(client, "/experiments/trial/report")
    assert shown["verdicts"] == list(found.front_rows())
    assert {row["for"] for row in shown["verdicts"]} >= {"best for one"}
    assert any("a trade-off: the best mix for one loses" in line for line in shown["differences"])
    page = client.get("/experiments/trial/report").text
    assert "The front of mixes" in page and 'src="/experiments/trial/front.png"' in page
    assert client.get("/experiments/trial/front.png").content.startswith(b"\x89PNG")
    monkeypatch.setattr(f"{module}._REPORTS", RecentlyUsed(4))
    monkeypatch.setattr(f"{module}.declared_report", lambda name: Report(name, [], 0, None, ()))
    assert "has variants, and no front of mixes" in client.get("/experiments/trial/front.png").text
