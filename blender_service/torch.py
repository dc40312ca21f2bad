"""Read a blend as a torch dataset; its state resumes at the very next batch under any world size.

    dataset = BlendDataset("127.0.0.1:7170", blend="my-blend", batch_rows=64, rank=rank, world_size=world_size)
    for batch in dataset:
        loss = model(batch["input_ids"], batch["position_ids"], batch["document_ids"], batch["labels"])

Without a server, `BlendDataset("lake:my-blend", batch_rows=64)` reads the lake in this process: the same rows.

Every item is this rank's part of one global step. The state is {blend, offset}, counted in batches handed out: save it
between steps, load it on any number of ranks. At the end of the blend an incomplete step is left out, so that all ranks
make the same number of steps.

Tensor, context and pipeline peers work on the same rows. Name the data-parallel dimensions of the DeviceMesh, or let
`rank` and `world_size` count groups of peers; and either let every peer read (the simplest), or give `fetch=False` to
those that need no tokens, or get them from a peer::

    dataset = BlendDataset(..., mesh=device_mesh, dp=("dp_replicate", "dp_shard"))
    dataset = BlendDataset(..., rank=process // peers, world_size=processes // peers, fetch=process % peers == 0)

A dataset without `fetch` gives one empty batch per step and keeps the same state, so any rank can save it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from blender_service.client import LIVE_WAIT_SECONDS, Blend, BlenderClient
from blender_service.client.blender_client import RETRY_SECONDS, SILENCE_SECONDS
from blender_service.client.channel import LAKE
from blender_service.client.identity import DEFAULT_IDENTITY, Identity
from blender_service.client.retry import InputClock
from blender_service.client.row_stream import Prefetcher
from blender_service.exceptions import BlenderError, InvalidReadError, OffsetOutOfRangeError, StateError
from blender_service.wire.expected_window import ExpectedWindow
from blender_service.wire.rank_slice import Slice

try:
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "torch":  # torch is installed, but one of its own requirements is not
        raise
    raise ModuleNotFoundError(
        "blender_service.torch needs torch 2.5 or newer, which is not installed here; "
        "get the build for your machine, or run: pip install 'headrace[torch]'",
        name="torch",
    ) from None

from blender_service.torch_batches import DENSE, SEGMENT_DOCUMENTS, TENSORS, Batch, Ring, Steps, lengths_of, to_tensors
from blender_service.torch_consumers import check_lightning, is_read_by_data_loader
from blender_service.torch_context import context_of
from blender_service.torch_losses import LossWriter
from blender_service.torch_masks import attention_mask, block_mask
from blender_service.torch_ranks import check_alone, rank_of, whole

__all__ = [
    "DENSE",
    "TENSORS",
    "Batch",
    "BlendDataset",
    "BlendState",
    "LossWriter",
    "attention_mask",
    "block_mask",
    "save_tensors",
    "to_tensors",
]


class BlendState(TypedDict):
    """The state of a training run: the blend's id, and the offset of its next global step."""

    blend: str
    offset: int


class BlendDataset(IterableDataset[Batch]):
    """Global steps of a blend, one rank's part at a time.

    An item is a `Batch`. With `device` batches are copied to it from a ring of page-locked buffers while the step
    before still computes. `input_stall_seconds` and `input_stall_share` say what waiting for batches costs the loop.

    It prefetches in a thread of its own; with a DataLoader use `batch_size=None, num_workers=0`. For frameworks see
    docs/feed/frameworks.md.

    Iterating goes on where the state stands, also after a `break`. One iteration runs at a time: a new one, or a loaded
    state, ends the one before. After the end of the blend there is no second pass, since passes are part of the blend.
    `len()` is the number of steps of the whole run, from `offset` on; a blend without end has none.
    """

    def __init__(  # noqa: PLR0913 (settings of a loader, all but three by name)
        self,
        address: str,
        blend: str = "",
        batch_rows: int = 0,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: DeviceMesh | None = None,
        dp: str | Sequence[str] | None = None,
        cp: str | None = None,
        cp_zigzag: bool = True,
        length_classes: bool = False,
        offset: int | None = None,
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
            rank: of this process; may be left out where it trains alone.
            world_size: number of ranks, W.
            mesh: in place of these two; peers in its other dimensions get the same batches.
            dp: its data-parallel dimension, or all of them; "dp" if left out.
            cp: its context-parallel dimension: each rank along it has its part of every row.
            cp_zigzag: whether that is a piece of the row's start and one of its end, as balances causal attention.
            length_classes: whether tensors have a row for each sequence of the step's length class, in place of one for
                each window.
            offset: first row of the first step, 0 if left out; a loaded state replaces it.
            uneven: allow parts differing by one row; scale the loss by `loss_scale` then.
            expected: tokenizer, window length and vocabulary the model was built for.
            tensors: names of the tensors to make; each one costs time. `segment_documents`, none of the default ones,
                brings the ids of documents.
            columns: names of columns with a value for each token: a tensor each, under its name. With `trainable`
                labels are -100 where it says that no loss is taken.
            prefetch_batches: batches held ready.
            device: device of the tensors; None leaves them in memory, new ones for every batch.
            fetch: False for a rank only counting steps, as its peers do.
            workers: processes to read for this one and take its steps in turns, with `lake:`; torch's start method.
            wait_seconds: longest wait for a row still missing from a live table, 0 without end.
            identity: token and certificate, and the name of the training run, which is registered in the lake.
            retry_seconds: how long to go on trying to reach a server, or a lake, that does not answer.
            silence_seconds: longest wait for a message of an open stream, which is then opened anew.

        Raises:
            InvalidReadError: W > B, or W does not divide B and `uneven` is not set; several processes train, and nobody
                said which rows this one reads; there is no such tensor; a column has the name of one; an option is for
                a server alone, or for `lake:` alone.
            OffsetOutOfRangeError: the blend ends before `offset`.
            WindowMismatchError: the blend does not have the expected facts.
        """
        super().__init__()
        if address.startswith(LAKE) and address != LAKE:
            if blend:
                raise InvalidReadError(f"dataset: both {address!r} and {blend!r} name a blend; give one")
            address, blend = LAKE, address.removeprefix(LAKE)
        step_rows = whole(batch_rows) or 0
        if not blend or step_rows < 1:
            raise InvalidReadError(
                f"dataset: blend is {blend!r} and batch_rows {batch_rows!r}; name a blend, and the rows of a step"
            )
        if workers < 0 or (workers and address != LAKE):
            raise InvalidReadError(
                f"dataset: workers is {workers}; give 0 or more to lake:BLEND, and none to a server, which reads ahead"
            )
        self._workers = workers
        self._is_told_ranks = rank is not None or world_size is not None or mesh is not None
        self._part = Slice(step_rows, *rank_of(rank, world_size, mesh, dp), uneven)
        self._part.check()
        possible = (*TENSORS, SEGMENT_DOCUMENTS)
        unknown = [name for name in tensors if name not in possible]
        if unknown:
            raise InvalidReadError(f"dataset: tensors has {unknown[0]!r}; choose from {', '.join(possible)}")
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
        self._first = self._checked(0 if offset is None else offset, "dataset", InvalidReadError, OffsetOutOfRangeError)
        if expected is not None:
            expected.check(self.blend.blend_id, self.blend.at(self._first))
        self._is_told_where = offset is not None
        self._begin(self._first)
        self._context = context_of(mesh, cp, dp, cp_zigzag)
        self._length_classes = length_classes
        for length in lengths_of(self.blend, step_rows) if length_classes else [self.blend.window_tokens]:
            self._context.check(length, tensors)
        self._device = torch.device(device) if device is not None else None
        self._fetch = fetch
        self._wait_seconds = wait_seconds
        self._clock = InputClock()

    @property
    def input_stall_seconds(self) -> float:
        """The loop's time of waiting for batches of the dataset, after the first one."""
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
        """Give the state of the run: the offset after the last batch handed out."""
        return BlendState(blend=self.blend.blend_id, offset=self._offset)

    def load_state_dict(self, state: BlendState) -> None:
        """Continue at the state of another run, whatever its world size was.

        A state of another blend is accepted if the server proves that both hold the same rows up to its offset; this is
        how a run changes over to an updated blend.

        Raises:
            StateError: no state at all, one beyond the end, or one of a blend with differing rows below its offset.
            BlendNotFoundError: the server does not know the state's blend.
        """
        if not isinstance(state, Mapping) or set(state) != {"blend", "offset"} or not isinstance(state["blend"], str):
            raise StateError(f"state: {state!r} is not {{blend, offset}}; load what state_dict() gave")
        offset = self._checked(state["offset"], "state", StateError, StateError)
        if state["blend"] != self.blend.blend_id:
            with self._connect() as client:
                client.prove_continuation(state["blend"], self.blend.blend_id, offset)
        self._is_told_where = True
        self._begin(offset)

    def __len__(self) -> int:
        """Count the steps from `offset` to the end of the blend; a loaded state does not change it.

        Raises:
            TypeError: the blend has no end, so that loops in need of a number of steps ask for it.
        """
        if self.blend.end is None:
            raise TypeError(
                "dataset: the blend has no end, so it has no length; say how many steps to make: max_steps of a "
                "Trainer of transformers, limit_train_batches of Lightning, zip(range(steps), dataset) in a loop"
            )
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
            "needs a get_train_dataloader of its own (docs/feed/frameworks.md)"
        )

    def __iter__(self) -> Iterator[Batch]:
        """Give batches from the state's offset on.

        Raises:
            InvalidReadError: a worker of a DataLoader iterates, or one that batches again; several processes train, and
                nobody said which rows this one reads; or, from the iterator, Lightning's checkpoints would lie.
            StateError: no step is left; or, from the iterator, another iteration has begun or a state was loaded, or a
                DataLoader begins a run anew that has consumed rows.
        """
        if get_worker_info() is not None:
            raise InvalidReadError(
                "dataset: a DataLoader worker would read rows that this process's state does not count; use "
                "num_workers=0, the dataset prefetches by itself; with lake: give the dataset workers"
            )
        if not self._is_told_ranks:
            check_alone()  # once more: the processes may have met since
        begins_run = is_read_by_data_loader(self) and not self._is_told_where
        if self._ended or not self._has_step:
            if self._offset == 0:
                raise StateError(
                    f"dataset: the blend has {self.blend.end} rows, fewer than a step, which takes "
                    f"{self._part.step_rows}; lower batch_rows, or raise max_epochs of its sources"
                )
            raise StateError(
                f"dataset: the blend ended at offset {self._offset}, all its steps were given; for more passes raise "
                "max_epochs of its sources, or load_state_dict({blend, offset: 0}) to read it from its start again"
            )
        self._begin(self._offset)
        self._clock = InputClock()
        if not self._fetch:
            return self._counted(self._iteration)
        return self._fetched(self._iteration, begins_run and self._offset == 0)

    @property
    def _has_step(self) -> bool:
        """Whether the blend has a whole step from the state on."""
        return self.blend.end is None or self._offset + self._part.step_rows <= self.blend.end

    def _checked(self, offset: object, where: str, error: type[BlenderError], out_of_range: type[BlenderError]) -> int:
        """Give an offset if it is one of the blend."""
        row = whole(offset)
        if row is None or row < 0:
            raise error(f"{where}: offset is {offset!r}; give the number of a row, from 0 on")
        if self.blend.end is not None and row > self.blend.end:
            raise out_of_range(
                f"{where}: offset {row} is beyond the end of blend {self.blend.blend_id}, which has "
                f"{self.blend.end} rows; give one of its rows"
            )
        return row

    def _begin(self, offset: int) -> None:
        """Make the next iteration start at an offset, and end the running one."""
        self._offset = offset
        self._ended = False
        self._iteration = object()

    def _check_current(self, iteration: object) -> None:
        """Refuse to continue an iteration with steps the state no longer counts."""
        if iteration is not self._iteration:
            raise StateError(
                "dataset: another iteration has begun, or a state was loaded, since this one began; begin a new one "
                "with iter(dataset), which goes on where the state stands"
            )

    def _counted(self, iteration: object) -> Iterator[Batch]:
        """Give an empty batch for each step of the peers."""
        self._check_first(iteration)
        while self._has_step:
            self._offset += self._part.step_rows
            yield Batch()
            self._check_current(iteration)
        self._ended = True

    def _check_first(self, iteration: object) -> None:
        """Refuse to begin an iteration with a wrong state."""
        self._check_current(iteration)
        check_lightning(self.blend.end is None, self._is_told_where)

    def _fetched(self, iteration: object, begins_run: bool) -> Iterator[Batch]:
        """Give this rank's part of each step; the server refuses one beginning a run anew by mistake."""
        self._check_first(iteration)
        ring = Ring(self._device, self._prefetch_batches + 2) if self._device is not None else None
        source: AbstractContextManager[Iterator[Batch]]
        steps = Steps(
            self._connect, self.blend, self._offset, self._part, self._expected, self._tensors, self._columns,
            self._wait_seconds, begins_run, self._context, self._length_classes,
        )  # fmt: skip
        if self._workers:
            stream = None
            tensors: Iterator[Batch] = iter(
                DataLoader(steps, batch_size=None, num_workers=self._workers, prefetch_factor=self._prefetch_batches)
            )
            source = nullcontext(tensors if ring is None else map(ring.fill, tensors))
        else:
            client = self._connect()
            stream = steps.open(client, self._offset, self._part)
            tensors = steps.tensors_of(stream.ahead(), self._part.rows)
            tensors = tensors if ring is None else map(ring.fill, tensors)
            source = Prefetcher(tensors, self._prefetch_batches, client.close)
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


def save_tensors(file: Path, arrays: Mapping[str, NDArray[Any]], others: Mapping[str, list[str]]) -> None:
    """Write arrays as a dictionary of tensors, which `torch.load(file, weights_only=True)` reads."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    torch.save({**tensors, **others}, file)
