"""How the runs of Dagster are: how many failed, wait, are under way, or are dead, so that nobody executes them.

A dead run keeps its pools until the daemon's monitoring has ended it (`dagster_project.run_process`); where one stays,
no daemon runs, or Dagster's settings lack the launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from dagster_project.dagster_core import RUN_FAILURE_REASON_TAG, RunFailureReason
from dagster_project.run_process import run_processes

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

FAILURES_SINCE_DAYS = 7
RUNS_METRIC = "headrace_lake_runs"
STOPPED = {RUN_FAILURE_REASON_TAG: RunFailureReason.UNEXPECTED_TERMINATION.value}
"""Tag of a run that Dagster counts as failed because its process was told to stop; the daemon may repeat it."""
_UNDER_WAY = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@dataclass(frozen=True)
class RunHealth:
    """Runs by what they do.

    Attributes:
        failed: failures of the last week, without stopped runs.
        stopped: runs stopped in the last week, by a signal or in the UI.
        queued: runs still to be started.
        running: runs with a live process.
        dead: runs under way by Dagster's record, without a process.
        watched: whether Dagster's settings have the launcher and the monitoring to end dead runs.
    """

    failed: int = 0
    stopped: int = 0
    queued: int = 0
    running: int = 0
    dead: int = 0
    watched: bool = True

    def __str__(self) -> str:
        counts = f"{self.failed} runs failed in {FAILURES_SINCE_DAYS} days, {self.queued} wait, {self.running} run"
        return f"{counts}, {self.dead} are dead"


def run_health(instance: dg.DagsterInstance, now: datetime) -> RunHealth:
    """The state of an instance's runs."""
    since = now - timedelta(days=FAILURES_SINCE_DAYS)

    def count(status: dg.DagsterRunStatus, tags: Mapping[str, str] | None = None) -> int:
        return instance.get_runs_count(dg.RunsFilter(statuses=[status], tags=tags, updated_after=since))

    interrupted = count(dg.DagsterRunStatus.FAILURE, STOPPED)
    queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
    under_way = {run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY))}
    dead = sum(process.lives() is False for process in run_processes(instance, under_way).values())
    return RunHealth(
        failed=count(dg.DagsterRunStatus.FAILURE) - interrupted,
        stopped=count(dg.DagsterRunStatus.CANCELED) + interrupted,
        queued=instance.get_runs_count(queued),
        running=len(under_way) - dead,
        dead=dead,
        watched=instance.run_monitoring_enabled and instance.run_launcher.supports_check_run_worker_health,
    )


def run_finding(health: RunHealth) -> tuple[str, str]:
    """State and text of the runs for `headrace doctor`, with the mend where there is something to mend."""
    if health.dead:
        mend = "a daemon (headrace ui) ends them within minutes, or the next headrace run on their machine"
        return "warning", f"{health.dead} runs are dead and keep their tables from others; {mend}"
    if not health.watched:
        mend = "add run_launcher and run_monitoring as docs/operate/monitoring.md#runs shows"
        return "warning", f"{health}; $DAGSTER_HOME/dagster.yaml does not end runs whose process dies: {mend}"
    return "ok", str(health)


def run_collector(read: Callable[[], RunHealth]) -> Collector:
    """The metric of the runs; `read` gives what it is made of."""
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class Runs(Collector):
        def collect(self) -> Iterator[Metric]:
            health = read()
            metric = GaugeMetricFamily(
                RUNS_METRIC, "runs of Dagster, failed and stopped ones of the last week", labels=["state"]
            )
            for state in ("failed", "stopped", "queued", "running", "dead"):
                metric.add_metric([state], getattr(health, state))
            yield metric

    return Runs()
