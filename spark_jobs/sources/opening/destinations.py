"""Where a request of a source may go: to what the config names, and to public addresses of the internet.

    declared address, redirect, next page  ->  scheme, host, port  ->  addresses of the host  ->  the one that is used

Whoever writes an address into the config may mean a machine of theirs; an answering server may not send requests on to
machines reachable only from ours, such as loopback, private networks and the metadata of a cloud. A host is looked up
once for a connection, and the judged address is the one connected to, so no second answer of a name server counts. The
connecting clients are `opening.web_connections` (aiohttp) and `api.transport` (httpx2).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from spark_jobs.sources.refusals import Reason, RefusedError

_PORTS = {"http": 80, "https": 443}
_FIRST_FREE_PORT = 1024  # below are services of machines (ssh, mail, ..), none of which a redirect has a reason to name
# https://www.iana.org/assignments/iana-ipv4-special-registry, and the addresses that clouds give their own services.
_NOT_PUBLIC = tuple(
    IPv4Network(one)
    for one in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_HOLD_IPV4 = tuple(map(IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96")))  # mapped, and NAT64 of RFC 6052
_MEND = "add {host} to source.allowed_hosts if it may be asked"
_LOCAL_NAMES = (
    *(".internal", ".intranet", ".local", ".localdomain", ".localhost"),
    *(".lan", ".corp", ".home", ".home.arpa", ".onion"),
)


class ForbiddenAddressError(RefusedError):
    """A request to neither the config's addresses nor the public internet."""

    def __init__(self, detail: str) -> None:
        super().__init__(Reason.FORBIDDEN_ADDRESS, detail)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet; also in IPv6 that stands for IPv4."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if any(ip in network for network in _HOLD_IPV4):
            return is_public(str(IPv4Address(int(ip) & 0xFFFF_FFFF)))
        return ip in _GLOBAL_6 and not any(ip in network for network in _NOT_PUBLIC_6)
    return not any(ip in network for network in _NOT_PUBLIC)


async def look_up(host: str, port: int) -> list[str]:
    """The IP addresses of a host, in the order of the name server.

    Raises:
        OSError: there is none.
    """
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


@dataclass(frozen=True)
class Destinations:
    """Hosts and ports named in the config, and with them everything public.

    A name of the config looked up as a public one stays so: it does not become one of a private network while a source
    is read.
    """

    named: frozenset[tuple[str, int]]
    mend: str = _MEND
    _public: dict[str, bool] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, urls: Iterable[str] = (), hosts: Iterable[str] = (), mend: str = _MEND) -> Destinations:
        """Destinations of a source; the host of an `http` address may redirect to its own `https`.

        Args:
            urls: its declared addresses.
            hosts: further hosts, with `:port` or the usual ones.
            mend: what to do where another host is meant, `{host}` in it.
        """
        parts = [(urlsplit(url).scheme, urlsplit(url)) for url in urls]
        parts += [(scheme, urlsplit(f"{scheme}://{host}")) for host in hosts for scheme in _PORTS]
        named = {(_bare(part.hostname or ""), part.port or _PORTS.get(scheme, 0)) for scheme, part in parts}
        return cls(frozenset(named | {(host, 443) for host, port in named if port == 80}), mend)

    def require(self, scheme: str, host: str, port: int | None) -> None:
        """Refuse what can be told without a look-up: other schemes, names of local networks, ports of services.

        Raises:
            ForbiddenAddressError: says which.
        """
        if scheme not in _PORTS:
            raise ForbiddenAddressError(f"leads to {scheme[:20]}:, which is neither http nor https")
        port = port or _PORTS[scheme]
        if self._is_named(host, port):
            return
        bare = _bare(host)
        if (number := _number(bare)) is not None:
            self.require_address(number, host, port)
        elif "." not in bare or f".{bare}".endswith(_LOCAL_NAMES):
            raise ForbiddenAddressError(f"leads to {_shown(host, port)}, a local name; {self._mended(host, port)}")
        if port < _FIRST_FREE_PORT and port not in _PORTS.values():
            raise ForbiddenAddressError(f"leads to port {port} of {host[:200]}; {self._mended(host, port)}")

    async def addresses(self, host: str, port: int) -> list[str]:
        """A host's addresses allowed to be connected to, at least one.

        Raises:
            ForbiddenAddressError: it has no such address.
            OSError: it has none at all.
        """
        resolved = await look_up(host, port)
        if self._is_named(host, port) and not self._public.setdefault(_bare(host), any(map(is_public, resolved))):
            return resolved
        allowed = [address for address in resolved if self._may_be_used(address, port)]
        if not allowed:
            self.require_address(resolved[0], host, port)
        return allowed

    def require_address(self, address: str, host: str, port: int) -> None:
        """Refuse an IP address neither public nor named.

        Raises:
            ForbiddenAddressError: names host and address.
        """
        if not self._may_be_used(address, port):
            at = "" if host == address else f" at {address}"
            raise ForbiddenAddressError(
                f"leads to {_shown(host, port)}{at}, no public address; {self._mended(host, port)}"
            )

    def _is_named(self, host: str, port: int) -> bool:
        return (_bare(host), port) in self.named

    def _may_be_used(self, address: str, port: int) -> bool:
        return self._is_named(address, port) or is_public(address)

    def _mended(self, host: str, port: int) -> str:
        return self.mend.format(host=host[:200] if port in _PORTS.values() else _shown(host, port))


def forbidden_in(error: BaseException | None) -> ForbiddenAddressError | None:
    """The refusal behind an error of a client, a wrapper of what its connections raise."""
    while error is not None and not isinstance(error, ForbiddenAddressError):
        error = error.__cause__ or error.__context__
    return error


def _bare(host: str) -> str:
    """A host in the one form for comparisons: ASCII, as a name server is asked for it."""
    bare = host.lower().strip("[]")
    with contextlib.suppress(UnicodeError):  # a name that no server can have is compared as it is
        bare = ascii_host(bare)
    return bare.rstrip(".")


def ascii_host(host: str) -> str:
    """A host as a name server is asked for it: IDNA 2008 as UTS 46 maps to it, which browsers and clients speak.

    Python's own codec is IDNA 2003, which asks for strasse.example where straße.example is meant. It is taken for names
    that the newer standard has not and servers have all the same, as with an underscore or a snowman.

    Raises:
        UnicodeError: no server can have the name.
    """
    if host.isascii():
        return host.lower()
    import idna  # here, since hardly any host needs it

    with contextlib.suppress(idna.IDNAError):
        return idna.encode(host, uts46=True).decode()
    return host.encode("idna").decode()


def _number(bare: str) -> str | None:
    """The IP address a host spells, in whatever form the C library takes (127.1, 0x7f000001); None for a name."""
    if ":" in bare:
        return bare
    try:
        return socket.inet_ntoa(socket.inet_aton(bare)) if bare[:1].isdigit() else None
    except OSError:
        return None


def _shown(host: str, port: int) -> str:
    return f"{host[:200]}:{port}"
