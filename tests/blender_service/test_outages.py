"""Readers outlive a restart of the catalogue's database and of the store."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

from blender_service.blend.requests import SourceSpec
from blender_service.blend.store import LocalStore
from blender_service.catalogue import is_outage
from blender_service.client import BlenderClient, connect
from blender_service.exceptions import ServerExhaustedError, ServerUnavailableError
from blender_service.server.server import RunningServer, start
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.blender_service.s3_stand_in import S3StandIn


def rows_read(
    server: RunningServer, blend_id: str, mend: Callable[[], None], log: pytest.LogCaptureFixture
) -> list[int]:
    """Read a blend that cannot be read now; mend what is broken once a client that has patience has met it."""
    with (
        BlenderClient(server.address, retry_seconds=0) as client,
        pytest.raises(ServerUnavailableError, match="its lake does not answer"),
    ):
        list(client.read(blend_id, 0))
    log.clear()
    offsets: list[int] = []

    def read() -> None:
        with BlenderClient(server.address, retry_seconds=60) as client:
            for batch in client.read(blend_id, 0):
                offsets.extend(range(batch.offset, batch.end))

    reader = threading.Thread(target=read)
    reader.start()
    while "in ReadBlend" not in log.text and reader.is_alive():
        time.sleep(0.01)
    mend()
    reader.join()
    return offsets


def test_a_read_outlives_a_restart_of_the_catalogue(
    lake: Catalog,
    prose: PackedFixture,
    serve: Callable[..., RunningServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While the database is away a read is UNAVAILABLE, which its client waits out; then it gets every row."""
    server = serve()
    with BlenderClient(server.address) as client:
        blend_id = client.create_blend([SourceSpec(prose.identifier)]).blend_id
    database, away = tmp_path / "warehouse" / "catalog.db", tmp_path / "away.db"
    database.rename(away)
    lake.engine.dispose()  # type: ignore[attr-defined]

    def mend() -> None:
        away.replace(database)
        lake.engine.dispose()  # type: ignore[attr-defined]

    assert rows_read(server, blend_id, mend, caplog) == list(range(100))


def test_a_read_outlives_a_restart_of_the_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While S3 is away neither a config nor a data file is taken for lost or damaged."""
    with S3StandIn() as store:
        lake = store.catalogue(tmp_path)
        prose = create_packed(lake, "main.packed_prose_16").append(100, seed=4)
        server = start(lake)
        try:
            with BlenderClient(server.address) as client:
                blend_id = client.create_blend([SourceSpec(prose.identifier)]).blend_id
            store.stop()
            assert rows_read(server, blend_id, store.start, caplog) == list(range(100))
        finally:
            server.stop(grace_seconds=1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("select", {}, Exception("server closed the connection unexpectedly")), True),
        (DBAPIError("select", {}, Exception("connection already closed"), connection_invalidated=True), True),
        (DatabaseError("select", {}, Exception("file is not a database")), False),
        (ConnectionResetError(), True),
        (OSError("When reading information for key: AWS Error NETWORK_CONNECTION"), True),
        (FileNotFoundError("00001.metadata.json"), False),
        (PermissionError(errno.EACCES, "catalog.db"), False),
        (PermissionError("Cannot open file, access denied: s3://lake/00001.metadata.json"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (OSError("When reading information for key: AWS Error ACCESS_DENIED during HeadObject"), True),
        (OSError("When listing objects: AWS Error NO_SUCH_BUCKET during ListObjectsV2"), False),
        (KeyError("blend"), False),
    ],
)
def test_only_what_may_be_gone_at_the_next_try_is_an_outage(error: Exception, expected: bool) -> None:
    """What stays wrong however often it is tried, a lost file or a fault of the server, is not retried for a minute."""
    assert is_outage(error) is expected


def test_a_full_disk_at_a_creation_is_no_fault_of_the_server(
    serve: Callable[..., RunningServer], code: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is RESOURCE_EXHAUSTED in one line, which clients try again, and the blend is made once there is room."""
    put, failures = LocalStore.put_if_absent, [1]

    def full(self: LocalStore, path: str, content: bytes) -> bool:
        if failures[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return put(self, path, content)

    monkeypatch.setattr(LocalStore, "put_if_absent", full)
    with connect(serve().address, retry_seconds=0.2) as client:
        with pytest.raises(ServerExhaustedError, match="No space left on device; free some"):
            client.create_blend([SourceSpec(code.identifier)])
        failures[0] = 0
        assert client.create_blend([SourceSpec(code.identifier)]).end == 700
