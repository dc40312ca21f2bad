"""Another implementation of gRPC reads from the server what Python's client reads: grpc-go, plain and with TLS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from blender_service.server.server import start
from blender_service.server.settings import OperationConfig
from headrace.blender.v1 import blends_pb2, rows_pb2
from tests.blender_service.certificates import Authority
from tests.blender_service.packed_tables import PackedFixture

SOURCE = Path(__file__).with_name("go_client")
ROWS, BLENDS = "/headrace.blender.v1.RowService/", "/headrace.blender.v1.BlendService/"


class Answer(NamedTuple):
    """What a call gave.

    Attributes:
        messages: as bytes.
        code: name of the status, as Go writes it.
        message: of the status.
        header: metadata before the messages.
        trailer: metadata after them.
    """

    messages: list[bytes]
    code: str
    message: str
    header: dict[str, list[str]]
    trailer: dict[str, list[str]]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client, built from modules that are on this machine; skips where they or Go are not."""
    compiler = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if compiler is None:
        pytest.skip("no Go on this machine; install it to try grpc-go against the server")
    built = tmp_path_factory.mktemp("go") / "client"
    environment = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    command = [compiler, "build", "-p", "1", "-o", str(built), "."]
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        pytest.skip(f"grpc-go is not on this machine ({last}); run `go mod download` in {SOURCE}")
    return built


@pytest.fixture(params=["plain", "tls"])
def address(
    request: pytest.FixtureRequest, lake: Catalog, code: PackedFixture, tmp_path: Path
) -> Iterator[tuple[str, Path | None]]:
    """A server of a lake with a blend named `mixed`, and its authority, None without TLS."""
    Blender(lake).create(BlendSpec((SourceSpec(code.identifier),), name="mixed"))
    authority, operation = None, OperationConfig()
    if request.param == "tls":
        authority = Authority(tmp_path)
        pair = authority.sign("server")
        operation = OperationConfig(certificate=pair.certificate, key=pair.key)
    with start(lake, operation=operation) as running:
        yield running.address, authority.path if authority is not None else None


def answer_of(program: Path, address: tuple[str, Path | None], method: str, request: Any, kind: str = "one") -> Answer:
    """Make a call with Go's client."""
    where, authority = address
    content = request if isinstance(request, bytes) else request.SerializeToString()
    command = [str(program), where, str(authority or ""), method, kind]
    done = subprocess.run(command, input=content, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    left, messages = done.stdout, []
    while (size := int.from_bytes(left[:4], "big")) != 0xFFFFFFFF:
        messages.append(left[4 : 4 + size])
        left = left[4 + size :]
    end = json.loads(left[4:])
    return Answer(messages, end["code"], end["message"], end["header"] or {}, end["trailer"] or {})


def python_messages(address: tuple[str, Path | None], method: str, request: Any) -> list[bytes]:
    """Make the same call with Python's client."""
    where, authority = address
    credentials = grpc.ssl_channel_credentials(authority.read_bytes()) if authority is not None else None
    with grpc.secure_channel(where, credentials) if credentials else grpc.insecure_channel(where) as channel:
        stream: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method)
        return list(stream(request.SerializeToString(), timeout=20))


def test_go_reads_what_python_reads(program: Path, address: tuple[str, Path | None]) -> None:
    """Rows of a blend, in batches of any size, byte for byte; and the definition of the blend."""
    for batch_rows in (0, 7):
        request = rows_pb2.ReadBlendRequest(blend="mixed", offset=3, rows=600, max_batch_rows=batch_rows)
        answer = answer_of(program, address, f"{ROWS}ReadBlend", request)
        assert answer.code == "OK"
        assert answer.messages == python_messages(address, f"{ROWS}ReadBlend", request)
        assert sum(map(len, answer.messages)) > 600 * 16 * 2
    blend = blends_pb2.GetBlendRequest(blend="mixed")
    answer = answer_of(program, address, f"{BLENDS}GetBlend", blend)
    assert answer.messages == python_messages(address, f"{BLENDS}GetBlend", blend)


def test_go_asks_for_health_and_reflection(program: Path, address: tuple[str, Path | None]) -> None:
    """Services of gRPC's own, a call with many requests among them."""
    health = health_pb2.HealthCheckRequest(service="headrace.blender.v1.RowService")
    answer = answer_of(program, address, "/grpc.health.v1.Health/Check", health)
    assert health_pb2.HealthCheckResponse.FromString(answer.messages[0]).status == 1
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    for version in ("v1", "v1alpha"):
        method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        answer = answer_of(program, address, method, request, "stream")
        listed = reflection_pb2.ServerReflectionResponse.FromString(answer.messages[0]).list_services_response
        assert "headrace.blender.v1.RowService" in [service.name for service in listed.service]
        assert answer.code == "OK"


def test_go_hears_why_a_call_fails(program: Path, address: tuple[str, Path | None]) -> None:
    """Code, message and trailers of an error, before any message; a method that is not there."""
    answer = answer_of(program, address, f"{ROWS}ReadBlend", rows_pb2.ReadBlendRequest(blend="grüße 水"))
    assert (answer.code, answer.messages) == ("NotFound", [])
    assert "grüße 水" in answer.message
    assert "grpc-status-details-bin" in answer.trailer
    assert answer_of(program, address, f"{ROWS}None", b"").code == "Unimplemented"
