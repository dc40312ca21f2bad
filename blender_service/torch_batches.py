"""Make tensors of rows: a rank's part of each step, by one process or several in turns, and a ring to a device.

`blender_service.torch` is what a training job imports.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, cast

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch.utils.data import IterableDataset, get_worker_info

from blender_service.client import Blend, BlenderClient
from blender_service.client.row_stream import RowStream
from blender_service.client.window_layout import NewArray, WindowLayout, new_array, sequence_tokens_of
from blender_service.exceptions import InvalidReadError
from blender_service.torch_context import WHOLE_ROWS, ContextPart
from blender_service.wire.expected_window import ExpectedWindow
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch

DENSE: Final = ("input_ids", "labels", "position_ids", "document_ids")
_MOST_KEPT: Final = 16  # arrays of one name: more than are held ready and in use
TENSORS: Final = ("input_ids", "labels", "position_ids", "document_ids", "cu_seqlens")
SEGMENT_DOCUMENTS: Final = "segment_documents"
_OF_SEGMENTS: Final = ("cu_seqlens", SEGMENT_DOCUMENTS, "segment_counts")  # tensors of another size in each batch


class Batch(TypedDict, total=False):
    """The tensors asked for of R rows of L tokens; empty on a rank that does not fetch.

    With `length_classes` R and L are those of the sequences in the rows.

    Attributes:
        offset: of the first row in the blend, as the server sent it.
        input_ids: (R, L) int64.
        labels: (R, L) int64, the next token; -100 at the end of a document and in padding, and before each token that
            the column `trainable` leaves out, where it is among the columns that are read.
        position_ids: (R, L) int64, from 0 in every document.
        document_ids: (R, L) int32, number of the document inside its row; -1 in padding.
        cu_seqlens: (S + 1,) int32, bounds of documents and of padding in the rows laid one after the other.
        max_seqlen: tokens of the longest of them.
        segment_documents: (S,) int64, where it is asked for: the document of each segment, row by row, as an index
            into `documents`. The n-th segment of a row has n in `document_ids`.
        documents: ids of the documents, each once; there with segment_documents.
        segment_counts: int32, segments of each row of the blend; there with segment_documents.
        step: number of the step, the same on all ranks and after a resume; there with segment_documents.
        blend: id of the blend; there with segment_documents.

    Requested columns of the dataset are there under their names: (R, L) bool, float32 or int32.
    """

    offset: int
    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor
    document_ids: torch.Tensor
    cu_seqlens: torch.Tensor
    max_seqlen: int
    segment_documents: torch.Tensor
    documents: list[str]
    segment_counts: torch.Tensor
    step: int
    blend: str


def lengths_of(blend: Blend, step_rows: int) -> set[int]:
    """Give the lengths of the sequences of a blend.

    Raises:
        InvalidReadError: steps would mix some.
    """
    lengths = {blend.length_classes.get(source.name, blend.window_tokens) for source in blend.sources}
    lengths |= {*blend.length_classes.values()}
    if len(lengths) > 1 and blend.turn_rows % step_rows:
        raise InvalidReadError(
            f"dataset: steps of {step_rows} rows mix length classes, sources take turns of {blend.turn_rows}; take "
            "steps that divide a turn, or create the blend with turn_rows"
        )
    return lengths


def to_tensors(batch: RowBatch, tensors: Sequence[str] = TENSORS) -> Batch:
    """Make a model's inputs of rows."""
    return _tensors([batch], tensors, new_array)


def _tensors(pieces: list[RowBatch], tensors: Sequence[str], new_array: NewArray, sequence_tokens: int = 0) -> Batch:
    """Make a model's inputs of rows in pieces, at least one, or of sequences in them, in arrays of `new_array`."""
    layout = WindowLayout(*pieces, new_array=new_array, sequence_tokens=sequence_tokens)
    batch = Batch(offset=pieces[0].offset)
    for name in tensors:
        batch[name] = torch.from_numpy(getattr(layout, name))  # type: ignore[literal-required]
    if "cu_seqlens" in tensors:
        batch["max_seqlen"] = layout.max_seqlen
    if SEGMENT_DOCUMENTS in tensors:
        batch["documents"] = layout.documents
        batch["segment_counts"] = torch.from_numpy(np.concatenate([piece.segment_counts for piece in pieces]))
    for name in pieces[0].columns:
        values = np.concatenate([piece.columns[name] for piece in pieces])
        values = values.reshape(-1, sequence_tokens or values.shape[1])
        batch[name] = torch.from_numpy(values)  # type: ignore[literal-required]
    return batch


class Buffers:
    """Arrays for batches, each again once nobody holds its tensors any more, nor views of them.

    Memory that was written before costs no page faults, which take longer than the writing.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._arrays: dict[str, list[NDArray[Any]]] = {}
        self._idle_references = next(sys.getrefcount(array) for array in [np.empty(0)])

    def take(self, name: str, shape: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
        """Give an array of a shape and type, with values of before; `name` says what for."""
        kept = self._arrays.setdefault(name, [])
        for array in kept:
            if sys.getrefcount(array) == self._idle_references and array.shape == shape:
                return array
        array = np.empty(shape, dtype)
        kept.append(array)
        del kept[:-_MOST_KEPT]  # a consumer that collects batches gets new arrays, which are its own
        return array


@dataclass(frozen=True)
class Steps(IterableDataset[Batch]):
    """One rank's part of each step from an offset on; iterated by worker w of n, each n-th step from the w-th on.

    Workers taking turns are ranks of larger steps: worker 1 of 2 of rank 0 of 2 is rank 2 of 4 in steps of 2B rows.
    """

    connect: Callable[[], BlenderClient]
    blend: Blend
    offset: int
    part: Slice
    expected: ExpectedWindow | None
    tensors: tuple[str, ...]
    columns: tuple[str, ...]
    wait_seconds: float
    begins_run: bool
    context: ContextPart = WHOLE_ROWS
    length_classes: bool = False

    def __iter__(self) -> Iterator[Batch]:
        """Give the steps of one of n workers: every n-th. The last of a blend, fewer than n, go to the first workers.

        For example, with 3 workers and 8 steps, worker 0 gives steps 0, 3 and 6, worker 1 gives 1, 4 and 7, worker 2
        gives 2 and 5.
        """
        info = get_worker_info()
        assert info is not None
        step_rows, ranks, end = self.part.step_rows, self.part.world_size, self.blend.end
        rank = info.id * ranks + self.part.rank
        turn = Slice(info.num_workers * step_rows, rank, info.num_workers * ranks, self.part.uneven)
        with self.connect() as client:
            yield from self.tensors_of(self.open(client, self.offset, turn), turn.rows)
            if end is not None:
                first = end - max(0, end - self.offset) % turn.step_rows + info.id * step_rows
                if first + step_rows <= end:
                    yield from self.tensors_of(self.open(client, first, self.part, step_rows), self.part.rows)

    def open(self, client: BlenderClient, offset: int, part: Slice, rows: int = 0) -> RowStream:
        """Begin to read."""
        return client.read(
            self.blend.blend_id, offset, rows, part=part, expected=self.expected, wait_seconds=self.wait_seconds,
            columns=self.columns, begins_run=self.begins_run,
        )  # fmt: skip

    def tensors_of(self, stream: Iterator[RowBatch], rows: int) -> Iterator[Batch]:
        """Make tensors of each step, of which `rows` are read."""
        pieces: list[RowBatch] = []
        buffers = Buffers()
        for piece in stream:
            if piece.end_of_blend:
                return
            pieces.append(piece)
            if sum(part.rows for part in pieces) == rows:
                length = sequence_tokens_of(self.blend, *pieces) if self.length_classes else 0
                batch = _tensors(pieces, self.tensors, buffers.take, length)
                if SEGMENT_DOCUMENTS in self.tensors:
                    batch["step"] = (pieces[0].offset - self.part.start) // self.part.step_rows
                    batch["blend"] = self.blend.blend_id
                yield cast(Batch, self.context.of(batch))
                pieces.clear()


class Ring:
    """Page-locked buffers for batches on their way to a device.

    A buffer is filled again only after the copy out of it is done. With two more buffers than batches are held ready,
    one is always free: one is being filled, one is being copied.
    """

    def __init__(self, device: torch.device, buffers: int) -> None:
        self._device = device
        self._left_to_make = buffers
        self._free: queue.SimpleQueue[tuple[Batch, torch.cuda.Event | None]] = queue.SimpleQueue()

    def fill(self, batch: Batch) -> Batch:
        """Put tensors into a free buffer."""
        if self._left_to_make:
            self._left_to_make -= 1
            return self._pinned(batch)
        buffer, copied = self._free.get()
        if copied is not None:
            copied.synchronize()
        if any(buffer[name].numel() != batch[name].numel() for name in _dense(batch)):  # type: ignore[literal-required]
            return self._pinned(batch)  # where rows become longer
        filled = Batch(**batch)
        for name in _dense(batch):
            values = batch[name]  # type: ignore[literal-required]
            filled[name] = buffer[name].view(values.shape).copy_(values)  # type: ignore[literal-required]
        return filled

    def to_device(self, buffer: Batch) -> Batch:
        """Begin to copy a buffer to the device, and return it to the ring with the event that ends the copy."""
        arrived = Batch(**buffer)
        for name, values in buffer.items():
            if isinstance(values, torch.Tensor):
                arrived[name] = values.to(  # type: ignore[literal-required]
                    self._device, non_blocking=True, copy=True
                )
        copied = None
        if self._device.type == "cuda":
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(torch.cuda.current_stream(self._device))
        self._free.put((buffer, copied))
        return arrived

    def _pinned(self, batch: Batch) -> Batch:
        """Give a batch in page-locked memory where the device is CUDA: it copies from there asynchronously."""
        if self._device.type == "cuda":
            for name in _dense(batch):
                batch[name] = batch[name].pin_memory()  # type: ignore[literal-required]
        return batch


def _dense(batch: Batch) -> list[str]:
    """Names of the tensors of one size in every batch."""
    return [name for name, values in batch.items() if isinstance(values, torch.Tensor) and name not in _OF_SEGMENTS]
