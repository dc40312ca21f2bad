"""A lake with two packed tables, and servers of it on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from blender_service.client import BlenderClient
from blender_service.server.server import RunningServer, start
from tests.blender_service.packed_tables import PackedFixture, create_packed, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """An empty embedded lake."""
    return open_lake(tmp_path / "warehouse")


@pytest.fixture
def code(lake: Catalog) -> PackedFixture:
    """A packed table of 700 rows: three files in two increments, small row groups."""
    table = create_packed(lake, "main.packed_code_16")
    return table.append_files((300, 1, 0, 64), (150, 2, 0, 1000), (250, 3, 1, 17))


@pytest.fixture
def prose(lake: Catalog) -> PackedFixture:
    """A packed table of 100 rows in one file."""
    return create_packed(lake, "main.packed_prose_16").append(100, seed=4)


@pytest.fixture
def serve(lake: Catalog) -> Iterator[Callable[..., RunningServer]]:
    """Start servers of the lake on loopback; they stop with the test."""
    running: list[RunningServer] = []

    def begin(port: int = 0, **options: Any) -> RunningServer:
        running.append(start(lake, port=port, **options))
        return running[-1]

    yield begin
    for server in running:
        server.stop(grace_seconds=1)


@pytest.fixture
def client(serve: Callable[..., RunningServer]) -> Iterator[BlenderClient]:
    """A client of a server of the lake."""
    with BlenderClient(serve().address, retry_seconds=5) as connected:
        yield connected
