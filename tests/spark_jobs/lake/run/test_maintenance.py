"""Maintenance tells what it does, does it, and changes no row; what is pinned or young stays."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.run import maintenance
from spark_jobs.lake.run.maintenance import TASKS, MaintenanceResult, alone, run_task, tables_of
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.spark_jobs.lake.steps import FolderConfig, bind, land, numbers, ranked


@pytest.mark.nightly
def test_a_tidy_lake_has_the_same_rows(lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files written anew, snapshots and orphans gone; digests, the tagged snapshot and the young file stay."""
    monkeypatch.setattr(maintenance, "MANY_FILES", 1)
    monkeypatch.setattr(maintenance, "_WAIT_SECONDS", 0.1)
    source = bind(numbers, FolderConfig(folder=str(folder)))
    materialize(lake, bind(ranked))
    table = lake.catalogue.load_table("demo.ranked")
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "release_a").commit()
    land(folder, "b.txt", [40, 41])
    materialize(lake, source)
    materialize(lake, bind(ranked))
    names = [name for name in tables_of(lake) if name != LEDGER]
    before = {name: digest(lake.session().table(f"lake.{name}")) for name in names}
    data = Path(lake.catalogue.load_table("demo.numbers").location().removeprefix("file://")) / "data"
    old, young = data / "lost.parquet", data / "coming.parquet"
    for file in (old, young):
        file.write_bytes(b"left by a kill")
    os.utime(old, (time.time() - 3 * 86_400,) * 2)

    told = {name: {one.table: one.text for one in task(lake, 0.0, True) if one.count} for name, task in TASKS.items()}
    for task in TASKS.values():
        assert [one.table for one in task(lake, 0.0, True, tables=["demo.ranked"])] == ["demo.ranked"]
    assert LEDGER not in told["compaction"] and "demo.ranked" in told["expiry"], told
    assert told["orphans"] == {"demo.numbers": "1 orphan files to remove"} and old.exists()
    with table_leases(lake.catalogue, ["demo.arrivals"]):
        done = {name: {one.table: one.text for one in task(lake, 0.0, False)} for name, task in TASKS.items()}
    assert done["compaction"]["demo.numbers"] == "2 files are now 2", done  # written anew, one in each partition
    assert "is writing it" in done["expiry"]["demo.arrivals"]
    assert not old.exists() and young.exists()

    assert {name: digest(lake.session().table(f"lake.{name}")) for name in names} == before
    kept = lake.catalogue.load_table("demo.ranked").metadata
    assert len(kept.snapshots) == 2 and "release_a" in kept.refs
    assert materialize(lake, source)[0].computed == materialize(lake, bind(ranked))[0].computed == ()


def test_what_fails_of_a_table_or_of_a_task_is_a_line_and_stops_nothing() -> None:
    """The message of Java is one line; a table that another writer holds is left, which is no failure."""
    java = (
        "An error occurred while calling o1.sql.\n: java.lang.RuntimeException: No FileSystem\n" + "\tat org.x\n" * 278
    )
    faults = {"a.java": Py4JError(java), "b.held": LeaseError("b.held: a run is writing it"), "c.fine": None}

    @alone
    def cleaned(lake: Any, table: str) -> MaintenanceResult:
        if (fault := faults[table]) is not None:
            raise fault
        return MaintenanceResult(table, 1, "cleaned")

    def task(lake: Any, days: float, dry_run: bool) -> Iterator[MaintenanceResult]:
        for table in faults:
            yield cleaned(lake, table)
        raise OSError("the list of tables ends")

    lake: Any = None
    java_line, held, fine, last = run_task("orphans", task, lake, 7, False)
    assert java_line.text.startswith("java.lang.RuntimeException: No FileSystem") and "\n" not in java_line.text
    assert (
        java_line.error is faults["a.java"]
        and held.error is None
        and held.is_left
        and (held.count, fine.count) == (0, 1)
    )
    assert (last.table, last.text) == ("orphans", "the list of tables ends") and last.error is not None
