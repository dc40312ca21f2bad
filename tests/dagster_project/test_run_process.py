"""A run whose process died ends, wherever it lived, and what waits behind it goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import dagster as dg
import pytest
from dagster._core.launcher import WorkerStatus
from prometheus_client import CollectorRegistry

from dagster_project import executor, run_process
from dagster_project.cli.run.status import run_state
from dagster_project.exceptions import CommandError
from dagster_project.executor import run_here, side_by_side
from dagster_project.inspect.lake.run_health import RUNS_METRIC, RunHealth, run_collector, run_finding, run_health
from dagster_project.project.loading import _INSTANCE, dagster_home
from dagster_project.run_process import WatchedRunLauncher, end_dead_runs, run_processes, signs_of_life
from headrace.tables.settings import load_settings
from spark_jobs.lake.ledger.process import Process, _start_of, this_process
from tests.tiers import sampled
from tests.waiting import until

STATUS = dg.DagsterRunStatus


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance with the settings that headrace writes."""
    (tmp_path / "dagster.yaml").write_text(_INSTANCE)
    with dg.DagsterInstance.from_config(str(tmp_path)) as made:
        yield made


def run_of(
    instance: dg.DagsterInstance, process: Process | None, silent: float = 0.0, status: STATUS = STATUS.STARTED
) -> dg.DagsterRun:
    """A run that a process executes, which gave its last sign of life some seconds ago."""
    run = instance.create_run_for_job(job, status=status)
    if process is not None:
        value = json.dumps({**dataclasses.asdict(process), "beat": time.time() - silent})
        instance.daemon_cursor_storage.set_cursor_values({run_process._KEY + run.run_id: value})
    return run


@dg.job
def job() -> None:
    """Does nothing."""


ME = this_process()
GONE = dataclasses.replace(ME, start=ME.start + 1)
ELSEWHERE = dataclasses.replace(ME, scope="another-boot:1", host="elsewhere")


def test_a_run_tells_who_executes_it_until_it_ends(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every executor of headrace's does; the sign is renewed, and a database that is away fails no run."""
    monkeypatch.setattr(run_process, "_BEAT_SECONDS", 0.01)
    seen: list[run_process.RunProcess] = []

    def table(context: dg.AssetExecutionContext) -> None:
        first = until(lambda: run_processes(context.instance, [context.run.run_id]))[context.run.run_id]
        until(lambda: run_processes(context.instance, [context.run.run_id])[context.run.run_id].beat > first.beat)
        seen.append(first)

    table.__annotations__["context"] = dg.AssetExecutionContext
    made = dg.Definitions([dg.asset(table)], executor=side_by_side).resolve_implicit_global_asset_job_def()
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    assert run_here(made, instance, quiet).success
    assert seen[0].process == ME and seen[0].lives() is True
    for error in (ZeroDivisionError("away"), TimeoutError()):
        away = Mock(side_effect=error)
        monkeypatch.setattr(type(instance.daemon_cursor_storage), "set_cursor_values", away)
        with signs_of_life(instance, "a run"):
            until(lambda away=away: away.call_count > 1)


@sampled()
@pytest.mark.parametrize(
    ("process", "silent", "looks"),
    [
        (ME, 1000.0, ["RUNNING"] * 2),
        (GONE, 0.0, ["NOT_FOUND"]),
        (ELSEWHERE, 100.0, ["RUNNING"] * 2),
        (ELSEWHERE, 1000.0, ["RUNNING", "NOT_FOUND"]),
        (ELSEWHERE, -1000.0, ["RUNNING", "NOT_FOUND"]),
        (None, 0.0, ["RUNNING"] * 2),
    ],
)
def test_the_process_decides_and_the_clock_only_where_one_cannot_look(
    instance: dg.DagsterInstance, process: Process | None, silent: float, looks: list[str]
) -> None:
    """Silence counts when nothing came between two looks; a run that never gave a sign is left alone."""
    run = run_of(instance, process, silent)
    launcher = instance.run_launcher
    assert isinstance(launcher, WatchedRunLauncher) and launcher.supports_check_run_worker_health
    assert [launcher.check_run_worker_health(run).status for _ in looks] == [WorkerStatus[one] for one in looks]


@pytest.mark.nightly
def test_a_run_that_was_killed_before_its_first_sign_is_dead(instance: dg.DagsterInstance) -> None:
    """Nothing followed its start for minutes; one whose executor has told anything since is left alone."""
    killed, other, young = (run_of(instance, None) for _ in range(3))
    for run, minutes in ((killed, 5), (other, 5), (young, 1)):
        event = dg.DagsterEvent("PIPELINE_START", job.name)
        moment = time.time() - 60 * minutes
        instance.handle_new_event(dg.EventLogEntry(None, 10, "", run.run_id, moment, None, job.name, event))
    instance.report_engine_event("Executing steps in process", other)
    check = instance.run_launcher.check_run_worker_health
    assert [check(run).status.name for run in (killed, other, young, killed)] == [*["RUNNING"] * 3, "NOT_FOUND"]
    assert run_health(instance, datetime.now(UTC)).dead == 1 and end_dead_runs(instance) == []


def test_a_command_gives_its_first_sign_before_the_run_exists(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the next command can end it at once, however early it was killed."""
    made = dg.Definitions([dg.asset(lambda: None, name="table")]).resolve_implicit_global_asset_job_def()
    monkeypatch.setattr(executor, "core_execute_in_process", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_here(made, instance, {}, run_id="killed")
    assert run_processes(instance, ["killed"])["killed"].process == ME


@pytest.mark.nightly
def test_a_sign_between_two_looks_is_life(instance: dg.DagsterInstance) -> None:
    """After the database was away for long, the first look may come before the first sign."""
    run = run_of(instance, ELSEWHERE, 1000.0)
    check = instance.run_launcher.check_run_worker_health
    assert check(run).status is WorkerStatus.RUNNING
    instance.daemon_cursor_storage.set_cursor_values(
        {run_process._KEY + run.run_id: json.dumps({**dataclasses.asdict(ELSEWHERE), "beat": time.time() - 500})}
    )
    assert check(run).status is WorkerStatus.RUNNING


@pytest.mark.nightly
def test_a_command_ends_the_dead_runs_that_it_can_look_up(instance: dg.DagsterInstance) -> None:
    """Those of other machines are left to their daemon, those that live to themselves."""
    runs = [run_of(instance, process, 1000.0) for process in (GONE, ME, ELSEWHERE, None)]
    canceling = run_of(instance, GONE, status=STATUS.CANCELING)
    assert len(end_dead_runs(instance)) == 2 and end_dead_runs(instance) == []
    statuses = [instance.get_run_by_id(run.run_id).status for run in (*runs, canceling)]  # type: ignore[union-attr]
    assert statuses == [STATUS.FAILURE, *[STATUS.STARTED] * 3, STATUS.CANCELED]


@pytest.mark.nightly
def test_a_run_that_ends_while_its_process_is_looked_up_stays_as_it_ended(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is gone because it was done."""
    run = run_of(instance, GONE)

    def lives(self: Process) -> bool:
        instance.report_run_failed(run, "by itself")
        return False

    monkeypatch.setattr(Process, "lives", lives)
    assert end_dead_runs(instance) == [] and not instance.run_launcher.terminate(run.run_id)
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None and ended.status is STATUS.FAILURE


@pytest.mark.nightly
def test_a_dead_run_can_be_terminated(instance: dg.DagsterInstance) -> None:
    """Though no code server knows it; a command that lives on this machine gets a signal to end."""
    run = run_of(instance, GONE)
    assert instance.run_launcher.terminate(run.run_id)
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None and ended.status is STATUS.CANCELED
    assert not instance.run_launcher.terminate(run.run_id)
    program = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        alive = run_of(instance, dataclasses.replace(ME, pid=child.pid, start=_start_of(child.pid) or 0))
        assert instance.run_launcher.terminate(alive.run_id)
        assert child.wait() == -signal.SIGTERM
    assert not os.path.exists(f"/proc/{child.pid}")


@pytest.mark.nightly
def test_status_and_doctor_count_runs_and_say_how_dead_ones_end(instance: dg.DagsterInstance) -> None:
    """Dead are those whose process is gone or was silent for long; a failure counts for a week."""
    now = datetime.now(UTC)
    instance.report_run_failed(run_of(instance, ME))
    for process in (ME, None):
        run_of(instance, process)
    assert run_health(instance, now) == RunHealth(failed=1, running=2)
    assert run_finding(run_health(instance, now))[0] == "ok"
    for process in (GONE, ELSEWHERE):
        run_of(instance, process, 1000.0)
    found = run_health(instance, now + timedelta(days=8))
    assert found == RunHealth(running=2, dead=2)
    assert str(found) == "0 runs failed in 7 days, 0 wait, 2 run, 2 are dead"
    assert run_finding(found)[0] == "warning" and "a daemon (headrace ui) ends them" in run_finding(found)[1]
    assert "docs/operate/monitoring.md#runs" in run_finding(RunHealth(watched=False))[1]
    registry = CollectorRegistry()
    registry.register(run_collector(lambda: found))
    assert registry.get_sample_value(RUNS_METRIC, {"state": "dead"}) == 2


def test_a_home_that_dagster_would_look_for_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes the path into an address as it is, where `%20` means a space and `?` ends the path."""
    for name in ("of 100%20", "what?"):
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / name))
        with pytest.raises(CommandError, match=r"(%20|\?)'; set DAGSTER_HOME to another$"):
            dagster_home()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "100% #1 é"))
    dagster_home()
    with dg.DagsterInstance.get() as instance:
        assert instance.get_runs() == []


def test_reading_commands_find_the_instance_beside_the_lake_where_no_variable_names_it(
    lake_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new shell after the first run: only the lake's folder says where the instance is."""
    beside = load_settings().home / "dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(beside))
    dagster_home()
    (beside / "history").mkdir()
    monkeypatch.delenv("DAGSTER_HOME")
    assert run_state().failed == 0
    assert os.environ["DAGSTER_HOME"] == str(beside.absolute())
