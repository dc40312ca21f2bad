"""Connections of httpx2, going only where `opening.destinations` lets them.

A proxy of the environment (`https_proxy`, `no_proxy`) is used: then it connects, and only what can be told here is
judged here, which is a host's name, an address, and what a name is looked up to, if it is known here.
"""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterable
from typing import Any

import httpcore2
import httpx2

from spark_jobs.sources.opening.destinations import Destinations, ForbiddenAddressError

_SOON_SECONDS = 2.0  # for one of several addresses, such as IPv6 in a network that drops it


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to destinations of a source, and refuses all others with a `ForbiddenAddressError`."""

    def __init__(self, destinations: Destinations, limits: httpx2.Limits) -> None:
        self._destinations, self._limits = destinations, limits
        self._direct = _DirectTransport(destinations, limits)
        self._proxies: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; an answered redirect is another one.

        Raises:
            ForbiddenAddressError: it may not go there.
        """
        url = request.url
        self._destinations.require(url.scheme, url.host, url.port)
        proxy = urllib.request.getproxies().get(url.scheme)
        if not proxy or urllib.request.proxy_bypass(url.host):
            return await self._direct.handle_async_request(request)
        try:
            await self._destinations.addresses(url.host, url.port or (443 if url.scheme == "https" else 80))
        except ForbiddenAddressError:
            raise
        except OSError:  # no such name here; behind a proxy that is usual
            pass
        if proxy not in self._proxies:
            address = proxy if "://" in proxy else f"http://{proxy}"
            self._proxies[proxy] = httpx2.AsyncHTTPTransport(limits=self._limits, proxy=address)
        return await self._proxies[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        """End all connections."""
        for transport in (self._direct, *self._proxies.values()):
            await transport.aclose()


class _DirectTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport with judged connections; it has no parameter for them."""

    def __init__(self, destinations: Destinations, limits: httpx2.Limits) -> None:
        context = httpx2.create_ssl_context()  # reads the certificates of all authorities, which takes 20 ms
        super().__init__(verify=context, limits=limits)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_JudgedConnections(destinations),
        )


class _JudgedConnections(httpcore2.AsyncNetworkBackend):
    """Connects to judged addresses."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations, self._network = destinations, httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first accepting address of a host.

        Raises:
            ForbiddenAddressError: it has no permitted address.
        """
        *others, last = await self._destinations.addresses(host, port)
        for address in others:
            with contextlib.suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                soon = min(timeout or _SOON_SECONDS, _SOON_SECONDS)
                return await self._network.connect_tcp(address, port, soon, local_address, socket_options)
        return await self._network.connect_tcp(last, port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)
