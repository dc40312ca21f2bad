"""A lake that was copied or moved names its own files after a relocation, and nothing else has changed."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DecimalType, IntegerType, NestedField, StringType, TimestamptzType

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.catalogue import open_catalogue as open_in_blender
from blender_service.server.blender import Blender
from headrace.tables.exceptions import WrongLakeError
from headrace.tables.identity import OBJECT
from headrace.tables.settings import settings_at
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files import relocation
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.relocation import relocate
from spark_jobs.lake.session.catalogue import connect, open_catalogue
from tests.blender_service.packed_tables import create_packed
from tests.blender_service.packed_tables import open_lake as packed_lake
from tests.tiers import sampled

TABLE = "notes.documents"
SCHEMA = Schema(
    NestedField(1, "increment", IntegerType(), required=True),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "at", TimestamptzType(), required=False),
    NestedField(4, "price", DecimalType(9, 2), required=False),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "increment"), PartitionField(3, 1001, DayTransform(), "d")
)


def rows(increment: int, count: int) -> pa.Table:
    """Rows of an increment, a day of which holds a null."""
    values = [
        {"increment": increment, "text": f"{increment} {number}", "at": number * 10**14 or None, "price": None}
        for number in range(count)
    ]
    return pa.Table.from_pylist(values, SCHEMA.as_arrow())


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with a table of five snapshots, a tag, a branch, and an object that is kept."""
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    catalogue.create_namespace("notes")
    location = {"write.metadata.path": f"{tmp_path}/lake/notes/documents/metadata"}
    table = catalogue.create_table(TABLE, SCHEMA, partition_spec=SPEC, properties=location)
    for increment in range(3):
        table.append(rows(increment, 4))
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "blend_1").commit()  # type: ignore[union-attr]
    table.delete(EqualTo("increment", 1))
    table.append(rows(7, 2), branch="main")
    ObjectFolder.of(catalogue, "notes").keep(io.BytesIO(b"landed"))
    catalogue.engine.dispose()  # type: ignore[attr-defined]
    return tmp_path / "lake"


def facts(catalogue: Catalog, root: Path) -> dict[str, Any]:
    """All that a table says, places without the root: rows of each snapshot, entries of each manifest, refs."""
    table = catalogue.load_table(TABLE)
    found: dict[str, Any] = {"refs": table.refs(), "uuid": table.metadata.table_uuid, "spec": table.spec()}
    for snapshot in table.metadata.snapshots:
        assert snapshot.manifest_list.startswith(f"{root}/")
        entries = []
        for manifest in snapshot.manifests(table.io):
            assert manifest.manifest_path.startswith(f"{root}/")
            assert os.path.getsize(manifest.manifest_path) == manifest.manifest_length
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                assert entry.data_file.file_path.startswith(f"{root}/")
                values = (dict(one) if isinstance(one, Mapping) else one for one in entry.data_file._data)
                file = [str(one).replace(str(root), "") for one in values]
                entries.append((entry.status, entry.snapshot_id, entry.sequence_number, file))
        summary = snapshot.summary.model_dump() if snapshot.summary else None
        read = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().sort_by("text").to_pylist()
        found[str(snapshot.snapshot_id)] = (snapshot.parent_snapshot_id, snapshot.timestamp_ms, summary, entries, read)
    return found


def bytes_of(root: Path) -> dict[str, bytes]:
    """All files of a lake but the catalogue, which SQLite may tidy when it is opened."""
    files = (one for one in root.rglob("*") if one.is_file() and not one.name.startswith("catalog.db"))
    return {str(one.relative_to(root)): one.read_bytes() for one in files}


def relocated(former: Path, now: Path) -> Catalog:
    """A lake that was made in one place and lies in another, opened after its relocation."""
    assert (
        f" is in {now}, with 1 tables led there" in list(relocate(connect(settings_at(now)), str(former), str(now)))[-1]
    )
    return open_catalogue(settings_at(now))


def object_in(root: Path) -> str:
    """Where the object that is kept lies."""
    return str(next((root / "notes" / "landed").glob("*/*")))


@sampled()
@pytest.mark.parametrize("former_is_there", [True, False])
def test_every_snapshot_is_as_it_was_and_names_the_new_place(lake: Path, tmp_path: Path, former_is_there: bool) -> None:
    """Once, and once more to a third place; what happens there later changes no byte of the original."""
    before, original, kept = facts(connect(settings_at(lake)), lake), bytes_of(lake), object_in(lake)
    copy, second = tmp_path / "copy", tmp_path / "second"
    shutil.copytree(lake, copy)
    if not former_is_there:
        lake.rename(tmp_path / "gone")
    assert "files are there" in next(relocate(connect(settings_at(copy)), str(lake), str(copy), dry_run=True))
    assert bytes_of(copy) == original
    opened = relocated(lake, copy)
    assert facts(opened, copy) == before
    assert list(relocate(opened, str(lake), str(copy))) == ["the lake is in its place; nothing to do"]
    with ObjectFolder.of(opened, "notes").open(kept) as stream:
        assert stream.read() == b"landed"
    copy.rename(second)
    opened = relocated(copy, second)
    assert facts(opened, second) == before
    table = opened.load_table(TABLE)
    table.append(rows(9, 1))
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    assert bytes_of(lake if former_is_there else tmp_path / "gone") == original


def test_what_was_killed_changed_nothing_and_is_done_again(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the catalogue is led to the new files nothing opens; a second try ends in one identity."""
    copy, before = tmp_path / "copy", facts(connect(settings_at(lake)), lake)
    shutil.copytree(lake, copy)
    for killed in ("_lead", "note_in_warehouse"):
        with monkeypatch.context() as context:
            context.setattr(relocation, killed, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                list(relocate(connect(settings_at(copy)), str(lake), str(copy)))
        with pytest.raises(WrongLakeError, match=f"--from {lake} --to {copy}"):
            open_catalogue(settings_at(copy))
    assert facts(relocated(lake, copy), copy) == before


def test_a_catalogue_that_only_registers_goes_on_where_it_was_killed(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was dropped and not registered yet is in an object beside the files."""
    copy, before = tmp_path / "copy", facts(connect(settings_at(lake)), lake)
    shutil.copytree(lake, copy)

    class Rest:
        """Stands for a class that this catalogue is not."""

    monkeypatch.setattr(relocation, "SqlCatalog", Rest)
    catalogue: Any = connect(settings_at(copy))
    register = catalogue.register_table
    catalogue.register_table = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        list(relocate(catalogue, str(lake), str(copy)))
    assert catalogue.list_tables("notes") == []
    catalogue.register_table = register
    assert list(relocate(catalogue, str(lake), str(copy)))[-1].endswith("led there")
    assert facts(open_catalogue(settings_at(copy)), copy) == before


def test_a_copy_that_lacks_files_or_is_of_another_lake_is_refused(lake: Path, tmp_path: Path) -> None:
    """Nothing is written to it, and the line names the first file, or the other lake."""
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    next((copy / "notes" / "documents" / "data").rglob("*.parquet")).unlink()
    before = bytes_of(copy)
    for former, now, said in (
        (lake, copy, "1 files of the lake are not there, first .*parquet; copy all of"),
        (tmp_path / "wrong", copy, f"no table lies there; {TABLE} lies in {lake}"),
        (lake, lake, f"the lake that is open is in {copy}"),
        (tmp_path, copy, "one lies in the other"),
    ):
        with pytest.raises(WrongLakeError, match=said):
            list(relocate(connect(settings_at(copy)), str(former), str(now), dry_run=True))
    assert bytes_of(copy) == before
    (copy / OBJECT).write_text('{"before": "", "catalogue": "", "lake": "other", "warehouse": "/other"}')
    with pytest.raises(WrongLakeError, match="holds the files of lake other"):
        list(relocate(connect(settings_at(copy)), str(lake), str(copy)))


def test_a_catalogue_takes_the_place_of_one_that_is_gone(lake: Path, tmp_path: Path) -> None:
    """The same place twice; the one whose place was taken is not opened any more."""
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copytree(lake, moved, dirs_exist_ok=True)
    settings = type(settings_at(lake))(
        {**settings_at(lake).properties, "uri": f"sqlite:///{moved}/catalog.db"}, embedded=False
    )
    with pytest.raises(WrongLakeError, match=f"take its place: headrace relocate --from {lake} --to {lake}"):
        open_catalogue(settings)
    assert "with 0 tables led there" in list(relocate(connect(settings), str(lake), str(lake)))[-1]
    assert open_catalogue(settings).load_table(TABLE).scan().to_arrow().num_rows == 10
    with pytest.raises(WrongLakeError, match="took its place"):
        open_catalogue(settings_at(lake))
    assert list(relocate(connect(settings_at(lake)), str(lake), str(lake)))  # it was alive, and takes its place back
    assert open_catalogue(settings_at(lake)).load_table(TABLE).scan().to_arrow().num_rows == 10
    empty = type(settings)({**settings.properties, "uri": f"sqlite:///{tmp_path}/empty.db"}, embedded=False)
    with pytest.raises(WrongLakeError, match="the catalogue is that of lake none"):
        list(relocate(connect(empty), str(lake), str(lake)))


def test_two_copies_of_a_catalogue_do_not_take_one_copy_of_the_files(lake: Path, tmp_path: Path) -> None:
    """The first one has it; the second is told whose files they are."""
    copy, second = tmp_path / "copy", tmp_path / "second"
    shutil.copytree(lake, copy)
    shutil.copytree(lake, second)
    relocated(lake, copy)
    uri = {"uri": f"sqlite:///{second}/catalog.db"}
    settings = type(settings_at(copy))({**settings_at(copy).properties, **uri}, embedded=False)
    with pytest.raises(WrongLakeError, match="copy the files that belong to the catalogue"):
        list(relocate(connect(settings), str(lake), str(copy)))


def test_a_table_of_format_1_goes_along(tmp_path: Path) -> None:
    """Its manifests, which it keeps when it is upgraded, do not say what a file contains."""
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    catalogue.create_namespace("notes")
    table = catalogue.create_table(TABLE, SCHEMA, partition_spec=SPEC, properties={"format-version": "1"})
    table.append(rows(0, 4))
    table.transaction().upgrade_table_version(2).commit_transaction()
    table.append(rows(1, 4))
    before = facts(catalogue, tmp_path / "lake")
    catalogue.engine.dispose()  # type: ignore[attr-defined]
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    assert facts(relocated(tmp_path / "lake", tmp_path / "moved"), tmp_path / "moved") == before


def test_position_deletes_name_the_files_that_they_are_about(tmp_path: Path) -> None:
    """Their rows are paths; a file of them is written again, with its size, and without bounds of the old paths."""
    files = relocation._Relocation("/former", str(tmp_path), {}, dry_run=False)
    path = tmp_path / "deletes.parquet"
    field = pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"})
    schema = pa.schema([field, pa.field("pos", pa.int64(), False)])
    named = [f"{scheme}/former/t/data/a.parquet" for scheme in ("", "file:", "file://")] + ["/formerly/a.parquet"]
    pq.write_table(pa.table([named, range(4)], schema=schema), path)
    target, size = files._position_deletes(str(path))
    read = pq.read_table(target)
    assert read["file_path"].to_pylist() == [f"{tmp_path}/t/data/a.parquet"] * 3 + ["/formerly/a.parquet"]
    assert size == os.path.getsize(target) and target != str(path) and read.schema.field(0).metadata == field.metadata


def test_what_the_former_lake_froze_is_read_and_left_alone(lake: Path, tmp_path: Path) -> None:
    """It cannot be frozen there, is copied back by a thaw, and stays when it is deleted here."""
    former = ObjectFolder.of(open_catalogue(settings_at(lake)), "notes")
    kept, cold = object_in(lake), tmp_path / "cold"
    assert former.freeze(str(cold), float("inf")) == 1
    frozen = bytes_of(cold)
    shutil.copytree(lake, tmp_path / "copy")
    folder = ObjectFolder.of(relocated(lake, tmp_path / "copy"), "notes")
    with folder.open(kept) as stream:
        assert stream.read() == b"landed"
    assert folder.cold_folders() == [] and folder.delete(Path(kept).name) is False
    with pytest.raises(InputError, match="of the lake that this one was relocated from"):
        folder.freeze(str(cold), float("inf"))
    assert folder.thaw() == 1 and len(folder.older(float("inf"))) == 1
    assert folder.freeze(str(tmp_path / "cold2"), float("inf")) == 1 and folder.thaw() == 1
    assert bytes_of(cold) == frozen and former.thaw() == 1


def test_a_blend_goes_on_at_its_offset(tmp_path: Path) -> None:
    """A lake of an earlier version, moved: the rows that follow are the same bytes, from the pinned snapshot."""
    catalogue = packed_lake(tmp_path / "lake")
    packed = create_packed(catalogue, "main.packed_code_16").append(120, seed=1).append(30, seed=2)
    blender = Blender(catalogue)
    blend = blender.create(BlendSpec((SourceSpec(packed.identifier, max_epochs=0),), seed=3)).blend_id
    following = [one.input_ids.tobytes() for one in blender.open(blend).read(40, 200, max_batch_rows=30)]
    packed.append(50, seed=4)
    (tmp_path / "lake").rename(tmp_path / "moved")
    list(relocate(connect(settings_at(tmp_path / "moved")), str(tmp_path / "lake"), str(tmp_path / "moved")))
    read = Blender(open_in_blender(tmp_path / "moved")).open(blend).read(40, 200, max_batch_rows=30)
    assert [one.input_ids.tobytes() for one in read] == following
