"""Where a client of its own can connect to: the targets of gRPC that are plain addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")  # variables that gRPC heeds
_PLACE: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


class Target(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port as HTTP writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def targets_of(address: str, environment: Mapping[str, str]) -> tuple[Target, ...]:
    """Give the hosts of a gRPC target, none where gRPC itself must find the way.

    Args:
        address: host:port, `dns:host:port`, `dns:///host:port`, `ipv4:` or `ipv6:` and several with commas between.
        environment: names a proxy, or not.
    """
    if any(environment.get(name) for name in PROXIES):
        return ()
    kind, _, rest = address.partition(":")
    if kind in ("ipv4", "ipv6"):
        places = rest.split(",")
    elif kind == "dns":
        places = [rest.removeprefix("///")]
    else:
        places = [address]
    found = [_PLACE.fullmatch(place) for place in places]
    if not all(found):
        return ()
    return tuple(Target(one["six"] or one["name"], int(one["port"])) for one in found if one is not None)
