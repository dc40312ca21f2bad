"""Databases of Dagster's events stay open for a run: the same events, fewer openings, nothing left open."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_project.event_connections import connections_kept
from dagster_project.executor import run_here

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dg.asset
def first() -> None:
    """An asset."""


@dg.asset(deps=[first])
def left() -> None:
    """Runs beside `right`, in another thread."""


@dg.asset(deps=[first], check_specs=[dg.AssetCheckSpec("holds", asset="right")])
def right() -> Any:
    """An asset with a check."""
    yield dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


def _run(instance: dg.DagsterInstance) -> list[str]:
    """The types of the events of a run, sorted, as another process reads them."""
    job = dg.Definitions(assets=[first, left, right]).resolve_implicit_global_asset_job_def()
    result = run_here(job, instance=instance, run_config=_QUIET)
    assert result.success
    events = [one.dagster_event for one in instance.all_logs(result.run_id)]
    return sorted(one.event_type_value for one in events if one is not None)


@pytest.mark.nightly
def test_a_run_opens_each_database_of_events_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster opens them anew for every event; afterwards nothing is open, and the next run works as ever."""
    opened: Counter[str] = Counter()
    connect = sqlite3.dbapi2.connect

    def counted(path: str, *arguments: Any, **named: Any) -> sqlite3.Connection:
        opened[Path(str(path)).name] += 1
        return connect(path, *arguments, **named)

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        usual = _run(instance)
        monkeypatch.setattr(sqlite3.dbapi2, "connect", counted)
        with connections_kept(instance):
            events = _run(instance)
            kept = opened["index.db"]
            with dg.DagsterInstance.from_ref(instance.get_ref()) as other:  # as the UI reads while a run is under way
                assert other.get_latest_materialization_event(dg.AssetKey("right")) is not None
        assert events == usual
        left_open = [
            path for one in Path("/proc/self/fd").iterdir() if (path := _target(one)).startswith(str(tmp_path))
        ]
        assert not [path for path in left_open if "/event" in path or "index.db" in path]
        opened.clear()
        assert _run(instance) == usual
        assert kept * 4 < opened["index.db"], "a few are of who asks the database whether it has a table"


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # the descriptor of the folder that was listed
        return ""


def test_events_elsewhere_are_left_alone() -> None:
    """An instance in memory, or on Postgres, has connections of its own."""
    with dg.DagsterInstance.ephemeral() as instance, connections_kept(instance):
        assert _run(instance)
