"""Thousands of streams fit into half a gigabyte beside the cache, and opening them costs little."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.client import connect
from blender_service.server.blender import Blender
from tests.blender_service.long_histories import lengthen_history
from tests.blender_service.packed_tables import create_packed, open_lake
from tests.blender_service.test_streaming import MIB, held_bytes

ROWS, TOKENS = 4096, 2048
PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "blender_servers.py"


@pytest.mark.nightly
def test_2048_streams_hold_at_most_512_mib(tmp_path: Path) -> None:
    """Each over a connection of its own, some messages read, then left waiting; and all of them get in."""
    warehouse = tmp_path / "warehouse"
    lake = open_lake(warehouse)
    table = create_packed(lake, "main.packed_code_2048", window_tokens=str(TOKENS))
    ids = np.random.default_rng(0).integers(2, 300, ROWS * TOKENS, dtype=np.int32)
    parts = [
        [{"doc_id": f"{n:032x}", "document_start": 0, "token_count": TOKENS, "window_start": 0}] for n in range(ROWS)
    ]
    facts = {"increment": np.zeros(ROWS, np.int32), "token_count": np.full(ROWS, TOKENS, np.int32)}
    lists = pa.ListArray.from_arrays(np.arange(0, ids.size + 1, TOKENS, dtype=np.int32), ids)
    rows = pa.table({"ordinal": np.arange(ROWS), **facts, "input_ids": lists, "segments": parts})
    table.table.append(rows.cast(table.table.schema().as_arrow()))
    blend = Blender(lake).create(BlendSpec((SourceSpec(table.identifier, max_epochs=0),))).blend_id
    begun = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, PROGRAMS, "blender", warehouse], **begun) as server:  # type: ignore[call-overload]
        address = f"127.0.0.1:{int(server.stdout.readline())}"
        held = []
        for streams in ("1", "2048"):
            command = [sys.executable, PROGRAMS, "readers", address, blend, streams, "3"]
            with subprocess.Popen(command, **begun) as readers:  # type: ignore[call-overload]
                assert readers.stdout.readline().strip() == streams
                held.append(held_bytes(server.pid))
                readers.stdin.close()
        server.stdin.close()
    assert held[1] - held[0] <= 512 * MIB


@pytest.mark.nightly
def test_1024_opens_cost_5_seconds_of_a_core(tmp_path: Path) -> None:
    """Of a table with 10,000 snapshots, over the wire, with the rows of a message each; 32 at once."""
    lake = open_lake(tmp_path / "warehouse")
    assert isinstance(lake, SqlCatalog)
    table = create_packed(lake, "main.packed_code_16").append(500, seed=1)
    lengthen_history(lake, table.identifier, 10_000)
    blend = Blender(lake).create(BlendSpec((SourceSpec(table.identifier, max_epochs=0),))).blend_id
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, PROGRAMS, "blender", tmp_path / "warehouse"], **pipes) as server:  # type: ignore[call-overload]
        with connect(f"127.0.0.1:{int(server.stdout.readline())}") as client, ThreadPoolExecutor(32) as threads:

            def read(number: int) -> int:
                return sum(batch.rows for batch in client.read(blend, 100 * number, 8))

            read(0)
            before = psutil.Process(server.pid).cpu_times()
            assert set(threads.map(read, range(1024))) == {8}
            after = psutil.Process(server.pid).cpu_times()
        server.stdin.close()
    assert after.user + after.system - before.user - before.system <= 5
