"""Who may read what, over a real socket: what is forbidden answers, letter for letter, as what is not there."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from blender_service.auth.access import Access
from blender_service.client.blender_client import connect
from blender_service.client.channel import open_channel
from blender_service.client.identity import Identity
from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2, rows_pb2_grpc
from tests.blender_service.packed_tables import PackedFixture, create_packed

Serve = Callable[..., RunningServer]
TOKENS = {name: f"the-token-of-{name}-is-long" for name in ("trainer", "owner", "stranger", "reader")}
RULES = """
[[rule]]
principals = ["trainer", "owner"]
namespaces = ["main"]
create = true
[[rule]]
principals = ["owner"]
namespaces = ["secret"]
create = true
[[rule]]
principals = ["reader"]
namespaces = ["*"]
"""
Source, Change = blends_pb2.SourceSpec, blends_pb2.SourceChange


class Stubs(NamedTuple):
    """Both services, called as one principal."""

    blends: Any
    rows: Any

    def read(self, **request: Any) -> list[rows_pb2.RowBatch]:
        """Read a whole stream."""
        return list(self.rows.ReadBlend(rows_pb2.ReadBlendRequest(**request)))


class Guarded(NamedTuple):
    """A server with tokens and rules, and their files."""

    server: RunningServer
    tokens: Path
    rules: Path

    def calls_as(self, name: str, token: str | None = None) -> Stubs:
        """Call as a principal, or with any token."""
        channel = open_channel(self.server.address, Identity(token=TOKENS[name] if token is None else token), (), {})
        return Stubs(blends_pb2_grpc.BlendServiceStub(channel), rows_pb2_grpc.RowServiceStub(channel))


@pytest.fixture
def guarded(tmp_path: Path, serve: Serve) -> Guarded:
    """A server for a trainer, an owner who may read more, and a stranger who may read nothing."""
    tokens, rules = tmp_path / "tokens", tmp_path / "rules.toml"
    tokens.write_text("\n".join(f"{name} {token}" for name, token in TOKENS.items()))
    rules.write_text(RULES)
    return Guarded(serve(operation=OperationConfig(tokens=tokens, rules=rules)), tokens, rules)


@pytest.fixture
def secret(lake: Catalog) -> PackedFixture:
    """A packed table in another namespace."""
    return create_packed(lake, "secret.packed_code_16").append(60, seed=9)


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    """Make a call that must fail, and give its status."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details() or ""


def test_a_call_needs_a_token_that_somebody_has(guarded: Guarded) -> None:
    """No token, a wrong one or another scheme is UNAUTHENTICATED with the field, for both services."""
    for token, problem in (("", "0 given"), ("a-token-that-nobody-has", "nobody has that token")):
        stubs = guarded.calls_as("trainer", token)
        for call in (
            lambda stubs=stubs: stubs.blends.ListBlends(blends_pb2.ListBlendsRequest()),
            lambda stubs=stubs: stubs.read(blend="x"),
        ):
            code, message = refusal(call)
            assert code == grpc.StatusCode.UNAUTHENTICATED
            assert "metadata authorization" in message
            assert problem in message
            assert "a-token" not in message


def decoded(server: RunningServer) -> float:
    """How many blocks a server has read from the lake."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics") as page:
        found = re.search(r"^headrace_blender_cache_misses_total (\S+)", page.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.nightly
def test_three_teams_at_one_cache(
    tmp_path: Path, lake: Catalog, serve: Serve, code: PackedFixture, prose: PackedFixture
) -> None:
    """What a team with a share has read stays in memory while others read more than fits; without one it is gone."""
    tables = [create_packed(lake, f"main.packed_more_{n}_16").append(200, seed=n) for n in range(5)]
    tokens, rules = tmp_path / "tokens", tmp_path / "rules.toml"
    tokens.write_text("\n".join(f"{name} {token}" for name, token in TOKENS.items()))
    for share, stays in ((0.9, True), (0.0, False)):
        rules.write_text(f'[[team]]\nname = "train"\nprincipals = ["trainer"]\ncache_share = {share}\n')
        server = serve(operation=OperationConfig(tokens=tokens, rules=rules, metrics_port=0), cache_bytes=60_000)
        names = [
            Guarded(server, tokens, rules)
            .calls_as("trainer")
            .blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=[Source(table=one.identifier)], block_rows=32))
            .id
            for one in (*tables, code)
        ]
        misses = []
        for caller, blend in (("trainer", names[0]), *(("owner", name) for name in names[1:]), ("trainer", names[0])):
            before = decoded(server)
            with connect(server.address, Identity(token=TOKENS[caller])) as client:
                assert sum(batch.rows for batch in client.read(blend, 0)) > 0
            misses.append(decoded(server) - before)
        assert all(misses[:-1]) and (misses[-1] == 0) == stays, misses


def test_a_forbidden_table_is_one_that_does_not_exist(
    guarded: Guarded, code: PackedFixture, secret: PackedFixture
) -> None:
    """Creating and updating blends of it gives the message of a table that is not there, whatever it is asked for."""
    trainer, owner = guarded.calls_as("trainer"), guarded.calls_as("owner")
    created = trainer.blends.CreateBlend(
        blends_pb2.CreateBlendRequest(sources=[Source(table=code.identifier, max_epochs=0)], name="mine")
    )
    assert created.names == ["mine"]

    def create(table: str, **more: Any) -> tuple[grpc.StatusCode, str]:
        sources = [Source(table=code.identifier), Source(table=table, name="x", **more)]
        return refusal(lambda: trainer.blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=sources)))

    def update(table: str) -> tuple[grpc.StatusCode, str]:
        changes = [Change(name="x", table=table, weight="1"), Change(name=code.identifier, weight="1")]
        request = blends_pb2.UpdateBlendRequest(parent="mine", from_offset=5, changes=changes)
        return refusal(lambda: trainer.blends.UpdateBlend(request))

    for ask in (create, lambda t: create(t, snapshot="1"), lambda t: create(t, live=True), update):
        hidden, absent = ask(secret.identifier), ask("nosuch.packed_code_16")
        assert hidden[0] == absent[0] == grpc.StatusCode.INVALID_ARGUMENT
        assert "does not exist" in hidden[1]
        assert hidden[1].replace("secret", "nosuch") == absent[1]
    assert owner.blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=[Source(table=secret.identifier)])).id


def test_a_forbidden_blend_is_one_that_does_not_exist(
    guarded: Guarded, code: PackedFixture, secret: PackedFixture
) -> None:
    """By id, start of the id or name, no call tells a hidden blend from none; also once another caller opened it."""
    trainer, owner = guarded.calls_as("trainer"), guarded.calls_as("owner")
    sources = [Source(table=code.identifier, name="code"), Source(table=secret.identifier, name="s")]
    hidden = owner.blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=sources, name="hidden"))
    changes = [Change(name="s", remove=True)]
    later = owner.blends.UpdateBlend(blends_pb2.UpdateBlendRequest(parent="hidden", from_offset=40, changes=changes))
    assert sum(batch.rows for batch in owner.read(blend="hidden", rows=50)) == 50
    own = trainer.blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=[Source(table=code.identifier)], seed=1))
    prove, Proof = trainer.blends.ProveContinuation, blends_pb2.ProveContinuationRequest
    calls: list[Callable[[str], Any]] = [
        lambda ref: trainer.blends.GetBlend(blends_pb2.GetBlendRequest(blend=ref)),
        lambda ref: trainer.blends.DescribeBlend(blends_pb2.DescribeBlendRequest(blend=ref)),
        lambda ref: trainer.blends.UpdateBlend(blends_pb2.UpdateBlendRequest(parent=ref, from_offset=1)),
        lambda ref: trainer.read(blend=ref),
        lambda ref: trainer.read(blend=ref, offset=1 << 40),
        lambda ref: prove(Proof(from_blend=own.id, to_blend=ref)),
        lambda ref: prove(Proof(from_blend=ref, to_blend=own.id)),
    ]
    absent_id = "0123456789abcdef" * 4
    for there, absent in (
        (hidden.id, absent_id),
        (later.id, absent_id),
        (hidden.id[:8], "01234567"),
        ("hidden", "none"),
    ):
        for call in calls:
            one, other = refusal(partial(call, there)), refusal(partial(call, absent))
            assert one[0] == other[0] == grpc.StatusCode.NOT_FOUND
            assert one[1].replace(there, absent) == other[1]
    listed = trainer.blends.ListBlends(blends_pb2.ListBlendsRequest())
    assert [blend.id for blend in listed.blends] == [own.id]
    assert {blend.id for blend in owner.blends.ListBlends(blends_pb2.ListBlendsRequest()).blends} == {
        own.id,
        hidden.id,
        later.id,
    }
    mine = blends_pb2.CreateBlendRequest(sources=[Source(table=code.identifier)], name="hidden")
    status, message = refusal(lambda: trainer.blends.CreateBlend(mine))
    assert (status, message) == (grpc.StatusCode.ALREADY_EXISTS, "blend name hidden: is taken; choose another name")


def test_to_create_takes_a_right_of_its_own(guarded: Guarded, lake: Catalog, code: PackedFixture) -> None:
    """A reader finds what is there by asking for it again, and pins nothing, binds no name, updates nothing."""
    reader, trainer = guarded.calls_as("reader"), guarded.calls_as("trainer")
    wanted = blends_pb2.CreateBlendRequest(sources=[Source(table=code.identifier, name="code")])
    named = blends_pb2.CreateBlendRequest(sources=wanted.sources, name="mine")
    update = blends_pb2.UpdateBlendRequest(parent="mine", from_offset=9, changes=[Change(name="code", max_epochs=2)])
    for request in (wanted, named):
        status, message = refusal(lambda request=request: reader.blends.CreateBlend(request))
        assert status == grpc.StatusCode.PERMISSION_DENIED
        assert "create = true" in message
    assert not [name for name in code.table.refs() if name != "main"]
    made = trainer.blends.CreateBlend(named)
    assert reader.blends.CreateBlend(wanted).id == reader.blends.CreateBlend(named).id == made.id
    other = blends_pb2.CreateBlendRequest(sources=wanted.sources, name="others")
    for call in (lambda: reader.blends.CreateBlend(other), lambda: reader.blends.UpdateBlend(update)):
        assert refusal(call)[0] == grpc.StatusCode.PERMISSION_DENIED
    assert trainer.blends.UpdateBlend(update).parent == made.id
    assert sum(batch.rows for batch in reader.read(blend="mine", rows=50)) == 50


def test_who_no_rule_speaks_of_may_read_nothing(guarded: Guarded, code: PackedFixture) -> None:
    """A known caller without a rule sees an empty lake."""
    stranger = guarded.calls_as("stranger")
    request = blends_pb2.CreateBlendRequest(sources=[Source(table=code.identifier)])
    assert "does not exist" in refusal(lambda: stranger.blends.CreateBlend(request))[1]
    guarded.calls_as("owner").blends.CreateBlend(request)
    assert not stranger.blends.ListBlends(blends_pb2.ListBlendsRequest()).blends


def test_a_corpus_takes_all_its_datasets(lake: Catalog, tmp_path: Path) -> None:
    """What was made of several datasets is for those who may read each; without `increments` it is no corpus."""
    create_packed(lake, "main.packed_code_16")
    create_packed(lake, "plain.packed_code_16")
    table = lake.create_table("main.increments", schema=Schema(NestedField(1, "dataset", StringType(), required=True)))
    rows = [{"dataset": name} for name in ("code", "prose", "code")]
    import pyarrow as pa

    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    rules = tmp_path / "rules"
    rules.write_text(
        '[[rule]]\nprincipals = ["some"]\nnamespaces = ["main", "code", "plain"]\n'
        '[[rule]]\nprincipals = ["all"]\nnamespaces = ["main", "code", "prose"]\n'
        '[[rule]]\nprincipals = ["parts"]\nnamespaces = ["code", "prose"]'
    )
    access = Access(lake, rules=rules, environment={})
    readers = {name: access.reader(name) for name in ("some", "all", "parts")}
    assert {name: read is not None and read("main.packed_code_16") for name, read in readers.items()} == {
        "some": False, "all": True, "parts": False,
    }  # fmt: skip
    some = readers["some"]
    assert some is not None
    assert some("plain.packed_code_16")


@pytest.mark.nightly
def test_a_token_taken_back_ends_its_stream(guarded: Guarded, code: PackedFixture) -> None:
    """Within seconds of the change a running stream ends with UNAUTHENTICATED; another caller's goes on."""
    trainer, owner = guarded.calls_as("trainer"), guarded.calls_as("owner")
    sources = [Source(table=code.identifier, max_epochs=0)]
    trainer.blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=sources, name="endless"))
    request = rows_pb2.ReadBlendRequest(blend="endless", max_batch_rows=1)
    streams = [stubs.rows.ReadBlend(request) for stubs in (trainer, owner)]
    for stream in streams:
        next(stream)
    guarded.tokens.write_text(f"owner {TOKENS['owner']}")

    def drain() -> None:
        for _ in streams[0]:
            next(streams[1])

    assert refusal(drain)[0] == grpc.StatusCode.UNAUTHENTICATED
    assert next(streams[1]).rows == 1
    guarded.rules.write_text('[[rule]]\nprincipals = ["owner"]\nnamespaces = ["other"]')

    def drain_other() -> None:
        for _ in streams[1]:
            pass

    assert refusal(drain_other)[0] == grpc.StatusCode.NOT_FOUND


def test_tokens_come_from_the_environment_too(lake: Catalog, tmp_path: Path) -> None:
    """HEADRACE_TOKENS alone asks for tokens; an empty one lets nobody in."""
    assert not Access(lake, environment={}).asks_for_tokens
    assert Access(lake, environment={"HEADRACE_TOKENS": ""}).asks_for_tokens
    assert Access(lake, environment={"HEADRACE_TOKENS": f"a {TOKENS['owner']}"}).asks_for_tokens
