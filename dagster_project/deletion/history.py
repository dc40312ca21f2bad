"""A task of maintenance: remove old runs from Dagster's history; Dagster itself keeps them for ever.

A run of 32 tables leaves 1.9 MB there: its events, a copy of those of tables and checks in the index of all runs, each
check's newest state, and what its steps printed. What stays:

    runs younger than `days`, and those that are not finished, or that a backfill under way has begun
    the last `runs` of each job and of each table
    the run of each table's, partition's and check's newest event, which pages and later runs ask for

Of a run all else goes before its own row, so that what a kill left is found by the next time. Nothing here waits for a
daemon or a run: each statement is a transaction of its own, and what goes belongs to runs that have ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from dagster_project.dagster_core import (
    AssetCheckExecutionsTable,
    BulkActionStatus,
    LocalComputeLogManager,
    SnapshotsTable,
    SqlEventLogStorage,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
    TickStatus,
)
from dagster_project.inspect.lake.alert_thresholds import project_settings
from dagster_project.run_process import forget_sign
from spark_jobs.lake.run import maintenance
from spark_jobs.lake.run.maintenance import MaintenanceResult

if TYPE_CHECKING:
    from spark_jobs.lake.run.materialize import Lake

HISTORY = "history"
_RUNS, _TICKS, _FILES = "Dagster's runs", "Dagster's ticks", "Dagster's databases"
_PAGE = 500
_FREE_SHARE = 0.25  # of a database's pages, from which on writing it anew is worth it
_BUSY_SECONDS = 30.0  # Dagster's own
_DAY_SECONDS = 86_400
_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_LOOKS = [TickStatus.SUCCESS, TickStatus.SKIPPED]


class KeptHistory(BaseModel):
    """How much of Dagster's history stays; `[tool.headrace.history]` in a project's pyproject.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: float = Field(30, ge=1, description="age in days from which runs and looks of schedules and sensors go")
    runs: int = Field(10, ge=1, description="last runs of each job and of each table that stay whatever their age")


def read_kept_history(package: Path) -> KeptHistory:
    """How much of Dagster's history a project keeps, from the pyproject.toml above its package.

    Raises:
        DefinitionError: a field does not exist, or has an unusable value.
    """
    return project_settings(package, "history", KeptHistory)


def forget_history(
    lake: Lake, days: float, dry_run: bool, instance: dg.DagsterInstance | None, kept: KeptHistory
) -> Iterator[MaintenanceResult]:
    """Removes old runs from Dagster's history; the last ones of each job and table stay, and the newest of each asset.

    How old is `[tool.headrace.history]` in the project's pyproject.toml, not the age for files.
    """
    if instance is None or instance.is_ephemeral:
        return
    if not isinstance(instance.event_log_storage, SqlEventLogStorage):
        yield MaintenanceResult(
            _RUNS, 0, "its storage is no database of headrace's making and has rules of its own", is_left=True
        )
        return
    yield _forget_runs(lake, _RUNS, instance, kept, dry_run)
    yield _forget_ticks(lake, _TICKS, instance, kept, dry_run)
    if not dry_run:
        yield _shrink(lake, _FILES, instance)


def runs_to_forget(instance: dg.DagsterInstance, kept: KeptHistory, now: datetime) -> Iterator[str]:
    """Ids of the runs to remove, the oldest first."""
    newest = _runs_of_newest_events(instance, kept.runs)
    of_jobs: dict[str, frozenset[str]] = {}
    backfills: dict[str, bool] = {}
    old = dg.RunsFilter(statuses=_ENDED, updated_before=now - timedelta(days=kept.days))
    cursor = None
    while runs := instance.get_runs(old, cursor=cursor, limit=_PAGE, ascending=True):
        for run in runs:
            name = run.job_name
            if name not in of_jobs:
                last = instance.get_runs(dg.RunsFilter(job_name=name), limit=kept.runs)
                of_jobs[name] = frozenset(recent.run_id for recent in last)
            backfill = run.tags.get("dagster/backfill")
            if backfill and backfill not in backfills:
                state = instance.get_backfill(backfill)
                backfills[backfill] = state is not None and state.status == BulkActionStatus.REQUESTED
            if run.run_id not in newest and run.run_id not in of_jobs[name] and not backfills.get(backfill or ""):
                yield run.run_id
        cursor = runs[-1].run_id


def _runs_of_newest_events(instance: dg.DagsterInstance, count: int) -> frozenset[str]:
    """Runs of the last materializations of each table, and of the newest of each partition, observation and check."""
    events, checks = SqlEventLogStorageTable.c, AssetCheckExecutionsTable.c
    kinds = (dg.DagsterEventType.ASSET_MATERIALIZATION.value, dg.DagsterEventType.ASSET_OBSERVATION.value)
    of_asset = sa.func.row_number().over(
        partition_by=(events.asset_key, events.dagster_event_type), order_by=events.id.desc()
    )
    of_partition = sa.func.row_number().over(
        partition_by=(events.asset_key, events.dagster_event_type, events.partition), order_by=events.id.desc()
    )
    ranked = (
        sa.select(events.run_id, of_asset.label("of_asset"), of_partition.label("of_partition"))
        .where(events.asset_key.is_not(None), events.dagster_event_type.in_(kinds))
        .subquery()
    )
    newest = sa.select(ranked.c.run_id).where((ranked.c.of_asset <= count) | (ranked.c.of_partition == 1)).distinct()
    last = sa.select(sa.func.max(checks.id)).group_by(checks.asset_key, checks.check_name, checks.partition)
    checked = sa.select(checks.run_id).where(checks.id.in_(last)).distinct()
    with _index(instance) as conn:
        return frozenset(row[0] for query in (newest, checked) for row in conn.execute(query))


def _index(instance: dg.DagsterInstance) -> Any:
    """A connection to the events of all runs, in a transaction."""
    storage: Any = instance.event_log_storage
    return storage.index_connection()


@maintenance.alone
def _forget_runs(
    lake: Lake, name: str, instance: dg.DagsterInstance, kept: KeptHistory, dry_run: bool
) -> MaintenanceResult:
    old = list(runs_to_forget(instance, kept, datetime.now(UTC)))
    if dry_run:
        return MaintenanceResult(name, len(old), f"{len(old):,} runs older than {kept.days:g} days to remove")
    for run_id in old:
        forget_run(instance, run_id)
    left = _forget_remains(instance, time.time() - kept.days * _DAY_SECONDS)
    _forget_snapshots(instance)
    return MaintenanceResult(name, len(old) + left, f"{len(old):,} runs older than {kept.days:g} days removed")


def forget_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Remove a finished run with all of Dagster's records of it; its own row goes last."""
    storage: Any = instance.event_log_storage
    with storage.index_connection() as conn:
        storage.delete_events_for_run(conn, run_id)
        conn.execute(AssetCheckExecutionsTable.delete().where(AssetCheckExecutionsTable.c.run_id == run_id))
    if isinstance(storage, SqliteEventLogStorage):
        _unlink_database(Path(storage.path_for_shard(run_id)))
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    forget_sign(instance, run_id)
    instance.run_storage.delete_run(run_id)


def _unlink_database(path: Path) -> None:
    for end in ("-wal", "-shm", ""):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _forget_remains(instance: dg.DagsterInstance, before: float) -> int:
    """Remove old files of forgotten runs, such as those deleted on Dagster's pages."""
    count, storage = 0, instance.event_log_storage
    if isinstance(storage, SqliteEventLogStorage):
        for path in Path(storage.path_for_shard("index")).parent.glob("*.db"):
            if _is_remains(instance, path, path.stem, before):
                _unlink_database(path)
                count += 1
    logs = instance.compute_log_manager
    if isinstance(logs, LocalComputeLogManager):
        for path in Path(logs.get_captured_local_path(["x"], "out")).parent.glob("*-*-*-*-*"):
            if _is_remains(instance, path, path.name, before):
                logs.delete_logs(prefix=[path.name])
                count += 1
    return count


def _is_remains(instance: dg.DagsterInstance, path: Path, run_id: str, before: float) -> bool:
    try:
        return bool(_RUN_ID.fullmatch(run_id)) and path.stat().st_mtime < before and not instance.has_run(run_id)
    except FileNotFoundError:
        return False


def _forget_snapshots(instance: dg.DagsterInstance) -> None:
    """Remove plans of execution without a run; those of jobs are few."""
    storage: Any = instance.run_storage
    used: set[str] = set()
    with storage.connect() as conn:
        plans = sa.select(SnapshotsTable.c.snapshot_id).where(SnapshotsTable.c.snapshot_type == "EXECUTION_PLAN")
        plans_before = {row[0] for row in conn.execute(plans)}
    cursor = None
    # After the plans: a run that is created meanwhile brings its plan, or is seen here.
    while runs := instance.get_runs(cursor=cursor, limit=_PAGE):
        used.update(run.execution_plan_snapshot_id or "" for run in runs)
        cursor = runs[-1].run_id
    for plan in sorted(plans_before - used):
        with storage.connect() as conn:
            conn.execute(SnapshotsTable.delete().where(SnapshotsTable.c.snapshot_id == plan))


@maintenance.alone
def _forget_ticks(
    lake: Lake, name: str, instance: dg.DagsterInstance, kept: KeptHistory, dry_run: bool
) -> MaintenanceResult:
    before = time.time() - kept.days * _DAY_SECONDS
    count = 0
    for state in instance.all_instigator_state():
        place = (state.instigator_origin_id, state.selector_id)
        last = instance.get_ticks(*place, limit=1, statuses=_LOOKS)  # its age is watched
        until = min([before, *(tick.timestamp for tick in last)])
        count += len(instance.get_ticks(*place, before=until))
        if not dry_run:
            instance.purge_ticks(*place, before=until)
    return MaintenanceResult(
        name, count, f"{count:,} looks of schedules and sensors {'to remove' if dry_run else 'removed'}"
    )


@maintenance.alone
def _shrink(lake: Lake, name: str, instance: dg.DagsterInstance) -> MaintenanceResult:
    gone = 0
    stores: list[Any] = [instance.run_storage, instance.schedule_storage]
    events: Any = instance.event_log_storage
    for connect in (events.index_connection, *(store.connect for store in stores)):
        with connect() as conn:
            url = conn.engine.url
        if url.get_backend_name() == "sqlite" and url.database:
            gone += _vacuum(url.database)
    return MaintenanceResult(name, gone // 1000, f"{gone / 1e6:,.1f} MB of databases given back")


def _vacuum(path: str) -> int:
    """Write a SQLite database anew where much of it is free; the bytes given back by it.

    Dagster's processes wait for it as they wait for one another; one busy for longer is left to the next time.
    """
    before = os.path.getsize(path)
    with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
        (pages,), (free,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count"))
        if free < _FREE_SHARE * pages:
            return 0
        try:
            database.execute("VACUUM")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return 0
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return before - os.path.getsize(path)
