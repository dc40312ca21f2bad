"""Several processes at one port: who asks is answered by any of them, and SIGTERM ends them all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2, rows_pb2_grpc
from tests.blender_service.packed_tables import PackedFixture

ROOT = Path(__file__).parents[3]


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `headrace serve` in a directory."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYICEBERG_", "HEADRACE_"))}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "dagster_project.cli", "serve", *arguments]
    return subprocess.Popen(command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True)


def lines_with(process: subprocess.Popen[str], text: str, count: int) -> Iterator[str]:
    """Wait for lines of a process's log."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            yield line
            count -= 1
            if not count:
                return
    raise AssertionError(f"it ended after:\n{seen}")


def children(process: subprocess.Popen[str]) -> list[int]:
    """Give the processes that serve."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [pid for pid in map(int, found) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


@pytest.mark.nightly
def test_two_processes_serve_one_port_and_stop_together(tmp_path: Path, lake: Catalog, code: PackedFixture) -> None:
    """Connections reach both, the bytes are the same from each, and SIGTERM ends parent and children cleanly."""
    process = start(tmp_path, "--port", "0", "--processes", "2", "--metrics-port", "0", "--drain-seconds", "0")
    lines = list(lines_with(process, "serving at", 2))
    addresses = {line.split()[-1] for line in lines}
    assert len(addresses) == 1
    address = addresses.pop()
    pids = children(process)
    assert len(pids) == 2
    streams = []
    for number in range(12):  # one process alone takes all of them once in 2,048 times
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.channel_id", number))
        with grpc.insecure_channel(address, options=options) as channel:
            source = blends_pb2.SourceSpec(table=code.identifier)
            request = blends_pb2.CreateBlendRequest(sources=[source])
            blend = blends_pb2_grpc.BlendServiceStub(channel).CreateBlend(request)
            call = rows_pb2_grpc.RowServiceStub(channel).ReadBlend(rows_pb2.ReadBlendRequest(blend=blend.id, rows=20))
            streams.append([message.SerializeToString(deterministic=True) for message in call])
    assert all(stream == streams[0] for stream in streams)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    log = process.stderr.read()
    assert process.wait(timeout=600) == 0
    process.stderr.close()
    assert log.count("stopped") == 2
    assert len(re.findall("read [0-9a-f]{64} from 0", log)) == 12
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("rollouts", [False, True])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_server_ends_within_its_drain_and_fifteen_seconds(
    tmp_path: Path, lake: Catalog, code: PackedFixture, processes: int, rollouts: bool
) -> None:
    """As docs/feed/operation.md says, though a reader takes nothing, and with the service that takes rollouts."""
    more = []
    if rollouts:
        settings = f'[[table]]\ntable = "rl.rollouts"\nlike = "{code.identifier}"\nmax_lag = 2\nrows_per_step = 10\n'
        (tmp_path / "rollouts.toml").write_text(settings)
        more = ["--rollouts", "rollouts.toml"]
    process = start(tmp_path, "--port", "0", "--processes", str(processes), "--drain-seconds", "1", *more)
    address = next(lines_with(process, "serving at", 1)).split()[-1]
    calls = []
    for number in range(4 * processes):
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.channel_id", number))
        channel = grpc.insecure_channel(address, options=options)
        source = blends_pb2.SourceSpec(table=code.identifier, max_epochs=0)
        blend = blends_pb2_grpc.BlendServiceStub(channel).CreateBlend(
            blends_pb2.CreateBlendRequest(sources=[source]), wait_for_ready=True
        )
        calls.append(rows_pb2_grpc.RowServiceStub(channel).ReadBlend(rows_pb2.ReadBlendRequest(blend=blend.id)))
        next(iter(calls[-1]))  # and no more of it
    time.sleep(2)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    with process:
        process.wait(timeout=120)
        seconds = time.monotonic() - began
        assert process.stderr is not None
        log = process.stderr.read()
    assert process.returncode == 0 and log.count("stopped") == processes, log
    assert seconds < 1 + 15


@pytest.mark.nightly
def test_a_process_that_dies_at_its_start_ends_them_all(tmp_path: Path) -> None:
    """Without a lake there is one clear line, exit status 2, and no loop of restarts."""
    process = start(tmp_path, "--port", "0", "--processes", "2")
    _, log = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "catalog.db does not exist" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-streams", "0"), "--max-streams is 0"),
        (("--certificate", "x.pem"), "certificate and key belong together"),
        (("--tokens", "none.txt"), "none.txt: No such file or directory; restore the file"),
        (("--port", "70000"), "70000 is not in the range"),
    ],
)
def test_a_wrong_flag_is_one_line(
    tmp_path: Path,
    lake: Catalog,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What cannot be is said before anything is served, with exit status 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("blender_service.__main__.set_up_logging", lambda: None)
    port = () if "--port" in arguments else ("--port", "0")
    assert run_command(["serve", *port, *arguments]) == 2
    log = capfd.readouterr().err
    assert message in log
    assert "Traceback" not in log


@pytest.mark.nightly
def test_a_wrong_flag_ends_the_program(tmp_path: Path, lake: Catalog) -> None:
    """The same as a process: one line, status 2."""
    process = start(tmp_path, "--port", "0", "--tokens", "none.txt")
    _, log = process.communicate(timeout=600)
    assert process.returncode == 2, log
    assert "none.txt: No such file or directory" in log and "Traceback" not in log
