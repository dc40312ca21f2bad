"""Read a blend as a torch dataset, whose state resumes at the very next batch under any world size.

    dataset = BlendDataset("127.0.0.1:7170", blend="my-blend", batch_rows=64, rank=rank, world_size=world_size)
    for batch in dataset:
        loss = model(batch["input_ids"], batch["position_ids"], batch["document_ids"], batch["labels"])

Without a server, `BlendDataset("lake:my-blend", batch_rows=64)` reads the lake in this process: the same rows.

Every item is this rank's part of one global step. The state is {blend, offset}, counted in batches handed out: save it
between steps, load it on any number of ranks. At the end of the blend an incomplete step is left out, so that all ranks
make the same number of steps.

Tensor and pipeline peers work on the same rows. Let `rank` and `world_size` count groups of peers, and either let every
peer read (the simplest), or give `fetch=False` to those that need no tokens, or get them from a peer::

    dataset = BlendDataset(..., rank=process // peers, world_size=processes // peers, fetch=process % peers == 0)

A dataset that does not fetch gives one empty batch per step and keeps the same state, so any rank can save it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from blender_service.client import LIVE_WAIT_SECONDS, Blend, BlenderClient
from blender_service.client.blender_client import RETRY_SECONDS, SILENCE_SECONDS
from blender_service.client.channel import LAKE
from blender_service.client.identity import DEFAULT_IDENTITY, Identity
from blender_service.client.retry import InputClock
from blender_service.client.row_stream import Prefetcher
from blender_service.exceptions import InvalidReadError, StateError
from blender_service.wire.expected_window import ExpectedWindow
from blender_service.wire.rank_slice import Slice

try:
    import torch
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "torch":  # torch is installed, but one of its own requirements is not
        raise
    raise ModuleNotFoundError(
        "blender_service.torch needs torch 2.5 or newer, which is not installed here; "
        "get the build for your machine, or run: pip install 'headrace[torch]'",
        name="torch",
    ) from None

from blender_service.torch_batches import DENSE, TENSORS, Batch, Ring, Steps, to_tensors

__all__ = ["DENSE", "TENSORS", "Batch", "BlendDataset", "BlendState", "block_mask", "save_tensors", "to_tensors"]

ENDLESS_STEPS: Final = 1 << 40  # no loop takes as many, and a sum over a million ranks fits into int64


class BlendState(TypedDict):
    """The state of a training run: the blend's id, and the offset of its next global step."""

    blend: str
    offset: int


class BlendDataset(IterableDataset[Batch]):
    """Global steps of a blend, one rank's part at a time.

    An item is a `Batch`. With `device` batches are copied to it from a ring of page-locked buffers while the step
    before still computes. `input_stall_seconds` and `input_stall_share` say what waiting for batches costs the loop.

    It prefetches in a thread of its own; with a DataLoader use `batch_size=None, num_workers=0`. For frameworks see
    docs/frameworks.md.

    Iterating goes on where the state stands, also after a `break`. One iteration runs at a time: a new one, or a loaded
    state, ends the one before. After the end of the blend there is no second pass, since passes are part of the blend.
    `len()` is the number of steps of the whole run, from `offset` on.
    """

    def __init__(  # noqa: PLR0913 (settings of a loader, all but three by name)
        self,
        address: str,
        blend: str = "",
        batch_rows: int = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        offset: int = 0,
        uneven: bool = False,
        expected: ExpectedWindow | None = None,
        tensors: Sequence[str] = TENSORS,
        columns: Sequence[str] = (),
        prefetch_batches: int = 4,
        device: torch.device | str | None = None,
        fetch: bool = True,
        workers: int = 0,
        wait_seconds: float = LIVE_WAIT_SECONDS,
        identity: Identity = DEFAULT_IDENTITY,
        retry_seconds: float = RETRY_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """Look up the blend and check that it has the expected facts.

        Args:
            address: host:port of a server; or `lake:BLEND` to read the lake of PyIceberg's settings, or of the current
                directory, in this process.
            blend: id, start of an id, or name; left out where the address says it.
            batch_rows: rows B of a global step, all ranks together.
            rank: of this process.
            world_size: number of ranks, W.
            offset: first row of the first step; a loaded state replaces it.
            uneven: allow parts that differ by one row; scale the loss by `loss_scale` then.
            expected: tokenizer, window length and vocabulary the model was built for.
            tensors: names of the tensors that are made; each one costs time.
            columns: names of columns with a value for each token, such as `trainable`: a tensor each, under its name.
            prefetch_batches: batches held ready.
            device: device of the tensors; None leaves them in memory, new ones for every batch.
            fetch: False for a rank that only counts steps, as its peers do.
            workers: processes that read for this one and take its steps in turns, with `lake:`; torch's start method.
            wait_seconds: longest wait for a row that a live table does not have yet, 0 without end.
            identity: token and certificate, and the name of the training run, which is registered in the lake.
            retry_seconds: how long to go on trying to reach a server, or a lake, that does not answer.
            silence_seconds: longest wait for a message of an open stream, which is then opened anew.

        Raises:
            InvalidReadError: W > B, or W does not divide B and `uneven` is not set; there is no such tensor; a column
                has the name of one; an option is for a server alone, or for `lake:` alone.
            WindowMismatchError: the blend does not have the expected facts.
        """
        super().__init__()
        if address.startswith(LAKE) and address != LAKE:
            if blend:
                raise InvalidReadError(f"dataset: both {address!r} and {blend!r} name a blend; give one")
            address, blend = LAKE, address.removeprefix(LAKE)
        if not blend or batch_rows < 1:
            raise InvalidReadError(
                f"dataset: blend is {blend!r} and batch_rows {batch_rows}; name a blend, and the rows of a step"
            )
        if workers < 0 or (workers and address != LAKE):
            raise InvalidReadError(
                f"dataset: workers is {workers}; give 0 or more to lake:BLEND, and none to a server, which reads ahead"
            )
        self._workers = workers
        self._part = Slice(batch_rows, rank, world_size, uneven)
        self._part.check()
        unknown = [name for name in tensors if name not in TENSORS]
        if unknown:
            raise InvalidReadError(f"dataset: tensors has {unknown[0]!r}; choose from {', '.join(TENSORS)}")
        taken = [name for name in columns if name in Batch.__annotations__]
        if taken:
            raise InvalidReadError(f"dataset: a batch has a {taken[0]} of its own; read that column by BlenderClient")
        if prefetch_batches < 1:
            raise InvalidReadError(f"dataset: prefetch_batches is {prefetch_batches}; give 1 or more")
        self._connect = functools.partial(
            BlenderClient, address, identity, retry_seconds=retry_seconds, silence_seconds=silence_seconds
        )
        self._expected = expected
        self._tensors, self._columns = tuple(tensors), tuple(columns)
        self._prefetch_batches = prefetch_batches
        with self._connect() as client:
            self.blend: Blend = client.get_blend(blend)
        if expected is not None:
            expected.check(self.blend.blend_id, self.blend)
        self._first = offset
        self._begin(offset)
        self._device = torch.device(device) if device is not None else None
        self._fetch = fetch
        self._wait_seconds = wait_seconds
        self._clock = InputClock()

    @property
    def input_stall_seconds(self) -> float:
        """Time that the loop over the dataset waited for batches, after the first one."""
        return self._clock.input_stall_seconds

    @property
    def input_stall_share(self) -> float:
        """Share of the loop's time since its first batch, 0 to 1."""
        return self._clock.input_stall_share

    @property
    def loss_scale(self) -> float:
        """Factor of this rank's mean loss that makes the mean over ranks the mean over the global batch."""
        return self._part.loss_scale

    def state_dict(self) -> BlendState:
        """Give the state of the run: the offset after the last batch that was handed out."""
        return BlendState(blend=self.blend.blend_id, offset=self._offset)

    def load_state_dict(self, state: BlendState) -> None:
        """Continue at the state of another run, whatever its world size was.

        A state of another blend is accepted if the server proves that both hold the same rows up to its offset; this is
        how a run changes over to an updated blend.

        Raises:
            StateError: no state at all, or one of a blend whose rows differ below its offset.
            BlendNotFoundError: the server does not know the state's blend.
        """
        if set(state) != {"blend", "offset"} or not isinstance(state["offset"], int) or state["offset"] < 0:
            raise StateError(f"state: {state!r} is not {{blend, offset}}; load what state_dict() gave")
        if state["blend"] != self.blend.blend_id:
            with self._connect() as client:
                client.prove_continuation(state["blend"], self.blend.blend_id, state["offset"])
        self._begin(state["offset"])

    def __len__(self) -> int:
        """Count the steps from `offset` to the end of the blend; a loaded state does not change it.

        A blend without end says `ENDLESS_STEPS`: a loop that finds no len() takes a batch ahead to see whether there is
        one (Lightning does), which the state would count as trained on, and one that finds what is left after a state
        was loaded ends too early.
        """
        if self.blend.end is None:
            return ENDLESS_STEPS
        return max(0, self.blend.end - self._first) // self._part.step_rows

    def __bool__(self) -> bool:
        return True  # Python would call len() otherwise, which may be 0

    def set_epoch(self, epoch: int) -> None:
        """Refuse a loader that Accelerate has prepared: each calls this before its first batch, on every process.

        Raises:
            InvalidReadError: always; it says what to write.
        """
        raise InvalidReadError(
            "dataset: a loader that Accelerate prepared shards again what is sharded, and its state is a batch ahead; "
            "leave the dataset out of prepare(), give it rank=accelerator.process_index, "
            "world_size=accelerator.num_processes, device=accelerator.device and iterate it; a Trainer of transformers "
            "needs a get_train_dataloader of its own (docs/frameworks.md)"
        )

    def __iter__(self) -> Iterator[Batch]:
        """Give batches from the state's offset on.

        Raises:
            InvalidReadError: a worker of a DataLoader iterates.
            StateError: the blend has ended; or, from the iterator, another iteration has begun or a state was loaded.
        """
        if get_worker_info() is not None:
            raise InvalidReadError(
                "dataset: a DataLoader worker would read rows that this process's state does not count; use "
                "num_workers=0, the dataset prefetches by itself; with lake: give the dataset workers"
            )
        if self._ended:
            raise StateError(
                f"dataset: the blend ended at offset {self._offset}, all its steps were given; for more passes raise "
                "max_epochs of its sources, or load_state_dict({blend, offset: 0}) to read it from its start again"
            )
        self._begin(self._offset)
        self._clock = InputClock()
        return self._fetched(self._iteration) if self._fetch else self._counted(self._iteration)

    def _begin(self, offset: int) -> None:
        """Make the next iteration start at an offset, and end the one that runs."""
        self._offset = offset
        self._ended = False
        self._iteration = object()

    def _check_current(self, iteration: object) -> None:
        """Refuse to continue an iteration whose steps the state does not count any more."""
        if iteration is not self._iteration:
            raise StateError(
                "dataset: another iteration has begun, or a state was loaded, since this one began; begin a new one "
                "with iter(dataset), which goes on where the state stands"
            )

    def _counted(self, iteration: object) -> Iterator[Batch]:
        """Give an empty batch for each step that the peers take."""
        self._check_current(iteration)
        while self.blend.end is None or self._offset + self._part.step_rows <= self.blend.end:
            self._offset += self._part.step_rows
            yield Batch()
            self._check_current(iteration)
        self._ended = True

    def _fetched(self, iteration: object) -> Iterator[Batch]:
        """Give this rank's part of each step."""
        self._check_current(iteration)
        ring = Ring(self._device, self._prefetch_batches + 2) if self._device is not None else None
        source: AbstractContextManager[Iterator[Batch]]
        steps = Steps(
            self._connect, self.blend, self._offset, self._part, self._expected, self._tensors, self._columns,
            self._wait_seconds,
        )  # fmt: skip
        if self._workers:
            stream = None
            made: Iterator[Batch] = iter(
                DataLoader(steps, batch_size=None, num_workers=self._workers, prefetch_factor=self._prefetch_batches)
            )
            source = nullcontext(made if ring is None else map(ring.fill, made))
        else:
            client = self._connect()
            stream = steps.open(client, self._offset, self._part)
            made = steps.tensors_of(stream.ahead(), self._part.rows)
            made = made if ring is None else map(ring.fill, made)
            source = Prefetcher(made, self._prefetch_batches, client.close)
        with source as batches:
            while True:
                with self._clock.waiting():
                    batch = next(batches, None)
                    if batch is not None and ring is not None:
                        batch = ring.to_device(batch)
                if batch is None:
                    self._ended = True
                    return
                self._offset += self._part.step_rows
                if stream is not None:
                    stream.consumes(self._offset)
                yield batch
                self._check_current(iteration)


def block_mask(document_ids: torch.Tensor, block_tokens: int = 128) -> BlockMask:
    """Give FlexAttention's mask: a token sees the earlier ones of its own document, and itself.

    Args:
        document_ids: (R, L); -1 in padding, which sees padding, so that no row of the mask is empty.
        block_tokens: side of the blocks that are skipped as a whole.
    """
    rows, window_tokens = document_ids.shape

    def visible(row: torch.Tensor, _: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (document_ids[row, query] == document_ids[row, key]) & (query >= key)

    return create_block_mask(
        visible, rows, None, window_tokens, window_tokens, device=document_ids.device, BLOCK_SIZE=block_tokens
    )


def save_tensors(file: Path, arrays: Mapping[str, NDArray[Any]], others: Mapping[str, list[str]]) -> None:
    """Write arrays as a dictionary of tensors, which `torch.load(file, weights_only=True)` reads."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    torch.save({**tensors, **others}, file)
