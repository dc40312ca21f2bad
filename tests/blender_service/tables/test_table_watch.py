"""What open streams read follows the lake: excisions at once, live rows soon, and each table is read once for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestFile

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.client import BlenderClient, connect
from blender_service.exceptions import PackedTableError, SourceChangedError
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.tables import table_watch
from blender_service.wire.row_batch import RowBatch
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.tiers import sampled, tries
from tests.waiting import until

Serve = Callable[..., RunningServer]


def expire_all_but_the_head(table: PackedFixture) -> None:
    """Remove what an excision left behind: tags, snapshots, and the data files that no snapshot names any more."""
    paths = {
        task.file.file_path for snapshot in table.table.snapshots() for task in _files(table, snapshot.snapshot_id)
    }
    for name in [name for name in table.table.refs() if name != "main"]:
        table.table.manage_snapshots().remove_tag(name).commit()
    head = table.table.current_snapshot()
    assert head is not None
    for snapshot in table.table.snapshots():
        if snapshot.snapshot_id != head.snapshot_id:
            table.table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    for path in paths - {task.file.file_path for task in _files(table, head.snapshot_id)}:
        Path(path.removeprefix("file://")).unlink()


def _files(table: PackedFixture, snapshot_id: int) -> list:  # type: ignore[type-arg]
    return list(table.table.scan(snapshot_id=snapshot_id).plan_files())


@sampled()
@pytest.mark.parametrize("seed", range(tries(3)))
@pytest.mark.parametrize("live", [False, True])
def test_an_excision_reaches_streams_that_are_open(lake: Catalog, seed: int, live: bool) -> None:
    """From the look at the tables on an open stream sends, byte for byte, what one sends that is opened then.

    Wherever in a chunk it is, one rank or all, the old files kept or deleted: order and offsets are the same, no row
    has the document, and the memory of blocks has none of the old files.
    """
    random = np.random.default_rng(seed)
    table = create_packed(lake, "main.packed_code_16")
    for number in range(3):
        table.append(40, seed=10 * seed + number, increment=number, row_group=8)
    blender = Blender(lake)
    source = SourceSpec(table.identifier, name="code", live=live, max_epochs=None if live else 0)
    blend = blender.create(BlendSpec((source,), seed=seed, block_rows=8, group_blocks=2)).blend_id
    streams = [
        blender.open(blend).read(0, 100 if live else 400, max_batch_rows=int(n)) for n in random.integers(1, 9, 3)
    ]
    before = [[next(stream) for _ in range(random.integers(1, 6))] for stream in streams]
    candidates = [number for number, row in enumerate(table.rows) if len(row.segments) > 1]
    gone = random.choice(candidates, 2, replace=False).tolist()
    documents = {table.rows[ordinal].segments[0][0] for ordinal in gone}
    for ordinal in gone:
        table.excise(ordinal)
    if seed % 2:
        expire_all_but_the_head(table)
    generation = blender._shared.watch.generation
    until(lambda: blender._shared.watch.generation > generation or _is_seen(blender, table))
    rest = [list(stream) for stream in streams]
    for begun, after in zip(before, rest, strict=True):
        at = begun[-1].end
        assert after[0].offset == at
        fresh = [row for batch in Blender(lake).open(blend).read(at, after[-1].end - at) for row in rows_of(batch)]
        assert [row for batch in after for row in rows_of(batch)] == fresh
        assert not documents & {doc_id for batch in after for doc_id in batch.doc_ids}
    served = {task.file.file_path for task in table.table.scan().plan_files()}
    assert {key.path for key in blender.cache._kept._values} <= served


def _is_seen(blender: Blender, table: PackedFixture) -> bool:
    seen = blender._shared.watch.table(table.identifier)
    return seen is not None and seen.metadata_location == table.table.metadata_location


def test_files_that_expire_before_the_next_look_end_no_stream(
    lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there makes the stream look at its table at once; a file that is really lost is named."""
    monkeypatch.setattr(table_watch, "LOOK_SECONDS", 3600)
    blender = Blender(lake, cache_bytes=1)
    blend = blender.create(BlendSpec((SourceSpec(code.identifier),), block_rows=16, group_blocks=2)).blend_id
    stream = blender.open(blend).read(0, max_batch_rows=7)
    got = [next(stream)]
    code.excise(next(number for number, row in enumerate(code.rows) if len(row.segments) > 1))
    expire_all_but_the_head(code)
    got += stream
    assert [row for batch in got[1:] for row in rows_of(batch)] == [
        row for batch in Blender(lake).open(blend).read(got[0].end) for row in rows_of(batch)
    ]
    for task in code.table.scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(PackedTableError, match="restore the file"):
        list(blender.open(blend).read(0))


def test_a_table_that_is_dropped_ends_its_streams(lake: Catalog, code: PackedFixture) -> None:
    """With the error that a stream has which begins then."""
    blender = Blender(lake)
    stream = blender.open(blender.create(BlendSpec((SourceSpec(code.identifier, max_epochs=0),))).blend_id).read(0)
    next(stream)
    lake.drop_table(code.identifier)
    with pytest.raises(SourceChangedError, match="does not exist any more"):
        list(stream)


def test_an_outage_of_the_catalogue_ends_no_stream(
    lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was seen last is served, whatever the catalogue raises, and the thread goes on looking."""
    monkeypatch.setattr(table_watch, "LOOK_SECONDS", 0.01)
    blender = Blender(lake)
    reader = blender.open(blender.create(BlendSpec((SourceSpec(code.identifier),))).blend_id)
    load = table_watch.load_current

    def failing(*_: object) -> object:
        raise ZeroDivisionError("of the catalogue")

    monkeypatch.setattr(table_watch, "load_current", failing)
    until(lambda: "of the catalogue" in caplog.text)
    assert sum(batch.rows for batch in reader.read(0)) == 700
    monkeypatch.setattr(table_watch, "load_current", load)
    code.append(1, seed=9, increment=2)
    until(lambda: _is_seen(blender, code))


def test_nobody_looks_when_nobody_reads(lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends with the last reader, and starts with the next one."""
    monkeypatch.setattr(table_watch, "LOOK_SECONDS", 0.01)
    blender = Blender(lake)
    blend = blender.create(BlendSpec((SourceSpec(code.identifier),))).blend_id
    for _ in range(2):
        reader = blender.open(blend)
        assert blender._shared.watch._thread is not None
        del reader
        until(lambda: blender._shared.watch._thread is None)


def test_a_table_is_indexed_once_whoever_reads_it(
    lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 ranks that begin together one reads the manifests; of a table that grows only new ones are read."""
    read: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def counting(self: ManifestFile, *arguments: object, **named: object) -> object:
        read.append(self.manifest_path)
        return fetch(self, *arguments, **named)  # type: ignore[arg-type]

    blend = Blender(lake).create(BlendSpec((SourceSpec(code.identifier, live=True),))).blend_id
    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counting)
    blender = Blender(lake)
    threads = [threading.Thread(target=blender.open, args=(blend,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == len(set(read)) == 3
    before = len(read)
    stream = blender.open(blend).read(0, 710)
    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", fetch)
    code.append(10, seed=9, increment=2)
    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counting)
    assert sum(batch.rows for batch in stream) == 710
    assert len(read) == before + 1


@pytest.mark.nightly
def test_an_excision_reaches_clients_of_a_server(serve: Serve, lake: Catalog, code: PackedFixture) -> None:
    """Over gRPC: a stream that is held open gets no row with the document once the server has seen the excision."""
    server = serve()
    with connect(server.address) as client:
        rows = _read_over(client, code, lambda: None)
        ordinal = next(number for number, row in enumerate(code.rows) if len(row.segments) > 1)
        document = code.rows[ordinal].segments[0][0]

        def excise() -> None:
            code.excise(ordinal)
            threading.Event().wait(2 * table_watch.LOOK_SECONDS + 1)

        after = _read_over(client, code, excise)
    assert document in {doc_id for batch in rows for doc_id in batch.doc_ids}
    late = [batch for batch in after if batch.offset >= 59 * 700]
    assert late and document not in {doc_id for batch in late for doc_id in batch.doc_ids}


def _read_over(client: BlenderClient, code: PackedFixture, meanwhile: Callable[[], None]) -> list[RowBatch]:
    """Read 60 epochs, more than the network holds, after the first rows of which something happens."""
    blend = client.create_blend([SourceSpec(code.identifier, max_epochs=60)]).blend_id
    stream: Iterator[RowBatch] = client.read(blend, 0, 60 * 700, max_batch_rows=20)
    first = next(stream)
    meanwhile()
    return [first, *stream]
