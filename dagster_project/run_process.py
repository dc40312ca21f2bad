"""Which process executes a run and whether it lives, so that a run whose process died does not stay STARTED for ever.

Such a run would keep its pools: later runs of its tables stay queued, and automation waits for it. Dagster's monitoring
ends dead runs if the launcher can say which they are, which its default one cannot. So a process that executes a run
writes who it is and when, at the start and then every 20 seconds, into Dagster's own database (200 bytes a run):

    headrace/run/5f0c..   {"host": "dagster-code", "scope": "a62a..:4026531836", "pid": 4711, "start": .., "beat": ..}

Where the process can be looked up, that decides, at once. Elsewhere (another container or machine) it counts as dead
after 180 seconds without a sign. Runs with another executor than `side_by_side` give no sign and are left alone; but
one of which Dagster has heard nothing since its start, for as long, was killed before it could give any, and is dead.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import dagster as dg

from dagster_project.dagster_core import (
    CheckRunHealthResult,
    ConfigurableClassData,
    DagsterUserCodeUnreachableError,
    KeyValueStoreTable,
    WorkerStatus,
)
from spark_jobs.lake.ledger.process import Process, this_process

_BEAT_SECONDS = 20.0
_SILENT_SECONDS = 180.0  # nine beats: longer than a restart of the database, or a step that keeps Python's lock
_KEY = "headrace/run/"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunProcess:
    """The process that executes a run, and when it last gave a sign of life (seconds since the epoch)."""

    process: Process
    beat: float

    def lives(self) -> bool | None:
        """Whether the process is there; where that cannot be looked up None, or False after a long silence."""
        is_alive = self.process.lives()
        # A sign from the future, by a clock that was wrong, is no sign either: it would count for as long as that.
        return False if is_alive is None and abs(time.time() - self.beat) > _SILENT_SECONDS else is_alive

    def __str__(self) -> str:
        return f"{self.process}, last sign of life {time.time() - self.beat:,.0f} s ago"


@contextlib.contextmanager
def signs_of_life(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Record every 20 s, while the block runs, that this process executes a run."""
    if instance.is_ephemeral:
        yield
        return
    ended = threading.Event()
    give_sign(instance, run_id)

    def tell() -> None:
        while not ended.wait(_BEAT_SECONDS):
            give_sign(instance, run_id)

    thread = threading.Thread(target=tell, name="signs-of-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def give_sign(instance: dg.DagsterInstance, run_id: str) -> None:
    """Record once that this process executes a run, or is about to."""
    if instance.is_ephemeral:
        return
    value = json.dumps({**asdict(this_process()), "beat": time.time()})
    try:
        instance.daemon_cursor_storage.set_cursor_values({_KEY + run_id: value})
    except Exception as error:  # noqa: BLE001  a database that is away fails no run; the next sign comes soon
        _log.warning("run %s: no sign of life was written: %s", run_id, (str(error) or repr(error)).splitlines()[0])


def forget_sign(instance: dg.DagsterInstance, run_id: str) -> None:
    """Remove the record of who executed a run that has ended."""
    storage: Any = instance.run_storage
    with storage.connect() as conn:
        conn.execute(KeyValueStoreTable.delete().where(KeyValueStoreTable.c.key == _KEY + run_id))


def run_processes(instance: dg.DagsterInstance, run_ids: Collection[str]) -> dict[str, RunProcess]:
    """The processes of those runs that gave a sign of life, or had no time to, by run id."""
    if not run_ids:
        return {}
    processes = {}
    for key, text in instance.daemon_cursor_storage.get_cursor_values({_KEY + run_id for run_id in run_ids}).items():
        values = json.loads(text)
        beat = values.pop("beat")
        processes[key.removeprefix(_KEY)] = RunProcess(Process(**values), beat)
    unknown = {run_id: _without_sign(instance, run_id) for run_id in run_ids if run_id not in processes}
    return processes | {run_id: process for run_id, process in unknown.items() if process is not None}


def _without_sign(instance: dg.DagsterInstance, run_id: str) -> RunProcess | None:
    """A process of which only the start of its run is known; None where more is: every executor tells what it does."""
    for last in instance.get_records_for_run(run_id, limit=1, ascending=False).records:
        if last.event_log_entry.dagster_event_type is dg.DagsterEventType.RUN_START:
            return RunProcess(Process("an unknown host", "", 0, 0), last.timestamp)
    return None


def end_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """End the runs whose process is known to be gone, which is done before a run where there may be no daemon.

    Returns:
        A sentence about each.
    """
    under_way = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING])
    runs = [run.run_id for run in instance.get_runs(under_way)]
    lines = []
    for run_id, process in run_processes(instance, runs).items():
        if process.process.lives() is False:
            run = instance.get_run_by_id(run_id)  # again: it may have ended since, and then its process
            if run is None or run.is_finished:
                continue
            if run.status is dg.DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, f"{process.process} is gone")
            else:
                instance.report_run_failed(run, f"{process.process} is gone")
            lines.append(f"run {run_id[:8]} of {process.process} died with it; it counts as failed now")
    return lines


class WatchedRunLauncher(dg.DefaultRunLauncher):
    """Dagster's default launcher, which also knows whether the process of a run lives."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._silent: dict[str, float] = {}

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Makes Dagster's monitoring ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the process of a run lives; what is not known counts as alive.

        Silence counts from the second look on: after the database was away, the first may come before any sign.
        """
        process = run_processes(self._instance, [run.run_id]).get(run.run_id)
        if process is None or process.lives() is not False:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        if process.process.lives() is None and self._silent.get(run.run_id) != process.beat:
            self._silent[run.run_id] = process.beat
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        self._silent.pop(run.run_id, None)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"{process} (killed, or its machine or container ended)")

    def terminate(self, run_id: str) -> bool:
        """End a run: one whose process is gone at once; one that no code server knows, as a command's, by a signal."""
        process = run_processes(self._instance, [run_id]).get(run_id)
        lives = process.process.lives() if process is not None else None
        run = self._instance.get_run_by_id(run_id)  # after the process, which ends after its run
        if run is None or run.is_finished:
            return False
        if process is None or lives is not False:
            try:
                if super().terminate(run_id):  # type: ignore[no-untyped-call]
                    return True
            except DagsterUserCodeUnreachableError:
                if process is None or not lives:
                    raise
            if process is not None and lives:
                os.kill(process.process.pid, signal.SIGTERM)  # SIGINT is ignored in the background of a script
            return bool(lives)
        self._instance.report_run_canceling(run)
        self._instance.report_run_canceled(run, f"{process.process} is gone")
        return True
