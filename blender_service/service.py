"""The two gRPC services: BlendService defines blends, RowService streams their rows."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import grpc
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2

from blender_service.exceptions import BlenderError, ServerUnavailableError
from blender_service.messages import blend_message, spec_of
from blender_service.serving import Blender
from blender_service.slices import Slice
from blender_service.status import ERROR_KEY, status_of
from blender_service.window import ExpectedWindow

Response = TypeVar("Response")

logger = logging.getLogger(__name__)


def _refuse(error: BlenderError, context: grpc.ServicerContext) -> NoReturn:
    """End a call with the status and the message of an error."""
    logger.info("refused: %s: %s", type(error).__name__, error)
    context.set_trailing_metadata(((ERROR_KEY, type(error).__name__),))
    context.abort(status_of(error), str(error))
    raise AssertionError("abort always raises")


def _unary(
    method: Callable[[Any, Any, grpc.ServicerContext], Response],
) -> Callable[[Any, Any, grpc.ServicerContext], Response]:
    """Turn the errors of a unary call into statuses."""

    @functools.wraps(method)
    def translated(self: Any, request: Any, context: grpc.ServicerContext) -> Response:
        try:
            return method(self, request, context)
        except BlenderError as error:
            _refuse(error, context)

    return translated


class BlendServicer(blends_pb2_grpc.BlendServiceServicer):
    """Defines blends."""

    def __init__(self, blender: Blender) -> None:
        """Serve the blends of `blender`."""
        self._blender = blender

    @_unary
    def CreateBlend(  # noqa: N802 (the proto's name)
        self, request: blends_pb2.CreateBlendRequest, context: grpc.ServicerContext
    ) -> blends_pb2.Blend:
        """Create a blend, or give the one that is already the same."""
        return self._describe(self._blender.create(spec_of(request)).blend_id)

    @_unary
    def GetBlend(  # noqa: N802
        self, request: blends_pb2.GetBlendRequest, context: grpc.ServicerContext
    ) -> blends_pb2.Blend:
        """Describe one blend."""
        return self._describe(self._blender.resolve(request.blend))

    @_unary
    def ListBlends(  # noqa: N802
        self, request: blends_pb2.ListBlendsRequest, context: grpc.ServicerContext
    ) -> blends_pb2.ListBlendsResponse:
        """Describe all blends."""
        return blends_pb2.ListBlendsResponse(blends=[self._describe(i) for i in self._blender.list_ids()])

    def _describe(self, blend_id: str) -> blends_pb2.Blend:
        names = self._blender.names().get(blend_id, [])
        return blend_message(self._blender.config(blend_id), self._blender.order(blend_id), names)


class RowServicer:
    """Streams rows. gRPC takes the next batch only when the last one is on its way, so a slow reader holds one."""

    def __init__(self, blender: Blender, stopping: threading.Event) -> None:
        """Serve the rows of `blender` until `stopping` is set."""
        self._blender = blender
        self._stopping = stopping

    def ReadBlend(  # noqa: N802
        self, request: rows_pb2.ReadBlendRequest, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Stream rows from any offset, as messages that are serialised already."""
        try:
            blend_id = self._blender.resolve(request.blend)
            expected = request.expected
            ExpectedWindow(expected.window_tokens, expected.tokenizer_sha256, expected.vocabulary_size).check(
                blend_id, self._blender.config(blend_id).window
            )
            reader = self._blender.open(blend_id)
            part = None
            if request.HasField("slice"):
                wanted = request.slice
                part = Slice(wanted.step_rows, wanted.rank, wanted.world_size, wanted.uneven)
            logger.info("read %s from %d: %s", blend_id, request.offset, part or "all rows")
            for message in reader.read_messages(request.offset, request.rows, part, request.max_batch_rows):
                if self._stopping.is_set():
                    raise ServerUnavailableError("server is stopping; connect again, reading goes on at the next row")
                yield message
        except BlenderError as error:
            _refuse(error, context)


def add_row_service(servicer: RowServicer, server: grpc.Server) -> None:
    """Register the service of rows: its responses are messages already, which generated code would serialise again."""
    read_blend: grpc.RpcMethodHandler[rows_pb2.ReadBlendRequest, bytes] = grpc.unary_stream_rpc_method_handler(
        servicer.ReadBlend, request_deserializer=rows_pb2.ReadBlendRequest.FromString
    )
    service = rows_pb2.DESCRIPTOR.services_by_name["RowService"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"ReadBlend": read_blend}),))
