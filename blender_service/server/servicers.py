"""The two gRPC services: BlendService defines blends, RowService streams their rows.

Their errors become statuses in the interceptor, the guard of every call.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from blender_service.exceptions import InvalidReadError, ServerUnavailableError
from blender_service.rows.batch_assembly import BatchMessage
from blender_service.rows.blend_reader import BlendReader
from blender_service.server.blend_messages import blend_message, description_message, spec_of, update_of
from blender_service.server.blender import Blender
from blender_service.server.call_context import RpcCall, call_of, seen_by
from blender_service.server.limits import CallWatch, StreamLimits
from blender_service.server.run_register import RunObserver
from blender_service.turns import turn
from blender_service.wire.expected_window import ExpectedWindow
from blender_service.wire.rank_slice import Slice
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2

logger = logging.getLogger(__name__)


class BlendServicer(blends_pb2_grpc.BlendServiceServicer):
    """Defines blends."""

    def __init__(self, blender: Blender) -> None:
        """Serve the blends of `blender`."""
        self._blender = blender

    def CreateBlend(  # noqa: N802 (the proto's name)
        self, request: blends_pb2.CreateBlendRequest, context: grpc.ServicerContext
    ) -> blends_pb2.Blend:
        """Create a blend, or give an equal one."""
        blender = seen_by(context, self._blender)
        return _message(blender, blender.create(spec_of(request)).blend_id)

    def UpdateBlend(  # noqa: N802
        self, request: blends_pb2.UpdateBlendRequest, context: grpc.ServicerContext
    ) -> blends_pb2.Blend:
        """Create a child of a blend, or give an equal one."""
        blender = seen_by(context, self._blender)
        return _message(blender, blender.update(update_of(request)).blend_id)

    def GetBlend(  # noqa: N802
        self, request: blends_pb2.GetBlendRequest, context: grpc.ServicerContext
    ) -> blends_pb2.Blend:
        """Give one blend."""
        blender = seen_by(context, self._blender)
        return _message(blender, blender.resolve(request.blend))

    def ListBlends(  # noqa: N802
        self, request: blends_pb2.ListBlendsRequest, context: grpc.ServicerContext
    ) -> blends_pb2.ListBlendsResponse:
        """Give a page of all blends."""
        blender = seen_by(context, self._blender)
        page = blender.list_page(request.page_size, request.page_token)
        return blends_pb2.ListBlendsResponse(
            blends=[_message(blender, blend_id, is_listed=True) for blend_id in page.blend_ids],
            next_page_token=page.next_token,
        )

    def DescribeBlend(  # noqa: N802
        self, request: blends_pb2.DescribeBlendRequest, context: grpc.ServicerContext
    ) -> blends_pb2.BlendDescription:
        """Describe what a blend has read at an offset."""
        blender = seen_by(context, self._blender)
        blend_id = blender.resolve(request.blend)
        description = blender.describe(blend_id, request.offset if request.HasField("offset") else None)
        excised, evals = blender.excised_documents(blend_id), blender.searched_evals(blend_id)
        return description_message(_message(blender, blend_id), description, excised, evals)

    def ProveContinuation(  # noqa: N802
        self, request: blends_pb2.ProveContinuationRequest, context: grpc.ServicerContext
    ) -> blends_pb2.Continuation:
        """Prove that a run may continue with another blend; the caller must be allowed to read both."""
        blender = seen_by(context, self._blender)
        from_id, to_id = blender.resolve(request.from_blend), blender.resolve(request.to_blend)
        differs_from = blender.prove_continuation(from_id, to_id, request.offset)
        return blends_pb2.Continuation(from_id=from_id, to_id=to_id, offset=request.offset, differs_from=differs_from)


class RowServicer:
    """Streams rows.

    Memory is bounded whatever the clients do: gRPC asks for the next message when the last one was written to the
    connection, so a stream to a slow client holds one message and its share of rows for the next (`StreamLimits`).
    When a client disconnects, the wait for its next row ends at once, and the stream frees what it holds.
    """

    def __init__(
        self,
        blender: Blender,
        stopping: threading.Event,
        limits: StreamLimits,
        stalls: CallWatch,
        runs: RunObserver,
    ) -> None:
        """Serve rows."""
        self._runs = runs
        self._blender = blender
        self._stopping = stopping
        self._limits = limits
        self._stalls = stalls
        self._open: set[grpc.ServicerContext] = set()

    @property
    def open_streams(self) -> int:
        """Number of streams with blocks or messages now; their calls may have ended already."""
        return len(self._open)

    def ReadBlend(  # noqa: N802 (the proto's name)
        self, request: rows_pb2.ReadBlendRequest, context: grpc.ServicerContext
    ) -> Iterator[BatchMessage]:
        """Stream rows from any offset, as serialised messages."""
        self._open.add(context)
        try:
            yield from self._read(request, context)
        finally:
            self._open.discard(context)

    def PrewarmBlend(  # noqa: N802
        self, request: rows_pb2.PrewarmBlendRequest, context: grpc.ServicerContext
    ) -> Iterator[rows_pb2.PrewarmProgress]:
        """Read rows into the cache."""
        blender, call = seen_by(context, self._blender), call_of(context)
        call.blend_id = blender.resolve(request.blend)
        logger.info("prewarm %s from %d: %d rows", call.blend_id, request.offset, request.rows)
        for row, stopped in blender.prewarm(call.blend_id, request.offset, request.rows, request.columns):
            if self._stopping.is_set():
                raise ServerUnavailableError("server is stopping; prewarm another replica")
            if not context.is_active():
                return
            yield rows_pb2.PrewarmProgress(row=row, stopped=stopped)

    def ReportConsumed(  # noqa: N802
        self, request: rows_pb2.ReportConsumedRequest, context: grpc.ServicerContext
    ) -> rows_pb2.ReportConsumedResponse:
        """Note how far the consumer of a read has come."""
        self._runs.consumed(request, call_of(context).principal)
        return rows_pb2.ReportConsumedResponse()

    def _read(self, request: rows_pb2.ReadBlendRequest, context: grpc.ServicerContext) -> Iterator[BatchMessage]:
        """Check a request, then read its rows batch by batch."""
        call = call_of(context)
        reader, arguments = read_request(seen_by(context, self._blender), self._runs, request, call)

        def stopped() -> bool:
            return self._stopping.is_set() or not context.is_active()

        with self._limits.holding() as kept:
            messages = reader.read_messages(*arguments, stopped, self._limits.bounds, kept)
            while True:
                with turn():
                    message = next(messages, None)
                if message is None:
                    return
                if self._stopping.is_set():
                    at = message.offset
                    raise ServerUnavailableError(
                        f"server is stopping; connect again or to another replica, and go on at row {at}"
                    )
                if not context.is_active():
                    return
                call.sends(message)
                with self._stalls.watching(context):
                    yield message


def read_request(
    blender: Blender, runs: RunObserver, request: rows_pb2.ReadBlendRequest, call: RpcCall
) -> tuple[BlendReader, tuple[int, int, Slice | None, int, float]]:
    """Check a request for rows and note it in its call; give the reader and the arguments of its `read`."""
    blend_id = blender.resolve(request.blend)
    expected = request.expected
    if request.offset < 0:
        raise InvalidReadError(f"read: offset {request.offset}; it cannot be below 0")
    config = blender.config(blend_id)
    window = config.window.model_copy(update={"window_tokens": config.window_tokens_at(request.offset)})
    ExpectedWindow(
        expected.window_tokens, expected.tokenizer_sha256, expected.vocabulary_size, expected.token_bytes
    ).check(blend_id, window)
    reader = blender.open(blend_id, request.offset, request.columns)
    call.reads(blend_id, request.offset, reader.order.names, window)
    call.first_blend = blender.head(blend_id).lineage[0].blend_id
    part = None
    if request.HasField("slice"):
        wanted = request.slice
        part = Slice(wanted.step_rows, wanted.rank, wanted.world_size, wanted.uneven)
    if request.begins_run and not request.offset and not (part and part.rank):
        runs.check_begins(call, [update.blend_id for update in blender.head(blend_id).lineage])
    logger.info("read %s from %d: %s", blend_id, request.offset, part or "all rows")
    return reader, (request.offset, request.rows, part, request.max_batch_rows, request.wait_seconds)


def add_row_service(servicer: RowServicer, server: grpc.Server) -> None:
    """Register the service of rows by hand: generated code would serialise its messages again."""
    read_blend: grpc.RpcMethodHandler[rows_pb2.ReadBlendRequest, BatchMessage] = grpc.unary_stream_rpc_method_handler(
        servicer.ReadBlend,
        request_deserializer=rows_pb2.ReadBlendRequest.FromString,
        response_serializer=operator.attrgetter("message"),
    )
    report = grpc.unary_unary_rpc_method_handler(
        servicer.ReportConsumed,
        request_deserializer=rows_pb2.ReportConsumedRequest.FromString,
        response_serializer=rows_pb2.ReportConsumedResponse.SerializeToString,
    )
    prewarm = grpc.unary_stream_rpc_method_handler(
        servicer.PrewarmBlend,
        request_deserializer=rows_pb2.PrewarmBlendRequest.FromString,
        response_serializer=rows_pb2.PrewarmProgress.SerializeToString,
    )
    service = rows_pb2.DESCRIPTOR.services_by_name["RowService"].full_name
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "ReadBlend": read_blend,
        "PrewarmBlend": prewarm,
        "ReportConsumed": report,
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))


def _message(blender: Blender, blend_id: str, is_listed: bool = False) -> blends_pb2.Blend:
    """Describe a blend to a client; one of a list without its warnings."""
    warnings = () if is_listed else blender.warnings(blend_id)
    return blend_message(blender.config(blend_id), blender.head(blend_id), blender.names_of(blend_id), warnings)
