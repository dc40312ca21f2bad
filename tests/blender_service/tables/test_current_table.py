"""A table of 10,000 snapshots costs its readers no more than its newest ones, and one load serves all of them."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from blender_service.tables import current_table, table_watch
from blender_service.tables.current_table import load_current
from blender_service.tables.table_watch import TableWatch
from headrace.tables.rest_catalogue import RestLake
from tests.blender_service.long_histories import lengthen_history
from tests.blender_service.packed_tables import PackedFixture
from tests.waiting import until


@pytest.fixture
def old(lake: Catalog, code: PackedFixture) -> PackedFixture:
    """The table with 2,000 snapshots before its own."""
    assert isinstance(lake, SqlCatalog)
    lengthen_history(lake, code.identifier, 2000)
    return code


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files of metadata that are read."""
    read: list[str] = []
    of_file = current_table._read_json

    def noted(io: object, location: str) -> dict[str, object]:
        read.append(location)
        return of_file(io, location)  # type: ignore[arg-type]

    monkeypatch.setattr(current_table, "_read_json", noted)
    yield read


def test_a_table_is_what_pyiceberg_reads(lake: Catalog, old: PackedFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas, properties, references and every snapshot are the same; of 2,000 those are parsed that are named."""
    parsed: list[int] = []
    validate = Snapshot.model_validate

    def noted(raw: dict[str, int]) -> Snapshot:
        parsed.append(raw["snapshot-id"])
        return validate(raw)

    monkeypatch.setattr(Snapshot, "model_validate", noted)
    table, whole = load_current(lake, old.identifier), lake.load_table(old.identifier)
    assert table is not None and len(table.metadata.snapshots) == 1
    for snapshot in whole.snapshots()[::199] + whole.snapshots()[-1:]:
        assert table.snapshot_by_id(snapshot.snapshot_id) == snapshot
    assert table.snapshot_by_id(-1) is None
    assert table.current_snapshot() == whole.current_snapshot()
    assert (table.schema(), table.schemas(), table.refs()) == (whole.schema(), whole.schemas(), whole.refs())
    assert (table.properties, table.name_mapping()) == (whole.properties, whole.name_mapping())
    assert len(parsed) == len(set(parsed)) < 20


@pytest.mark.nightly
def test_what_nobody_wrote_to_is_not_read_again(lake: Catalog, old: PackedFixture, reads: list[str]) -> None:
    """However many streams are opened, one reads the metadata; after a commit one does again, and it is the newest."""
    blend = Blender(lake).create(BlendSpec((SourceSpec(old.identifier, live=True),))).blend_id
    reads.clear()
    blender = Blender(lake)
    threads = [threading.Thread(target=blender.open, args=(blend,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    readers = [blender.open(blend) for _ in range(100)]
    assert reads.count(old.table.metadata_location) == 1, "threads of other tests may read other tables"
    assert len({id(reader._live[0].reader) for reader in readers}) == 1, "and they share what locates rows"
    old.append(10, seed=9, increment=2)
    assert sum(batch.rows for batch in blender.open(blend).read(0, 710)) == 710
    assert reads.count(old.table.metadata_location) == 1


def test_who_waits_for_a_load_is_given_it_whatever_it_is(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 that ask while one load runs, one asks the catalogue again, and an error is raised for all of them."""
    loads: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    load = table_watch.load_current

    def slow(catalogue: Catalog, identifier: str, known: Table | None = None) -> Table | None:
        if identifier != "main.table":  # a server of another test looks at its tables
            return load(catalogue, identifier, known)
        loads.append(1)
        begun.set()
        go_on.wait(60)
        raise ZeroDivisionError("of the catalogue")

    monkeypatch.setattr(table_watch, "load_current", slow)
    watch, errors, asked = TableWatch(lake), list[BaseException](), list[int]()
    lock = threading.Lock()

    class Noted:
        """The lock of a table, with a count of those who want it."""

        def __enter__(self) -> None:
            asked.append(1)
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    monkeypatch.setattr(watch, "_loading", (Noted(),))

    def ask() -> None:
        try:
            watch.load("main.table")
        except ZeroDivisionError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(51)]
    threads[0].start()
    begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(asked) == 51)
    go_on.set()
    for thread in threads:
        thread.join()
    assert (len(errors), len(loads)) == (51, 2)


def test_a_slow_answer_of_the_catalogue_costs_no_pause(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses follow the CPU time of looks: a catalogue that takes .2 s to answer is asked again half a second later."""
    pauses: list[float] = []
    watch = TableWatch(lake)
    sleep = time.sleep
    monkeypatch.setattr(table_watch, "load_current", lambda *_: sleep(0.2))
    follower = watch.follow({})
    object.__setattr__(follower, "tables", frozenset({"main.table"}))

    def noted(seconds: float) -> None:
        if threading.current_thread() is watch._thread:  # others watch for other tests
            pauses.append(seconds)
        sleep(0.01)

    monkeypatch.setattr(time, "sleep", noted)
    until(lambda: any(pause >= table_watch.LOOK_SECONDS for pause in pauses))
    assert max(pauses) == table_watch.LOOK_SECONDS


def test_a_rest_catalogue_is_asked_for_few_snapshots(old: PackedFixture) -> None:
    """It answers with the whole metadata, 2,000 snapshots, to who asks as PyIceberg does."""
    asked: list[str] = []
    location = old.table.metadata_location
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())

    class Answers(http.server.BaseHTTPRequestHandler):
        """A REST catalogue of one table."""

        def do_GET(self) -> None:
            """Answer."""
            asked.append(self.path)
            sent = dict(metadata)
            if "snapshots=refs" in self.path:
                sent["snapshots"] = metadata["snapshots"][-1:]
            table = {"metadata-location": location, "metadata": sent, "config": {}}
            content = json.dumps({"defaults": {}, "overrides": {}} if "/config" in self.path else table).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        catalogue = RestLake("rest", uri=f"http://127.0.0.1:{server.server_port}")
        table = load_current(catalogue, old.identifier)
        assert table is not None and len(table.metadata.snapshots) == 1
        assert table.snapshot_by_id(5) == old.table.snapshot_by_id(5)
        assert load_current(catalogue, old.identifier, table) is table
        assert len(catalogue.load_table(old.identifier).metadata.snapshots) > 2000, "who writes is given all"
        server.shutdown()
    assert ["snapshots=refs" in path for path in asked if "/config" not in path] == [True, True, False]
