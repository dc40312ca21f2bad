"""A clone of a catalogue that keeps its address: whoever wrote last goes on, the other writes and deletes nothing."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.lake_sources import pin_snapshot
from blender_service.blend.store import open_store
from blender_service.exceptions import CatalogueError
from headrace.tables import fence
from headrace.tables.exceptions import WrongLakeError
from headrace.tables.fence import KEPT_NAMES, OBJECT, Token
from headrace.tables.identity import require_lake, require_newest, require_own
from headrace.tables.settings import LakeSettings
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.maintenance import expire, remove_orphans
from spark_jobs.lake.files.relocation import relocate
from spark_jobs.lake.files.storage import files_below, open_input
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.session.catalogue import connect, ensure_table, open_catalogue
from tests.blender_service.s3_stand_in import S3StandIn
from tests.tiers import sampled

NAME = "demo.notes"
DECLARED = Table("notes", "numbers", (Column("n!", "long", "number"),))
LATER = datetime.now(UTC) + timedelta(days=2)
BOTH = pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.nightly)], indirect=True)
BEHIND = r"was last written through another catalogue .* headrace relocate --from"


class Killed(BaseException):
    """What nobody catches."""


class Store(S3StandIn):
    """S3 that counts requests for the token, and may be one that knows no conditions."""

    def __init__(self) -> None:
        """As S3 is."""
        self.requests: list[str] = []
        self.conditions = "compared"
        super().__init__()
        app = self._app

        def counted(environ: dict[str, Any], start: Any) -> Any:
            if OBJECT in environ.get("PATH_INFO", ""):
                self.requests.append(environ["REQUEST_METHOD"])
            has_condition = any(environ.get(key) for key in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"))
            if has_condition and self.conditions == "refused":
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start("501 Not Implemented", [("Content-Type", "application/xml")])
                return [b"<Error><Code>NotImplemented</Code><Message>no conditions</Message></Error>"]
            if self.conditions == "ignored":
                for key in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
                    environ.pop(key, None)
            return app(environ, start)

        self._server.app = self._app = counted


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    """A store of S3."""
    with Store() as store:
        yield store


class Place:
    """A lake with its catalogue in a file, which may be swapped for a clone at the same path."""

    def __init__(self, folder: Path, warehouse: str, properties: dict[str, str]) -> None:
        """Nothing is there yet."""
        self.folder, self.warehouse = folder, warehouse
        database = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db?timeout=30", "warehouse": warehouse}
        self.settings = LakeSettings({**database, **properties}, embedded=False)

    def open(self) -> Catalog:
        """The catalogue that is there now, as a new process opens it."""
        fence.forget()
        return open_catalogue(self.settings)

    def keep(self, name: str) -> None:
        """Keep a copy of the catalogue."""
        with (
            closing(sqlite3.connect(self.folder / "catalog.db")) as read,
            closing(sqlite3.connect(self.folder / f"{name}.kept")) as written,
        ):
            read.backup(written)

    def put_back(self, name: str) -> None:
        """Have a kept copy at the path of the catalogue."""
        for end in ("-wal", "-shm", ""):
            (self.folder / f"catalog.db{end}").unlink(missing_ok=True)
        shutil.copy(self.folder / f"{name}.kept", self.folder / "catalog.db")

    def append(self, number: int) -> None:
        """What a writing run does."""
        catalogue = self.open()
        with table_leases(catalogue, [NAME]):
            table = ensure_table(catalogue, NAME, DECLARED, {})
            table.append(pa.Table.from_pylist([{"n": number}], schema=table.schema().as_arrow()))

    def rows(self) -> list[int]:
        """What a reader sees."""
        return sorted(self.open().load_table(NAME).scan().to_arrow()["n"].to_pylist())

    def hashes(self) -> dict[str, str]:
        """SHA-256 of all objects of the lake, but its fencing token."""
        return {
            path: hashlib.sha256(open_input(path, self.settings.properties).read()).hexdigest()
            for path in files_below(self.warehouse, self.settings.properties)
            if fence.FOLDER not in path
        }


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A lake in a folder, and one in a store, which takes longer."""
    if request.param == "folder":
        return Place(tmp_path, str(tmp_path / "lake"), {})
    store: Store = request.getfixturevalue("s3")
    return Place(tmp_path, f"s3://lake{tmp_path}", store.properties)


def writes() -> dict[str, Callable[[Catalog], object]]:
    """Whatever writes or deletes."""

    def append(catalogue: Catalog) -> None:
        with table_leases(catalogue, [NAME]):
            table = catalogue.load_table(NAME)
            table.append(pa.Table.from_pylist([{"n": 0}], schema=table.schema().as_arrow()))

    return {
        "append": append,
        "compact": lambda catalogue: compact(catalogue, NAME),
        "drop": lambda catalogue: catalogue.drop_table(NAME),
        "expire": lambda catalogue: expire(catalogue, NAME, LATER),
        "orphans": lambda catalogue: remove_orphans(catalogue, NAME, LATER),
        "own": require_own,
        "purge": lambda catalogue: catalogue.purge_table(NAME),
        "properties": lambda catalogue: (
            catalogue.load_table(NAME).transaction().set_properties(a="b").commit_transaction()
        ),
        "blend": require_own,
    }


def refused(place: Place) -> None:
    """The catalogue that is there reads, and writes and deletes nothing."""
    before, rows = place.hashes(), place.rows()
    for name, write in writes().items():
        with pytest.raises(WrongLakeError, match=BEHIND) as caught:
            write(place.open())
        assert "\n" not in str(caught.value), name
    assert (place.hashes(), place.rows()) == (before, rows)
    with pytest.raises(WrongLakeError, match=BEHIND):
        require_newest(connect(place.settings))


@sampled()
def test_a_clone_deletes_nothing_of_an_original_that_goes_on(place: Place) -> None:
    """All objects stay, whatever the clone tries; the original goes on, and so does a clone made anew."""
    for number in range(3):
        place.append(number)
    place.keep("clone")
    for number in range(3, 6):
        place.append(number)
    compact(place.open(), NAME)
    place.keep("original")
    place.put_back("clone")
    assert place.rows() == [0, 1, 2]
    refused(place)
    place.put_back("original")
    place.append(6)
    assert place.rows() == [0, 1, 2, 3, 4, 5, 6]
    expire(place.open(), NAME, LATER)
    remove_orphans(place.open(), NAME, LATER)
    assert place.rows() == [0, 1, 2, 3, 4, 5, 6]


@BOTH
def test_of_two_clones_the_first_to_write_goes_on_until_the_other_takes_its_place(place: Place) -> None:
    """The original is the one that is behind then: it says so, writes nothing, and takes its place if it is told to."""
    place.append(1)
    place.keep("original")
    place.append(2)  # the clone
    place.keep("clone")
    place.put_back("original")
    refused(place)
    done = list(relocate(connect(place.settings), place.warehouse, place.warehouse))
    assert "0 tables led there" in done[-1]
    place.append(3)
    assert place.rows() == [1, 3]
    assert list(relocate(connect(place.settings), place.warehouse, place.warehouse)) == [
        "the lake is in its place; nothing to do"
    ]
    place.keep("original")
    place.put_back("clone")
    before = place.hashes()
    for write in writes().values():
        with pytest.raises(WrongLakeError, match="took its place"):
            write(place.open())
    assert place.hashes() == before
    place.put_back("original")
    place.append(4)
    assert place.rows() == [1, 3, 4]


def killed_at(step: str, patch: pytest.MonkeyPatch) -> None:
    """Kill the next raise before or after one of its steps."""
    when, _, name = step.partition(" ")
    classes: list[Any] = [fence._Folder, fence._Object] if name == "put" else [fence._CatalogueNotes]

    def killing(real: Callable[..., Any]) -> Callable[..., None]:
        def killed(*arguments: Any) -> None:
            if when == "after":
                real(*arguments)
            raise Killed

        return killed

    for one in classes:
        patch.setattr(one, name, killing(getattr(one, name)))


@sampled(3)
@BOTH
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "step", [f"{when} {step}" for step in ("add", "put", "confirm") for when in ("before", "after")]
)
def test_a_raise_that_was_killed_is_the_original_s_and_not_a_clone_s(place: Place, step: str, first: bool) -> None:
    """Whatever the step, also of the first raise of all: the lake goes on by itself, a clone of before is refused."""
    if first:
        place.open().create_namespace("system")
    else:
        place.append(1)
    place.keep("clone")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        killed_at(step, patch)
        place.append(2)
    if not first:
        place.keep("original")
        place.put_back("clone")
        if step in ("after put", "before confirm", "after confirm"):  # else nothing was written since
            refused(place)
        place.put_back("original")
    for number in (3, 4):
        place.append(number)
    assert place.rows() == ([3, 4] if first else [1, 3, 4])


@BOTH
def test_many_writers_raise_it_at_once(place: Place) -> None:
    """Eight that begin together all write, and a clone of before is behind; the catalogue notes the last names only."""
    place.append(0)
    place.keep("clone")
    catalogues = [open_catalogue(place.settings) for _ in range(8)]
    writers: list[str] = []

    def write(catalogue: Catalog) -> None:
        for _ in range(8):
            writers.append(fence._raised(fence._CatalogueNotes.of(catalogue), place.warehouse, over=False))

    threads = [threading.Thread(target=write, args=(one,)) for one in catalogues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(writers) == 64
    place.append(1)
    assert place.rows() == [0, 1]
    assert len(fence._CatalogueNotes.of(place.open()).notes) <= 3 * KEPT_NAMES
    place.put_back("clone")
    refused(place)


@BOTH
def test_a_lake_of_before_is_adopted_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first writer raises a token; a clone of that time is behind from then on; a lost one is made again."""
    with monkeypatch.context() as before:
        for name in ("raise_fence", "is_fresh"):
            before.setattr(f"headrace.tables.identity.{name}", lambda *_: True)
        place.append(1)
    catalogue = place.open()
    found = fence._place(catalogue, place.warehouse)
    assert found.look() is None and not fence._CatalogueNotes.of(catalogue).notes
    place.keep("clone")
    place.append(2)
    assert found.look() is not None
    place.keep("original")
    place.put_back("clone")
    refused(place)
    place.put_back("original")
    if isinstance(found, fence._Folder):
        shutil.rmtree(found.path)
    else:
        assert isinstance(found, fence._Object)
        found.client.delete_object(Bucket=found.bucket, Key=found.key)
    for number in (3, 4):
        place.append(number)
    assert place.rows() == [1, 2, 3, 4]
    token, _ = found.look() or (Token(0, ""), "")
    assert token.number > 2


@pytest.mark.nightly
def test_a_run_asks_the_store_once(tmp_path: Path, s3: Store) -> None:
    """By the write itself; who only looks asks nothing, who writes longer asks again, a lost answer costs two more."""
    place = Place(tmp_path, f"s3://lake{tmp_path}", s3.properties)
    place.append(1)
    place.append(2)
    catalogue = place.open()
    s3.requests.clear()
    catalogue.load_table(NAME).scan().to_arrow()
    assert s3.requests == []
    for name in ("append", "compact", "expire", "orphans"):
        writes()[name](catalogue)
        writes()["append"](open_catalogue(place.settings))
    assert s3.requests == ["PUT"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fence, "FRESH_SECONDS", -1.0)
        writes()["append"](catalogue)
    assert set(s3.requests) == {"PUT"} and len(s3.requests) > 1


@pytest.mark.parametrize("conditions", [pytest.param("refused", marks=pytest.mark.nightly), "ignored"])
def test_a_store_without_conditions_is_noticed(
    tmp_path: Path, s3: Store, conditions: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and noted; a clone is told all the same, unless both write in the same second."""
    place = Place(tmp_path, f"s3://lake{tmp_path}", s3.properties)
    s3.conditions = conditions
    try:
        with caplog.at_level(logging.WARNING):
            place.append(1)
            place.append(2)
        assert sum("to compare when it writes" in one.getMessage() for one in caplog.records) == 1
        place.keep("clone")
        place.append(3)
        place.put_back("clone")
        refused(place)
    finally:
        s3.conditions = "compared"


def test_without_boto3_it_is_said_and_a_clone_is_told(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tables of S3 need no boto3; whoever has it goes on from what was written without."""
    place = Place(tmp_path, f"s3://lake{tmp_path}", s3.properties)
    with monkeypatch.context() as lacking:
        lacking.setattr(fence, "s3_client", Mock(side_effect=ImportError("boto3")))
        place.append(1)
        place.keep("clone")
        place.append(2)
        assert "headrace[s3]" in caplog.text
    place.append(3)
    place.put_back("clone")
    refused(place)


def test_two_copies_of_the_folder_over_one_another_are_the_newer_one(tmp_path: Path) -> None:
    """As after `rsync` without `--delete`; a rename that lost leaves nothing behind."""
    folder = fence._Folder(str(tmp_path / "g"))
    first = folder.put(Token(1, "a"), "")
    assert first is not None and folder.put(Token(1, "b"), "") is None
    second = folder.put(Token(2, "c"), first)
    assert second is not None and folder.put(Token(2, "d"), first) is None
    (tmp_path / "g" / first).touch()
    assert folder.look() == (Token(2, "c"), second)
    assert sorted(os.listdir(tmp_path)) == ["g"]
    place = Place(tmp_path, str(tmp_path / "lake"), {})
    place.append(1)
    place.keep("clone")
    (older,) = os.listdir(f"{place.warehouse}/{fence.FOLDER}")
    place.append(2)
    place.put_back("clone")
    Path(place.warehouse, fence.FOLDER, older).touch()
    refused(place)


def test_a_server_of_a_clone_reads_on_and_frees_nothing(tmp_path: Path) -> None:
    """Blender opens the clone's catalogue and lists its blends; it neither pins a snapshot nor deletes a blend."""
    place = Place(tmp_path, str(tmp_path / "lake"), {})
    place.append(1)
    place.keep("clone")
    place.append(2)
    place.put_back("clone")
    catalogue = place.open()
    require_lake(catalogue)
    assert open_store(catalogue).list_ids() == []
    table = catalogue.load_table(NAME)
    with pytest.raises(CatalogueError, match=BEHIND):
        pin_snapshot(table, table.metadata.snapshots[-1].snapshot_id)
    with pytest.raises(WrongLakeError, match=BEHIND):
        require_own(catalogue)
