"""A Blender client: reads rows, and defines blends. Needs grpcio and NumPy, nothing of the lake.

Only what defines, lists or describes blends needs protobuf besides; a training job does none of that.

    with connect("127.0.0.1:7170") as client:
        for batch in client.read("my-blend", offset=1_000_000, rows=4096):
            train(batch.input_ids)

A read survives a server that restarts: it connects again, with growing pauses, and goes on at the next row that was not
handed out yet. Rows come once, in order, whatever happens in between. Several replicas are one address:
`ipv4:10.0.0.1:7170,10.0.0.2:7170`, or a DNS name with several records; a read goes on at the next that answers.

Who the client is (token, certificate) and what for it reads (the name of a training run) says its `Identity`.

Rows come over connections of their own, one a read, where the way is plain, which costs a fraction of what gRPC's takes
of the training process; with TLS or over a proxy they come through gRPC (see `blender_service.direct`).

Nothing waits for ever: calls have deadlines, a stream that falls silent is opened again, a server that cannot be
reached is given up after `retry_seconds`, and a live row that does not come after `wait_seconds`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc

from blender_service.channel import DEFAULT_IDENTITY, Identity, metadata_of, open_channel
from blender_service.client_messages import (
    Blend,
    BlendSource,
    Continuation,
    ReadRequest,
    blend_of,
    continuation_of,
    continuation_request,
    get_request,
)
from blender_service.direct.call import DirectReads
from blender_service.direct.targets import targets_of
from blender_service.patience import Patience
from blender_service.row_stream import RowStream
from blender_service.slices import Slice
from blender_service.specification import SourceChange, SourceSpec, Stage
from blender_service.status import error_of
from blender_service.window import ExpectedWindow

if TYPE_CHECKING:
    from blender_service.definition_messages import BlendDescription

TIMEOUT_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 120.0  # a cold cache on slow storage may take most of it
LIVE_WAIT_SECONDS: Final = 3600.0
BLENDS: Final = "/headrace.blender.v1.BlendService/"
READ_BLEND: Final = "/headrace.blender.v1.RowService/ReadBlend"
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

__all__ = ["Blend", "BlendSource", "BlenderClient", "Continuation", "Identity", "RowStream", "connect"]


class BlenderClient:
    """Talks to one address. May be used by many threads."""

    def __init__(
        self,
        address: str,
        identity: Identity = DEFAULT_IDENTITY,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        direct: bool = True,
    ) -> None:
        """Prepare to talk; the connection is made when it is needed.

        Args:
            address: host:port, or several replicas as a gRPC target.
            identity: who it is; by itself it sends the token of `HEADRACE_TOKEN`, if there is one.
            timeout_seconds: longest wait for the answer of a call.
            retry_seconds: how long to go on trying to reach a server that does not answer.
            silence_seconds: longest wait for a message of an open stream; a server tells every few seconds that it
                waits for a live row.
            direct: read rows over connections of their own where that is possible; False to have gRPC do it always.

        Raises:
            UnauthenticatedError: a file of the identity cannot be read.
        """
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._silence_seconds = silence_seconds
        self._closed = threading.Event()
        self._channel = open_channel(address, identity, OPTIONS)
        targets = targets_of(address, os.environ) if direct and not identity.has_tls else ()
        self._direct = DirectReads(targets, READ_BLEND, lambda: metadata_of(identity, os.environ))
        # Without a deserializer messages come as bytes: a generated class would copy the token ids, twice.
        through_grpc: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(READ_BLEND)
        self._read_blend: Callable[[bytes], Any] = self._direct if targets else through_grpc

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
        from blender_service.definition_messages import create_request

        request = create_request(sources, seed, name, block_rows, group_blocks, schedule, allow_repeat)
        return blend_of(self._call("CreateBlend", request))

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
        from blender_service.definition_messages import update_request

        first = Stage(from_offset, tuple(changes), align)
        return blend_of(self._call("UpdateBlend", update_request(parent, first, name, allow_repeat, schedule)))

    def describe_blend(self, blend: str, offset: int | None = None) -> BlendDescription:
        """Say what a blend has read at an offset, and when its sources run out.

        Args:
            blend: id, start of an id, or name.
            offset: None for the end, or for the first cycle of the last segment of a blend without end.

        Raises:
            OffsetOutOfRangeError: the offset is beyond the end.
        """
        from blender_service.definition_messages import describe_request, description_of

        return description_of(self._call("DescribeBlend", describe_request(blend, offset)))

    def get_blend(self, blend: str) -> Blend:
        """Look a blend up by id, start of an id, or name.

        Raises:
            BlendNotFoundError: there is none.
        """
        return blend_of(self._call("GetBlend", get_request(blend)))

    def list_blends(self) -> list[Blend]:
        """List all blends, ascending by id, page by page."""
        from blender_service.definition_messages import list_request, page_of

        found, token = page_of(self._call("ListBlends", list_request("")))
        while token:
            page, token = page_of(self._call("ListBlends", list_request(token)))
            found += page
        return found

    def prove_continuation(self, from_blend: str, to_blend: str, offset: int) -> Continuation:
        """Have the server prove that a run which has read rows [0, offset) of a blend may go on with another one.

        Args:
            from_blend: what was read so far; id, start of an id, or name.
            to_blend: what to go on with.
            offset: first row that was not read.

        Raises:
            StateError: below the offset the two may hold other rows, so some would be repeated or skipped.
            OffsetOutOfRangeError: one of them ends before the offset.
            BlendNotFoundError: there is no such blend.
        """
        return continuation_of(self._call("ProveContinuation", continuation_request(from_blend, to_blend, offset)))

    def read(
        self,
        blend: str,
        offset: int,
        rows: int = 0,
        *,
        part: Slice | None = None,
        expected: ExpectedWindow | None = None,
        max_batch_rows: int = 0,
        wait_seconds: float = LIVE_WAIT_SECONDS,
    ) -> RowStream:
        """Read rows in order, from any offset; the iterator ends after the rows asked for, or with the blend.

        Where the blend ends, the last batch is an empty one with `end_of_blend`. Close the stream to stop early.
        It measures how long its consumer waits: `input_stall_seconds`, `input_stall_share`.

        Args:
            blend: id, start of an id, or name.
            offset: first row.
            rows: rows of the blend to cover, 0 until it ends.
            part: only one rank's part of every step; a batch never crosses a step.
            expected: what the rows must be.
            max_batch_rows: bound of the rows of a batch, 0 for about 2 MiB.
            wait_seconds: longest wait for a row that a live table does not have yet, 0 without end.

        Raises:
            OffsetOutOfRangeError: the read starts beyond the end.
            RowNotThereYetError: a live row did not come in time.
            WindowMismatchError: the rows are not what is expected.
            UnauthenticatedError: the server does not take the token, or its file cannot be read.
            ServerUnavailableError: no server answered for `retry_seconds`.
        """
        request = ReadRequest(blend, offset, rows, part, expected, max_batch_rows, wait_seconds)
        patience = Patience(self._retry_seconds, self._closed)
        return RowStream(request, self._read_blend, self.address, patience, self._silence_seconds)

    def close(self) -> None:
        """Close the connection; running reads end with an error, also those that wait for a server."""
        self._closed.set()
        self._direct.close()
        self._channel.close()

    def __enter__(self) -> BlenderClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, request: bytes) -> bytes:
        """Make a unary call, with patience for a server that is not there yet."""
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(BLENDS + method)
        patience = Patience(self._retry_seconds, self._closed)
        while True:
            patience.check_open()
            try:
                answer: bytes = call(request, timeout=self._timeout_seconds)
            except grpc.RpcError as rpc_error:
                patience.wait(error_of(rpc_error, self.address))
            else:
                return answer


connect = BlenderClient
"""Give a client for a server."""
