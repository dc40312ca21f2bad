"""Connections of aiohttp that go only where `destinations` lets them, redirects too."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from spark_jobs.sources.opening.destinations import Destinations


class _JudgedAddresses(AbstractResolver):
    """Looks hosts up, and makes sockets to addresses given by it, or public ones."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations, self._judged = destinations, set[tuple[str, int]]()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host allowed to be connected to.

        Raises:
            OSError: there is none; a `ForbiddenAddressError` where there are others.
        """
        self._destinations.require("http", host, port)
        resolved = await self._destinations.addresses(host, port)
        self._judged |= {(address, port) for address in resolved}
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in resolved
        ]

    def socket(self, address_info: Any) -> socket.socket:
        """A socket for an address; of one in an address's own words (never looked up) it is judged here.

        Raises:
            ForbiddenAddressError: it may not be connected to.
        """
        family, kind, protocol, _, (address, port, *_) = address_info
        if (address, port) not in self._judged:
            self._destinations.require("http", address, port)
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """Nothing is held."""


def guarded_connector(destinations: Destinations, **options: Any) -> aiohttp.TCPConnector:
    """A connector of aiohttp for these destinations; options are those of `TCPConnector`."""
    guard = _JudgedAddresses(destinations)
    return aiohttp.TCPConnector(resolver=guard, socket_factory=guard.socket, **options)


async def guarded_session(*, named: str, loop: Any = None, **options: Any) -> aiohttp.ClientSession:
    """A session of fsspec's (`get_client`) for the host of one address, the word of the config."""
    destinations = Destinations.of([named], mend="write it as source.path if it may be read")
    return aiohttp.ClientSession(connector=guarded_connector(destinations), loop=loop, **options)
