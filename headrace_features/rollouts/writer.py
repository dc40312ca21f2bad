"""Append rollouts from a worker of reinforcement learning. Needs grpcio, protobuf and NumPy, nothing of the lake.

    with RolloutWriter("127.0.0.1:7170", "rl.rollouts") as writer:
        answer = Rollout("prompt-17", member=0, group_size=8, input_ids=ids, spans=[(len(ids), version)], reward=1.0)
        (outcome,) = writer.append(answer)

`append` returns once what became of each rollout is committed. It may be called from many threads: what they append at
the same time goes in one request, and what comes while that waits for its commit in further ones, for which it gathers
longer. A request with a lost answer is sent again with the same numbers, and the server
knows the ones it has; where as many rows wait for the trainer as may, `append` waits too.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import grpc
import numpy as np
from numpy.typing import ArrayLike

from blender_service.client.blender_client import OPTIONS, RETRY_SECONDS
from blender_service.client.channel import open_channel
from blender_service.client.identity import DEFAULT_IDENTITY, Identity
from blender_service.client.retry import Backoff
from blender_service.exceptions import BlenderError, MalformedRolloutError, SlowDownError, UnauthenticatedError
from blender_service.wire.status import error_of
from headrace.blender.v1 import rollouts_pb2, rollouts_pb2_grpc

TIMEOUT_SECONDS: Final = 90.0
SLOW_DOWN_SECONDS: Final = 3600.0
MOST_IN_REQUEST: Final = 128
MOST_REQUEST_BYTES: Final = 8 << 20  # a request with one rollout may have more
MOST_ON_THEIR_WAY: Final = 4  # requests
GATHER_SECONDS: Final = 0.01  # for threads that were answered just now and have more; four times for each on its way
FIRST_SLOW_PAUSE, LONGEST_SLOW_PAUSE = 0.5, 10.0


class Rollout(NamedTuple):
    """One member of a group: an answer to its prompt, or that there will be none.

    Attributes:
        group: id of the group, at most 256 characters; a group is published once, so an id is used once.
        member: number in the group, from 0.
        group_size: members for the group to wait for; all of them say the same.
        input_ids: (T,) tokens.
        spans: tokens and policy version of each stretch by one version; their tokens add up to T.
        trainable: (T,) whether a token is trained on; None: all are.
        log_probabilities: (T,) of the sampling policy for each token; None: 0.
        advantages: (T,); None: 0.
        reward: of the whole, kept with the row and where the row is refused.
        timeout_seconds: how long the group waits for its members, from the first on; 0: as the table's setting says.
        failure: why this member has no tokens; the group does not wait for it.
    """

    group: str
    member: int
    group_size: int
    input_ids: ArrayLike = ()
    spans: Sequence[tuple[int, int]] = ()
    trainable: ArrayLike | None = None
    log_probabilities: ArrayLike | None = None
    advantages: ArrayLike | None = None
    reward: float | None = None
    timeout_seconds: float = 0.0
    failure: str = ""


class Outcome(NamedTuple):
    """What became of a rollout.

    Attributes:
        status: `admitted` (its row comes when its group is whole or its time is up), `failed` or `refused`.
        reason: why; begins with `late`, `double`, `stale`, `too_long` or `other_size` where it is refused.
    """

    status: str
    reason: str


@dataclass
class _Entry:
    """A rollout on its way; `result` is there once it has arrived, `is_sent` while a request has it."""

    message: rollouts_pb2.Rollout
    result: Outcome | BlenderError | None = None
    is_sent: bool = False
    not_before: float = 0.0
    pause: float = FIRST_SLOW_PAUSE
    alone: bool = False


class RolloutWriter:
    """Appends to one table. May be used by many threads; another process needs a writer of its own."""

    def __init__(
        self,
        address: str,
        table: str,
        identity: Identity = DEFAULT_IDENTITY,
        *,
        retry_seconds: float = RETRY_SECONDS,
        slow_down_seconds: float = SLOW_DOWN_SECONDS,
    ) -> None:
        """Prepare to append; the connection is made when it is needed.

        Args:
            address: host:port of the server, or several replicas as a gRPC target.
            table: namespace.table, open for rollouts at the server.
            identity: of the worker.
            retry_seconds: how long to go on trying to reach a silent server.
            slow_down_seconds: how long to wait while as many rows wait for the trainer as may.

        Raises:
            UnauthenticatedError: a file of the identity cannot be read.
        """
        self.writer_id = uuid.uuid4().hex  # never that of another: a repeat is known by it
        self._address = address
        self._table = table
        self._retry_seconds = retry_seconds
        self._slow_down_seconds = slow_down_seconds
        self._token_file = "" if identity.token else identity.token_file
        self._closed = threading.Event()
        self._channel = open_channel(address, identity, OPTIONS)
        self._changed = threading.Condition()
        self._is_gathering = False
        self._on_their_way: list[int] = []  # first numbers of requests
        self._entries: list[_Entry] = []
        self._next_number = 0

    def append(self, *rollouts: Rollout) -> list[Outcome]:
        """Append rollouts, and wait until what became of them is committed.

        Returns:
            One outcome a rollout, in order.

        Raises:
            MalformedRolloutError: one contradicts itself or the table, and was not taken; the others were.
            SlowDownError: the trainer has not read on for `slow_down_seconds`; those rollouts were not taken.
            ServerUnavailableError: the server did not answer for `retry_seconds`. Append the same again: a rollout
                that was committed meanwhile is refused as `double`.
            BlenderError: the caller may not append, or another error not mended by a later try.
        """
        entries = [_Entry(_message(rollout)) for rollout in rollouts]
        give_up = time.monotonic() + self._slow_down_seconds
        with self._changed:
            self._entries += entries
        while self._is_next(entries):
            self._send_some(give_up)
        for entry in entries:
            if isinstance(entry.result, BlenderError):
                raise entry.result
        return [cast(Outcome, entry.result) for entry in entries]

    def announce(self, version: int, next_ordinal: int) -> None:
        """State the trainer's version of the policy, and its next row of the table.

        Args:
            version: optimizer steps made.
            next_ordinal: one more than the highest ordinal of the table in the batches trained on.
        """
        request = rollouts_pb2.AnnounceVersionRequest(table=self._table, version=version, next_ordinal=next_ordinal)
        self._call("AnnounceVersion", request)

    def close(self) -> None:
        """Close the connection; waiting calls end with an error."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._channel.close()

    def __enter__(self) -> RolloutWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_next(self, entries: Sequence[_Entry]) -> bool:
        """Wait until this thread is the one to send, for all that wait; False once its own have arrived."""
        with self._changed:
            while any(entry.result is None for entry in entries):
                moments = [entry.not_before for entry in entries if entry.result is None and not entry.is_sent]
                left = min(moments) - time.monotonic() if moments and self._may_send else None
                if left is not None and (left <= 0 or self._closed.is_set()):
                    self._is_gathering = True
                    return True
                self._changed.wait(left)
        return False

    @property
    def _may_send(self) -> bool:
        """Whether a further request may go: the server knows the last numbers of a writer, and no more."""
        span = self._next_number - min(self._on_their_way, default=self._next_number)
        return not self._is_gathering and len(self._on_their_way) < MOST_ON_THEIR_WAY and span <= MOST_IN_REQUEST

    def _send_some(self, give_up: float) -> None:
        """Send what waits, of all threads, as one request, and hand out the answers."""
        time.sleep(GATHER_SECONDS * 4 ** len(self._on_their_way))
        with self._changed:
            batch, first = self._next_batch(), self._next_number
            self._next_number += len(batch)
            self._on_their_way.append(first)
            self._is_gathering = False
            self._changed.notify_all()
        try:
            if batch:
                self._send(batch, first, give_up)
        finally:
            with self._changed:
                self._on_their_way.remove(first)
                for entry in batch:
                    entry.is_sent = False
                self._changed.notify_all()

    def _send(self, batch: list[_Entry], first: int, give_up: float) -> None:
        request = rollouts_pb2.AppendRolloutsRequest(
            table=self._table,
            writer=self.writer_id,
            first_number=first,
            rollouts=[entry.message for entry in batch],
        )
        try:
            outcomes = list(self._call("AppendRollouts", request).outcomes)
        except SlowDownError as error:
            self._slow_down(batch, give_up, str(error))
        except BlenderError as error:
            self._fail(batch, error)
        else:
            slow = rollouts_pb2.Outcome.SLOW_DOWN
            for entry, outcome in zip(batch, outcomes, strict=True):
                if outcome.status == slow:
                    self._slow_down([entry], give_up, outcome.reason)
                else:
                    status = rollouts_pb2.Outcome.Status.Name(outcome.status).lower()
                    self._settle([entry], Outcome(status, outcome.reason))

    def _next_batch(self) -> list[_Entry]:
        """Take the waiting rollouts of one request, due now."""
        batch: list[_Entry] = []
        size, now = 0, time.monotonic()
        for entry in self._entries:
            if entry.is_sent or not (entry.not_before <= now or self._closed.is_set()):
                continue
            size += entry.message.ByteSize()
            full = len(batch) == MOST_IN_REQUEST or size > MOST_REQUEST_BYTES
            if batch and (full or entry.alone or batch[0].alone):
                break
            batch.append(entry)
            entry.is_sent = True
        return batch

    def _settle(self, entries: Sequence[_Entry], result: Outcome | BlenderError) -> None:
        with self._changed:
            for entry in entries:
                entry.result = result
                self._entries.remove(entry)

    def _fail(self, batch: Sequence[_Entry], error: BlenderError) -> None:
        """Give an error to those concerned: a malformed one fails none of those sent with it."""
        if isinstance(error, MalformedRolloutError) and len(batch) > 1:
            for entry in batch:
                entry.alone = True
        else:
            self._settle(batch, error)

    def _slow_down(self, entries: Sequence[_Entry], give_up: float, why: str) -> None:
        now = time.monotonic()
        for entry in entries:
            if now > give_up or self._closed.is_set():
                self._settle([entry], SlowDownError(why))  # of another thread too, which began not much later
            entry.not_before = now + entry.pause
            entry.pause = min(2 * entry.pause, LONGEST_SLOW_PAUSE)

    def _call(self, method: str, request: Any) -> Any:
        """Make a call, and make it again while the server cannot be reached."""
        backoff = Backoff(self._retry_seconds, self._closed, self._token_file)
        while True:
            backoff.check_open()
            try:
                stub = rollouts_pb2_grpc.RolloutServiceStub(self._channel)
                return getattr(stub, method)(request, timeout=TIMEOUT_SECONDS)
            except grpc.RpcError as rpc_error:
                error = error_of(rpc_error, self._address)
                if isinstance(error, SlowDownError):
                    raise error from rpc_error
                backoff.wait(error)
            except UnauthenticatedError as refused:  # the file of the token could not be read
                backoff.wait(refused)


def _message(rollout: Rollout) -> rollouts_pb2.Rollout:
    """Write a rollout as it travels."""
    return rollouts_pb2.Rollout(
        group=rollout.group,
        member=rollout.member,
        group_size=rollout.group_size,
        timeout_seconds=rollout.timeout_seconds,
        input_ids=_bytes(rollout.input_ids, "<i4"),
        trainable=_bytes(rollout.trainable, "?"),
        log_probabilities=_bytes(rollout.log_probabilities, "<f4"),
        advantages=_bytes(rollout.advantages, "<f4"),
        spans=[
            rollouts_pb2.PolicySpan(token_count=tokens, policy_version=version) for tokens, version in rollout.spans
        ],
        reward=rollout.reward,
        failure=rollout.failure,
    )


def _bytes(values: ArrayLike | None, dtype: str) -> bytes:
    return b"" if values is None else np.asarray(values, dtype).tobytes()
