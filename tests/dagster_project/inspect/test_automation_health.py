"""What runs by itself is watched: a daemon that ended, looks and runs that fail in a row, no success for long."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.storage.runs.schema import RunsTable
from dagster._daemon.types import DaemonHeartbeat
from dagster._utils.error import SerializableErrorInfo, serializable_error_info_from_exc_info
from prometheus_client import CollectorRegistry

from dagster_project.cli import run_command
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.automation_health import (
    AutomationHealth,
    Recurring,
    automation_alerts,
    automation_collector,
    automation_health,
    cause_of,
)
from dagster_project.inspect.lake.run_health import STOPPED, run_health
from dagster_project.inspect.lake.run_history import past_runs
from dagster_project.project.loading import _INSTANCE
from tests.tiers import sampled

STATUS = dg.DagsterRunStatus
HOUR = 3600.0
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()  # a Thursday


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance with the settings that headrace writes."""
    (tmp_path / "dagster.yaml").write_text(_INSTANCE)
    with dg.DagsterInstance.from_config(str(tmp_path)) as made:
        yield made


@dg.job
def job() -> None:
    """Does nothing."""


def switch_on(instance: dg.DagsterInstance, name: str, cron: str = "", status: Any = InstigatorStatus.RUNNING) -> Any:
    """A schedule, or a sensor without `cron`, switched on 30 days before `NOW`."""
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "all"), name)
    kind = InstigatorType.SCHEDULE if cron else InstigatorType.SENSOR
    began = NOW - 30 * 24 * HOUR
    data: Any = ScheduleInstigatorData(cron, began) if cron else SensorInstigatorData(min_interval=60)
    return instance.add_instigator_state(InstigatorState(origin, kind, status, data))


def tick(instance: dg.DagsterInstance, state: Any, hours: float, status: TickStatus, error: Any = None) -> None:
    """A tick some hours before `NOW`."""
    error = error or (
        SerializableErrorInfo("ValueError: no\n", [], "ValueError") if status.value == "FAILURE" else None
    )
    facts = (state.instigator_origin_id, state.instigator_name, state.instigator_type, status, NOW - hours * HOUR)
    instance.create_tick(TickData(*facts, run_ids=[], error=error, selector_id=state.selector_id))


def ran(instance: dg.DagsterInstance, hours: float, status: Any, **tags: str) -> str:
    """A run that ended some hours before `NOW`."""
    run_id = instance.create_run_for_job(job, status=status, tags={f"dagster/{key}": tags[key] for key in tags}).run_id
    storage: Any = instance.run_storage
    with storage.connect() as conn:
        conn.execute(RunsTable.update().where(RunsTable.c.run_id == run_id).values(end_time=NOW - hours * HOUR))
    return run_id


def recurring(instance: dg.DagsterInstance) -> dict[str, Recurring]:
    """Schedules, sensors and jobs, by name."""
    return {one.name: one for one in automation_health(instance, NOW).recurring}


def texts(instance: dg.DagsterInstance) -> list[str]:
    """What is beyond a threshold."""
    return [f"{a.namespace}: {a.text}" for a in automation_alerts(automation_health(instance, NOW), Thresholds())]


def test_a_daemon_that_ended_is_an_alert_where_something_waits_for_it(instance: dg.DagsterInstance) -> None:
    """Not on a machine whose runs are commands; where something is switched on, one that never ran is as silent."""
    instance.add_daemon_heartbeat(DaemonHeartbeat(NOW - 900, "SENSOR", None, None))
    assert automation_health(instance, NOW).heartbeats == {} and texts(instance) == []
    switch_on(instance, "off", status=InstigatorStatus.STOPPED)
    assert automation_health(instance, NOW).heartbeats == {}
    state = switch_on(instance, "notes_files")
    tick(instance, state, 0.01, TickStatus.SKIPPED)
    beats = automation_health(instance, NOW).heartbeats
    assert beats["SENSOR"] == 900 and beats["SCHEDULER"] == math.inf
    (alert,) = texts(instance)
    assert alert.startswith("daemon: ") and "SENSOR" in alert and "start it: headrace ui" in alert
    for kind in beats:
        instance.add_daemon_heartbeat(DaemonHeartbeat(NOW - 30, kind, None, None))
    assert texts(instance) == []


def test_failures_in_a_row_are_counted_with_their_cause(instance: dg.DagsterInstance) -> None:
    """Since the last look that succeeded; one that is under way says nothing."""
    sensor = switch_on(instance, "notes_files")
    for hours, status in ((5, "SUCCESS"), (4, "FAILURE"), (3, "SKIPPED"), (0.03, "FAILURE"), (0.02, "FAILURE")):
        tick(instance, sensor, hours, TickStatus[status])
    tick(instance, sensor, 0.001, TickStatus.STARTED)
    found = recurring(instance)["notes_files"]
    assert (found.kind, found.failures, found.cause) == ("sensor", 2, "ValueError: no")
    assert found.success_age == pytest.approx(3 * HOUR) and found.due_seconds == 900
    assert [text for text in texts(instance) if text.startswith("sensor")] == [
        "sensor notes_files: no success for 3 h; the last failure: ValueError: no"
    ]
    tick(instance, sensor, 0.0005, TickStatus.FAILURE)
    assert any(text.startswith("sensor notes_files: failed 3 times in a row") for text in texts(instance))


@sampled()
@pytest.mark.parametrize(
    ("cron", "hours", "late"),
    [("17 1 * * *", 30, False), ("17 1 * * *", 36, True), ("47 3 * * 0", 5 * 24, False), ("47 3 * * 0", 12 * 24, True)],
)
def test_a_schedule_is_late_when_a_whole_period_passed_without_a_success(
    instance: dg.DagsterInstance, cron: str, hours: float, late: bool
) -> None:
    """By its own times: daily and weekly alike, and by its runs, since a tick only asks for one."""
    state = switch_on(instance, "nightly", cron)
    ran(instance, hours, STATUS.SUCCESS, schedule_name="nightly")
    tick(instance, state, 1, TickStatus.SUCCESS)
    found = recurring(instance)["nightly"]
    assert found.success_age == pytest.approx(hours * HOUR) and found.due_seconds is not None
    assert (found.success_age > found.due_seconds) is late
    assert [text for text in texts(instance) if "nightly" in text and "success" in text] == (
        [f"schedule nightly: no success for {hours} h; its page in the UI says what it waits for"] if late else []
    )


def test_a_schedule_that_was_switched_on_just_now_is_not_late(instance: dg.DagsterInstance) -> None:
    """Though it never succeeded; a month later it is."""
    switch_on(instance, "nightly", "17 1 * * *")
    assert recurring(instance)["nightly"].success_age == pytest.approx(30 * 24 * HOUR)
    early = {one.name: one for one in automation_health(instance, NOW - 30 * 24 * HOUR + 60).recurring}["nightly"]
    assert early.due_seconds is not None and early.success_age < early.due_seconds


@pytest.mark.nightly
def test_a_run_that_was_told_to_stop_is_no_failure(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """By a signal to its process or in the UI: in gauges, alerts and lines; one that failed or died is one."""
    ran(instance, 9, STATUS.SUCCESS)
    for hours in (8, 7, 6):
        ran(instance, hours, STATUS.FAILURE, **{key.removeprefix("dagster/"): STOPPED[key] for key in STOPPED})
    ran(instance, 5, STATUS.CANCELED)
    found = run_health(instance, datetime.now(UTC))
    assert (found.failed, found.stopped) == (0, 4)
    assert recurring(instance)["job"].failures == 0 and texts(instance) == []
    failed = [ran(instance, hours, STATUS.FAILURE) for hours in (4, 3, 2)]
    assert run_health(instance, datetime.now(UTC)).failed == 3
    assert recurring(instance)["job"].success_age == pytest.approx(9 * HOUR)
    assert texts(instance) == [f"job job: failed 3 times in a row, the last: run {failed[-1]}"]
    from headrace.tables.settings import settings_at
    from spark_jobs.lake.session.catalogue import open_catalogue

    states = [one.status for one in past_runs(open_catalogue(settings_at(tmp_path / "lake")), instance, 20)]
    assert sorted(set(states)) == ["canceled", "failure", "stopped", "success"] and states.count("stopped") == 3


def test_the_cause_is_that_of_the_user_not_the_wrapping_of_dagster() -> None:
    """In one line, without the path of its class."""
    try:
        try:
            raise ValueError("a\nb")
        except ValueError as error:
            raise dg.DagsterInvariantViolationError("Error occurred during the execution of evaluation_fn") from error
    except dg.DagsterError:
        assert cause_of(serializable_error_info_from_exc_info(sys.exc_info())) == "ValueError: a b"
    direct = SerializableErrorInfo("dagster_project.automation.LookError: notes: no file; give one\n", [], "LookError")
    assert cause_of(direct) == "LookError: notes: no file; give one"
    assert cause_of(None) == "it does not say why"


def test_gauges_have_all_of_it() -> None:
    """Infinite ages too, which every threshold is below."""
    health = AutomationHealth(
        {"SENSOR": math.inf}, (Recurring("schedule", "nightly", 2, 60.0, 90.0), Recurring("job", "notes", 0, 5.0))
    )
    registry = CollectorRegistry()
    registry.register(automation_collector(lambda: health))

    def value(gauge: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"headrace_lake_{gauge}", labels)

    assert value("daemon_heartbeat_age_seconds", daemon="sensor") == math.inf
    assert value("failures_in_a_row", kind="schedule", name="nightly") == 2
    assert value("success_due_seconds", kind="schedule", name="nightly") == 90
    assert value("success_age_seconds", kind="job", name="notes") == 5
    assert value("success_due_seconds", kind="job", name="notes") is None


def test_status_checks_it(lake_env: Path, defs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--check` ends with 3, though the lake is empty; a threshold of the project is heeded."""
    from dagster_project.project.loading import dagster_home

    dagster_home()
    with dg.DagsterInstance.get() as instance:
        now = time.time()
        for kind in instance.get_required_daemon_types():
            instance.add_daemon_heartbeat(DaemonHeartbeat(now - 200, kind, None, None))
        switch_on(instance, "nightly", "17 1 * * *")
        run = instance.create_run_for_job(job, status=STATUS.SUCCESS, tags={"dagster/schedule_name": "nightly"})
        storage: Any = instance.run_storage
        with storage.connect() as conn:
            conn.execute(RunsTable.update().where(RunsTable.c.run_id == run.run_id).values(end_time=now))
    assert run_command(["status", "--check"]) == 0
    file = defs.parents[1] / "pyproject.toml"
    file.write_text(f"{file.read_text()}\n[tool.headrace.monitoring]\nheartbeat_seconds = 100\n")
    assert run_command(["status", "--check"]) == 3
    said = capfd.readouterr()
    assert "daemon: " in said.out and "gave no sign for 3 min" in said.err
