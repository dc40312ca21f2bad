"""The scorer of benchmarks in documents, from the command that adds one to what a text holds of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_project.cli.quality.evals import evals
from headrace.tables.settings import settings_at
from spark_jobs.exceptions import InputError
from spark_jobs.filters.contamination.decontaminated import SearchedEvals, contamination
from spark_jobs.filters.scorer import check_scorer

ITEM = "Seven herons stood beside the frozen weir while the miller counted sacks of barley twice before noon."


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A benchmark's file, and a lake whose registry is empty."""
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    path = tmp_path / "birds.jsonl"
    path.write_text(json.dumps({"question": ITEM, "answer": ""}) + "\n")
    return path


def test_a_registered_benchmark_is_found(benchmark: Path) -> None:
    """Whatever its case and line breaks; texts without it have no findings and no share."""
    runner = CliRunner()
    added = runner.invoke(evals, ["add", "birds", "--from", str(benchmark), "--columns", "question,answer"])
    assert added.exit_code == 0 and "birds: 1 items of 1 rows; 1 empty texts" in added.output, added.output
    listed = json.loads(runner.invoke(evals, ["show", "--json"]).output)
    assert [(one["eval set"], one["items"]) for one in listed] == [("birds@1", 1)]

    text = "é " + ITEM.upper().replace(" ", "\n", 3)
    found = check_scorer(contamination, SearchedEvals(evals=("birds@1",)), [text]).to_pylist()
    (finding,) = found[-1]["findings"]
    assert (finding["eval_set"], finding["kind"], finding["share"], found[-1]["max_share"]) == ("birds", "exact", 1, 1)
    assert text.encode()[finding["start"] : finding["end"]].decode().startswith("SEVEN")
    assert {(len(row["findings"]), row["max_share"]) for row in found[:-1]} == {(0, None)}


def test_one_that_is_not_there_is_named(benchmark: Path) -> None:
    """With the nearest, or the command that adds one."""
    with pytest.raises(InputError, match=r"it has none \(headrace evals add"):
        check_scorer(contamination, SearchedEvals(evals=("birds@1",)))
    CliRunner().invoke(evals, ["add", "birds", "--from", str(benchmark), "--columns", "question"])
    with pytest.raises(InputError, match="did you mean 'birds@1'"):
        check_scorer(contamination, SearchedEvals(evals=("bird@1",)))
