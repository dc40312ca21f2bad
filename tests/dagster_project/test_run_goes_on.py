"""A table that fails ends nothing of `headrace run` but what depends on it, and every table is accounted for."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_project.cli import run_command
from dagster_project.cli.run import step_lines
from dagster_project.cli.run.execution import execute
from dagster_project.cli.run.step_lines import StepLine, Watch
from spark_jobs.exceptions import LeaseError

Said = pytest.CaptureFixture[str]
PARTS = dg.StaticPartitionsDefinition(["a", "b"])


def asset(name: str, *needs: str, parts: bool = False, fails: str = "") -> dg.AssetsDefinition:
    """An asset of a user that fails always, or in one partition only."""

    @dg.asset(
        key=["notes", name],
        deps=[["notes", need] for need in needs],
        partitions_def=PARTS if parts else None,
    )
    def made(context) -> dg.MaterializeResult[Any]:
        if fails and fails in ("always", context.partition_key if parts else ""):
            raise dg.Failure(f"{name} is broken", allow_retries=False)
        return dg.MaterializeResult(metadata={"dagster/row_count": 1, "skipped": False, "detail": "all"})

    return made


@pytest.fixture
def project(lake_env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One chain without partitions that breaks, one that does not, and partitions of which one breaks."""
    assets = [
        asset("bad", fails="always"),
        asset("behind", "bad"),
        asset("far", "behind"),
        asset("good"),
        asset("parts", parts=True, fails="a"),
        asset("same", "parts", parts=True),
        asset("whole", "same"),
        asset("zest", "good"),
        asset("zone", "zest"),
    ]
    definitions = dg.Definitions(assets=assets, executor=dg.in_process_executor)
    monkeypatch.setattr("dagster_project.cli.run.execution.load_definitions", lambda: definitions)


@pytest.mark.nightly
def test_what_does_not_depend_on_a_failure_is_computed_and_what_does_is_named(project: None) -> None:
    """Across the Dagster runs of one command: a partition depends on the same partition, a whole table on all."""
    shown: list[StepLine] = []
    lines = execute((), None, shown.append)
    assert sorted(lines, key=lambda line: line.label) == sorted(shown, key=lambda line: line.label)
    assert {line.label: (line.status, line.detail) for line in lines} == {
        "notes.bad": ("failed", "bad is broken"),
        "notes.behind": ("left", "notes.bad"),
        "notes.far": ("left", "notes.bad"),
        "notes.good": ("computed", "all"),
        "notes.parts[a]": ("failed", "parts is broken"),
        "notes.parts[b]": ("computed", "all"),
        "notes.same[a]": ("left", "notes.parts[a]"),
        "notes.same[b]": ("computed", "all"),
        "notes.whole": ("left", "notes.parts[a]"),
        "notes.zest": ("computed", "all"),
        "notes.zone": ("computed", "all"),
    }


@pytest.mark.nightly
def test_an_asset_that_says_nothing_of_itself_has_its_time_and_no_increments(
    lake_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain one of Dagster's."""

    @dg.asset(key=["notes", "plain"])
    def plain() -> None:
        time.sleep(0.01)

    definitions = dg.Definitions([plain], executor=dg.in_process_executor)
    monkeypatch.setattr("dagster_project.cli.run.execution.load_definitions", lambda: definitions)
    (line,) = execute((), None, lambda line: None)
    assert (line.label, line.status, line.detail) == ("notes.plain", "computed", "") and line.seconds > 0


def test_a_failure_is_told_once_then_what_was_left_and_what_to_type(project: None, capfd: Said) -> None:
    """On standard output; the last line is on standard error, and the status that of a failed step."""
    assert run_command(["run", "notes"]) == 4
    out, err = capfd.readouterr()
    assert out.count("bad is broken") == 1 and "is broken" not in err and "Traceback" not in err
    assert "left, because notes.bad failed: notes.behind, notes.far\n" in out
    assert "left, because notes.parts[a] failed: notes.same[a], notes.whole\n" in out
    assert "11 tables: 5 computed, 0 unchanged, 2 failed, 4 left. Look: headrace ui\n" in out
    assert err == (
        "headrace: 2 of 11 tables failed (notes.bad, notes.parts[a]), 4 that depend on them were left; "
        "mend the cause, then: headrace run notes\n"
    )


@pytest.mark.nightly
def test_json_has_an_object_for_every_table(project: None, capfd: Said) -> None:
    """Those that were left too, with the table that failed before them."""
    assert run_command(["run", "notes", "--json"]) == 4
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {(one["table"], one["partition"], one["detail"]) for one in found if one["status"] == "left"} == {
        ("notes.behind", None, "notes.bad"),
        ("notes.far", None, "notes.bad"),
        ("notes.same", "a", "notes.parts[a]"),
        ("notes.whole", None, "notes.parts[a]"),
    }
    assert len(found) == 11 and all(one["seconds"] >= 0 for one in found)


def test_a_source_that_cannot_be_asked_is_a_table_that_failed(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on it is left, other tables are computed."""
    monkeypatch.setattr(
        "dagster_project.cli.run.execution._fetch",
        lambda graph, ledger, table: [StepLine(table, 0, 0.0, "failed", "in use")] if table == "notes.good" else [],
    )
    selection = ("notes.good", "notes.zest", "notes.zone", "notes.parts")
    lines = {line.label: line for line in execute(selection, "b", lambda line: None)}
    assert {label: line.status for label, line in lines.items()} == {
        "notes.good": "failed",
        "notes.zest": "left",
        "notes.zone": "left",
        "notes.parts[b]": "computed",
    }


def test_a_run_that_breaks_by_itself_is_no_interruption(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault outside of the steps is told as one, and not as Ctrl-C."""

    def broken(*_: Any, **__: Any) -> None:
        raise LeaseError("out of luck")

    monkeypatch.setattr("dagster_project.executor._chains", broken)
    with pytest.raises(Exception, match=r"the run ended before its steps: .*out of luck; run it again"):
        execute(("notes.good",), None, lambda line: None)


def test_steps_that_last_are_named_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """While no line comes, a line on standard error says which step computes, and for how long."""
    told: list[str] = []
    watch = Watch({"notes__slow": "notes.slow"}, None, lambda line: None)

    def tell(text: str) -> None:
        told.append(text)
        watch.put(None)

    monkeypatch.setattr(step_lines, "tell", tell)
    monkeypatch.setattr(step_lines, "_QUIET_SECONDS", 0.01)
    started = dg.DagsterEvent("STEP_START", "a_job", step_key="notes__slow")
    watch.put(dg.EventLogEntry(None, logging.INFO, "", "run", 0.0, dagster_event=started))
    watch.follow()
    assert told and told[0].startswith("still computing: notes.slow (") and told[0].endswith(" s)")
