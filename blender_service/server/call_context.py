"""Hold the facts of one call: its caller, what it reads, how far it has come, how it ended.

The interceptor makes an `RpcCall` and passes it to the services inside the context; the services note in it what they
read; audit log, metrics and register of runs read it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, cast

import grpc
import numpy as np

from blender_service.auth.visible_lake import MayCreate, MayRead
from blender_service.exceptions import BlenderError
from blender_service.rows.batch_assembly import BatchMessage
from blender_service.server.blender import Blender
from blender_service.wire.row_batch import RowBatch
from blender_service.wire.status import DETAILS_KEY, details_of, status_of
from headrace.tables.window_facts import WindowFacts

# Statuses travel in HTTP/2 trailers, of which most peers take 8 KiB: the message as text, where other characters than
# ASCII take 3 bytes a byte, and once more in the details, in base64.
MAX_DETAIL_BYTES: Final = 3000
RUN, RUN_NOTES, CODE_VERSION = "headrace-run", "headrace-run-notes", "headrace-code-version"


@dataclass
class RpcCall:
    """One call.

    Attributes:
        method: its name, such as ReadBlend.
        principal: the caller's name.
        team: its shares of the server are for the call; empty for none.
        peer: the caller's address.
        may_read: the principal's readable tables; None for all.
        may_create: those of them the principal may create blends of.
        may_append: those of them the principal may append rollouts to.
        metadata: that the client sent, without the token.
        request: the message.
        blend_id: of the blend it defines or reads, empty while unknown.
        offset: first row of a read.
        next_offset: row after the last one handed to gRPC.
        rows: number of rows handed to gRPC.
        message_bytes: of all answers, as serialised.
        source_rows: rows of each source handed to gRPC since metrics last took them.
        source_names: of the blend being read.
        window_tokens: tokens of a row.
        token_bytes: width of a token.
        stream_of: principal and team of the stream's count, None if it is not counted.
        waiting: whether the read waits for a live row.
        has_waited: whether it did at the previous answer.
        is_measured: whether the time to its first rows was taken.
        counted_seconds: seconds from its start to its last count by metrics.
        counted_bytes: bytes of its answers counted by metrics.
        is_whole: whether the last requested row, or the blend's last, was handed to gRPC.
        run_key: name of the read in the register of runs, empty for one without a run or of another rank than 0.
        digest_key: the same of every rank's read, for what it consumed.
        run_reported: seconds from its start to its last record in the register.
        consumed: row after the last one reported by the client as consumed, None where it reports nothing.
        digests: of what the client consumed, by stretch: rows and their sum (`wire.read_digest`).
        status: name of the gRPC status, empty while it runs.
        detail: message of the status.
        started: seconds of the monotonic clock.
    """

    method: str
    principal: str = ""
    team: str = ""
    peer: str = ""
    may_read: MayRead | None = None
    may_create: MayCreate = lambda table: True
    may_append: MayCreate = lambda table: True
    metadata: Mapping[str, str] = field(default_factory=dict)
    request: Any = None
    blend_id: str = ""
    first_blend: str = ""
    offset: int | None = None
    next_offset: int | None = None
    rows: int = 0
    message_bytes: int = 0
    source_rows: dict[str, int] = field(default_factory=dict)
    source_names: Sequence[str] = ()
    window_tokens: int = 0
    token_bytes: int = 0
    stream_of: tuple[str, str] | None = None
    waiting: bool = False
    has_waited: bool = False
    is_measured: bool = False
    counted_seconds: float = 0.0
    counted_bytes: int = 0
    is_whole: bool = False
    run_key: str = ""
    digest_key: str = ""
    run_reported: float = 0.0
    consumed: int | None = None
    digests: dict[int, tuple[int, int]] = field(default_factory=dict)
    status: str = ""
    detail: str = ""
    started: float = field(default_factory=time.monotonic)

    def reads(self, blend_id: str, offset: int, names: Sequence[str], window: WindowFacts) -> None:
        """Note the blend of a read, its first offset, its sources and its window facts."""
        self.blend_id, self.offset, self.next_offset = blend_id, offset, offset
        self.source_names, self.window_tokens, self.token_bytes = names, window.window_tokens, window.token_bytes

    def sends(self, batch: BatchMessage | RowBatch) -> None:
        """Note a batch about to be sent."""
        self.waiting = bool(batch.waiting_for)
        self.rows += batch.end - batch.offset
        self.next_offset = batch.end
        requested = int(self.request.rows) if self.request is not None else 0
        self.is_whole = batch.end_of_blend or 0 < requested <= self.end_of_step(batch.end) - (self.offset or 0)
        for name, count in zip(self.source_names, np.bincount(batch.sources).tolist(), strict=False):
            if count:
                self.source_rows[name] = self.source_rows.get(name, 0) + count

    def end_of_step(self, reached: int) -> int:
        """Give `reached`; for a read of one rank's slice, rounded up to the end of its step."""
        first = self.offset or 0
        if not self.request.HasField("slice") or reached <= first:
            return reached
        step_rows = int(self.request.slice.step_rows)
        return first - (first - reached) // step_rows * step_rows

    @property
    def status_at_end(self) -> str:
        """The status of a call without any other end: a client with all rows may close its stream."""
        return self.status or ("OK" if self.is_whole else "CANCELLED")

    def take_source_rows(self) -> dict[str, int]:
        """Give the rows of each source since this was last asked."""
        taken, self.source_rows = self.source_rows, {}
        return taken

    @property
    def seconds(self) -> float:
        """Time since it began."""
        return time.monotonic() - self.started


class CallContext:
    """gRPC's context of a call, with the `RpcCall` beside it."""

    def __init__(self, inner: grpc.ServicerContext, call: RpcCall) -> None:
        """Wrap `inner`."""
        self.inner = inner
        self.call = call

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with a status, noting it."""
        self.call.status, self.call.detail = code.name, details
        self.inner.abort(code, details)
        raise AssertionError("abort always raises")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def call_of(context: grpc.ServicerContext) -> RpcCall:
    """Give the call of a context; one without limits where no interceptor made one, as in tests of the services."""
    return context.call if isinstance(context, CallContext) else RpcCall("")


def seen_by(context: grpc.ServicerContext, blender: Blender) -> Blender:
    """Give the view of the lake with only what the caller may read."""
    call = call_of(context)
    return blender.within(call.may_read, call.may_create, call.team)


def with_call(context: grpc.ServicerContext, call: RpcCall) -> grpc.ServicerContext:
    """Put a call beside a context."""
    return cast(grpc.ServicerContext, CallContext(context, call))


def refuse(error: BlenderError, context: grpc.ServicerContext) -> NoReturn:
    """End a call with the status and the message of an error."""
    message = short(str(error))
    context.set_trailing_metadata(((DETAILS_KEY, details_of(error, message)),))
    context.abort(status_of(error), message)
    raise AssertionError("abort always raises")


def short(message: str) -> str:
    """Cut a message so that it fits into the trailers of a call; its end is kept, since it says how to mend."""
    weights = [1 if " " <= character <= "~" else 3 * len(character.encode(errors="replace")) for character in message]
    if sum(weights) <= MAX_DETAIL_BYTES:
        return message
    half, head, tail = MAX_DETAIL_BYTES // 2, 0, len(message)
    spent = 0
    while spent + weights[head] <= half:
        spent += weights[head]
        head += 1
    spent = 0
    while spent + weights[tail - 1] <= half:
        tail -= 1
        spent += weights[tail]
    return f"{message[:head]} [..] {message[tail:]}"
