"""How a call ended, from what HTTP/2 and HTTP say where gRPC itself says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import grpc

from blender_service.http2.metadata import Metadata, is_grpc, metadata_of

Headers = Sequence[tuple[bytes, bytes]]

STATUS_OF_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}
# https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md
STATUS_OF_HTTP: Final = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.UNAVAILABLE,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}
# Of RST_STREAM, in gRPC's protocol; the rest is INTERNAL.
STATUS_OF_RESET: Final = {
    7: grpc.StatusCode.UNAVAILABLE,
    8: grpc.StatusCode.CANCELLED,
    11: grpc.StatusCode.RESOURCE_EXHAUSTED,
    12: grpc.StatusCode.PERMISSION_DENIED,
}


class CallError(grpc.RpcError):
    """A call did not end well; says how as errors of gRPC do."""

    def __init__(self, code: grpc.StatusCode, details: str, metadata: Metadata = ()) -> None:
        """Keep the status."""
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details
        self._metadata = metadata

    def code(self) -> grpc.StatusCode:
        """Give the status."""
        return self._code

    def details(self) -> str:
        """Give its message."""
        return self._details

    def trailing_metadata(self) -> Metadata:  # type: ignore[override]
        """Give what came with it."""
        return self._metadata


def unavailable(details: str) -> CallError:
    """Say that there is no server, or none that can be understood."""
    return CallError(grpc.StatusCode.UNAVAILABLE, details)


def check_begun(headers: Headers) -> None:
    """See whether an answer of gRPC begins; not for headers that have a status of gRPC, which holds whatever HTTP says.

    Raises:
        CallError: something else answers.
    """
    found = dict(headers)
    http = found.get(b":status", b"")
    if http != b"200":
        code = STATUS_OF_HTTP.get(int(http), grpc.StatusCode.UNKNOWN) if http.isdigit() else grpc.StatusCode.UNKNOWN
        raise CallError(code, f"HTTP status {http.decode(errors='replace') or 'missing'}, no answer of gRPC")
    content_type = found.get(b"content-type")
    if content_type is not None and not is_grpc(content_type):
        raise CallError(grpc.StatusCode.UNKNOWN, f"content-type {content_type!r}, no answer of gRPC")


def check_ended(headers: Headers) -> None:
    """See whether a call ended well.

    Raises:
        CallError: it did not.
    """
    found = dict(headers)
    number = found.get(b"grpc-status", b"")
    if number == b"0":
        return
    code = STATUS_OF_NUMBER.get(int(number)) if number.isdigit() else None
    message = found.get(b"grpc-message", b"").decode("latin-1") if number else "the stream ended without a status"
    own = [(name, value) for name, value in headers if name not in (b"grpc-status", b"grpc-message")]
    raise CallError(code or grpc.StatusCode.UNKNOWN, unquote(message, errors="replace"), metadata_of(own))


def error_of_reset(number: int) -> CallError:
    """Give the error of a stream that the server, or a proxy, broke off."""
    return CallError(STATUS_OF_RESET.get(number, grpc.StatusCode.INTERNAL), f"RST_STREAM with error {number}")
