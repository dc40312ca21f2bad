"""Receive the rows of a read in order, each once, over any number of connections.

A stream that breaks is opened again at the first row that was not handed out, also one whose token was taken back while
the file of the token holds, or soon will, another. A stream that falls silent is cancelled and opened again, so that no
read hangs: while a server waits for a live row, it sends an empty batch every few seconds.
`Prefetcher` runs an iterator in a thread, a few items ahead of its consumer.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import queue
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Generic, TypeVar

import grpc

from blender_service.blend.definition_messages import Blend
from blender_service.client.retry import Backoff, InputClock, SilenceWatch
from blender_service.client.window_layout import WindowLayout, sequence_tokens_of
from blender_service.exceptions import (
    BlenderError,
    InvalidReadError,
    MalformedMessageError,
    ServerUnavailableError,
    UnauthenticatedError,
    WindowMismatchError,
)
from blender_service.wire.rank_slice import Slice
from blender_service.wire.read_digest import ReadDigest
from blender_service.wire.row_batch import RowBatch, decode
from blender_service.wire.status import error_of
from headrace.blender.v1 import rows_pb2

OpenStream = Callable[[rows_pb2.ReadBlendRequest], Any]
Report = Callable[[rows_pb2.ReportConsumedRequest], Any]

REPORT_SECONDS: Final = 1.0
_PEER_REPORT_SECONDS: Final = 30.0  # of each of a thousand ranks, whose digests alone are of use
LAST_REPORT_SECONDS: Final = 5.0
_MOST_STRETCHES: Final = 4096  # told again, where reports failed: 100 KB of the 256 that a server takes

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
        find_end: Callable[[], int | None],
        renew: Callable[[], None],
        report: Report | None,
    ) -> None:
        """Prepare to read; the first batch asked for opens the stream, `silence_seconds` bounds waits in it.

        `find_end` gives the end of the blend, `renew` opens another connection where one is silent. `report` begins to
        tell the server how far the consumer has come, and gives a future; None where nobody asks.
        """
        self.clock = InputClock()
        self._request = request
        self._part = part
        self._open = open_stream
        self._address = address
        self._backoff = backoff
        self._watch = SilenceWatch(silence_seconds)
        self._batches = self._read()
        self._find_end = find_end
        self._renew = renew
        self._report = report
        self._report_seconds = _PEER_REPORT_SECONDS if part and part.rank else REPORT_SECONDS
        self._digest = ReadDigest()
        self._opened: list[tuple[str, int]] = []  # id and first row of the reads whose rows are not all consumed
        self._untold = deque[rows_pb2.ReportConsumedRequest]()  # reports that failed
        self._consumed = self._told_last = request.offset
        self._told_at = float("-inf")

    @property
    def input_stall_seconds(self) -> float:
        """The consumer's time of waiting for batches after the first."""
        return self.clock.input_stall_seconds

    @property
    def input_stall_share(self) -> float:
        """Share of waiting by the consumer in the time since the first batch."""
        return self.clock.input_stall_share

    def __next__(self) -> RowBatch:
        """Give the next batch.

        Raises:
            BlenderError: as `BlenderClient.read` says.
        """
        try:
            with self.clock.waiting():
                batch = next(self._batches)
        except StopIteration:
            self.tell()
            raise
        self.consumes(batch.end)
        return batch

    def steps(self, by_class: Blend | None = None) -> Iterator[WindowLayout]:
        """Give a model's inputs of each step as NumPy arrays: of the rows that `part` is of it.

        With `by_class`, the blend that is read, of the sequences of their length class.

        Raises:
            InvalidReadError: the read has no `part`, so it has no steps.
        """
        if self._part is None:
            raise InvalidReadError("read: steps are those of a part; give part=(step_rows, rank, world_size)")
        pieces: list[RowBatch] = []
        for batch in self:
            pieces += [batch] if batch.rows else []
            if sum(piece.rows for piece in pieces) == self._part.rows:
                length = sequence_tokens_of(by_class, *pieces) if by_class is not None else 0
                yield WindowLayout(*pieces, sequence_tokens=length)
                pieces = []

    def ahead(self) -> Iterator[RowBatch]:
        """Give the batches to a reader ahead of their consumer; it says by `consumes` how far that has come."""
        return self._batches

    def consumes(self, row: int) -> None:
        """Note that the consumer has taken the rows below `row`; the server is told of rank 0 once a second."""
        self._consumed = row
        if self._report is None or not self._opened:
            return
        while len(self._opened) > 1 and self._opened[1][1] < row:
            before, _ = self._opened.pop(0)
            self._send(self._report, self._reached(before, self._opened[0][1], last=True))
            self._digest.restart()
        if time.monotonic() - self._told_at >= self._report_seconds:
            self._begin_to_tell(self._report, last=False)

    def tell(self) -> None:
        """Tell the server now how far the consumer has come, and wait for that a little; no error comes of it."""
        if self._report is not None and self._opened and self._consumed != self._told_last:
            self._told_last = self._consumed
            with contextlib.suppress(grpc.RpcError, grpc.FutureTimeoutError, BlenderError, ValueError):
                self._begin_to_tell(self._report, last=True).result(LAST_REPORT_SECONDS)

    def _begin_to_tell(self, report: Report, last: bool) -> Any:
        self._told_at = time.monotonic()
        return self._send(report, self._reached(self._opened[0][0], self._consumed, last))

    def _send(self, report: Report, request: rows_pb2.ReportConsumedRequest) -> Any:
        """Send a report; its callback keeps it until it is done, for gRPC cancels a call that nobody holds."""
        sent = report(request)
        sent.add_done_callback(functools.partial(self._keep_failed, request))
        return sent

    def _keep_failed(self, request: rows_pb2.ReportConsumedRequest, sent: Any) -> None:
        if sent.cancelled() or sent.exception() is not None:
            self._untold.append(request)

    def _reached(self, read_id: str, row: int, last: bool) -> rows_pb2.ReportConsumedRequest:
        """Say how far the consumer of a read has come, and what it read since the last report that arrived."""
        self._digest.consume(row)
        stretches: dict[int, tuple[int, int]] = {}
        while self._untold:
            failed = self._untold.popleft()
            if failed.read_id == read_id:  # of a stretch the report with most rows is the newest
                for of in failed.digests:
                    stretches[of.stretch] = max((of.rows, of.digest), stretches.get(of.stretch, (0, 0)))
        stretches |= {stretch.number: (stretch.rows, stretch.digest) for stretch in self._digest.take()}
        newest = sorted(stretches.items())[-_MOST_STRETCHES:]
        digests = [rows_pb2.StretchDigest(stretch=at, rows=rows, digest=digest) for at, (rows, digest) in newest]
        return rows_pb2.ReportConsumedRequest(read_id=read_id, row=row, last=last, digests=digests)

    def close(self) -> None:
        """End the stream; the server then frees its resources."""
        self.tell()
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
                request = position.reopened(self._request)
                request.read_id = uuid.uuid4().hex[:8] if self._report is not None else ""
                call = self._open(request)
                self._opened.append((request.read_id, request.offset))
                try:
                    for batch in self._messages(call):
                        if batch.end_of_blend:
                            self._check_end(position)
                        fresh = position.undelivered(batch)
                        if fresh is None:
                            continue
                        if self._report is not None and fresh.rows:
                            self._digest.add(fresh)
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
                except (UnauthenticatedError, ServerUnavailableError) as error:  # the token's file, or the lake's store
                    self._backoff.wait(error)
                finally:
                    call.cancel()
        finally:
            self._watch.end()

    def _check_end(self, position: _Position) -> None:
        """Believe no early end of the blend: rows would be missing, and nobody would see it.

        Raises:
            MalformedMessageError: the blend goes on.
        """
        end, step_rows = self._find_end(), self._part.step_rows if self._part else 1
        if end is None or position.step_start + step_rows <= end:
            raise MalformedMessageError(
                f"read: the blend was said to end at row {position.step_start}, it ends at {end or 'no row'}; the "
                "server or a proxy between is faulty, go on from the last state with another one"
            )

    def _messages(self, call: Any) -> Iterator[RowBatch]:
        """Give the batches of one connection; empty ones naming a live row are logged and left out."""
        while True:
            with self._watch.waiting(call.cancel):
                message: bytes | RowBatch | None = next(call, None)
            if message is None:
                return
            batch = decode(message) if isinstance(message, bytes) else message
            self._backoff.reset()
            lacking = [name for name in self._request.columns if name not in batch.columns]
            if batch.rows and lacking:
                raise MalformedMessageError(
                    f"server {self._address}: sends no column {lacking[0]}; it is older than this client, update it"
                )
            wanted, length = self._request.expected.window_tokens, batch.input_ids.shape[1]
            if batch.rows and wanted and wanted != length:
                raise WindowMismatchError(
                    f"read: rows from {batch.offset} on have {length} tokens, expected are {wanted}; read up to there, "
                    "and go on with what is built for the longer ones"
                )
            if batch.waiting_for:
                logger.info("%s: waiting for %s", self._address, batch.waiting_for)
            else:
                yield batch

    def _error(self, rpc_error: grpc.RpcError) -> BlenderError:
        if self._watch.interrupted:
            self._renew()
            return ServerUnavailableError(
                f"server {self._address}: said nothing for {self._watch.seconds:g} s; see whether it is stuck"
            )
        return error_of(rpc_error, self._address)


class _Position:
    """The handed-out rows of a read, and the row due next from the open connection."""

    def __init__(self, request: rows_pb2.ReadBlendRequest, part: Slice | None) -> None:
        self.part = part
        self.next_row = request.offset
        self.step_start = request.offset
        self._arriving = request.offset
        self._until = request.offset + request.rows if request.rows else None

    @property
    def done(self) -> bool:
        """Whether all requested rows are handed out."""
        return self._until is not None and self.step_start >= self._until

    def reopened(self, request: rows_pb2.ReadBlendRequest) -> rows_pb2.ReadBlendRequest:
        """Give the request of a new connection, starting at the incomplete step."""
        self._arriving = self.step_start + (self.part.start if self.part else 0)
        rows = self._until - self.step_start if self._until is not None else 0
        again = rows_pb2.ReadBlendRequest()
        again.CopyFrom(request)
        again.offset, again.rows = self.step_start, rows
        return again

    def undelivered(self, batch: RowBatch) -> RowBatch | None:
        """Cut rows handed out already from a batch, and advance; None if no row is left.

        Raises:
            MalformedMessageError: the batch does not begin at the next row.
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


_RUNNING: Final[weakref.WeakSet[Prefetcher[Any]]] = weakref.WeakSet()

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Holds some items ready; leaving the context ends the thread, whatever it waits for."""

    def __init__(self, items: Iterator[Item], ahead: int, interrupt: Callable[[], None]) -> None:
        """Hold at most `ahead` items of `items` ready; `interrupt` ends a wait inside `items`."""
        self._items = items
        self._interrupt = interrupt
        self._queue: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(ahead)  # places of the queue; waiting for one wakes nobody in between
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blend-prefetch", daemon=True)

    def __enter__(self) -> Iterator[Item]:
        self._thread.start()
        _RUNNING.add(self)
        return self._taken()

    def __exit__(self, *_: object) -> None:
        if sys.is_finalizing():  # `_end_all` was here, and neither the thread nor gRPC's modules work any more
            return
        _RUNNING.discard(self)
        self.interrupt()
        self._thread.join()

    def interrupt(self) -> None:
        """Let the thread end."""
        self._stopping.set()
        self._room.release()
        self._interrupt()

    def _taken(self) -> Iterator[Item]:
        while (item := self._queue.get()) is not None:
            self._room.release()
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
        if not self._stopping.is_set():
            self._room.acquire()  # `interrupt` makes room too
        if self._stopping.is_set():
            return False
        self._queue.put(item)
        return True


@atexit.register
def _end_all() -> None:
    """End the threads of iterators left open by a program, while that can be done."""
    for prefetcher in list(_RUNNING):
        prefetcher.interrupt()
