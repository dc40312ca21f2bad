"""Read rows and define blends from a training job. Needs grpcio, protobuf and NumPy, nothing of the lake.

    with connect("127.0.0.1:7170") as client:
        for batch in client.read("my-blend", offset=1_000_000, rows=4096):
            train(batch.input_ids)

A read survives a restart of the server: it connects again, with growing pauses, and continues at the first row that was
not handed out yet. Rows come once and in order. Several replicas are one address: `ipv4:10.0.0.1:7170,10.0.0.2:7170`,
or a DNS name with several records; a read continues at the next answering replica.

`Identity` names the client (token, certificate) and its training run. Its files may be renewed
while a read goes on.

No wait is without end: calls have deadlines, a silent stream is opened again, a server that cannot be
reached is given up after `retry_seconds`, and a live row after `wait_seconds`.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar, cast

import grpc

from blender_service.blend.definition_messages import (
    Blend,
    BlendDescription,
    Continuation,
    Prewarmed,
    blend_of,
    continuation_of,
    create_request,
    description_of,
    update_request,
)
from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, TextSpec, UpdateSpec
from blender_service.client.channel import LAKE, open_channel
from blender_service.client.identity import DEFAULT_IDENTITY, Identity
from blender_service.client.retry import Backoff
from blender_service.client.row_stream import RowStream
from blender_service.exceptions import InvalidReadError, ServerUnavailableError, UnauthenticatedError
from blender_service.wire.expected_window import ExpectedWindow
from blender_service.wire.rank_slice import Slice
from blender_service.wire.status import error_of
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2

Request = TypeVar("Request")

TIMEOUT_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 120.0  # a cold cache on slow storage may take most of it
KEPT_CHANNELS: Final = 3
LIVE_WAIT_SECONDS: Final = 3600.0
READ_BLEND: Final = "/headrace.blender.v1.RowService/ReadBlend"
PREWARM_BLEND: Final = "/headrace.blender.v1.RowService/PrewarmBlend"
REPORT_CONSUMED: Final = "/headrace.blender.v1.RowService/ReportConsumed"
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # so that another channel is another connection
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

logger = logging.getLogger(__name__)


class BlenderClient:
    """A client of the servers at one address. May be used by many threads."""

    def __init__(
        self,
        address: str,
        identity: Identity = DEFAULT_IDENTITY,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """Prepare to talk; the connection is made when it is needed.

        Args:
            address: host:port, or several replicas as a gRPC target; `lake:` reads the lake of PyIceberg's settings,
                or of the current directory, in this process.
            identity: of the client; without one it sends the token of `HEADRACE_TOKEN`, if that is set.
            timeout_seconds: longest wait for the answer of a call.
            retry_seconds: how long to go on trying to reach an unanswering server.
            silence_seconds: longest wait for a message of an open stream; while a server waits for a live row, it sends
                an empty batch every few seconds.

        Raises:
            UnauthenticatedError: a file of the identity cannot be read.
            CatalogueError: the address is `lake:`, and the lake cannot be opened.
            InvalidReadError: the address is `lake:`, and the identity or `silence_seconds` are given.
        """
        if address == LAKE and silence_seconds != SILENCE_SECONDS:
            raise InvalidReadError("lake: silence_seconds is for a server, which may fall silent; leave it out")
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._silence_seconds = silence_seconds
        self._token_file = "" if identity.token else identity.token_file
        self._closed = threading.Event()
        self._open_channel = functools.partial(open_channel, address, identity, OPTIONS)
        self._lock = threading.Lock()
        self._channels = [self._open_channel()]
        self._has_run = bool(identity.run)
        self._streams: weakref.WeakSet[RowStream] = weakref.WeakSet()

    def create_blend(  # noqa: PLR0913 (settings of a blend, all but one by name)
        self,
        sources: Sequence[SourceSpec],
        *,
        seed: int = 0,
        name: str = "",
        block_rows: int = 0,
        group_blocks: int = 0,
        schedule: Sequence[Stage] = (),
        allow_repeat: bool = False,
        evals: str = "",
        texts: TextSpec | None = None,
        turn_rows: int = 1,
    ) -> Blend:
        """Create a blend, or find an equal one.

        Args:
            sources: at least one.
            seed: of every permutation.
            name: bound once to the blend, a reference to it as its id is.
            block_rows: consecutive rows read together, 0 for the server's default.
            group_blocks: blocks shuffled together, 0 for the server's default.
            schedule: updates made at once, ascending by offset; the blend is then the last of the chain.
            allow_repeat: whether one table may come under two names, so that its rows repeat.
            evals: digest of the benchmarks all sources must have been searched for; no demand if empty.
            texts: how rows are made where the sources are tables of text; None for packed tables.
            turn_rows: consecutive rows of one source, such as those of a step that shall have one length class.

        Raises:
            InvalidBlendError: with every mistake of the request.
        """
        fields = seed, name, block_rows, group_blocks, tuple(schedule), allow_repeat, evals, texts, turn_rows
        return _with_warnings(blend_of(self._call("CreateBlend", create_request(BlendSpec(tuple(sources), *fields)))))

    def update_blend(
        self,
        parent: str,
        from_offset: int,
        changes: Sequence[SourceChange] = (),
        *,
        align: bool = False,
        name: str = "",
        allow_repeat: bool = False,
        schedule: Sequence[Stage] = (),
        evals: str = "",
        window_tokens: int = 0,
    ) -> Blend:
        """Create a blend: its parent's rows up to an offset, and changed sources from there.

        Args:
            parent: id, start of an id, or name.
            from_offset: first row decided by the changes.
            changes: at most one a source.
            align: round from_offset up to the next end of a cycle, where the mix so far is exact.
            name: bound once to the child.
            allow_repeat: whether one table may come under two names, so that its rows repeat.
            schedule: further updates, ascending by offset.
            evals: as of `create_blend`, from now on; the demand of the parent if empty.
            window_tokens: length of rows of texts from there on, 0 as they are.

        Raises:
            InvalidBlendError: with every mistake of the request.
            UpdateRefusedError: the update would repeat or skip rows; the message says the ways out.
        """
        first = Stage(from_offset, tuple(changes), align, window_tokens)
        spec = UpdateSpec(parent, (first, *schedule), name, allow_repeat, evals)
        return _with_warnings(blend_of(self._call("UpdateBlend", update_request(spec))))

    def describe_blend(self, blend: str, offset: int | None = None) -> BlendDescription:
        """Describe what a blend has read at an offset, and when its sources run out.

        Args:
            blend: id, start of an id, or name.
            offset: None for the end, or for the first cycle of the last segment of a blend without end.

        Raises:
            OffsetOutOfRangeError: the offset is beyond the end.
        """
        request = blends_pb2.DescribeBlendRequest(blend=blend, offset=offset)
        return description_of(self._call("DescribeBlend", request))

    def get_blend(self, blend: str) -> Blend:
        """Look a blend up by id, start of an id, or name.

        Raises:
            BlendNotFoundError: there is none.
        """
        return _with_warnings(blend_of(self._call("GetBlend", blends_pb2.GetBlendRequest(blend=blend))))

    def list_blends(self) -> list[Blend]:
        """List all blends, ascending by id, page by page."""
        blends: list[Blend] = []
        request = blends_pb2.ListBlendsRequest()
        while True:
            page = self._call("ListBlends", request)
            blends += map(blend_of, page.blends)
            if not page.next_page_token:
                return blends
            request.page_token = page.next_page_token

    def prove_continuation(self, from_blend: str, to_blend: str, offset: int) -> Continuation:
        """Have the server prove that a run, having read rows [0, offset) of a blend, may continue with another one.

        Args:
            from_blend: the blend read so far; id, start of an id, or name.
            to_blend: the blend to continue with.
            offset: first unread row.

        Raises:
            StateError: below the offset the two may hold other rows, so some would be repeated or skipped.
            OffsetOutOfRangeError: one of them ends before the offset.
            BlendNotFoundError: there is no such blend.
        """
        request = blends_pb2.ProveContinuationRequest(from_blend=from_blend, to_blend=to_blend, offset=offset)
        return continuation_of(self._call("ProveContinuation", request))

    def read(
        self,
        blend: str,
        offset: int,
        rows: int = 0,
        *,
        part: Slice | tuple[int, int, int] | None = None,
        expected: ExpectedWindow | None = None,
        max_batch_rows: int = 0,
        wait_seconds: float = LIVE_WAIT_SECONDS,
        columns: Sequence[str] = (),
        begins_run: bool = False,
    ) -> RowStream:
        """Read rows in order, from any offset; the iterator ends after the rows asked for, or with the blend.

        Where the blend ends, the last batch is an empty one with `end_of_blend`. Close the stream to stop early.
        It measures how long its consumer waits: `input_stall_seconds`, `input_stall_share`.

        Args:
            blend: id, start of an id, or name.
            offset: first row.
            rows: rows of the blend to cover, 0 until it ends.
            part: rows of a step, rank and world size: only that part of every step; a batch never crosses a step.
            expected: required facts of the rows.
            max_batch_rows: bound of the rows of a batch, 0 to leave it to the server.
            wait_seconds: longest wait for a row still missing from a live table, 0 without end.
            columns: names of columns with a value for each token, such as `trainable`, that batches shall have.
            begins_run: refuse to read from row 0 where the identity's run has consumed rows of the blend already.

        Raises:
            InvalidReadError: an argument is impossible, or a source has no such column.
            OffsetOutOfRangeError: the read starts beyond the end.
            RowNotThereYetError: a live row did not come in time.
            WindowMismatchError: the blend does not have the expected facts.
            StateError: `begins_run`, and the run goes on.
            UnauthenticatedError: the server refuses the token, or its file cannot be read; a token file is read again
                for `retry_seconds` before, for 10 seconds at most where no row has come yet.
            ServerUnavailableError: no server answered for `retry_seconds`.
        """
        part = Slice(*part) if part is not None else None
        try:
            request = rows_pb2.ReadBlendRequest(
                blend=blend,
                offset=offset,
                rows=rows,
                slice=rows_pb2.Slice(**part._asdict()) if part is not None else None,
                expected=rows_pb2.ExpectedWindow(**asdict(expected)) if expected is not None else None,
                max_batch_rows=max_batch_rows,
                wait_seconds=wait_seconds,
                columns=columns,
                begins_run=begins_run,
            )
        except ValueError as error:
            raise InvalidReadError(f"read: {error}; give whole numbers from 0 on, offsets below 2**62") from error
        stream = RowStream(
            request, part, self._read_blend, self.address, self._backoff(), self._silence_seconds,
            lambda: self.get_blend(blend).end,
            self._renew,
            self._report if self._has_run else None,
        )  # fmt: skip
        self._streams.add(stream)
        return stream

    def prewarm(self, blend: str, offset: int, rows: int, columns: Sequence[str] = ()) -> Iterator[Prewarmed]:
        """Have the server read rows into its cache, and follow how far it is; of several replicas one does it.

        Args:
            blend: id, start of an id, or name.
            offset: first row.
            rows: how many.
            columns: as of the next reads.

        Raises:
            BlenderError: as of `read`; nothing is tried again.
        """
        try:
            request = rows_pb2.PrewarmBlendRequest(blend=blend, offset=offset, rows=rows, columns=columns)
        except ValueError as error:
            raise InvalidReadError(f"prewarm: {error}; give whole numbers from 0 on, below 2**62") from error
        serialize = rows_pb2.PrewarmBlendRequest.SerializeToString
        method: grpc.UnaryStreamMultiCallable[rows_pb2.PrewarmBlendRequest, rows_pb2.PrewarmProgress] = self._channels[
            -1
        ].unary_stream(PREWARM_BLEND, serialize, rows_pb2.PrewarmProgress.FromString)
        try:
            for progress in method(request):
                yield Prewarmed(progress.row, progress.stopped)
        except grpc.RpcError as error:
            raise error_of(error, self.address) from error

    def close(self) -> None:
        """Close the connection; running reads end with an error, also those waiting for a server."""
        for stream in list(self._streams):
            stream.tell()
        self._closed.set()
        with self._lock:
            for channel in self._channels:
                channel.close()

    def __enter__(self) -> BlenderClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, request: Request) -> Any:
        """Make a unary call, and try again while the server cannot be reached."""
        backoff = self._backoff()
        while True:
            backoff.check_open()
            try:
                stub = blends_pb2_grpc.BlendServiceStub(self._channels[-1])
                return getattr(stub, method)(request, timeout=self._timeout_seconds)
            except grpc.RpcError as rpc_error:
                if cast(grpc.Call, rpc_error).code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._renew()
                backoff.wait(error_of(rpc_error, self.address))
            except (
                UnauthenticatedError,
                ServerUnavailableError,
            ) as error:  # the token's file, or the lake
                backoff.wait(error)

    def _renew(self) -> None:
        """Open another connection for the next calls: to another replica where one is frozen.

        A stopped process keeps its connections, and the kernel takes what is sent to it. Reads that go on over
        an earlier connection keep it until two more were opened.
        """
        with self._lock:
            if not self._closed.is_set():
                self._channels.append(self._open_channel())
                for channel in self._channels[:-KEPT_CHANNELS]:
                    channel.close()
                del self._channels[:-KEPT_CHANNELS]

    def _read_blend(self, request: rows_pb2.ReadBlendRequest) -> Any:
        # Without a deserializer messages come as bytes: a generated class would copy the token ids twice.
        serialize = rows_pb2.ReadBlendRequest.SerializeToString
        return self._channels[-1].unary_stream(READ_BLEND, request_serializer=serialize)(request)

    def _report(self, request: rows_pb2.ReportConsumedRequest) -> Any:
        serialize = rows_pb2.ReportConsumedRequest.SerializeToString
        method: grpc.UnaryUnaryMultiCallable[rows_pb2.ReportConsumedRequest, bytes] = self._channels[-1].unary_unary(
            REPORT_CONSUMED, request_serializer=serialize
        )
        return method.future(request, timeout=self._timeout_seconds)

    def _backoff(self) -> Backoff:
        return Backoff(self._retry_seconds, self._closed, self._token_file)


def _with_warnings(blend: Blend) -> Blend:
    """Log the warnings of a blend, and give it."""
    for warning in blend.warnings:
        logger.warning("blend %s: %s", blend.blend_id[:12], warning)
    return blend


connect = BlenderClient
"""Give a client for a server."""
