"""A torch dataset over a blend, with a state that goes on at the very next batch under any world size.

    dataset = BlendDataset("127.0.0.1:7170", blend="my-blend", batch_rows=64, rank=rank, world_size=world_size)
    for batch in dataset:
        loss = model(batch["input_ids"], batch["position_ids"], batch["document_ids"], batch["labels"])

Every item is this rank's part of one global step. The state is {blend, offset}, counted in batches handed out: save it
between steps, load it on any number of ranks. At the end of the blend a step that does not fit is left, so that all
ranks make the same number of steps.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from blender_service.client import Blend, BlenderClient
from blender_service.exceptions import InvalidReadError, StateError
from blender_service.slices import Slice
from blender_service.window import ExpectedWindow
from blender_service.window_layout import lay_out
from blender_service.wire import RowBatch, concatenate

POLL_SECONDS: Final = 0.1

Batch = dict[str, torch.Tensor]


def save_tensors(file: Path, arrays: Mapping[str, NDArray[Any]], others: Mapping[str, list[str]]) -> None:
    """Write arrays as a dictionary of tensors, which `torch.load(file, weights_only=True)` reads.

    Args:
        file: where to.
        arrays: by name, of any number type that torch has.
        others: what goes into the dictionary as it is.
    """
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    torch.save({**tensors, **others}, file)


class BlendState(TypedDict):
    """Where a training run stands: the blend's id, and the offset of its next global step."""

    blend: str
    offset: int


class BlendDataset(IterableDataset[Batch]):
    """Global steps of a blend, one rank's part at a time.

    An item is a dict of tensors of R rows and L tokens: `input_ids` int64, `labels` int64 (shifted, -100 at the end of
    a document and in padding), `position_ids` int64 (from 0 in every document), `document_ids` int32 (-1 in padding),
    all (R, L).

    It prefetches in a thread of its own; with a DataLoader use `batch_size=None, num_workers=0`.
    """

    def __init__(
        self,
        address: str,
        blend: str,
        batch_rows: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        offset: int = 0,
        uneven: bool = False,
        expected: ExpectedWindow | None = None,
        prefetch_batches: int = 4,
    ) -> None:
        """Look the blend up and check that it is what the training expects.

        Args:
            address: host:port of a server.
            blend: id, start of an id, or name.
            batch_rows: rows B of a global step, all ranks together.
            rank: of this process.
            world_size: number of ranks, W.
            offset: first row of the first step; a loaded state replaces it.
            uneven: allow parts that differ by one row; scale the loss by `loss_scale` then.
            expected: tokenizer, window length and vocabulary the model was built for.
            prefetch_batches: batches held ready.

        Raises:
            InvalidReadError: W > B, or W does not divide B and `uneven` is not set.
            WindowMismatchError: the blend is not what is expected.
        """
        super().__init__()
        self._part = Slice(batch_rows, rank, world_size, uneven)
        self._part.check()
        if prefetch_batches < 1:
            raise InvalidReadError(f"dataset: prefetch_batches is {prefetch_batches}; give 1 or more")
        self._address = address
        self._expected = expected
        self._prefetch_batches = prefetch_batches
        with BlenderClient(address) as client:
            self.blend: Blend = client.get_blend(blend)
        if expected is not None:
            expected.check(self.blend.blend_id, self.blend)
        self._offset = offset

    @property
    def loss_scale(self) -> float:
        """Factor of this rank's mean loss that makes the mean over ranks the mean over the global batch."""
        return self._part.loss_scale

    def state_dict(self) -> BlendState:
        """Give where the run stands: after the last batch that was handed out."""
        return BlendState(blend=self.blend.blend_id, offset=self._offset)

    def load_state_dict(self, state: BlendState) -> None:
        """Go on where another run stood, whatever its world size was.

        Raises:
            StateError: the state is of another blend, or no state at all.
        """
        if set(state) != {"blend", "offset"} or not isinstance(state["offset"], int) or state["offset"] < 0:
            raise StateError(f"state: {state!r} is not {{blend, offset}}; load what state_dict() gave")
        if state["blend"] != self.blend.blend_id:
            raise StateError(
                f"state: is of blend {state['blend']}, this dataset reads {self.blend.blend_id}; open the dataset with "
                "the state's blend"
            )
        self._offset = state["offset"]

    def __iter__(self) -> Iterator[Batch]:
        """Give batches from the state's offset on."""
        if (worker := get_worker_info()) is not None and worker.num_workers > 1:
            raise InvalidReadError(
                f"dataset: {worker.num_workers} DataLoader workers would each read every row; use num_workers=0, the "
                "dataset prefetches by itself"
            )
        client = BlenderClient(self._address)
        with _Prefetcher(self._read_steps(client, self._offset), self._prefetch_batches, client.close) as steps:
            for batch in steps:
                self._offset += self._part.step_rows
                yield batch

    def _read_steps(self, client: BlenderClient, offset: int) -> Iterator[Batch]:
        """Read this rank's part of each step as tensors."""
        pieces: list[RowBatch] = []
        for piece in client.read(self.blend.blend_id, offset, part=self._part, expected=self._expected):
            if piece.end_of_blend:
                return
            pieces.append(piece)
            if sum(held.rows for held in pieces) == self._part.rows:
                yield to_tensors(concatenate(pieces))
                pieces.clear()


def to_tensors(batch: RowBatch) -> Batch:
    """Turn rows into what a model takes.

    Args:
        batch: R rows of L tokens.

    Returns:
        input_ids, labels, position_ids, document_ids, each (R, L).
    """
    layout = lay_out(batch)
    return {
        "input_ids": torch.from_numpy(batch.input_ids.astype(np.int64)),
        "labels": torch.from_numpy(layout.labels),
        "position_ids": torch.from_numpy(layout.position_ids),
        "document_ids": torch.from_numpy(layout.document_ids),
    }


class _Prefetcher:
    """Runs an iterator in a thread, a few items ahead; leaving the context ends the thread, wherever it waits."""

    def __init__(self, items: Iterator[Batch], ahead: int, interrupt: Callable[[], None]) -> None:
        self._items = items
        self._interrupt = interrupt
        self._queue: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=ahead)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blend-prefetch", daemon=True)

    def __enter__(self) -> Iterator[Batch]:
        self._thread.start()
        return self._taken()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._interrupt()
        self._thread.join()

    def _taken(self) -> Iterator[Batch]:
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

    def _put(self, item: Batch | BaseException | None) -> bool:
        """Hand an item over, unless the consumer left; say whether it was handed over."""
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
