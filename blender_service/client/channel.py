"""Open a client's connection: TLS, its token, and the name of its training run. Needs grpcio only.

channel = open_channel("blender.example:7170", Identity(token_file="token", authority="ca.pem", run="llm-7b"))
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import grpc

from blender_service.client.identity import Identity, metadata_of, read_file
from blender_service.exceptions import CatalogueError, UnauthenticatedError

LAKE: Final = "lake:"  # the address that stands for no server

_REPLACED: Final = 3  # channels that stay open: authority, key and certificate may change one after another
_PEM_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s.+?-----END \1-----", re.DOTALL)

Options = Sequence[tuple[str, Any]]


def open_channel(
    address: str, identity: Identity, options: Options = (), environment: Mapping[str, str] | None = None
) -> grpc.Channel:
    """Give a channel with calls naming the client; for `lake:` one answering in this process, from the lake.

    Raises:
        CatalogueError: there is no lake, or what opens it is not installed.
        UnauthenticatedError: a file of TLS cannot be read, or is not whole.
    """
    if address == LAKE:
        return _lake_channel(identity)
    if identity.has_tls:
        channel = cast(grpc.Channel, _RenewedChannel(address, identity, options))
    else:
        channel = grpc.insecure_channel(address, options=tuple(options))
    adds = _AddsMetadata(lambda: metadata_of(identity, os.environ if environment is None else environment))
    return grpc.intercept_channel(channel, adds)


def _lake_channel(identity: Identity) -> grpc.Channel:
    """Import what opens a lake (a client of servers neither needs nor has it), and open the lake."""
    try:
        opening = importlib.import_module("blender_service.server.lake_channel")
    except ModuleNotFoundError as error:
        raise CatalogueError(
            f"lake: reading without a server needs {error.name}, which is not installed; pip install "
            "'headrace[platform]', or name a server"
        ) from error
    return cast(grpc.Channel, opening.open_lake_channel(identity))


class _PemFiles(NamedTuple):
    """What the files of TLS hold; None for an unnamed file."""

    authority: bytes | None
    key: bytes | None
    certificate: bytes | None


class _RenewedChannel:
    """A TLS channel, opened anew when its files have changed: gRPC reads them once for each channel.

    It has what interceptors need of a channel: they ask it for the method at each call. While a file cannot be read, or
    is not whole, the channel in use stays. A replaced one is closed three changes later, as many as one renewal
    of all files makes, since a call may just have been given it; a read still on it then continues over
    the newest, at its next row.
    """

    def __init__(self, address: str, identity: Identity, options: Options) -> None:
        self._address, self._identity, self._options = address, identity, tuple(options)
        self._lock = threading.Lock()
        self._pem = _read_pem(identity)
        self._channels = [self._open()]

    def unary_unary(self, *method: Any, **how: Any) -> Any:
        """Make a method with one answer."""
        return self._current().unary_unary(*method, **how)

    def unary_stream(self, *method: Any, **how: Any) -> Any:
        """Make a method with many answers."""
        return self._current().unary_stream(*method, **how)

    def close(self) -> None:
        """End all calls."""
        for channel in self._channels:
            channel.close()

    def _current(self) -> grpc.Channel:
        """Give the channel of the files as they are now."""
        with self._lock, contextlib.suppress(UnauthenticatedError):
            pem = _read_pem(self._identity)
            if pem != self._pem:
                self._pem = pem
                for channel in self._channels[:-_REPLACED]:
                    channel.close()
                self._channels = [*self._channels[-_REPLACED:], self._open()]
        return self._channels[-1]

    def _open(self) -> grpc.Channel:
        return grpc.secure_channel(self._address, grpc.ssl_channel_credentials(*self._pem), options=self._options)


def _read_pem(identity: Identity) -> _PemFiles:
    if bool(identity.key) != bool(identity.certificate):
        raise UnauthenticatedError(
            f"{identity.key or identity.certificate}: give the certificate and its key, or neither"
        )
    return _PemFiles(*map(_whole_pem, (identity.authority, identity.key, identity.certificate)))


def _whole_pem(path: str) -> bytes | None:
    """Read a PEM file, but none still being written: gRPC ends the process where it finds no key in one."""
    pem = read_file(path)
    if pem is not None and not 0 < pem.count(b"-----BEGIN ") == len(_PEM_BLOCK.findall(pem)):
        raise UnauthenticatedError(f"{path}: is no whole PEM file; write it again, or name another")
    return pem


class _Details(NamedTuple):
    """Details of a call, as gRPC passes them on."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _AddsMetadata(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds metadata to every call."""

    def __init__(self, metadata: Callable[[], list[tuple[str, str]]]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Add to a call with one answer."""
        return continuation(self._with(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Add to a call with many answers."""
        return continuation(self._with(client_call_details), request)

    def _with(self, details: Any) -> _Details:
        return _Details(
            details.method,
            details.timeout,
            [*(details.metadata or ()), *self._metadata()],
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
