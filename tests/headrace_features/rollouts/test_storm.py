"""Ten thousand rollouts while workers and server are killed, also between commit and acknowledgement."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.tables.ordinals import index_snapshot
from tests.blender_service.packed_tables import create_packed, open_lake
from tests.headrace_features.rollouts.storm_worker import GROUP_SIZE, made

GROUPS, WORKERS = 1250, 5
SETTINGS = """
[[table]]
table = "rl.rollouts"
like = "main.packed_code_16"
max_lag = 4
rows_per_step = 1000000
commit_seconds = 0.2
"""


def _module(name: str, *arguments: object) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", f"tests.headrace_features.rollouts.{name}", *map(str, arguments)]
    return subprocess.Popen(words)


@pytest.mark.nightly
def test_ten_thousand_rollouts_survive_kills(tmp_path: Path) -> None:
    """None is lost and none comes twice; groups are whole, and every row is what its worker made."""
    lake = open_lake(tmp_path / "warehouse")
    create_packed(lake, "main.packed_code_16").append(4, seed=1)
    settings = tmp_path / "rollouts.toml"
    settings.write_text(SETTINGS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    chance = random.Random(11)
    kills = {"server": 0, "worker": 0}
    share = GROUPS // WORKERS
    places = [(f"127.0.0.1:{port}", n * share, (n + 1) * share, tmp_path / f"notes{n}") for n in range(WORKERS)]
    server = _module("storm_server", tmp_path / "warehouse", settings, port, 0)
    workers = {number: _module("storm_worker", *place) for number, place in enumerate(places)}
    while workers:
        time.sleep(0.1)
        if server.poll() is not None:
            assert server.returncode == -9
            kills["server"] += 1
            server = _module("storm_server", tmp_path / "warehouse", settings, port, kills["server"])
        for number, worker in list(workers.items()):
            if worker.poll() == 0:
                del workers[number]
            elif worker.poll() is not None:
                assert worker.returncode == -9
                workers[number] = _module("storm_worker", *places[number])
            elif chance.random() < 0.002:
                kills["worker"] += 1
                worker.kill()
    while len(rows := lake.load_table("rl.rollouts").scan().to_arrow()) < GROUPS * GROUP_SIZE:
        time.sleep(0.5)
        if server.poll() is not None:
            kills["server"] += 1
            server = _module("storm_server", tmp_path / "warehouse", settings, port, kills["server"])
    server.kill()
    server.wait()
    assert kills["server"] >= 5 and kills["worker"] >= 5, kills
    found = rows.sort_by("ordinal").to_pylist()
    assert [row["ordinal"] for row in found] == list(range(GROUPS * GROUP_SIZE))
    for at in range(0, len(found), GROUP_SIZE):
        group = found[at : at + GROUP_SIZE]
        assert len({row["group"] for row in group}) == 1
        assert [row["member"] for row in group] == list(range(GROUP_SIZE))
    assert {row["group"] for row in found} == {f"g{group}" for group in range(GROUPS)}
    for row in found:
        wanted = made(int(row["group"][1:]), row["member"])
        assert row["input_ids"][: row["token_count"]] == list(wanted.input_ids)  # type: ignore[arg-type]
    table = lake.load_table("rl.rollouts")
    head = table.current_snapshot()
    assert head is not None
    assert index_snapshot(table, "rl.rollouts", head)[-1].end == len(found)
