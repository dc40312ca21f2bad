"""Dagster's history ends: old runs go with all that is kept of them, and what somebody still asks for stays."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorState, TickData, TickStatus
from dagster._core.storage.runs.schema import RunsTable
from dagster._utils.error import SerializableErrorInfo

from dagster_project.deletion import history
from dagster_project.deletion.history import KeptHistory, forget_history, forget_run, read_kept_history
from dagster_project.exceptions import DefinitionError
from dagster_project.project.loading import _INSTANCE
from dagster_project.run_process import give_sign
from tests.main_path.services import postgres

DAY, LOOKS = 86_400.0, TickStatus
KEPT = KeptHistory(days=30, runs=2)


@dg.asset(
    key=["notes", "texts"], partitions_def=None, check_specs=[dg.AssetCheckSpec("filled", asset=["notes", "texts"])]
)
def texts() -> Iterator[Any]:
    """A table that every run computes."""
    yield dg.MaterializeResult(check_results=[dg.AssetCheckResult(check_name="filled", passed=True)])


@dg.asset(key=["notes", "frozen"])
def frozen() -> None:
    """A table that is computed once."""


@dg.asset(key=["notes", "days"], partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
def days() -> None:
    """A table with partitions."""


DEFINITIONS = dg.Definitions([texts, frozen, days])


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance with the settings that headrace writes."""
    (tmp_path / "dagster.yaml").write_text(_INSTANCE)
    with dg.DagsterInstance.from_config(str(tmp_path)) as made:
        yield made


def run(instance: dg.DagsterInstance, asset: dg.AssetsDefinition, partition: str | None = None) -> str:
    """A run of a table, with the record of its process, as `headrace run` leaves one."""
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    done = texts_job().execute_in_process(quiet, instance, partition, asset_selection=list(asset.keys))
    give_sign(instance, done.run_id)
    return done.run_id


def age(instance: dg.DagsterInstance, days: float, *run_ids: str) -> None:
    """Make runs so many days older."""
    past = datetime.now(UTC) - timedelta(days=days)
    storage: Any = instance.run_storage
    with storage.connect() as conn:
        conn.execute(
            RunsTable.update()
            .where(RunsTable.c.run_id.in_(run_ids))
            .values(update_timestamp=past, create_timestamp=past)
        )


def maintain(instance: dg.DagsterInstance, dry_run: bool = False) -> dict[str, int]:
    """What the task did, by what it did it to."""
    done = list(forget_history(Mock(), 7.0, dry_run, instance, KEPT))
    assert not [one.text for one in done if one.error is not None]
    return {one.table: one.count for one in done}


def runs(instance: dg.DagsterInstance) -> set[str]:
    """Runs that are known."""
    return {one.run_id for one in instance.get_runs()}


def traces(home: Path, run_id: str) -> list[str]:
    """Where below Dagster's home a run's id is still to be found: names of files, and rows of databases."""
    places = [str(path.relative_to(home)) for path in home.rglob("*") if run_id in path.name]
    for path in home.rglob("*.db"):
        with sqlite3.connect(path) as database:
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
                places += [f"{path.name}: {table}" for row in rows if any(run_id in str(value) for value in row)]
        database.close()
    return places


def test_old_runs_go_and_what_is_asked_for_stays(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """Of a run that goes nothing is left anywhere; the last of a job and a table stay, and the newest of each asset."""
    first = run(instance, frozen)
    parted = [run(instance, days, name) for name in ("a", "b", "b", "b")]
    old = [run(instance, texts) for _ in range(5)]
    waits = instance.create_run_for_job(texts_job(), status=dg.DagsterRunStatus.STARTED).run_id
    age(instance, 31, first, *parted, *old, waits)
    young = run(instance, texts)
    assert maintain(instance, dry_run=True)["Dagster's runs"] == 5 and len(runs(instance)) == 12
    gone = [parted[1], *old[:4]]  # the last two of `texts` are old[4] and young; of `days` the newest of "a" stays too
    assert maintain(instance)["Dagster's runs"] == 5
    assert runs(instance) == {first, waits, young, parted[0], *parted[2:], old[4]}
    for run_id in gone:
        assert traces(tmp_path, run_id) == []
    for key in ("frozen", "texts", "days"):
        event = instance.get_latest_materialization_event(dg.AssetKey(["notes", key]))
        assert event is not None and instance.has_run(event.run_id)
    assert instance.get_materialized_partitions(dg.AssetKey(["notes", "days"])) == {"a", "b"}
    assert maintain(instance) == {"Dagster's runs": 0, "Dagster's ticks": 0, "Dagster's databases": 0}


@pytest.mark.nightly
def test_old_runs_go_from_postgres_too(tmp_path: Path) -> None:
    """Where one database has all of it; there is no file to give back."""
    with postgres("dagster") as database:
        storage = {"postgres": {"postgres_url": database.uri("dagster", "+psycopg2")}}
        (tmp_path / "dagster.yaml").write_text(f"{_INSTANCE}\nstorage: {json.dumps(storage)}\n")
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            old = [run(instance, texts) for _ in range(5)]
            age(instance, 31, *old)
            assert maintain(instance) == {"Dagster's runs": 3, "Dagster's ticks": 0, "Dagster's databases": 0}
            assert runs(instance) == set(old[3:])
            engine = sa.create_engine(database.uri("dagster", "+psycopg2"))
            with engine.connect() as conn:
                for table in sa.inspect(engine).get_table_names():
                    rows = conn.execute(sa.text(f'SELECT * FROM "{table}"')).fetchall()
                    assert not [row for row in rows if any(one in str(row) for one in old[:3])], table
            engine.dispose()


def texts_job() -> Any:
    """The job of a command."""
    return DEFINITIONS.resolve_implicit_global_asset_job_def()


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["delete_events_for_run", "_unlink_database", "forget_sign"])
def test_what_a_kill_left_goes_the_next_time(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Wherever it was killed: the run's own row goes last, so the run is found again."""
    old = [run(instance, texts) for _ in range(4)]
    age(instance, 31, *old)
    target = instance.event_log_storage if place == "delete_events_for_run" else history
    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(target, place, Mock(side_effect=KeyboardInterrupt))
        forget_run(instance, old[0])
    assert instance.has_run(old[0])
    assert maintain(instance)["Dagster's runs"] == 2
    assert traces(tmp_path, old[0]) == traces(tmp_path, old[1]) == []


@pytest.mark.nightly
def test_the_databases_shrink_while_another_process_writes(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """Beside a run under way, whose events all arrive."""
    old = [run(instance, texts) for _ in range(12)]
    age(instance, 31, *old)
    index = tmp_path / "history" / "runs" / "index.db"
    before = index.stat().st_size
    other = instance.create_run_for_job(texts_job(), status=dg.DagsterRunStatus.STARTED)
    instance.report_engine_event("begins", other)
    assert maintain(instance)["Dagster's runs"] == 10
    instance.report_engine_event("goes on", other)
    assert [one.event_log_entry.message for one in instance.get_records_for_run(other.run_id).records][-2:] == [
        "begins",
        "goes on",
    ]
    assert index.stat().st_size < before


@pytest.mark.nightly
def test_files_of_runs_that_were_deleted_by_hand_go(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """Dagster's own button leaves a database and what steps printed; what others keep beside them is not touched."""
    gone, *_ = [run(instance, texts) for _ in range(3)]
    instance.delete_run(gone)
    shard = tmp_path / "history" / "runs" / f"{gone}.db"
    printed = tmp_path / "storage" / gone / "compute_logs" / "step.out"
    beside = tmp_path / "storage" / "notes" / "value"
    for path in (printed, beside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("printed")
    maintain(instance)
    assert shard.exists() and printed.exists(), "they are young"
    long_ago = time.time() - 31 * DAY
    for path in (shard, tmp_path / "storage" / gone, tmp_path / "storage" / "notes"):
        os.utime(path, (long_ago, long_ago))
    maintain(instance)
    assert not shard.exists() and not printed.exists() and beside.exists()


@pytest.mark.nightly
def test_old_looks_go_but_not_the_last_that_succeeded(instance: dg.DagsterInstance) -> None:
    """Whose age is watched: a schedule that stopped a year ago is not to look as if it had never worked."""
    state = Mock(spec=InstigatorState, instigator_origin_id="o", selector_id="s")
    now = time.time()
    for days_ago, status in (
        (90, LOOKS.SUCCESS),
        (60, LOOKS.SKIPPED),
        (50, LOOKS.FAILURE),
        (1, LOOKS.FAILURE),
    ):
        error = SerializableErrorInfo("boom", [], None) if status is LOOKS.FAILURE else None
        at = now - days_ago * DAY
        facts = ("o", "notes_files", InstigatorType.SENSOR, status, at)
        instance.create_tick(TickData(*facts, run_ids=[], error=error, selector_id="s"))
    patched = Mock(wraps=instance, is_ephemeral=False)
    patched.all_instigator_state.return_value = [state]
    done = history._forget_ticks(Mock(), "ticks", patched, KEPT, False)
    assert done.count == 1 and done.error is None
    assert [tick.status for tick in instance.get_ticks("o", "s")] == [
        LOOKS.FAILURE,
        LOOKS.FAILURE,
        LOOKS.SKIPPED,
    ]


def test_the_setting_is_read_from_the_project_and_checked(tmp_path: Path) -> None:
    """A name that is not there is refused with the nearest one."""
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.headrace.history]\ndays = 3\n")
    assert read_kept_history(tmp_path / "package") == KeptHistory(days=3)
    file.write_text("[tool.headrace.history]\nday = 3\n")
    with pytest.raises(DefinitionError, match=r"tool\.headrace\.history\.day: .*did you mean 'days'"):
        read_kept_history(tmp_path / "package")
