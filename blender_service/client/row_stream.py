"""Receive the rows of a read in order, each once, over any number of connections.

A stream that breaks is opened again at the first row that was not handed out, also one whose token was taken back while
the file of the token holds, or soon will, another. A stream that falls silent is cancelled and opened again, so that no
read hangs: while a server waits for a live row, it sends an empty batch every few seconds.
`Prefetcher` runs an iterator in a thread, a few items ahead of its consumer.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Generic, TypeVar

import grpc
from headrace.blender.v1 import rows_pb2

from blender_service.client.retry import Backoff, InputClock, SilenceWatch
from blender_service.exceptions import (
    BlenderError,
    MalformedMessageError,
    ServerUnavailableError,
    UnauthenticatedError,
)
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch, decode
from blender_service.wire.status import error_of

OpenStream = Callable[[rows_pb2.ReadBlendRequest], Any]

logger = logging.getLogger(__name__)


class RowStream(Iterator[RowBatch]):
    """Batches of a read; close it to stop early. One consumer at a time."""

    def __init__(
        self,
        request: rows_pb2.ReadBlendRequest,
        part: Slice | None,
        open_stream: OpenStream,
        address: str,
        backoff: Backoff,
        silence_seconds: float,
    ) -> None:
        """Prepare to read; the first batch asked for opens the stream, `silence_seconds` bounds waits in it."""
        self.clock = InputClock()
        self._request = request
        self._part = part
        self._open = open_stream
        self._address = address
        self._backoff = backoff
        self._watch = SilenceWatch(silence_seconds)
        self._batches = self._read()

    @property
    def input_stall_seconds(self) -> float:
        """Time that the consumer waited for batches after the first."""
        return self.clock.input_stall_seconds

    @property
    def input_stall_share(self) -> float:
        """Share of the time since the first batch in which the consumer waited."""
        return self.clock.input_stall_share

    def __next__(self) -> RowBatch:
        """Give the next batch.

        Raises:
            BlenderError: as `BlenderClient.read` says.
        """
        with self.clock.waiting():
            return next(self._batches)

    def close(self) -> None:
        """End the stream; the server then frees its resources."""
        self._batches.close()

    def __enter__(self) -> RowStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Generator[RowBatch, None, None]:
        """Give all rows, opening the stream as often as that takes."""
        position = _Position(self._request, self._part)
        try:
            while not position.done:
                self._backoff.check_open()
                call = self._open(position.reopened(self._request))
                try:
                    for batch in self._messages(call):
                        fresh = position.undelivered(batch)
                        if fresh is None:
                            continue
                        yield fresh
                        if fresh.end_of_blend:
                            return
                    if not position.done:
                        ended = (
                            f"server {self._address}: ended the stream at row {position.next_row}; read on from there"
                        )
                        self._backoff.wait(ServerUnavailableError(ended))
                except grpc.RpcError as rpc_error:
                    self._backoff.wait(self._error(rpc_error))
                except UnauthenticatedError as error:  # the file of the token could not be read
                    self._backoff.wait(error)
                finally:
                    call.cancel()
        finally:
            self._watch.end()

    def _messages(self, call: Any) -> Iterator[RowBatch]:
        """Give the batches of one connection; empty ones that name a live row are logged and left out."""
        while True:
            with self._watch.waiting(call.cancel):
                message: bytes | None = next(call, None)
            if message is None:
                return
            batch = decode(message)
            self._backoff.reset()
            if batch.waiting_for:
                logger.info("%s: waiting for %s", self._address, batch.waiting_for)
            else:
                yield batch

    def _error(self, rpc_error: grpc.RpcError) -> BlenderError:
        if self._watch.interrupted:
            return ServerUnavailableError(
                f"server {self._address}: said nothing for {self._watch.seconds:g} s; see whether it is stuck"
            )
        return error_of(rpc_error, self._address)


class _Position:
    """The rows of a read that were handed out, and the row that the open connection must send next."""

    def __init__(self, request: rows_pb2.ReadBlendRequest, part: Slice | None) -> None:
        self.part = part
        self.next_row = request.offset
        self.step_start = request.offset
        self._arriving = request.offset
        self._until = request.offset + request.rows if request.rows else None

    @property
    def done(self) -> bool:
        """Whether all rows that were asked for are handed out."""
        return self._until is not None and self.step_start >= self._until

    def reopened(self, request: rows_pb2.ReadBlendRequest) -> rows_pb2.ReadBlendRequest:
        """Give the request of a new connection, which starts at the step that is not complete."""
        self._arriving = self.step_start + (self.part.start if self.part else 0)
        rows = self._until - self.step_start if self._until is not None else 0
        again = rows_pb2.ReadBlendRequest()
        again.CopyFrom(request)
        again.offset, again.rows = self.step_start, rows
        return again

    def undelivered(self, batch: RowBatch) -> RowBatch | None:
        """Cut rows that were handed out already from a batch, and advance; None if no row is left.

        Raises:
            MalformedMessageError: the batch does not begin at the row that comes next.
        """
        if batch.end_of_blend and batch.rows == 0:
            self.next_row = self.step_start = batch.end
            return batch
        if batch.offset != self._arriving:
            raise MalformedMessageError(
                f"read: row {batch.offset} came where row {self._arriving} was to come; the server or a proxy between "
                "is faulty, go on from the last state with another one"
            )
        self._arriving = batch.end
        if self.part is None:
            self.next_row = self.step_start = batch.end
            return batch
        last = self.step_start + self.part.start + self.part.rows
        if batch.end <= self.next_row:
            return None  # known from the connection before
        fresh = batch.tail(max(0, self.next_row - batch.offset))
        self.next_row = batch.end
        if self.next_row == last:
            self.step_start += self.part.step_rows
            self._arriving = self.step_start + self.part.start
        return fresh


POLL_SECONDS: Final = 0.1

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Holds some items ready; leaving the context ends the thread, whatever it waits for."""

    def __init__(self, items: Iterator[Item], ahead: int, interrupt: Callable[[], None]) -> None:
        """Hold at most `ahead` items of `items` ready; `interrupt` ends a wait inside `items`."""
        self._items = items
        self._interrupt = interrupt
        self._queue: queue.Queue[Item | BaseException | None] = queue.Queue(maxsize=ahead)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blend-prefetch", daemon=True)

    def __enter__(self) -> Iterator[Item]:
        self._thread.start()
        return self._taken()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._interrupt()
        self._thread.join()

    def _taken(self) -> Iterator[Item]:
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    break
            self._put(None)
        except BaseException as error:  # noqa: BLE001 (raised again in the consumer's thread)
            self._put(error)

    def _put(self, item: Item | BaseException | None) -> bool:
        """Queue an item, unless the consumer has left; say whether it was queued."""
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
