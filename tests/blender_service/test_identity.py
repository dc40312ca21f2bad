"""A client says who it is, over TLS where that is asked for, and for which training run it reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import grpc
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import SourceSpec
from blender_service.blend.store import open_store
from blender_service.client import Identity, connect
from blender_service.client.channel import _RenewedChannel, open_channel
from blender_service.client.identity import TOKEN_VARIABLE
from blender_service.exceptions import BlendNotFoundError, ServerUnavailableError, UnauthenticatedError
from blender_service.server.run_register import RunRead, RunRegister
from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from tests.blender_service.auth.test_access import RULES
from tests.blender_service.certificates import Authority
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.tiers import sampled
from tests.waiting import until

Serve = Callable[..., RunningServer]
TRAINER, OWNER = "the-token-of-the-trainer", "the-token-of-the-owner"


@pytest.fixture
def address(tmp_path: Path, serve: Serve) -> str:
    """A server with tokens, for a trainer who may read `main` and an owner who may read `secret` too."""
    tokens, rules = tmp_path / "tokens", tmp_path / "rules.toml"
    tokens.write_text(f"trainer {TRAINER}\nowner {OWNER}")
    rules.write_text(RULES)
    return serve(operation=OperationConfig(tokens=tokens, rules=rules)).address


def test_a_client_reads_with_its_token_only(
    address: str, prose: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given directly, by a file or by the variable the token lets it in; without one it is refused, not tried again."""
    with connect(address, Identity(token=TRAINER)) as client:
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
        assert sum(batch.rows for batch in client.read(blend, 0)) == 100
    for identity in (Identity(), Identity(token="a-token-that-nobody-has")):
        with connect(address, identity, retry_seconds=60) as client:
            with pytest.raises(UnauthenticatedError, match="metadata authorization"):
                client.get_blend(blend)
            with pytest.raises(UnauthenticatedError, match="metadata authorization"):
                next(client.read(blend, 0))
    monkeypatch.setenv(TOKEN_VARIABLE, TRAINER)
    with connect(address) as client:
        assert next(client.read(blend, 0)).rows == 100


def test_a_token_file_is_read_at_every_call(
    address: str, prose: PackedFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewed token is used by the next call of the same client; a file that is gone or empty is named."""
    monkeypatch.setenv(TOKEN_VARIABLE, OWNER)
    file = tmp_path / "token"
    file.write_text("a-token-that-nobody-has\n")
    with connect(address, Identity(token_file=str(file)), retry_seconds=0) as client:
        with pytest.raises(UnauthenticatedError, match="nobody has that token"):
            client.list_blends()
        file.write_text(f"{TRAINER}\n")
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
        assert next(client.read(blend, 0)).rows == 100
        for lose in (lambda: file.write_text("\n"), file.unlink):
            lose()
            for call in (client.list_blends, lambda: next(client.read(blend, 0))):
                with pytest.raises(UnauthenticatedError, match=str(file)):
                    call()


def test_a_continuation_is_proven_to_those_who_may_read_both_blends(
    address: str, lake: Catalog, prose: PackedFixture
) -> None:
    """A blend of a hidden namespace does not exist, whether a run would leave it or go over to it."""
    table = create_packed(lake, "secret.packed_code_16").append(60, seed=9)
    with connect(address, Identity(token=OWNER)) as owner, connect(address, Identity(token=TRAINER)) as trainer:
        plain = owner.create_blend([SourceSpec(prose.identifier, max_epochs=0, name="prose")]).blend_id
        child = owner.update_blend(plain, 40, name="child", schedule=()).blend_id
        sources = [SourceSpec(prose.identifier, max_epochs=0), SourceSpec(table.identifier)]
        hidden = owner.create_blend(sources, name="hidden").blend_id
        assert owner.prove_continuation(plain, child, 40) == trainer.prove_continuation(plain, "child", 40)
        assert owner.prove_continuation("hidden", hidden, 7).differs_from is None
        for one, other in ((plain, hidden), (hidden, plain), ("hidden", hidden), (plain, hidden[:8])):
            with pytest.raises(BlendNotFoundError, match="hidden|" + hidden[:8]) as caught:
                trainer.prove_continuation(one, other, 0)
            assert "secret" not in str(caught.value)


def test_a_client_speaks_tls(tmp_path: Path, serve: Serve, prose: PackedFixture) -> None:
    """With the server's authority rows come; without it no connection comes about, and the client gives up in time."""
    authority = Authority(tmp_path)
    server = authority.sign("server")
    address = serve(operation=OperationConfig(certificate=server.certificate, key=server.key)).address
    with connect(address, Identity(authority=str(authority.path))) as client:
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
        assert sum(batch.rows for batch in client.read(blend, 0)) == 100
    with connect(address, retry_seconds=0) as client, pytest.raises(ServerUnavailableError):
        next(client.read(blend, 0))
    with pytest.raises(UnauthenticatedError, match=r"none\.pem"):
        connect(address, Identity(authority=str(tmp_path / "none.pem")))


def test_pem_files_may_be_written_while_calls_are_made(tmp_path: Path) -> None:
    """A file without a key would end the process; a method given before all files changed can still be called."""
    authority = Authority(tmp_path)
    pair, other = authority.sign("one"), authority.sign("other")
    whole = Identity(authority=str(authority.path), certificate=str(pair.certificate), key=str(pair.key))
    channel = _RenewedChannel("127.0.0.1:1", whole, ())
    before = channel._channels[-1]
    key = pair.key.read_bytes()
    for part in (b"", key[:40], key[:-20]):
        pair.key.write_bytes(part)
        assert channel._current() is before
        with pytest.raises(UnauthenticatedError, match="is no whole PEM file"):
            open_channel("127.0.0.1:1", whole)
    for half in (whole._replace(key=""), whole._replace(certificate="")):
        with pytest.raises(UnauthenticatedError, match="give the certificate and its key"):
            open_channel("127.0.0.1:1", half)
    method = before.unary_unary("/a/method", lambda request: b"", lambda answer: answer)
    for file, source in (
        (pair.key, other.key),
        (pair.certificate, other.certificate),
        (authority.path, other.certificate),
    ):
        file.write_bytes(source.read_bytes())
        assert channel._current() is not before
    with pytest.raises(grpc.RpcError):
        method(None, timeout=1)
    channel.close()


def test_what_a_run_was_trained_on_is_kept(serve: Serve, lake: Catalog, prose: PackedFixture) -> None:
    """Reads of a client and of a dataset that name their run are in its register, with blend, rows, ranks and notes."""
    torch = pytest.importorskip("blender_service.torch", reason="torch is in the extra torch")
    server = serve()
    identity = Identity(run="llm-7b", code_version="abc123", run_notes="first try")
    with connect(server.address, identity) as client:
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
        assert sum(batch.rows for batch in client.read(blend, 20, 30)) == 30
    dataset = torch.BlendDataset(server.address, blend, 10, rank=0, world_size=2, identity=identity)
    assert len(list(dataset)) == 10
    server.stop()
    first, second = RunRegister(open_store(lake).objects).reads("llm-7b")
    assert (first.blend_id, first.first, first.end, first.code_version) == (blend, 20, 50, "abc123")
    assert (second.blend_id, second.first, second.end, second.world_size) == (blend, 0, 100, 2)
    assert first.notes == second.notes == "first try"
    assert (first.consumed, second.consumed) == (50, 100)
    assert (first.status, second.status) == ("OK", "OK"), "both had all rows that they asked for"


@sampled(2)
@pytest.mark.parametrize(
    ("through", "asked", "taken", "status"),
    [
        ("server", (0, 0), 99, "OK"),
        ("server", (20, 30), 99, "OK"),
        ("lake:", (0, 0), 99, "OK"),
        ("lake:", (20, 30), 99, "OK"),
        ("lake:", (20, 30), 6, "OK"),
        ("lake:", (0, 0), 1, "CANCELLED"),
        ("lake:", (20, 30), 5, "CANCELLED"),
    ],
)
def test_a_read_that_had_all_rows_ended_well(
    serve: Serve, lake: Catalog, prose: PackedFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    through: str, asked: tuple[int, int], taken: int, status: str,
) -> None:  # fmt: skip
    """To the end of the blend, or of what was asked for, though the client closes its stream; a break is one."""
    monkeypatch.chdir(tmp_path)  # which holds warehouse/
    server = serve()
    with connect(server.address) as client:
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
    register = RunRegister(open_store(lake).objects)
    with connect(server.address if through == "server" else through, Identity(run="a-run")) as client:
        stream = client.read(blend, *asked, max_batch_rows=5)
        for _ in zip(range(taken), stream, strict=False):
            pass
        stream.close()
    ended = until(lambda: register.names() and [one for one in register.reads("a-run") if one.status])
    assert [one.status for one in ended] == [status]


@pytest.mark.parametrize("leaves", ["closes", "breaks", pytest.param("is killed", marks=pytest.mark.nightly)])
def test_what_a_loop_took_is_told_from_what_was_sent(
    serve: Serve, lake: Catalog, prose: PackedFixture, leaves: str
) -> None:
    """Rows that wait in buffers were sent and not consumed, however the job ends; its other ranks report nothing."""
    torch = pytest.importorskip("blender_service.torch", reason="torch is in the extra torch")
    server = serve()
    with connect(server.address) as client:
        blend = client.create_blend([SourceSpec(prose.identifier)]).blend_id
    program = (
        "import sys, time; from blender_service.client import Identity\n"
        "from blender_service.torch import BlendDataset\n"
        f"dataset = BlendDataset({server.address!r}, {blend!r}, 10, rank=0, world_size=2,\n"
        "    identity=Identity(run='llm-7b'))\n"
        "batches = iter(dataset)\n"
        "for _ in range(3): next(batches); time.sleep(1.1)\n"
        "sys.stdin.read()"
    )
    register = RunRegister(open_store(lake).objects)

    def known() -> list[RunRead]:
        return register.names() and [read for read in register.reads("llm-7b") if read.consumed == 30 and read.status]

    if leaves == "is killed":
        with subprocess.Popen([sys.executable, "-c", program], stdin=PIPE) as job:
            until(known)
            job.kill()
    else:
        for rank in (0, 1):
            identity = Identity(run="llm-7b")
            dataset = torch.BlendDataset(server.address, blend, 10, rank=rank, world_size=2, identity=identity)
            for _, _batch in zip(range(3), batches := iter(dataset), strict=False):
                pass
            if leaves == "closes":
                batches.close()
            del batches
    (read,) = until(known)
    assert (read.first, read.end > 30) == (0, True)


def test_reads_that_go_on_over_a_restart_say_each_what_was_consumed_of_it(
    serve: Serve, lake: Catalog, prose: PackedFixture
) -> None:
    """Each server keeps what it was told of its own read."""
    server = serve()
    with connect(server.address, Identity(run="llm-7b"), retry_seconds=30) as client:
        blend = client.create_blend([SourceSpec(prose.identifier, max_epochs=0)]).blend_id
        with client.read(blend, 0, max_batch_rows=5) as stream:
            taken = next(stream).end
            server.stop(grace_seconds=2)
            serve(port=server.port)
            while (taken := next(stream).end) < 1000:
                pass
    register = RunRegister(open_store(lake).objects)
    until(lambda: register.reads("llm-7b")[-1].consumed == taken)
    first, second = register.reads("llm-7b")
    assert first.first < second.first <= first.end
    assert first.consumed in (None, 5), "its server was gone"
