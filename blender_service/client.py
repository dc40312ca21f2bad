"""A Blender client: defines blends and reads rows. Needs grpcio, protobuf and NumPy, nothing of the lake.

    with connect("127.0.0.1:7170") as client:
        for batch in client.read("my-blend", offset=1_000_000, rows=4096):
            train(batch.input_ids)

A read survives a server that restarts: it connects again, with growing pauses, and goes on at the next row that was not
handed out yet. Rows come once, in order, whatever happens in between.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import grpc
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2

from blender_service.client_messages import (
    Blend,
    BlendDescription,
    BlendSource,
    blend_of,
    change_message,
    description_of,
    source_message,
    stage_message,
)
from blender_service.exceptions import BlenderError, ServerUnavailableError
from blender_service.slices import Slice
from blender_service.specification import SourceChange, SourceSpec, Stage
from blender_service.status import error_of
from blender_service.window import ExpectedWindow
from blender_service.wire import RowBatch, decode

Response = TypeVar("Response")
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
READ_BLEND: Final = "/headrace.blender.v1.RowService/ReadBlend"
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

logger = logging.getLogger(__name__)

__all__ = ["Blend", "BlendDescription", "BlendSource", "BlenderClient", "connect"]


class BlenderClient:
    """Talks to one address. May be used by many threads."""

    def __init__(self, address: str, *, timeout_seconds: float = 30.0, retry_seconds: float = 60.0) -> None:
        """Prepare to talk; the connection is made when it is needed.

        Args:
            address: host:port.
            timeout_seconds: longest wait for the answer of a call.
            retry_seconds: how long to go on trying to reach a server that does not answer.
        """
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._closed = threading.Event()
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._blends = blends_pb2_grpc.BlendServiceStub(self._channel)  # type: ignore[no-untyped-call]
        # Messages of rows are read by hand: a generated class would copy the token ids, twice.
        self._read_blend: grpc.UnaryStreamMultiCallable[rows_pb2.ReadBlendRequest, bytes] = self._channel.unary_stream(
            READ_BLEND, request_serializer=rows_pb2.ReadBlendRequest.SerializeToString
        )

    def create_blend(
        self,
        sources: Sequence[SourceSpec],
        *,
        seed: int = 0,
        name: str = "",
        block_rows: int = 0,
        group_blocks: int = 0,
        schedule: Sequence[Stage] = (),
        allow_repeat: bool = False,
    ) -> Blend:
        """Create a blend, or find the one that is already the same.

        Args:
            sources: at least one.
            seed: of every permutation.
            name: a second way to call it, bound once.
            block_rows: consecutive rows read together, 0 for the server's default.
            group_blocks: blocks shuffled together, 0 for the server's default.
            schedule: updates made at once, ascending by offset; the blend is then the last of the chain.
            allow_repeat: whether one table may come under two names, so that its rows repeat.

        Raises:
            InvalidBlendError: with every mistake of the request.
        """
        request = blends_pb2.CreateBlendRequest(
            sources=[source_message(source) for source in sources],
            seed=seed,
            name=name,
            block_rows=block_rows,
            group_blocks=group_blocks,
            schedule=[stage_message(stage) for stage in schedule],
            allow_repeat=allow_repeat,
        )
        return blend_of(self._call(self._blends.CreateBlend, request))

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
    ) -> Blend:
        """Create a blend that is row for row its parent up to an offset, and goes on otherwise from there.

        Args:
            parent: id, start of an id, or name.
            from_offset: first row that the changes decide.
            changes: at most one a source.
            align: round from_offset up to the next end of a cycle, where the mix so far is exact.
            name: a second way to call the child, bound once.
            allow_repeat: whether one table may come under two names, so that its rows repeat.
            schedule: further updates, ascending by offset.

        Raises:
            InvalidBlendError: with every mistake of the request.
            UpdateRefusedError: the update cannot be exact; the message says the ways out.
        """
        request = blends_pb2.UpdateBlendRequest(
            parent=parent,
            from_offset=from_offset,
            changes=[change_message(change) for change in changes],
            align=align,
            name=name,
            allow_repeat=allow_repeat,
            schedule=[stage_message(stage) for stage in schedule],
        )
        return blend_of(self._call(self._blends.UpdateBlend, request))

    def describe_blend(self, blend: str, offset: int | None = None) -> BlendDescription:
        """Say what a blend has read at an offset, and when its sources run out.

        Args:
            blend: id, start of an id, or name.
            offset: None for the end, or for the first cycle of the last segment of a blend without end.

        Raises:
            OffsetOutOfRangeError: the offset is beyond the end.
        """
        request = blends_pb2.DescribeBlendRequest(blend=blend, offset=offset)
        return description_of(self._call(self._blends.DescribeBlend, request))

    def get_blend(self, blend: str) -> Blend:
        """Look a blend up by id, start of an id, or name.

        Raises:
            BlendNotFoundError: there is none.
        """
        return blend_of(self._call(self._blends.GetBlend, blends_pb2.GetBlendRequest(blend=blend)))

    def list_blends(self) -> list[Blend]:
        """List all blends, ascending by id, page by page."""
        found: list[Blend] = []
        token = ""
        while True:
            page = self._call(self._blends.ListBlends, blends_pb2.ListBlendsRequest(page_token=token))
            found += [blend_of(blend) for blend in page.blends]
            token = page.next_page_token
            if not token:
                return found

    def read(
        self,
        blend: str,
        offset: int,
        rows: int = 0,
        *,
        part: Slice | None = None,
        expected: ExpectedWindow | None = None,
        max_batch_rows: int = 0,
        wait_seconds: float = 0.0,
    ) -> Iterator[RowBatch]:
        """Read rows in order, from any offset; the iterator ends after the rows asked for, or with the blend.

        Where the blend ends, the last batch is an empty one with `end_of_blend`. Close the iterator to stop early.

        Args:
            blend: id, start of an id, or name.
            offset: first row.
            rows: rows of the blend to cover, 0 until it ends.
            part: only one rank's part of every step; a batch never crosses a step.
            expected: what the rows must be.
            max_batch_rows: bound of the rows of a batch, 0 for about 1 MiB.
            wait_seconds: longest wait for a row that a live table does not have yet, 0 without end.

        Raises:
            OffsetOutOfRangeError: the read starts beyond the end.
            RowNotThereYetError: a live row did not come in time.
            WindowMismatchError: the rows are not what is expected.
            ServerUnavailableError: no server answered for `retry_seconds`.
        """
        position = _Position(offset, rows, part)
        patience = _Patience(self._retry_seconds, self._closed)
        while not position.done:
            patience.check_open()
            request = _read_request(blend, position, expected, max_batch_rows)
            request.wait_seconds = wait_seconds
            call = self._read_blend(request)
            try:
                for message in call:
                    received = decode(message)
                    if received.waiting_for:
                        patience.reset()
                        logger.info("%s: waiting for %s", self.address, received.waiting_for)
                        continue
                    batch = position.undelivered(received)
                    patience.reset()
                    if batch is None:
                        continue
                    yield batch
                    if batch.end_of_blend:
                        return
                if not position.done:
                    raise ServerUnavailableError(
                        f"server {self.address}: ended the stream at row {position.next_row}; read on from there"
                    )
            except grpc.RpcError as rpc_error:
                patience.wait(error_of(rpc_error, self.address))
            finally:
                call.cancel()

    def close(self) -> None:
        """Close the connection; running reads end with an error, also those that wait for a server."""
        self._closed.set()
        self._channel.close()

    def __enter__(self) -> BlenderClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: Callable[..., Response], request: Any) -> Response:
        """Make a unary call, with patience for a server that is not there yet."""
        patience = _Patience(self._retry_seconds, self._closed)
        while True:
            patience.check_open()
            try:
                return method(request, timeout=self._timeout_seconds)
            except grpc.RpcError as rpc_error:
                patience.wait(error_of(rpc_error, self.address))


def connect(address: str, *, timeout_seconds: float = 30.0, retry_seconds: float = 60.0) -> BlenderClient:
    """Give a client for a server; see `BlenderClient`."""
    return BlenderClient(address, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)


class _Patience:
    """Growing pauses between attempts, until the time is up."""

    def __init__(self, seconds: float, closed: threading.Event) -> None:
        self._seconds = seconds
        self._closed = closed
        self.reset()

    def check_open(self) -> None:
        """Refuse an attempt on a client that was closed."""
        if self._closed.is_set():
            raise ServerUnavailableError("client: it was closed; connect again")

    def reset(self) -> None:
        """Start anew after a success."""
        self._deadline: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    def wait(self, error: BlenderError) -> None:
        """Pause before the next attempt, or raise the error where another attempt cannot help."""
        now = time.monotonic()
        self._deadline = self._deadline if self._deadline is not None else now + self._seconds
        if not isinstance(error, ServerUnavailableError) or now + self._pause > self._deadline:
            raise error
        self._closed.wait(
            self._pause * random.uniform(0.5, 1.0)
        )  # ranks that lost one server must not come back at once
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)


class _Position:
    """What of a read was handed out, so that a new connection goes on at the next row."""

    def __init__(self, offset: int, rows: int, part: Slice | None) -> None:
        self.part = part
        self.next_row = offset
        self.step_start = offset
        self._until = offset + rows if rows else None

    @property
    def done(self) -> bool:
        """Whether all rows that were asked for are handed out."""
        return self._until is not None and self.step_start >= self._until

    @property
    def remaining_rows(self) -> int:
        """Rows of the blend still to cover, 0 until it ends."""
        return self._until - self.step_start if self._until is not None else 0

    def undelivered(self, batch: RowBatch) -> RowBatch | None:
        """Cut what was handed out already from a batch and move on; None if nothing is left of it."""
        if batch.end_of_blend or self.part is None:
            self.next_row = self.step_start = batch.end
            return batch
        if batch.end <= self.next_row:
            return None  # a new connection starts at the step, so its first batches may be known
        fresh = batch.tail(max(0, self.next_row - batch.offset))
        self.next_row = batch.end
        if self.next_row == self.step_start + self.part.start + self.part.rows:
            self.step_start += self.part.step_rows
        return fresh


def _read_request(
    blend: str, position: _Position, expected: ExpectedWindow | None, max_batch_rows: int
) -> rows_pb2.ReadBlendRequest:
    part = position.part
    return rows_pb2.ReadBlendRequest(
        blend=blend,
        offset=position.step_start,
        rows=position.remaining_rows,
        slice=rows_pb2.Slice(**part._asdict()) if part else None,
        expected=rows_pb2.ExpectedWindow(**vars(expected)) if expected else None,
        max_batch_rows=max_batch_rows,
    )
