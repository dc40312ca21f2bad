"""Tables keep few files and snapshots while they are written, and lose no row that anybody can read."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, LessThan
from pyiceberg.table import Table as IcebergTable

from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.session import tidiness
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.lake.session.pyiceberg_core import files_of_rows, overwrite
from spark_jobs.lake.session.tidiness import expire_surplus, tidy

_NOTES = Table("notes", "numbers", (Column("increment!", "int", "number"), Column("n!", "long", "number")))


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_catalogue(settings_at(tmp_path))


def made(catalogue: Catalog) -> IcebergTable:
    """A table without rows."""
    return ensure_table(catalogue, "system.notes", _NOTES, {})


def append(table: IcebergTable, number: int) -> None:
    """Add a row of its own increment."""
    rows = [{"increment": number, "n": number}]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def numbers(table: IcebergTable, snapshot_id: int | None = None) -> list[int]:
    """What a reader sees."""
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["n"].to_pylist())


def files(table: IcebergTable, part: str) -> int:
    """Files on disk below the table's location."""
    return sum(1 for _ in Path(table.location().removeprefix("file://")).rglob(part))


@pytest.mark.nightly
def test_a_table_of_the_system_stays_small(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 appends: every row is there, and files, manifests and snapshots are as few as after 50."""
    monkeypatch.setattr(tidiness, "_SYSTEM_SECONDS", 0.0)
    monkeypatch.setattr(tidiness, "_SYSTEM_SNAPSHOTS", 4)
    monkeypatch.setattr(tidiness, "_MOST_SMALL_FILES", 8)
    table, most = made(catalogue), {"*.parquet": 0, "*.avro": 0}
    for number in range(100):
        append(table, number)
        tidy(catalogue, table)
        assert len(table.metadata.snapshots) <= 4 + 1 + 1, "four stay, a merge may add one"
        if number < 50:
            most = {part: max(most[part], files(table, part)) for part in most}
    assert numbers(table) == numbers(catalogue.load_table("system.notes")) == list(range(100))
    assert {part: files(table, part) <= most[part] for part in most} == {"*.parquet": True, "*.avro": True}
    assert len(list(table.scan().plan_files())) <= 8


def test_files_of_many_rows_are_merged_once(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has enough rows is not written again."""
    monkeypatch.setattr(tidiness, "_SMALL_ROWS", 3)
    monkeypatch.setattr(tidiness, "_MOST_SMALL_FILES", 3)
    table = made(catalogue)
    for number in range(9):
        append(table, number)
        tidy(catalogue, table)
    counts = [task.file.record_count for task in table.scan().plan_files()]
    assert sorted(counts) == [1, 4, 4] and numbers(table) == list(range(9))


def test_a_writer_that_comes_between_loses_nothing(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that another process appended while files were merged are there, and each once."""
    monkeypatch.setattr(tidiness, "_MOST_SMALL_FILES", 4)
    table = made(catalogue)
    for number in range(6):
        append(table, number)
    other, third = catalogue.load_table("system.notes"), catalogue.load_table("system.notes")
    append(other, 6)
    tidy(catalogue, table)
    tidy(catalogue, third)  # whose small files are not there any more
    assert numbers(catalogue.load_table("system.notes")) == list(range(7))


def test_what_is_new_named_or_young_stays(catalogue: Catalog) -> None:
    """Tagged snapshots and the newest can be read after 20 writes with expiry; the files of the others are gone."""
    table, head = made(catalogue), []
    for number in range(20):
        append(table, number)
        if number % 2:
            table.delete(EqualTo("increment", number - 1))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        head.append(snapshot.snapshot_id)
        if number == 3:
            table.manage_snapshots().create_tag(head[3], "release").commit()
    assert expire_surplus(catalogue, table, 4, seconds=3600.0) == 0, "all are young"
    at_tag, at_head = numbers(table, head[3]), numbers(table)
    before = files(table, "*.parquet")
    assert expire_surplus(catalogue, table, 4, seconds=0.0) == len(table.metadata.snapshots) - 4 - 1
    table = catalogue.load_table("system.notes")
    assert numbers(table, head[3]) == at_tag == [1, 3] and numbers(table) == at_head
    kept = [one.snapshot_id for one in table.metadata.snapshots]
    assert {head[3], *head[-2:]} <= set(kept) and len(kept) == 5
    read = {task.file.file_path for one in kept for task in table.scan(snapshot_id=one).plan_files()}
    assert files(table, "*.parquet") == len(read) < before, "what nobody can read is no file any more"
    assert expire_surplus(catalogue, table, 4, seconds=0.0) == 0


def test_two_that_expire_at_once_end_well(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One removes files of snapshots that the other has just found kept: neither fails, no row is lost."""
    table = made(catalogue)
    for number in range(12):
        append(table, number)
    only_of = tidiness._only_of

    def between(*given: Any) -> list[str]:
        monkeypatch.setattr(tidiness, "_only_of", only_of)
        assert expire_surplus(catalogue, catalogue.load_table("system.notes"), 2, seconds=0.0) > 0
        return only_of(*given)

    monkeypatch.setattr(tidiness, "_only_of", between)
    assert expire_surplus(catalogue, table, 8, seconds=0.0) == 4
    assert numbers(catalogue.load_table("system.notes")) == list(range(12))


def test_manifests_stay_few_whatever_was_replaced(catalogue: Catalog) -> None:
    """A file replaced ten times beside one that stays: manifests of deleted files go, all that live are read."""
    table = made(catalogue)
    append(table, 1)
    append(table, 2)
    for _ in range(10):
        with table.transaction() as change, overwrite(table, change, properties={"by": "test"}) as snapshot:
            (old,) = (task.file for task in table.scan(EqualTo("increment", 2)).plan_files())
            snapshot.delete_data_file(old)
            rows = pa.Table.from_pylist([{"increment": 2, "n": 2}], schema=table.schema().as_arrow())
            for file in files_of_rows(change, rows, table.io):
                snapshot.append_data_file(file)
    head = table.current_snapshot()
    assert head is not None and head.summary is not None and head.summary["by"] == "test"
    assert numbers(table) == [1, 2] and head.summary["total-data-files"] == "2"
    assert len(head.manifests(table.io)) == 3, "of the file that stays, of the newest one, of the last one deleted"


@pytest.mark.nightly
def test_files_of_many_manifests_are_replaced_by_threads(catalogue: Catalog) -> None:
    """All files that go are found, however the threads that look for them in manifests take turns."""
    declared = dataclasses.replace(_NOTES, partition=("increment",))
    table = ensure_table(catalogue, "system.notes", declared, {})
    with table.transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "false"})
    for number in range(40):
        append(table, number)
    gone = [task.file for task in table.scan(LessThan("increment", 39)).plan_files()]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # PyIceberg alone then fails in 57 of 60 such commits
    try:
        with table.transaction() as change, overwrite(table, change) as snapshot:
            for file in gone:
                snapshot.delete_data_file(file)
    finally:
        sys.setswitchinterval(interval)
    assert numbers(table) == [39]


def test_many_small_manifests_become_one(catalogue: Catalog) -> None:
    """A table that grows by appends, as PyIceberg's own, merges its manifests: their number does not follow it."""
    table = made(catalogue)
    with table.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "5"})
    for number in range(12):
        append(table, number)
    head = table.current_snapshot()
    assert head is not None and len(head.manifests(table.io)) <= 5
    assert numbers(table) == list(range(12))
