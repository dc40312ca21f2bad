"""Malformed requests on both services: each gets a status of its own, none stops the server or tells what is hidden.

A few hundred are made by default, a thousand at night, and as many as the environment variable HEADRACE_FUZZ_REQUESTS
says: the release is tried with 10000.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pyiceberg.catalog import Catalog

from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2, rows_pb2_grpc
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.tiers import tries

REQUESTS = int(os.environ.get("HEADRACE_FUZZ_REQUESTS", tries(1000, 300)))
TRAINER, OWNER = "the-token-of-the-trainer", "the-token-of-the-owner"
METHODS: dict[str, Callable[[], Message]] = {
    "/headrace.blender.v1.BlendService/CreateBlend": blends_pb2.CreateBlendRequest,
    "/headrace.blender.v1.BlendService/UpdateBlend": blends_pb2.UpdateBlendRequest,
    "/headrace.blender.v1.BlendService/GetBlend": blends_pb2.GetBlendRequest,
    "/headrace.blender.v1.BlendService/ListBlends": blends_pb2.ListBlendsRequest,
    "/headrace.blender.v1.BlendService/DescribeBlend": blends_pb2.DescribeBlendRequest,
    "/headrace.blender.v1.BlendService/ProveContinuation": blends_pb2.ProveContinuationRequest,
    "/headrace.blender.v1.RowService/ReadBlend": rows_pb2.ReadBlendRequest,
    "/headrace.blender.v1.RowService/NoSuchMethod": rows_pb2.ReadBlendRequest,
}
EXPECTED = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "FAILED_PRECONDITION",
    "ALREADY_EXISTS",
    "UNAUTHENTICATED",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "UNIMPLEMENTED",
}
NUMBERS = [
    0,
    1,
    2,
    7,
    99,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**61,
    2**62 - 1,
    2**62,
    2**63 - 1,
    2**64 - 1,
]
TEXTS = [
    "", " ", "a", "0", "-1", "1/3", "0.7", "1e999999999", "9" * 5000, "1/0", "nan", "inf", "1e-999999999", "١٢",
    "..", "../names/open", "names/open", "/etc/passwd", "a/b", "open\n", "open\x00", "\x00", "%s%n", "'; drop table x",
    "main", "main.", ".packed_code_16", "main.packed_code_16.", "main.packed_code_16", "secret.packed_code_16",
    "SECRET.packed_code_16", "secret.nothing", "secret.packed_code_16\n", "secret.packed_code_16.snapshots",
    "system.materializations", "main.packed_code_16$snapshots", "f" * 64, "f" * 63, "veiled", "open", "code",
    "🐟" * 3000, "x" * 100_000, "END", "main.increments", "\u202esecret", "blend_1", "heads/v1",
]  # fmt: skip


def random_value(field: FieldDescriptor, random_: random.Random, hints: list[str]) -> Any:
    """Give a hostile value of a field's type."""
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return random_.choice(TEXTS + hints * 3)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random_.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return random_.choice([0.0, 0.05, -1.0, 1e308, float("nan"), float("inf"), float("-inf")])
    number = random_.choice(NUMBERS)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return number % 5
    unsigned = kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
    bits = 64 if kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64) else 32
    number %= 2**bits
    return number if unsigned or number < 2 ** (bits - 1) else number - 2**bits


def fill(message: Message, random_: random.Random, hints: list[str], depth: int = 0) -> Message:
    """Set random fields of a message to hostile values."""
    for field in message.DESCRIPTOR.fields:
        if random_.random() < 0.4:
            continue
        if field.message_type is not None and field.is_repeated:
            for _ in range(random_.randrange(4) if depth < 3 else 0):
                fill(getattr(message, field.name).add(), random_, hints, depth + 1)
        elif field.message_type is not None:
            fill(getattr(message, field.name), random_, hints, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(random_value(field, random_, hints) for _ in range(3))
        else:
            setattr(message, field.name, random_value(field, random_, hints))
    return message


def request_bytes(make: Callable[[], Message], random_: random.Random, hints: list[str]) -> bytes:
    """Give a request: hostile values, damaged bytes, or noise."""
    kind = random_.random()
    if kind < 0.15:
        return random_.randbytes(random_.choice([0, 1, 5, 100, 5000]))
    content = bytearray(fill(make(), random_, hints).SerializeToString())
    if kind < 0.4 and content:
        for _ in range(random_.randrange(1, 4)):
            content[random_.randrange(len(content))] = random_.randrange(256)
        content = content[: random_.randrange(len(content) + 1)]
    return bytes(content)


@pytest.fixture
def hidden(lake: Catalog, tmp_path: Path, serve: Callable[..., RunningServer]) -> tuple[str, list[str]]:
    """A server with a hidden table and blends of it, and what must not be told."""
    code = create_packed(lake, "main.packed_code_16").append(40, seed=1)
    table: PackedFixture = create_packed(lake, "secret.packed_code_16").append(30, seed=2)
    tokens, rules = tmp_path / "tokens", tmp_path / "rules"
    tokens.write_text(f"trainer {TRAINER}\nowner {OWNER}")
    rules.write_text(
        '[[rule]]\nprincipals = ["*"]\nnamespaces = ["main"]\ncreate = true\n'
        '[[rule]]\nprincipals = ["owner"]\nnamespaces = ["secret"]\ncreate = true'
    )
    address = serve(operation=OperationConfig(tokens=tokens, rules=rules)).address
    with grpc.insecure_channel(address) as channel:
        stub = blends_pb2_grpc.BlendServiceStub(channel)
        Source = blends_pb2.SourceSpec
        sources = [Source(table=table.identifier, name="deep-secret"), Source(table=code.identifier, name="code")]
        request = blends_pb2.CreateBlendRequest(sources=sources, name="veiled")
        blend = stub.CreateBlend(request, metadata=(("authorization", f"Bearer {OWNER}"),))
        request = blends_pb2.CreateBlendRequest(sources=[Source(table=code.identifier, name="code")], name="open")
        stub.CreateBlend(request, metadata=(("authorization", f"Bearer {OWNER}"),))
    documents = [segment[0] for row in table.rows for segment in row.segments]
    uuid = str(table.table.metadata.table_uuid)
    return address, [blend.id, "deep-secret", "veiled", "secret", uuid, str(tmp_path), *documents]


def answer_of(call: Any) -> tuple[str, list[bytes]]:
    """Take at most three messages of a call, and its status."""
    answers: list[bytes] = []
    try:
        for message in call:
            answers.append(message)
            if len(answers) == 3:
                call.cancel()
                return "OK", answers
    except grpc.RpcError as error:
        return error.code().name, [*answers, (error.details() or "").encode(errors="replace")]
    return "OK", answers


def rows_of(address: str) -> list[bytes]:
    """Read the open blend."""
    with grpc.insecure_channel(address) as channel:
        stub = rows_pb2_grpc.RowServiceStub(channel)
        call = stub.ReadBlend(
            rows_pb2.ReadBlendRequest(blend="open"), metadata=(("authorization", f"Bearer {TRAINER}"),)
        )
        return [message.SerializeToString(deterministic=True) for message in call]


def test_malformed_requests_neither_stop_the_server_nor_make_it_tell(hidden: tuple[str, list[str]]) -> None:
    """Every request has a status of the right kind; nothing hidden is told that the request did not itself say."""
    address, secrets = hidden
    before = rows_of(address)
    random_ = random.Random(20260301)
    statuses: Counter[str] = Counter()
    with grpc.insecure_channel(address, options=(("grpc.max_receive_message_length", -1),)) as channel:
        for number in range(REQUESTS):
            path, make = random_.choice(list(METHODS.items()))
            content = request_bytes(make, random_, [secrets[0], secrets[0][:10], "open", "veiled"])
            token = random_.choice([f"Bearer {TRAINER}"] * 9 + ["Bearer wrong", "Basic x", "Bearer " + "y" * 2000])
            metadata = [("authorization", token)]
            if random_.random() < 0.1:
                metadata.append(("headrace-run", random_.choice(["../x", "a" * 500, "fine", " ", "a/b"])))
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)
            call = method(content, timeout=10, metadata=tuple(metadata))
            status, answers = answer_of(call)
            statuses[status] += 1
            where = f"request {number}: {path} {content[:300]!r} gave {status} {answers[:1]!r:.600}"
            assert status in EXPECTED, where
            told = b"".join(answers)
            for secret in secrets:
                assert secret.encode() not in told or secret.encode() in content, f"{secret} was told by {where}"
    assert rows_of(address) == before
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED", "UNIMPLEMENTED"} <= set(statuses), statuses
