"""Which addresses a client connects to by itself."""

from __future__ import annotations

import pytest

from blender_service.direct.targets import PROXIES, Target, targets_of


@pytest.mark.parametrize(
    ("address", "targets"),
    [
        ("127.0.0.1:7170", ["127.0.0.1:7170"]),
        ("blender.example:7170", ["blender.example:7170"]),
        ("[::1]:7170", ["[::1]:7170"]),
        ("dns:blender:1", ["blender:1"]),
        ("dns:///blender:1", ["blender:1"]),
        ("ipv4:10.0.0.1:7170,10.0.0.2:7171", ["10.0.0.1:7170", "10.0.0.2:7171"]),
        ("ipv6:[::1]:7170,[fe80::1]:7170", ["[::1]:7170", "[fe80::1]:7170"]),
        ("blender", []),  # gRPC knows a port for it
        ("unix:/run/blender.sock", []),
        ("unix:///run/blender.sock", []),
        ("unix-abstract:blender", []),
        ("xds:///blender", []),
        ("dns://8.8.8.8/blender:1", []),  # asks a name server of its own
        ("ipv4:10.0.0.1:7170,10.0.0.2", []),
        ("", []),
    ],
)
def test_plain_addresses_are_connected_to_and_others_left_to_grpc(address: str, targets: list[str]) -> None:
    """Host and port, or a list of them."""
    assert [target.authority for target in targets_of(address, {})] == targets


@pytest.mark.parametrize("name", PROXIES)
def test_where_there_is_a_proxy_grpc_finds_the_way(name: str) -> None:
    """It knows which addresses the proxy is for."""
    assert targets_of("blender:7170", {name: "http://proxy:3128"}) == ()
    assert targets_of("blender:7170", {name: ""}) == (Target("blender", 7170),)
