"""Limits, stopping, health, audit, metrics and the register of runs, over a real socket."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from pyiceberg.catalog import Catalog

from blender_service.blend.store import open_store
from blender_service.client.channel import open_channel
from blender_service.client.identity import Identity
from blender_service.exceptions import RunNotFoundError
from blender_service.server.audit_log import AuditLog
from blender_service.server.call_context import RpcCall
from blender_service.server.interceptor import MOST_LASTING_CALLS
from blender_service.server.run_register import RunRegister
from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from dagster_project.cli.run.runs import runs
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2, rows_pb2_grpc
from tests.blender_service.packed_tables import WINDOW_TOKENS, PackedFixture
from tests.tiers import sampled
from tests.waiting import until

Serve = Callable[..., RunningServer]
DASHBOARD = Path(__file__).parents[3] / "setup" / "grafana" / "blender.json"
TOKEN = "the-token-of-the-trainer"


def connect(server: RunningServer, **identity: Any) -> tuple[Any, Any]:
    """Give the stubs of both services."""
    channel = open_channel(server.address, Identity(**identity), (), {})
    return blends_pb2_grpc.BlendServiceStub(channel), rows_pb2_grpc.RowServiceStub(channel)


def create(blends: Any, table: PackedFixture, name: str = "endless", epochs: int = 0, live: bool = False) -> str:
    """Create a blend of one table."""
    source = blends_pb2.SourceSpec(table=table.identifier, name="code", max_epochs=None if live else epochs, live=live)
    return str(blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=[source], name=name)).id)


def test_streams_are_limited_and_a_stream_that_ends_makes_room(serve: Serve, prose: PackedFixture) -> None:
    """One more stream than allowed is RESOURCE_EXHAUSTED with the numbers; short calls still go through."""
    blends, rows = connect(serve(operation=OperationConfig(max_streams=2, max_streams_per_principal=3)))
    create(blends, prose)
    request = rows_pb2.ReadBlendRequest(blend="endless", max_batch_rows=1)
    streams = [rows.ReadBlend(request) for _ in range(2)]
    for stream in streams:
        next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        next(rows.ReadBlend(request))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "has 2 streams, 2 are allowed" in str(caught.value.details())
    assert blends.GetBlend(blends_pb2.GetBlendRequest(blend="endless")).id
    streams[0].cancel()

    def another() -> bool:
        try:
            return bool(next(rows.ReadBlend(request)).rows)
        except grpc.RpcError:
            return False

    assert until(another)


def test_a_request_longer_than_allowed_is_refused(serve: Serve, prose: PackedFixture) -> None:
    """It is RESOURCE_EXHAUSTED before it is read, and the next one is answered."""
    blends, _ = connect(serve(operation=OperationConfig(max_request_bytes=2048)))
    with pytest.raises(grpc.RpcError) as caught:
        blends.GetBlend(blends_pb2.GetBlendRequest(blend="x" * 4096))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert create(blends, prose)


def health_of(address: str, service: str = "") -> int:
    """Ask for the health of a server."""
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=5).status)


def answer_of(server: RunningServer, path: str) -> int:
    """Give the HTTP status of a path of the metrics' port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_health_and_reflection_need_no_token(tmp_path: Path, serve: Serve, prose: PackedFixture) -> None:
    """A probe has no token; what reflection tells is in the protos anyway."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"trainer {TOKEN}")
    address = serve(operation=OperationConfig(tokens=tokens)).address
    for service in ("", "headrace.blender.v1.RowService"):
        assert health_of(address, service) == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(address) as channel:
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
    assert {"headrace.blender.v1.BlendService", "headrace.blender.v1.RowService"} <= set(services)


def test_watches_of_health_leave_room_for_others(serve: Serve, prose: PackedFixture) -> None:
    """Nobody need be known to watch, so only a few may: one more ends the oldest; calls go on meanwhile."""
    server = serve(operation=OperationConfig(max_streams=1))
    with grpc.insecure_channel(server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch
        unknown = [answer.status for answer in watch(health_pb2.HealthCheckRequest(service="nobody's"))]
        assert unknown == [health_pb2.HealthCheckResponse.SERVICE_UNKNOWN], "and nothing is kept of it"
        watches = []
        for _ in range(MOST_LASTING_CALLS + 1):  # one after the other, so that the first is the oldest
            watches.append(watch(health_pb2.HealthCheckRequest(), timeout=60))
            next(watches[-1])
        with pytest.raises(grpc.RpcError) as caught:
            next(watches[0])
        assert caught.value.code() == grpc.StatusCode.CANCELLED
        assert create(connect(server)[0], prose)
        assert health_of(server.address) == health_pb2.HealthCheckResponse.SERVING
        assert watches[-1].is_active()


def test_stopping_lets_streams_go_on_and_then_tells_them_their_row(serve: Serve, prose: PackedFixture) -> None:
    """While it drains, a stream gets rows; then it ends with UNAVAILABLE and the row after the last one it got.

    Health and `/ready`, which the checks of containers ask, say from the beginning that it takes no more streams.
    """
    server = serve(operation=OperationConfig(metrics_port=0))
    assert answer_of(server, "/ready") == 200
    blends, rows = connect(server)
    create(blends, prose)
    stream = rows.ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", max_batch_rows=1))
    next(stream)
    with grpc.insecure_channel(server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        stopping = threading.Thread(target=server.stop, kwargs={"grace_seconds": 5, "drain_seconds": 0.6})
        began = time.monotonic()
        stopping.start()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (answer_of(server, "/ready"), answer_of(server, "/metrics")) == (503, 200)
        assert next(stream).rows == 1
        last = 0
        with pytest.raises(grpc.RpcError) as caught:
            for batch in stream:
                last = batch.offset + batch.rows
        assert time.monotonic() - began > 0.5
    stopping.join()
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert f"go on at row {last}" in str(caught.value.details())


def test_every_call_leaves_its_trace(tmp_path: Path, serve: Serve, code: PackedFixture) -> None:
    """The audit log names caller, blend, rows, bytes and status of each call, however it ended, and no token."""
    tokens, path = tmp_path / "tokens", tmp_path / "audit.jsonl"
    tokens.write_text(f"trainer {TOKEN}")
    server = serve(operation=OperationConfig(tokens=tokens, audit=path))
    blends, rows = connect(server, token=TOKEN, run="llm-1")
    blend_id = create(blends, code)
    batches = list(rows.ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", offset=5, rows=30)))
    stream = rows.ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", max_batch_rows=1))
    next(stream)
    stream.cancel()

    def lines(count: int = 6) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return found if len(found) == count else []

    until(lambda: lines(5))
    with pytest.raises(grpc.RpcError):
        connect(server)[0].ListBlends(blends_pb2.ListBlendsRequest())
    created, *reads, refused = until(lines)
    assert (created["call"], created["principal"], created["blend"]) == ("CreateBlend", "trainer", blend_id)
    facts = ("event", "principal", "asked", "blend", "run", "offset", "next_offset", "rows")
    assert [reads[1][key] for key in facts] == ["ended", "trainer", "endless", blend_id, "llm-1", 5, 35, 30]
    padding = reads[1]["bytes"] - sum(batch.ByteSize() for batch in batches)
    assert 0 <= padding <= 7 * len(batches), "ids begin at a multiple of 8 bytes"
    assert (reads[0]["event"], reads[1]["status"], reads[3]["status"]) == ("began", "OK", "CANCELLED")
    assert reads[3]["next_offset"] >= 1
    assert (refused["principal"], refused["status"]) == ("", "UNAUTHENTICATED")
    assert TOKEN not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    path.rename(tmp_path / "audit.jsonl.1")
    connect(server, token=TOKEN)[0].ListBlends(blends_pb2.ListBlendsRequest())
    assert until(lambda: path.exists() and lines(1))[0]["call"] == "ListBlends"
    proof = blends_pb2.ProveContinuationRequest(from_blend="endless", to_blend=blend_id[:12], offset=3)
    connect(server, token=TOKEN)[0].ProveContinuation(proof)
    proven = until(lambda: lines(2))[1]
    assert [proven[key] for key in ("call", "asked", "blend")] == ["ProveContinuation", blend_id[:12], blend_id]


def scrape(server: RunningServer) -> dict[str, float]:
    """Read the metrics over HTTP: series to value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def test_half_a_line_of_the_audit_log_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up takes a part of a line: the loss is counted, and the next line is whole."""
    file, call = tmp_path / "audit", RpcCall("GetBlend", principal="trainer", status="OK")
    log, write = AuditLog(file), os.write
    for taken in (1000, 20, 0, 1000):
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda fd, line, taken=taken: write(fd, line[:taken]))
            log.ended(call)
    log.close()
    lines = file.read_bytes().splitlines()
    assert [line.endswith(b"}") for line in lines] == [True, False, True]
    assert json.loads(lines[2])["principal"] == "trainer"
    assert log.failures == 2


def test_a_rotation_that_fails_closes_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the old file stays the log's, so that no connection is closed in its place; lines come back."""
    file, call = tmp_path / "audit", RpcCall("GetBlend", principal="trainer", status="OK")
    log = AuditLog(file)
    file.rename(tmp_path / "audit.1")
    with monkeypatch.context() as patched:
        patched.setattr(log, "_open", lambda: os.open(tmp_path / "no" / "folder", os.O_RDWR))
        log.ended(call)
        other = os.open(tmp_path, os.O_RDONLY)  # takes the lowest number that is free
        log.ended(call)
    os.fstat(other)
    log.ended(call)
    log.close()
    os.close(other)
    assert log.failures == 2 and len(file.read_bytes().splitlines()) == 1


def test_metrics_count_what_was_read(serve: Serve, code: PackedFixture) -> None:
    """Rows, tokens and bytes per source and blend are those of the stream; streams, calls and the cache are counted."""
    server = serve(operation=OperationConfig(metrics_port=0))
    blends, rows = connect(server)
    blend_id = create(blends, code)
    batches = list(rows.ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", rows=300, max_batch_rows=100)))
    stream = rows.ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", max_batch_rows=1))
    next(stream)
    call = 'headrace_blender_calls_total{call="ReadBlend",status="OK"}'
    found = until(lambda: scrape(server) if call in scrape(server) else None)
    labels = f'{{blend="{blend_id[:12]}",source="code"}}'
    assert found[f"headrace_blender_rows_total{labels}"] >= 300
    assert found["headrace_blender_streams"] == 1
    stream.cancel()
    found = until(lambda: scrape(server) if scrape(server)["headrace_blender_streams"] == 0 else None)
    counted = found[f"headrace_blender_rows_total{labels}"]
    assert found[f"headrace_blender_tokens_total{labels}"] == counted * WINDOW_TOKENS
    assert found[f"headrace_blender_token_bytes_total{labels}"] == counted * WINDOW_TOKENS * 2
    assert found['headrace_blender_message_bytes_total{call="ReadBlend"}'] > sum(batch.ByteSize() for batch in batches)
    assert found["headrace_blender_cache_misses_total"] > 0
    assert found["headrace_blender_cache_hits_total"] > 0
    assert found["headrace_blender_first_batch_seconds_count"] == 2
    assert found['headrace_blender_call_seconds_count{call="CreateBlend"}'] == 1


def test_waiting_for_live_rows_is_told_apart(serve: Serve, prose: PackedFixture) -> None:
    """Time spent waiting for a live table is its own number and no part of the time to make a batch."""
    server = serve(operation=OperationConfig(metrics_port=0))
    blends, rows = connect(server)
    blend_id = create(blends, prose, live=True)
    request = rows_pb2.ReadBlendRequest(blend="endless", offset=90, rows=20, wait_seconds=0.5)
    with pytest.raises(grpc.RpcError) as caught:
        list(rows.ReadBlend(request))
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    found = until(lambda: scrape(server))
    assert found[f'headrace_blender_live_wait_seconds_total{{blend="{blend_id[:12]}"}}'] > 0
    assert found["headrace_blender_batch_seconds_count"] == 1


def test_the_dashboard_names_only_metrics_that_exist(serve: Serve, code: PackedFixture) -> None:
    """Every expression of the Grafana file speaks of a metric, and every metric is drawn somewhere."""
    server = serve(operation=OperationConfig(metrics_port=0))
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=5) as answer:
        types = re.findall(r"^# TYPE (\S+) (\S+)$", answer.read().decode(), re.MULTILINE)
    endings = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    exist = {name + end for name, kind in types for end in endings[kind] if not name.endswith("_created")}
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    drawn = {name for text in expressions for name in re.findall(r"headrace_\w+", text)}
    assert drawn
    assert drawn <= exist
    families = {name for name, _ in types if not name.endswith("_created")}
    assert {name for name in families if not any(used.startswith(name) for used in drawn)} == set()


def test_a_run_that_names_itself_can_be_asked_for(
    tmp_path: Path, serve: Serve, lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blend, rows, ranks, code version and notes of each of its reads are kept; rank 0 speaks for all ranks."""
    server = serve()
    blends, rows = connect(server, run="llm-1", run_notes="first\ntry", code_version="abc123")
    blend_id = create(blends, code)
    list(rows.ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", offset=10, rows=64)))
    for rank in (0, 1):
        part = rows_pb2.Slice(step_rows=8, rank=rank, world_size=2)
        list(rows.ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", offset=74, rows=24, slice=part)))
    list(connect(server)[1].ReadBlend(rows_pb2.ReadBlendRequest(blend="endless", rows=5)))
    register = RunRegister(open_store(lake).objects)
    until(lambda: register.names() and [r.status for r in register.reads("llm-1")] == ["OK", "OK"])
    assert register.names() == ["llm-1"]
    one, two = register.reads("llm-1")
    assert (one.blend_id, one.first, one.end, one.world_size, one.principal) == (blend_id, 10, 74, 1, "anonymous")
    assert (two.first, two.end, two.world_size, two.step_rows) == (74, 98, 2, 8)
    assert (two.code_version, two.notes) == ("abc123", "first try")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    printed = CliRunner().invoke(runs, ["--training", "llm-1", "--json"], catch_exceptions=False).output
    assert json.loads(printed) == [one._asdict(), two._asdict()]
    assert "abc123" in CliRunner().invoke(runs, ["--training"], catch_exceptions=False).output
    with pytest.raises(RunNotFoundError):
        CliRunner().invoke(runs, ["--training", "other"], catch_exceptions=False)


@sampled()
@pytest.mark.parametrize("name", ["../names/x", "a/b", "", "x" * 200, ".hidden", "names"])
def test_a_hostile_name_of_a_run_is_refused(serve: Serve, prose: PackedFixture, name: str) -> None:
    """What could leave its folder is INVALID_ARGUMENT with the form, before anything is read."""
    blends, _ = connect(server := serve())
    create(blends, prose)
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as caught:
        request = rows_pb2.ReadBlendRequest(blend="endless", rows=1)
        list(rows_pb2_grpc.RowServiceStub(channel).ReadBlend(request, metadata=(("headrace-run", name),)))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "metadata headrace-run" in str(caught.value.details())
