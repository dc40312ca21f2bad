"""A lake is opened and written only where its catalogue and its files belong together."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.lake_sources import pin_snapshot
from blender_service.catalogue import open_catalogue as open_in_blender
from blender_service.exceptions import CatalogueError
from headrace.tables.exceptions import WrongLakeError
from headrace.tables.identity import OBJECT, LakeIdentity, noted_in_catalogue, noted_in_warehouse
from headrace.tables.locations import is_inside, plain
from headrace.tables.settings import LakeSettings, settings_at
from spark_jobs.lake.ledger.acts import AUDIT, AUDIT_TABLE, note_act
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.session.catalogue import connect, ensure_table, open_catalogue


def made(root: Path) -> Catalog:
    """A lake with a table of a row."""
    catalogue = open_catalogue(settings_at(root))
    note_act(catalogue, "read", "notes")
    return catalogue


def with_catalogue(root: Path, database: Path) -> LakeSettings:
    """Settings of a lake whose catalogue is another file of SQLite."""
    return LakeSettings({**settings_at(root).properties, "uri": f"sqlite:///{database}"}, embedded=False)


def bytes_of(root: Path) -> dict[str, bytes]:
    """All files of a lake but the catalogue, which SQLite may tidy when it is opened."""
    files = (one for one in root.rglob("*") if one.is_file() and not one.name.startswith("catalog.db"))
    return {str(one.relative_to(root)): one.read_bytes() for one in files}


def test_the_first_write_notes_the_same_identity_in_both_places(tmp_path: Path) -> None:
    """Looking notes nothing; links and slashes at the end make no difference; every opening after that agrees."""
    open_catalogue(settings_at(tmp_path / "lake"))
    assert not (tmp_path / "lake" / OBJECT).exists()
    catalogue = made(tmp_path / "lake")
    noted = noted_in_catalogue(catalogue)
    assert noted is not None and noted == noted_in_warehouse(catalogue, str(tmp_path / "lake"))
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    for warehouse in (tmp_path / "link", f"file://{tmp_path}/lake/"):
        properties = {**settings_at(tmp_path / "lake").properties, "warehouse": str(warehouse)}
        note_act(open_catalogue(LakeSettings(properties, embedded=False)), "read", "notes")
    assert noted_in_catalogue(catalogue) == noted
    open_in_blender(tmp_path / "lake")


def test_processes_that_write_first_at_the_same_moment_agree(tmp_path: Path) -> None:
    """Whatever the order of their notes, both places have the same one in the end."""
    catalogues = [open_catalogue(settings_at(tmp_path / "lake")) for _ in range(4)]
    threads = [threading.Thread(target=note_act, args=(one, "read", "notes")) for one in catalogues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    assert noted_in_catalogue(catalogue) == noted_in_warehouse(catalogue, str(tmp_path / "lake"))
    assert catalogue.load_table(AUDIT_TABLE).scan().to_arrow().num_rows == 4


def test_a_copied_or_moved_folder_is_not_opened(tmp_path: Path) -> None:
    """The line names both places and the command; the original stays as it is and open."""
    made(tmp_path / "lake")
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    before = bytes_of(tmp_path / "lake")
    mend = f"headrace relocate --from {tmp_path}/lake --to {tmp_path}/copy"
    with pytest.raises(WrongLakeError, match=rf"made in {tmp_path}/lake .*{mend}"):
        open_catalogue(settings_at(tmp_path / "copy"))
    with pytest.raises(CatalogueError, match=f"made in {tmp_path}/lake and .* {tmp_path}/copy is open"):
        open_in_blender(tmp_path / "copy")
    assert bytes_of(tmp_path / "lake") == before == bytes_of(tmp_path / "copy")
    note_act(open_catalogue(settings_at(tmp_path / "lake")), "read", "notes")
    (tmp_path / "lake").rename(tmp_path / "moved")
    with pytest.raises(WrongLakeError, match=f"made in {tmp_path}/lake"):
        open_catalogue(settings_at(tmp_path / "moved"))


def test_a_copy_that_is_opened_by_relative_settings_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings may name the warehouse from the working directory; a lake made so is guarded as well."""
    relative = LakeSettings({"type": "sql", "uri": "sqlite:///lake/catalog.db", "warehouse": "./lake/"}, embedded=False)
    for first in (settings_at(tmp_path / "a" / "lake"), relative):
        (tmp_path / "a").mkdir()
        monkeypatch.chdir(tmp_path / "a")
        for _ in range(2):
            note_act(open_catalogue(first), "read", "notes")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        monkeypatch.chdir(tmp_path / "b")
        with pytest.raises(WrongLakeError, match=f"--from {tmp_path}/a/lake --to {tmp_path}/b/lake"):
            open_catalogue(relative)
        for one in "ab":
            shutil.rmtree(tmp_path / one)


def test_two_catalogues_do_not_share_a_warehouse(tmp_path: Path) -> None:
    """A copy of the catalogue, an empty one, and that of another lake; the settings of Blender alike."""
    made(tmp_path / "lake")
    made(tmp_path / "other")
    source = tmp_path / "lake" / "catalog.db"
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(tmp_path / "copy.db")) as written:
        read.backup(written)
    for database, said in (
        (tmp_path / "copy.db", "belongs to another catalogue"),
        (tmp_path / "empty.db", "is not that lake's"),
        (tmp_path / "other" / "catalog.db", f"made in {tmp_path}/other"),
    ):
        settings = with_catalogue(tmp_path / "lake", database)
        with pytest.raises(WrongLakeError, match=said):
            open_catalogue(settings)
    shutil.copy(tmp_path / "other" / OBJECT, tmp_path / "lake" / OBJECT)
    with pytest.raises(WrongLakeError, match="holds the files of lake"):
        open_catalogue(settings_at(tmp_path / "lake"))


def test_a_lost_note_beside_the_files_is_written_again(tmp_path: Path) -> None:
    """The catalogue knows that the warehouse is its own; a damaged note is named and changes nothing."""
    made(tmp_path / "lake")
    (tmp_path / "lake" / OBJECT).unlink()
    noted = noted_in_catalogue(made(tmp_path / "lake"))
    assert noted == LakeIdentity.of_json((tmp_path / "lake" / OBJECT).read_text())
    (tmp_path / "lake" / OBJECT).write_text("{")
    with pytest.raises(WrongLakeError, match="its identity is damaged"):
        open_catalogue(settings_at(tmp_path / "lake"))


def test_a_lake_that_was_taken_over_is_not_written_by_who_has_it_open(tmp_path: Path) -> None:
    """Every write and every lease compares again; so does the pin of a blend."""
    settings = settings_at(tmp_path / "lake")
    catalogue, blender = made(tmp_path / "lake"), open_in_blender(tmp_path / "lake")
    other = LakeIdentity("another", f"{tmp_path}/lake", "sqlite:/elsewhere.db")
    (tmp_path / "lake" / OBJECT).write_text(other.to_json())
    before = bytes_of(tmp_path / "lake")
    table = connect(settings).load_table(AUDIT_TABLE)
    for write in (
        lambda: note_act(catalogue, "read", "notes"),
        lambda: catalogue.drop_table(AUDIT_TABLE),
        lambda: catalogue.load_table(AUDIT_TABLE).transaction().set_properties({"a": "b"}).commit_transaction(),
        lambda: table_leases(catalogue, [AUDIT_TABLE]).__enter__(),
    ):
        with pytest.raises(WrongLakeError, match="holds the files of lake another"):
            write()
    with pytest.raises(CatalogueError, match="holds the files of lake another"):
        pin_snapshot(blender.load_table(AUDIT_TABLE), table.metadata.snapshots[-1].snapshot_id)
    assert bytes_of(tmp_path / "lake") == before


def test_a_table_outside_of_the_warehouse_is_read_and_never_written(tmp_path: Path) -> None:
    """One that was registered from another lake, and one whose data goes elsewhere; dropping it leaves its files."""
    source = made(tmp_path / "lake").load_table(AUDIT_TABLE)
    catalogue = made(tmp_path / "mine")
    connect(settings_at(tmp_path / "mine")).create_namespace("theirs")
    connect(settings_at(tmp_path / "mine")).register_table("theirs.audit", source.metadata_location)
    assert catalogue.load_table("theirs.audit").scan().to_arrow().num_rows == 1
    before = bytes_of(tmp_path / "lake")
    with (
        pytest.raises(WrongLakeError, match="lies outside of the lake"),
        table_leases(catalogue, ["theirs.audit"]),
    ):
        pass
    with pytest.raises(WrongLakeError, match="audit: "):
        ensure_table(catalogue, "theirs.audit", AUDIT, {})
    with pytest.raises(WrongLakeError, match="audit: "):
        catalogue.purge_table("theirs.audit")
    with pytest.raises(CatalogueError, match="lies outside"):
        pin_snapshot(
            open_in_blender(tmp_path / "mine").load_table("theirs.audit"), source.metadata.snapshots[-1].snapshot_id
        )
    catalogue.drop_table("theirs.audit")
    assert bytes_of(tmp_path / "lake") == before
    mine = catalogue.load_table(AUDIT_TABLE)
    mine.transaction().set_properties({"write.data.path": str(tmp_path / "lake" / "data")}).commit_transaction()
    with pytest.raises(WrongLakeError, match=f"{tmp_path}/lake/data lies outside"):
        note_act(catalogue, "read", "notes")
    assert bytes_of(tmp_path / "lake") == before


def test_places_are_compared_as_they_are_not_as_they_are_written(tmp_path: Path) -> None:
    """Schemes, slashes and links; a folder whose name only begins the same is another."""
    (tmp_path / "lake" / "in").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    (tmp_path / "lake" / "out").symlink_to(tmp_path / "elsewhere")
    root = str(tmp_path / "lake")
    assert all(is_inside(one, root) for one in (root, f"{root}/", f"file://{root}/in", f"file:{root}", f"{root}/new"))
    assert is_inside(f"{tmp_path}/link/in", root) and is_inside(root, f"{tmp_path}/link/")
    assert not any(
        is_inside(one, root) for one in (f"{root}2", f"{root}/../elsewhere", f"{root}/out/table", "s3://a/b")
    )
    assert is_inside("s3a://bucket/lake/t", "s3://bucket/lake/") and not is_inside(
        "s3://bucket/lake2", "s3://bucket/lake"
    )
    assert not is_inside("s3://bucket/lake/../other/t", "s3://bucket/lake")
    assert plain("file:///a/b/") == plain("file:/a/b") == "/a/b"
