"""Translate errors to gRPC statuses on the server, and statuses to the same errors on the client.

The class travels in the standard details of a status (google.rpc.Status with an ErrorInfo, reason `BLEND_NOT_FOUND`
for `BlendNotFoundError`), so that a client raises the server's error, with its message. errors.proto has
these two messages too, so that a client needs no package for them.
"""

from __future__ import annotations

import re
from typing import Final, cast

import grpc
from google.protobuf.message import DecodeError

from blender_service import exceptions
from blender_service.exceptions import BlenderError, ServerUnavailableError
from headrace.blender.v1 import errors_pb2

DETAILS_KEY: Final = "grpc-status-details-bin"
ERROR_INFO: Final = "google.rpc.ErrorInfo"
DOMAIN: Final = "headrace"
STATUS_OF: Final[dict[type[BlenderError], grpc.StatusCode]] = {
    exceptions.InvalidBlendError: grpc.StatusCode.INVALID_ARGUMENT,
    exceptions.UpdateRefusedError: grpc.StatusCode.FAILED_PRECONDITION,
    exceptions.ExhaustedSourceError: grpc.StatusCode.FAILED_PRECONDITION,
    exceptions.ShrunkSourceError: grpc.StatusCode.FAILED_PRECONDITION,
    exceptions.InvalidReadError: grpc.StatusCode.INVALID_ARGUMENT,
    exceptions.BlendNotFoundError: grpc.StatusCode.NOT_FOUND,
    exceptions.RunNotFoundError: grpc.StatusCode.NOT_FOUND,
    exceptions.BlendNameTakenError: grpc.StatusCode.ALREADY_EXISTS,
    exceptions.OffsetOutOfRangeError: grpc.StatusCode.OUT_OF_RANGE,
    exceptions.RowNotThereYetError: grpc.StatusCode.DEADLINE_EXCEEDED,
    exceptions.SourceChangedError: grpc.StatusCode.FAILED_PRECONDITION,
    exceptions.WindowMismatchError: grpc.StatusCode.FAILED_PRECONDITION,
    exceptions.StoredBlendError: grpc.StatusCode.DATA_LOSS,
    exceptions.PackedTableError: grpc.StatusCode.DATA_LOSS,
    exceptions.MalformedMessageError: grpc.StatusCode.DATA_LOSS,
    exceptions.StateError: grpc.StatusCode.FAILED_PRECONDITION,
    exceptions.CatalogueError: grpc.StatusCode.FAILED_PRECONDITION,
    exceptions.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    exceptions.NotAllowedError: grpc.StatusCode.PERMISSION_DENIED,
    exceptions.MalformedRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    exceptions.MalformedRolloutError: grpc.StatusCode.INVALID_ARGUMENT,
    exceptions.SlowDownError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    exceptions.InternalServerError: grpc.StatusCode.INTERNAL,
    exceptions.ServerUnavailableError: grpc.StatusCode.UNAVAILABLE,
    exceptions.TooManyStreamsError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    exceptions.ServerExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
# A proxy or a server that goes away in mid-stream resets the stream, which arrives as CANCELLED, or as INTERNAL with a
# text of gRPC's own (`_was_reset`), and without an ErrorInfo. Reading a row again is always right.
RETRIED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)


def status_of(error: BlenderError) -> grpc.StatusCode:
    """Give the gRPC status of an error."""
    return STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL)


def details_of(error: BlenderError, message: str) -> bytes:
    """Write the details of an error's status, as gRPC's own libraries read them."""
    info = errors_pb2.ErrorInfo(reason=_reason_of(type(error)), domain=DOMAIN)
    detail = errors_pb2.ErrorDetail(type_url=f"type.googleapis.com/{ERROR_INFO}", value=info.SerializeToString())
    code: int = status_of(error).value[0]
    return errors_pb2.ErrorStatus(code=code, message=message, details=[detail]).SerializeToString()


def error_of(rpc_error: grpc.RpcError, address: str) -> BlenderError:
    """Give back the server's error, or say that it could not be reached."""
    call = cast(grpc.Call, rpc_error)  # every error that a call raises is also the call
    details = call.details() or call.code().name
    kind = _kind_of(dict(call.trailing_metadata() or ()).get(DETAILS_KEY, b""))
    if kind is not None:
        return kind(details)
    if call.code() in RETRIED or _was_reset(call):
        return ServerUnavailableError(
            f"server {address}: {details}; start it with `headrace serve`, or mend the address"
        )
    return BlenderError(f"server {address}: {call.code().name}: {details}")


def _was_reset(call: grpc.Call) -> bool:
    """Say whether the transport broke a stream off; only the text tells it from an error in the server's code."""
    return call.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and "RST_STREAM" in (call.details() or "")


def _reason_of(kind: type[BlenderError]) -> str:
    """Name an error as an ErrorInfo does."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).upper()


def _kind_of(details: str | bytes) -> type[BlenderError] | None:
    """Find the class of the error in the details of a status; None if they name none of headrace's."""
    try:
        for detail in errors_pb2.ErrorStatus.FromString(details if isinstance(details, bytes) else b"").details:
            if detail.type_url.rpartition("/")[2] != ERROR_INFO:
                continue
            info = errors_pb2.ErrorInfo.FromString(detail.value)
            if info.domain == DOMAIN:
                return next((kind for kind in STATUS_OF if _reason_of(kind) == info.reason), None)
    except DecodeError:  # from another server or a proxy; the status itself is reported
        pass
    return None
