"""TLS and mTLS on loopback, with certificates made for the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from pyiceberg.catalog import Catalog

from blender_service.client.channel import open_channel
from blender_service.client.identity import Identity
from blender_service.exceptions import ServerStartError
from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc
from tests.blender_service.certificates import Authority
from tests.blender_service.packed_tables import PackedFixture

Serve = Callable[..., RunningServer]


def blends(address: str, identity: Identity) -> list[blends_pb2.Blend]:
    """List blends over one channel."""
    with open_channel(address, identity, (), {}) as channel:
        stub = blends_pb2_grpc.BlendServiceStub(channel)
        return list(stub.ListBlends(blends_pb2.ListBlendsRequest(), timeout=10).blends)


def unavailable(address: str, identity: Identity) -> bool:
    """Whether no connection comes about."""
    with pytest.raises(grpc.RpcError) as caught:
        blends(address, identity)
    return bool(caught.value.code() == grpc.StatusCode.UNAVAILABLE)


def test_tls_needs_the_servers_authority(tmp_path: Path, lake: Catalog, serve: Serve) -> None:
    """A client that knows the authority is served; one without TLS, or with another authority, is not."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server = authority.sign("server")
    address = serve(operation=OperationConfig(certificate=server.certificate, key=server.key)).address
    assert blends(address, Identity(authority=str(authority.path))) == []
    assert unavailable(address, Identity(authority=str(other.path)))
    assert unavailable(address, Identity())


def test_mtls_names_the_caller(tmp_path: Path, code: PackedFixture, serve: Serve) -> None:
    """The name in the client's certificate is the principal that rules speak of; without one nobody comes in."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server = authority.sign("server")
    rules = tmp_path / "rules"
    rules.write_text('[[rule]]\nprincipals = ["trainer"]\nnamespaces = ["main"]\ncreate = true')
    operation = OperationConfig(
        certificate=server.certificate, key=server.key, client_authority=authority.path, rules=rules
    )
    address = serve(operation=operation).address

    def identity(name: str, signer: Authority = authority) -> Identity:
        pair = signer.sign(name)
        return Identity(authority=str(authority.path), certificate=str(pair.certificate), key=str(pair.key))

    with open_channel(address, identity("trainer"), (), {}) as channel:
        request = blends_pb2.CreateBlendRequest(sources=[blends_pb2.SourceSpec(table=code.identifier)])
        assert blends_pb2_grpc.BlendServiceStub(channel).CreateBlend(request).id
    assert len(blends(address, identity("trainer"))) == 1
    assert blends(address, identity("someone")) == []
    assert unavailable(address, identity("trainer", other))
    assert unavailable(address, Identity(authority=str(authority.path)))


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path, lake: Catalog, serve: Serve) -> None:
    """New connections get the new certificate; one whose key does not belong to it is not taken."""
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    server = first.sign("server")
    address = serve(operation=OperationConfig(certificate=server.certificate, key=server.key)).address
    assert blends(address, Identity(authority=str(first.path))) == []
    kept = server.key.read_bytes()
    second.sign("server")
    renewed = server.key.read_bytes()
    server.key.write_bytes(kept)
    assert blends(address, Identity(authority=str(first.path))) == []
    server.key.write_bytes(renewed)
    assert blends(address, Identity(authority=str(second.path))) == []


def test_wrong_files_are_one_line(tmp_path: Path, lake: Catalog, serve: Serve) -> None:
    """A missing file, one that is no PEM and a key of another certificate are named before anything is served."""
    pair, other = Authority(tmp_path).sign("server"), Authority(tmp_path, "other").sign("another")
    for certificate, key, problem in (
        (tmp_path / "none.pem", pair.key, "does not exist"),
        (pair.key, pair.key, "no certificate and its key"),
        (pair.certificate, other.key, "no certificate and its key"),
    ):
        with pytest.raises(ServerStartError, match=problem) as caught:
            serve(operation=OperationConfig(certificate=certificate, key=key))
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="belong together"):
        OperationConfig(certificate=pair.certificate)
