"""Expiry and removal of orphans leave what Iceberg's own procedures leave, and what is named, young or another's."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table as IcebergTable

from headrace.tables.exceptions import WrongLakeError
from headrace.tables.settings import settings_at
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.maintenance import expire, remove_orphans
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from tests.kept_folder import DATABASE, KeptFolder
from tests.spark_jobs.lake.conftest import Landed
from tests.spark_jobs.lake.steps import FactorConfig, FolderConfig, bind, doubles, land, numbers, ranked

_NAME = "demo.notes"
_DECLARED = Table("notes", "numbers", (Column("n!", "long", "number"),))


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_catalogue(settings_at(tmp_path / "lake"))


def made(catalogue: Catalog, counts: int = 6) -> IcebergTable:
    """A table with some snapshots, of which each adds a number and each second one removes one."""
    table = ensure_table(catalogue, _NAME, _DECLARED, {})
    for number in range(counts):
        table.append(pa.Table.from_pylist([{"n": number}], schema=table.schema().as_arrow()))
        if number % 2:
            table.delete(EqualTo("n", number - 1))
    return catalogue.load_table(_NAME)


def later() -> datetime:
    """A moment at which everything is old."""
    return datetime.now(UTC) + timedelta(days=2)


def paths(root: Path) -> set[str]:
    """Files of a lake but for metadata, whose names differ with every commit, and the database."""
    return {
        str(one.relative_to(root))
        for one in root.rglob("*")
        if one.is_file() and ".metadata.json" not in one.name and not one.name.startswith(DATABASE)
    }


def read(table: IcebergTable, snapshot_id: int | None = None) -> list[int]:
    """What a reader sees."""
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["n"].to_pylist())


def test_what_is_named_stays_and_nothing_else(catalogue: Catalog, tmp_path: Path) -> None:
    """Heads, a tag, and what a branch says of itself; each can be read, and no file is left that none of them names."""
    table = made(catalogue)
    ids = [one.snapshot_id for one in table.metadata.snapshots]
    tables = table.manage_snapshots().create_tag(ids[1], "release").create_tag(ids[2], "brief", max_ref_age_ms=1)
    tables.create_branch(ids[5], "own", min_snapshots_to_keep=2).commit()
    before = {one: read(table, one) for one in ids}
    assert expire(catalogue, _NAME, datetime.now(UTC) - timedelta(days=1)) == 0, "all are young"
    assert expire(catalogue, _NAME, later()) == len(ids) - 4
    table = catalogue.load_table(_NAME)
    kept = {one.snapshot_id for one in table.metadata.snapshots}
    assert kept == {ids[1], ids[4], ids[5], ids[-1]} and set(table.refs()) == {"main", "release", "own"}
    assert {one: read(table, one) for one in kept} == {one: before[one] for one in kept}
    assert remove_orphans(catalogue, _NAME, later()) == [] and expire(catalogue, _NAME, later()) == 0


def test_only_old_files_that_nothing_names_are_orphans(catalogue: Catalog, tmp_path: Path) -> None:
    """Through a link too; hidden ones stay, and so does all where the owner or another lake wants it so."""
    table = made(catalogue)
    folder, now = Path(table.location().removeprefix("file://")), time.time()
    for name, days in {"data/old.parquet": 3, "data/part=_a/x.parquet": 3, "metadata/old.avro": 3}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
        os.utime(folder / name, (now - days * 86_400,) * 2)
    for name in ("data/_temporary/x", "data/.x.crc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "data/young.parquet").touch()
    moment = datetime.now(UTC) - timedelta(days=1)
    found = remove_orphans(catalogue, _NAME, moment, dry_run=True)
    assert [one.removeprefix(f"{folder}/") for one in found] == [
        "data/old.parquet",
        "data/part=_a/x.parquet",
        "metadata/old.avro",
    ]
    with catalogue.load_table(_NAME).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    for refused in (expire, remove_orphans):
        with pytest.raises(InputError, match=r"gc\.enabled"):
            refused(catalogue, _NAME, later())
    with catalogue.load_table(_NAME).transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    before = read(table)
    assert remove_orphans(catalogue, _NAME, moment) == found
    assert len(remove_orphans(catalogue, _NAME, later())) == 1, "that of today, but no file that is named"
    assert (folder / "data/_temporary/x").exists() and read(catalogue.load_table(_NAME)) == before


def test_files_outside_of_the_warehouse_are_refused(catalogue: Catalog, tmp_path: Path) -> None:
    """Expiry deletes nothing of a table that names a file elsewhere."""
    table = made(catalogue)
    elsewhere = tmp_path / "elsewhere" / "x.parquet"
    elsewhere.parent.mkdir()
    shutil.copy(next(iter(table.scan().plan_files())).file.file_path.removeprefix("file://"), elsewhere)
    table.add_files([str(elsewhere)], check_duplicate_files=False)
    before = paths(tmp_path)
    with pytest.raises(WrongLakeError, match=f"{elsewhere.parent} lies outside"):
        expire(catalogue, _NAME, later())
    assert paths(tmp_path) == before


def test_a_kill_in_the_middle_of_expiry_leaves_orphans_alone(
    catalogue: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Snapshots are gone at once, their files are orphans: those of a whole expiry are left after both."""
    from spark_jobs.lake.session import tidiness

    table = made(catalogue)
    rows = read(table)
    with monkeypatch.context() as patch:
        patch.setattr(tidiness, "remove_files", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            expire(catalogue, _NAME, later())
    assert len(catalogue.load_table(_NAME).metadata.snapshots) == 1 and read(catalogue.load_table(_NAME)) == rows
    assert len(remove_orphans(catalogue, _NAME, later())) > 10
    head = catalogue.load_table(_NAME)
    assert read(head) == rows
    assert len(list(tmp_path.rglob("*.parquet"))) == len(list(head.scan().plan_files()))


@pytest.mark.nightly
def test_both_leave_what_icebergs_procedures_leave(landed: Landed, lake: Lake, folder: Path) -> None:
    """Of one lake, maintained twice: equal files, snapshots, branches, tags and rows of every table."""
    root = folder.parent / "lake"
    tables = grown(lake, folder)
    kept = KeptFolder(root, folder.parent.parent / "grown")

    def by_spark(name: str) -> None:
        moment = f"older_than => TIMESTAMP '{later():%Y-%m-%d %H:%M:%S}'"
        past = f"older_than => TIMESTAMP '{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d %H:%M:%S}'"
        lake.session().sql(f"CALL lake.system.expire_snapshots(table => '{name}', {moment}, retain_last => 1)")
        lake.session().sql(f"CALL lake.system.remove_orphan_files(table => '{name}', {past}, prefix_listing => true)")

    def by_pyiceberg(name: str) -> None:
        expire(lake.catalogue, name, later())
        remove_orphans(lake.catalogue, name, datetime.now(UTC) - timedelta(days=2))

    theirs = left(lake, tables, root, by_spark)
    kept.again()
    ours = left(lake, tables, root, by_pyiceberg)
    assert (ours["files"] - theirs["files"], theirs["files"] - ours["files"]) == (set(), set())
    assert ours == theirs
    kept.again()
    rows = {name: digest(lake.session().table(f"lake.{name}")) for name in tables}
    for name in tables:
        lake.session().sql(f"REFRESH TABLE lake.{name}")
        before, after = compact(lake.catalogue, name)
        assert after <= before
        lake.session().sql(f"REFRESH TABLE lake.{name}")
    assert {name: digest(lake.session().table(f"lake.{name}")) for name in tables} == rows


def grown(lake: Lake, folder: Path) -> list[str]:
    """Let a lake have all that maintenance must tell apart; gives its tables."""
    source, spark = bind(numbers, FolderConfig(folder=str(folder))), lake.session()
    for number in range(3):
        materialize(lake, bind(doubles, FactorConfig(factor=2 + number)))
        materialize(lake, bind(ranked))
        land(folder, f"{number}.txt", [100 + number, 200 + number])
        materialize(lake, source)
    spark.sql("CREATE TABLE lake.demo.merged (n BIGINT) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    for number in range(6):
        spark.sql(f"INSERT INTO lake.demo.merged SELECT id + {100 * number} FROM range(0, 100, 1, 1)")
    first = lake.catalogue.load_table("demo.merged").metadata.snapshots[1].snapshot_id
    for number in (5, 105):
        spark.sql(f"DELETE FROM lake.demo.merged WHERE n = {number}")
    for name in ("demo.merged", "demo.ranked"):
        spark.sql(f"CALL lake.system.compute_table_stats(table => '{name}')")
    spark.sql(f"ALTER TABLE lake.demo.merged CREATE TAG release AS OF VERSION {first}")
    spark.sql("ALTER TABLE lake.demo.merged CREATE BRANCH own RETAIN 30 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS")
    spark.sql("INSERT INTO lake.demo.merged.branch_own VALUES (1000)")
    spark.sql("INSERT INTO lake.demo.merged VALUES (1001)")
    head = lake.catalogue.load_table("demo.merged").metadata.snapshots[-1].snapshot_id
    spark.sql(f"CALL lake.system.rollback_to_snapshot('demo.merged', {first})")
    spark.sql(f"CALL lake.system.set_current_snapshot('demo.merged', {head})")
    spark.sql("CALL lake.system.rewrite_data_files(table => 'demo.merged', options => map('min-input-files', '2'))")
    root, old = folder.parent / "lake", (time.time() - 4 * 86_400,) * 2
    tables = ["demo.merged", "demo.numbers", "demo.doubles", "demo.ranked", "demo.arrivals"]
    for name in tables:
        place = Path(lake.catalogue.load_table(name).location().removeprefix("file://").removeprefix("file:"))
        for file in (
            "data/lost.parquet",
            "data/increment=9/lost.parquet",
            "metadata/lost.avro",
            "data/_x/a",
            "data/.a",
        ):
            (place / file).parent.mkdir(exist_ok=True)
            (place / file).touch()
    for path in root.rglob("*"):
        if path.is_file() and not path.name.startswith(DATABASE):
            os.utime(path, old)
    for name in tables[:2]:
        (Path(lake.catalogue.load_table(name).location().removeprefix("file:")) / "data" / "young.parquet").touch()
    return tables


def left(lake: Lake, tables: list[str], root: Path, work: Callable[[str], None]) -> dict[str, Any]:
    """What is there after some work on each table: files, snapshots, references, and rows of each snapshot."""
    for name in tables:
        work(name)
    found: dict[str, Any] = {"files": paths(root)}
    for name in tables:
        table = lake.catalogue.load_table(name)
        metadata = table.metadata
        found[name] = {
            "refs": {ref: one.snapshot_id for ref, one in metadata.refs.items()},
            "statistics": sorted(one.statistics_path for one in metadata.statistics),
            "rows": {one.snapshot_id: read_all(table, one.snapshot_id) for one in metadata.snapshots},
        }
    return found


def read_all(table: IcebergTable, snapshot_id: int) -> list[str]:
    """All rows of a snapshot, as text, sorted."""
    return sorted(map(str, table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()))
