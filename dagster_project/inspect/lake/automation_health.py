"""How what runs by itself is: signs of Dagster's daemon, failures in a row, and when something last succeeded.

Schedules and sensors fail silently: nobody sees a failed tick, and an ended daemon does nothing at all. What
is switched off, and a daemon that nothing waits for, are no fault.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_project.dagster_core import (
    InstigatorState,
    InstigatorType,
    SerializableErrorInfo,
    TickStatus,
    reverse_cron_string_iterator,
)
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.lake_status import Alert
from dagster_project.inspect.lake.run_health import STOPPED

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

_MOST_TICKS = 50
_MOST_RUNS = 200
_LEAST_DUE_SECONDS = 900.0  # of a sensor: it may wait for others, and for a code location that is loaded anew
_LOOKS_MISSED = 5
_CAUSE_CHARACTERS = 300
_CLASS = re.compile(r"^(?:\w+\.)*(\w+): ")
_PREFIX = "headrace_lake_"


@dataclass(frozen=True)
class Recurring:
    """A schedule or a sensor switched on, or a job.

    Attributes:
        kind: schedule, sensor or job.
        name: its name.
        failures: how often it failed since it last succeeded: ticks, or runs of a job; told to stop is no failure.
        success_age: seconds since it last succeeded (a run of a schedule or job, a look of a sensor), or since it was
            switched on; infinite without either.
        due_seconds: the age from which a success is overdue: a schedule's last due time but one, five looks of a
            sensor; None of a job, which nothing begins by itself.
        cause: why the last one failed, in one line; empty where it did not.
    """

    kind: str
    name: str
    failures: int
    success_age: float
    due_seconds: float | None = None
    cause: str = ""


@dataclass(frozen=True)
class AutomationHealth:
    """What runs by itself.

    Attributes:
        heartbeats: seconds since the last sign of each part of Dagster's daemon, infinite where there was none; empty
            where nothing is switched on and no run waits for it.
        recurring: schedules and sensors switched on, and jobs.
    """

    heartbeats: Mapping[str, float] = field(default_factory=dict)
    recurring: tuple[Recurring, ...] = ()


def automation_health(instance: dg.DagsterInstance, now: float | None = None) -> AutomationHealth:
    """How the daemon, schedules, sensors and jobs of an instance are."""
    now = time.time() if now is None else now
    on = [state for state in instance.all_instigator_state() if state.is_running]
    waiting = instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    heartbeats: dict[str, float] = {}
    if on or waiting:
        last = instance.get_daemon_heartbeats()
        heartbeats = {
            kind: now - last[kind].timestamp if kind in last else math.inf
            for kind in instance.get_required_daemon_types()
        }
    ticking = [_instigator(instance, state, now) for state in on if state.instigator_type in _READERS]
    return AutomationHealth(heartbeats, (*sorted(ticking, key=lambda job: (job.kind, job.name)), *_jobs(instance, now)))


def _instigator(instance: dg.DagsterInstance, state: InstigatorState, now: float) -> Recurring:
    """A schedule or a sensor, by its last ticks."""
    failures, cause, looked = 0, "", None
    for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=_MOST_TICKS):
        if tick.status is TickStatus.FAILURE:
            failures += 1
            cause = cause or cause_of(tick.error)
        elif tick.status is not TickStatus.STARTED:
            looked = tick.timestamp
            break
    started, due, succeeded = _READERS[state.instigator_type](instance, state, now, looked)
    since = max((moment for moment in (started, succeeded) if moment is not None), default=-math.inf)
    kind = state.instigator_type.value.lower()
    return Recurring(kind, state.instigator_name, failures, now - since, due, cause)


def _schedule(
    instance: dg.DagsterInstance, state: InstigatorState, now: float, looked: float | None
) -> tuple[float | None, float, float | None]:
    """When a schedule was switched on, from which age a success is overdue, and when a run of it last succeeded."""
    data: Any = state.instigator_data
    crons = [data.cron_schedule] if isinstance(data.cron_schedule, str) else data.cron_schedule
    times = [reverse_cron_string_iterator(now, cron, None) for cron in crons]
    due = min(now - [next(some).timestamp() for _ in range(2)][1] for some in times)
    wanted = dg.RunsFilter(
        tags={"dagster/schedule_name": state.instigator_name}, statuses=[dg.DagsterRunStatus.SUCCESS]
    )
    runs = instance.get_run_records(wanted, limit=1)
    return data.start_timestamp, due, max((run.end_time or 0.0 for run in runs), default=None)


def _sensor(
    instance: dg.DagsterInstance, state: InstigatorState, now: float, looked: float | None
) -> tuple[float | None, float, float | None]:
    """The same of a sensor, whose look succeeds where it finds nothing, too."""
    data: Any = state.instigator_data
    due = max(_LEAST_DUE_SECONDS, _LOOKS_MISSED * ((data and data.min_interval) or 0))
    return data and data.last_sensor_start_timestamp, due, looked


_READERS: Mapping[InstigatorType, Callable[..., tuple[float | None, float, float | None]]] = {
    InstigatorType.SCHEDULE: _schedule,
    InstigatorType.SENSOR: _sensor,
}


def _jobs(instance: dg.DagsterInstance, now: float) -> Iterator[Recurring]:
    """The jobs of the last ended runs, by name."""
    ended = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE])
    by_job = defaultdict(list)
    for record in instance.get_run_records(ended, limit=_MOST_RUNS):
        if STOPPED.items() <= record.dagster_run.tags.items():
            continue
        by_job[record.dagster_run.job_name].append(record)
    for job, records in sorted(by_job.items()):
        failures, last = 0, None
        for record in records:
            if record.dagster_run.status is dg.DagsterRunStatus.SUCCESS:
                last = record.end_time
                break
            failures += 1
        if last is None:
            wanted = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS])
            last = next((record.end_time for record in instance.get_run_records(wanted, limit=1)), None)
        cause = f"run {records[0].dagster_run.run_id}" if failures else ""
        yield Recurring("job", job, failures, now - (last if last is not None else -math.inf), cause=cause)


def cause_of(error: SerializableErrorInfo | None) -> str:
    """Why a tick failed, in a line: what raised the first error that is not Dagster's own wrapping of another."""
    while error is not None and (error.message or "").startswith("dagster") and error.cause is not None:
        error = error.cause
    if error is None:
        return "it does not say why"
    return _CLASS.sub(r"\1: ", " ".join(error.message.split()))[:_CAUSE_CHARACTERS]


def automation_alerts(health: AutomationHealth, thresholds: Thresholds) -> Iterator[Alert]:
    """What of it is beyond a threshold, as the rules of setup/prometheus judge it."""
    silent = {kind: age for kind, age in health.heartbeats.items() if age > thresholds.heartbeat_seconds}
    if silent:
        age, limit = max(silent.values()), thresholds.heartbeat_seconds
        for_long = "never gave a sign" if age == math.inf else f"gave no sign for {_span(age)}"
        text = f"{', '.join(sorted(silent))} {for_long}, so nothing runs by itself; start it: headrace ui"
        yield Alert("daemon", "heartbeat_seconds", text, age, limit)
    for job in health.recurring:
        who, limit = f"{job.kind} {job.name}", thresholds.failures_in_a_row
        if job.failures >= limit:
            text = f"failed {job.failures} times in a row, the last: {job.cause}"
            yield Alert(who, "failures_in_a_row", text, job.failures, limit)
        if job.due_seconds is not None and job.success_age > job.due_seconds:
            state = "it never succeeded" if job.success_age == math.inf else f"no success for {_span(job.success_age)}"
            mend = f"the last failure: {job.cause}" if job.cause else "its page in the UI says what it waits for"
            yield Alert(who, "success_due_seconds", f"{state}; {mend}", job.success_age, job.due_seconds)


def _span(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


def automation_collector(read: Callable[[], AutomationHealth]) -> Collector:
    """The metrics of what runs by itself; `read` gives what they are made of."""
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    gauges: Sequence[tuple[str, str, Callable[[Recurring], float | None]]] = (
        ("failures_in_a_row", "failed ticks, or runs of a job, since the last success", lambda job: job.failures),
        ("success_age_seconds", "since a success, or since it was switched on", lambda job: job.success_age),
        ("success_due_seconds", "age from which a success is overdue", lambda job: job.due_seconds),
    )

    class Automation(Collector):
        def collect(self) -> Iterator[Metric]:
            health = read()
            beats = GaugeMetricFamily(
                f"{_PREFIX}daemon_heartbeat_age_seconds", "since a sign of Dagster's daemon", labels=["daemon"]
            )
            for daemon, age in health.heartbeats.items():
                beats.add_metric([daemon.lower()], age)
            yield beats
            for name, text, value in gauges:
                metric = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=["kind", "name"])
                for job in health.recurring:
                    if (number := value(job)) is not None:
                        metric.add_metric([job.kind, job.name], number)
                yield metric

    return Automation()
