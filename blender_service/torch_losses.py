"""Send the losses of a training loop by document to the lake, beside the loop; `headrace.LossWriter`.

    dataset = BlendDataset(address, "mix", 64, tensors=(*TENSORS, "segment_documents"), identity=Identity(run="llm-7b"))
    with LossWriter(address, "llm-7b", every=10) as losses:
        for batch in dataset:
            per_token = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
            losses.add(batch["offset"], per_token.view_as(batch["labels"]), batch)
            ...
            losses.flush()      before a state is saved: a kill then loses only steps that are trained again

Losses are added up by segment on their device and copied to the host while the loop goes on; on a CPU the thread that
sends them adds them up. Of a row's segment the last commit counts, so a step that is sent or trained again replaces its
former losses. Steps are sampled by their number, so a run that goes back samples the same ones again.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import grpc
import numpy as np
import torch
from numpy.typing import NDArray

from blender_service.client.blender_client import OPTIONS, BlenderClient
from blender_service.client.channel import LAKE, open_channel
from blender_service.client.identity import DEFAULT_IDENTITY, Identity
from blender_service.client.retry import Backoff
from blender_service.client.window_layout import IGNORED_LABEL
from blender_service.exceptions import BlenderError, InvalidReadError, ServerUnavailableError, UnauthenticatedError
from blender_service.torch_batches import SEGMENT_DOCUMENTS, Batch
from blender_service.wire.status import error_of
from headrace.blender.v1 import losses_pb2, losses_pb2_grpc

EVERY: Final = 10
MOST_WAITING: Final = 256  # sampled steps; of further ones the losses are dropped, and counted
GATHER_SECONDS: Final = 2.0  # so that a fast loop makes few requests
RETRY_SECONDS: Final = 3600.0
FLUSH_SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 60.0
_MOST_BYTES: Final = 150_000  # of a request, where a server takes 256 KB
_SEGMENT_BYTES: Final = 16  # beside the id of its document
_NEEDED: Final = ("labels", "document_ids", SEGMENT_DOCUMENTS, "segment_counts")

logger = logging.getLogger(__name__)


class _Step(NamedTuple):
    """A step whose losses are to be sent; `summed` waits for them, and gives what `_summed` gives."""

    blend: str
    offset: int
    documents: list[str]
    segment_count: int
    summed: Callable[[], torch.Tensor]


class LossWriter:
    """Sends the losses of one process of a run. For one thread; never waits for the network while a step is added.

    Of peers with the same rows (tensor or pipeline parallel) let one send them: others would write them once more.

    Attributes:
        dropped: steps whose losses are not in the lake and will not be: the server was away for long, or refused them.
    """

    def __init__(
        self,
        server: str | BlenderClient,
        run: str,
        *,
        every: int = EVERY,
        identity: Identity = DEFAULT_IDENTITY,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Prepare to send; the connection is made when it is needed.

        Args:
            server: address of the server that serves the blend, or a client of it.
            run: name of the run, as the identity of its dataset has it.
            every: one in so many steps is sent.
            identity: token and certificate, where `server` is an address.
            retry_seconds: how long to go on trying to reach a server that does not answer.

        Raises:
            InvalidReadError: there is no server, no run, or `every` is no positive number.
        """
        address = server.address if isinstance(server, BlenderClient) else server
        if not run or every < 1 or address.startswith(LAKE):
            raise InvalidReadError(
                f"losses: server is {address!r}, run {run!r}, every {every!r}; give the address of `headrace serve`, "
                "the run of the dataset's identity, and 1 or more"
            )
        self.dropped = 0
        self._run_name, self._every, self._address = run, every, address
        self._retry_seconds, self._token_file = retry_seconds, "" if identity.token else identity.token_file
        self._channel = (
            server._open_channel() if isinstance(server, BlenderClient) else open_channel(address, identity, OPTIONS)
        )
        self._calls = 0
        self._changed = threading.Condition()
        self._waiting = deque[_Step]()
        self._is_flushing = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="losses", daemon=True)
        self._thread.start()

    def add(self, offset: int, losses: torch.Tensor, batch: Batch) -> None:
        """Take the losses of a step, where it is one of the sampled ones.

        Args:
            offset: of the batch's first row.
            losses: (R, L) loss of each token, or of the first ones of each row; what labels leave out does not count.
            batch: with labels, document_ids and segment_documents; an empty one of a rank that does not fetch is none.

        Raises:
            InvalidReadError: the batch lacks one of these, or begins at another row.
        """
        number = batch.get("step", self._calls)
        self._calls += 1
        if not batch or number % self._every:
            return
        _check(offset, losses, batch)
        with self._changed:
            is_full = len(self._waiting) >= MOST_WAITING
        if is_full:
            self._drop(1, f"{MOST_WAITING} steps wait to be sent")
            return
        documents, segments = batch["documents"], batch[SEGMENT_DOCUMENTS].numel()
        step = _Step(batch.get("blend", ""), offset, documents, segments, _begun(losses.detach(), batch))
        with self._changed:
            self._waiting.append(step)
            self._changed.notify_all()

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> int:
        """Wait until all that was added is in the lake; gives how many steps are not, waiting or dropped."""
        with self._changed:
            self._is_flushing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting, timeout_seconds)
            self._is_flushing = False
            return len(self._waiting) + self.dropped

    def close(self) -> None:
        """Send what waits, and end."""
        left = self.flush()
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(TIMEOUT_SECONDS)
        self._channel.close()
        if left:
            logger.warning("losses of run %s: %d sampled steps are not in the lake", self._run_name, left)

    def __enter__(self) -> LossWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        """Send until closed."""
        while steps := self._next():
            try:
                for request in self._requests(steps):
                    self._send(request)
            except Exception as error:  # noqa: BLE001 (of any class: training goes on, and the next steps are sent)
                self._drop(len(steps), repr(error))
            with self._changed:
                for _ in steps:
                    self._waiting.popleft()
                self._changed.notify_all()

    def _next(self) -> list[_Step]:
        """Wait for steps, and a little more for further ones; empty once closed. They stay in the queue meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
            self._changed.wait_for(lambda: self._is_flushing or self._closed.is_set(), GATHER_SECONDS)
            return list(self._waiting)

    def _requests(self, steps: list[_Step]) -> Iterator[losses_pb2.AppendLossesRequest]:
        """Requests of the losses of steps."""
        request, size = self._request(steps[0].blend), 0
        for step in steps:
            try:
                messages = list(_messages(step))
            except Exception as error:  # noqa: BLE001 (of any class: the steps beside it are sent)
                self._drop(1, repr(error))
                continue
            for message in messages:
                if request.blend != step.blend or (request.steps and size + message.ByteSize() > _MOST_BYTES):
                    yield request
                    request, size = self._request(step.blend), 0
                request.steps.append(message)
                size += message.ByteSize()
        yield request

    def _request(self, blend: str, *steps: losses_pb2.StepLosses) -> losses_pb2.AppendLossesRequest:
        return losses_pb2.AppendLossesRequest(run=self._run_name, blend=blend, steps=steps)

    def _send(self, request: losses_pb2.AppendLossesRequest) -> None:
        """Have losses committed, trying again while the server cannot be reached."""
        backoff = Backoff(self._retry_seconds, self._closed, self._token_file)
        while True:
            try:
                losses_pb2_grpc.LossServiceStub(self._channel).AppendLosses(request, timeout=TIMEOUT_SECONDS)
                return
            except (grpc.RpcError, BlenderError) as failed:
                error = error_of(failed, self._address) if isinstance(failed, grpc.RpcError) else failed
            try:
                backoff.check_open()
                backoff.wait(error)
            except BlenderError as last:
                if len(request.steps) < 2 or isinstance(last, ServerUnavailableError | UnauthenticatedError):
                    return self._drop(len(request.steps), str(last))
                for step in request.steps:  # what is refused is perhaps one of them
                    self._send(self._request(request.blend, step))
                return None

    def _drop(self, steps: int, why: str) -> None:
        """Count steps whose losses are lost; the first time, and whenever their number has doubled, it is logged."""
        before, self.dropped = self.dropped, self.dropped + steps
        if before.bit_length() != self.dropped.bit_length():
            logger.warning("losses of run %s: %d steps are dropped: %s", self._run_name, self.dropped, why)


def _check(offset: int, losses: torch.Tensor, batch: Batch) -> None:
    """Refuse losses that are not those of a batch."""
    if lacking := [name for name in _NEEDED if name not in batch]:
        raise InvalidReadError(
            f"losses: the batch has no {lacking[0]}; give the dataset tensors=(*TENSORS, {SEGMENT_DOCUMENTS!r})"
        )
    shape = batch["labels"].shape
    if offset != batch["offset"] or losses.dim() != 2 or len(losses) != shape[0] or losses.shape[1] > shape[1]:
        raise InvalidReadError(
            f"losses: offset {offset}, losses of shape {tuple(losses.shape)}, the batch has {shape[0]} rows of "
            f"{shape[1]} tokens from {batch['offset']} on; give batch['offset'], and a loss for each token of each row"
        )


def _begun(losses: torch.Tensor, batch: Batch) -> Callable[[], torch.Tensor]:
    """Begin to add up the losses of a step on their device; gives what waits for the sums."""
    values: list[Any] = [batch[name] for name in _NEEDED]
    tensors = [value.to(losses.device, non_blocking=True) for value in values]
    if losses.device.type == "cpu":
        return functools.partial(_summed, losses.clone(), *tensors)  # in the other thread
    sums = _summed(losses, *tensors).to("cpu", non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(losses.device))

    def wait() -> torch.Tensor:
        copied.synchronize()
        return sums

    return wait


def _summed(
    losses: torch.Tensor, labels: torch.Tensor, document_ids: torch.Tensor, *of_segments: torch.Tensor
) -> torch.Tensor:
    """Add up losses by segment; nothing here waits for the device.

    Returns:
        float64: the sum of each of S segments, its tokens with a loss, its document; segments of each row of the blend.
    """
    segment_documents, segment_counts = of_segments
    segments, width = segment_documents.numel(), losses.shape[1]
    counts = document_ids.amax(1) + 1
    numbers = document_ids[:, :width] + (counts.cumsum(0) - counts)[:, None]
    counted = (labels[:, :width] != IGNORED_LABEL) & (document_ids[:, :width] >= 0)
    places = torch.where(counted, numbers, segments).flatten()  # behind the last one where there is no loss
    sums = torch.zeros(2, segments + 1, dtype=torch.float64, device=losses.device)
    values = torch.stack((losses.flatten().double(), torch.ones_like(places, dtype=torch.float64)))
    sums.index_add_(1, places, values)
    return torch.cat((sums[:, :segments].flatten(), segment_documents.double(), segment_counts.double()))


def _messages(step: _Step) -> Iterator[losses_pb2.StepLosses]:
    """Messages of a step's losses, each of whole rows."""
    values, size = step.summed().numpy(), step.segment_count
    sums, tokens, documents = values[: 3 * size].reshape(3, size)
    counts = values[3 * size :].astype("<i4")
    ends = np.cumsum(counts)
    id_bytes = np.array([len(name.encode()) for name in step.documents], np.int64)[documents.astype(np.int64)]
    bytes_before = np.cumsum(np.append(0, id_bytes + _SEGMENT_BYTES))[np.append(0, ends)]  # of each row
    row = 0
    while row < len(counts):
        first = int(ends[row] - counts[row])
        last = max(row + 1, int(np.searchsorted(bytes_before, bytes_before[row] + _MOST_BYTES, side="right")) - 1)
        part = slice(first, int(ends[last - 1]))
        there, index = np.unique(documents[part].astype(np.int64), return_inverse=True)
        yield losses_pb2.StepLosses(
            offset=step.offset + row,
            segment_counts=counts[row:last].tobytes(),
            documents=[step.documents[at] for at in there.tolist()],
            segment_documents=_bytes(index, "<i4"),
            token_counts=_bytes(tokens[part], "<i4"),
            sums=_bytes(sums[part], "<f4"),
        )
        row = last


def _bytes(values: NDArray[Any], dtype: str) -> bytes:
    with np.errstate(over="ignore"):  # infinite then, as what is above all that can be added up
        return values.astype(dtype).tobytes()
