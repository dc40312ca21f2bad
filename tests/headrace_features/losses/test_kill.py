"""A trainer that is killed loses only steps that it trains again; a server that is away for a while loses nothing."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blender_service.client import SourceSpec, connect
from blender_service.client.identity import Identity
from blender_service.server.server import start
from headrace_features.losses import tables
from headrace_features.losses.service import add_losses
from headrace_features.losses.tables import counting
from tests.blender_service.packed_tables import create_packed, open_lake

torch = pytest.importorskip("torch", reason="torch is in the extra torch")

from blender_service import torch_losses  # noqa: E402 (needs torch)
from blender_service.torch import DENSE, BlendDataset, LossWriter  # noqa: E402 (needs torch)
from tests.headrace_features.losses.losses_by_row import Segments, by_token, drawn  # noqa: E402 (needs torch)
from tests.headrace_features.losses.trainer import EVERY, ROWS, RUN  # noqa: E402 (needs torch)

STEPS = 14


def check(rows: list[dict[str, object]], wanted: Segments) -> None:
    """Rows are the wanted segments, each once."""
    found = {(row["offset"], row["segment"]): row for row in rows}
    assert len(found) == len(rows) and found.keys() == wanted.keys()
    for key, (document, tokens, total) in wanted.items():
        assert (found[key]["doc_id"], found[key]["tokens"]) == (document, tokens)
        assert found[key]["sum"] == pytest.approx(total, rel=1e-6)


def test_a_kill_loses_only_what_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With kill -9 at any step, once or twice: every sampled step is there, as the attempt trained it that counts."""
    monkeypatch.setattr(tables, "COMMIT_SECONDS", 0.05)
    lake = open_lake(tmp_path / "warehouse")
    create_packed(lake, "main.packed_code_16").append(STEPS * ROWS, seed=1)
    with start(lake, add_services=[add_losses]) as server:
        with connect(server.address) as client:
            client.create_blend([SourceSpec("main.packed_code_16")], name="mix")
        draw = random.Random(60)
        state, began = tmp_path / "state.json", list[int]()
        for attempt, last in enumerate((draw.randint(2, 6), draw.randint(7, 12), STEPS)):
            began.append(json.loads(state.read_text())["offset"] // ROWS if state.exists() else 0)
            command = [sys.executable, "-m", "tests.headrace_features.losses.trainer", server.address, str(state)]
            with subprocess.Popen([*command, str(STEPS), str(attempt)], stdout=subprocess.PIPE, text=True) as trainer:
                assert trainer.stdout is not None
                made = 0
                while made < last:
                    made = int(trainer.stdout.readline())
                if last < STEPS:
                    trainer.kill()
                assert trainer.wait(60) == (-signal.SIGKILL if last < STEPS else 0)
    wanted: Segments = {}
    with start(lake) as server:
        reader = BlendDataset(server.address, "mix", ROWS, tensors=(*DENSE, "segment_documents"))
        for step, batch in enumerate(reader):
            attempt = max(at for at, first in enumerate(began) if first <= step)
            if step % EVERY == 0:
                wanted |= by_token(batch, drawn(batch, attempt))
    check(counting(lake.load_table("main.losses").scan().to_arrow()).to_pylist(), wanted)


def test_a_server_that_is_away_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps wait in the queue while nobody answers, and are sent to the next server at the address."""
    monkeypatch.setattr(tables, "COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(torch_losses, "GATHER_SECONDS", 0.01)
    lake = open_lake(tmp_path / "warehouse")
    create_packed(lake, "main.packed_code_16").append(48, seed=1)
    wanted: Segments = {}
    server = start(lake, add_services=[add_losses])
    with connect(server.address) as client:
        client.create_blend([SourceSpec("main.packed_code_16")], name="mix")
    dataset = BlendDataset(
        server.address, "mix", 8, tensors=(*DENSE, "segment_documents"), identity=Identity(run=RUN), prefetch_batches=6
    )
    batches = list(dataset)
    with LossWriter(server.address, RUN, every=1) as writer:
        for number, batch in enumerate(batches):
            wanted |= by_token(batch, drawn(batch))
            writer.add(batch["offset"], drawn(batch), batch)
            if number == 1:
                assert writer.flush() == 0
                server.stop(grace_seconds=1)
        assert writer.flush(0.3) == len(batches) - 2
        server = start(lake, port=server.port, add_services=[add_losses])
        assert writer.flush() == 0
    server.stop(grace_seconds=1)
    check(counting(lake.load_table("main.losses").scan().to_arrow()).to_pylist(), wanted)
