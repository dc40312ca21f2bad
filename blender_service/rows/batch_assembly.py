"""Assemble batches of resolved rows: thousands of rows are located at once, then copied out of their blocks by parts.

    offsets [0, 4096)  --resolve-->  (source, epoch, ordinal)  --locate-->  (slot, row_in_block)
    rows [0, 256)      --block by block, each let go before the next-->  a batch, cut into messages

A slot is the index of a block among the different blocks of the chunk. So a stream holds the rows of a few messages,
and blocks are held by the cache alone, whose bound therefore holds however many streams there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int64Array
from blender_service.order.resolve import ResolvedRows
from blender_service.tables.block import Segments, join_rows, take_rows
from blender_service.tables.block_reader import BlockReader
from blender_service.tables.packed_table import WindowFacts
from blender_service.wire.row_batch import RowBatch, encode

SOURCE_SHIFT: Final = 40  # a block's number within its source is below 2**40


class BatchMessage(NamedTuple):
    """The message of a batch, and the facts that a server logs and counts.

    Attributes:
        message: of the batch, as it goes over the wire.
        offset: of the first row.
        sources: (R,) index of each row's source, uint8.
        waiting_for: of a batch without rows, the row that is not there yet.
    """

    message: bytes
    offset: int
    sources: NDArray[np.uint8]
    waiting_for: str = ""

    @property
    def end(self) -> int:
        """Offset after the last row."""
        return self.offset + self.sources.size


def message_of(batch: RowBatch) -> BatchMessage:
    """Write the message of a batch."""
    return BatchMessage(encode(batch), batch.offset, batch.sources, batch.waiting_for)


class Chunk:
    """Rows whose blocks were located; for one thread.

    Attributes:
        block_bytes: of all its blocks together, at most.
    """

    def __init__(self, resolved: ResolvedRows, readers: Mapping[int, BlockReader]) -> None:
        """Find the blocks of rows."""
        self._readers = readers
        block, row_in_block = np.empty((2, resolved.source.size), dtype=np.int64)
        for index in np.flatnonzero(np.bincount(resolved.source)).tolist():
            members = np.flatnonzero(resolved.source == index)
            number, row_in_block[members] = readers[index].locate(resolved.ordinal[members])
            block[members] = number + (index << SOURCE_SHIFT)
        self._blocks, slot = np.unique(block, return_inverse=True)
        self._starts = np.empty(self._blocks.size, dtype=np.int64)
        self._starts[slot] = resolved.ordinal - row_in_block
        # Chunks that wait are most of what a stream holds, so they are kept in the narrowest types.
        self._slots, self._rows_in_block, self._epochs = _narrow(slot), _narrow(row_in_block), _narrow(resolved.epoch)
        self._sources = resolved.source.astype(np.uint8)
        listed = self.blocks_by_source()
        self.block_bytes = sum(readers[index].block_bytes * len(blocks) for index, blocks in listed.items())

    def blocks_by_source(self, slots: NDArray[np.integer] | None = None) -> dict[int, list[int]]:
        """List the blocks of some slots, of all if None, by source."""
        listed: dict[int, list[int]] = {}
        for number in (self._blocks if slots is None else self._blocks[slots]).tolist():
            listed.setdefault(number >> SOURCE_SHIFT, []).append(number & (1 << SOURCE_SHIFT) - 1)
        return listed

    def copy(self, first: int, last: int, window: WindowFacts) -> CopiedRows:
        """Copy the rows [first, last) of the chunk, at least one, out of their blocks.

        Raises:
            PackedTableError: a data file cannot be read.
            ServerUnavailableError: a store does not answer.
        """
        slots, rows_in_block = self._slots[first:last].astype(np.int64), self._rows_in_block[first:last]
        input_ids = np.empty((last - first, window.window_tokens), dtype=f"<u{window.token_bytes}")
        by_slot = np.argsort(slots, kind="stable")
        wanted, begins = np.unique(slots[by_slot], return_index=True)
        members = dict(zip(self._blocks[wanted].tolist(), np.split(by_slot, begins[1:]), strict=True))
        place = np.empty(last - first, dtype=np.int64)
        parts: list[Segments] = []
        at = 0
        for index, numbers in self.blocks_by_source(wanted).items():
            for number, block in self._readers[index].blocks(numbers):
                own = members[number + (index << SOURCE_SHIFT)]
                rows = rows_in_block[own].astype(np.int64)
                np.take(block.input_ids, rows, axis=0, out=input_ids[at : at + own.size], mode="clip")
                parts.append(take_rows(block.segments, rows))
                place[own] = np.arange(at, at + own.size)
                at += own.size
        return CopiedRows(
            place=place,
            input_ids=input_ids,
            segments=join_rows(parts),
            sources=self._sources[first:last],
            epochs=self._epochs[first:last].astype(np.int64),
            ordinals=self._starts[slots] + rows_in_block,
        )


class CopiedRows(NamedTuple):
    """R rows that were copied out of their blocks.

    Attributes:
        place: (R,) where each row lies in `input_ids` and `segments`, int64.
        input_ids: (R, L) token ids, in the order of the blocks.
        segments: in the same order.
        sources: (R,) index of each row's source, uint8.
        epochs: (R,) pass over it, int64.
        ordinals: (R,) row of its table, int64.
    """

    place: Int64Array
    input_ids: NDArray[np.unsignedinteger]
    segments: Segments
    sources: NDArray[np.uint8]
    epochs: Int64Array
    ordinals: Int64Array

    def batch(self, first: int, last: int, offset: int, names: tuple[str, ...]) -> RowBatch:
        """Give the rows [first, last) as a batch that begins at an offset of the blend."""
        place = self.place[first:last]
        own = take_rows(self.segments, place)
        return RowBatch(
            offset=offset,
            input_ids=self.input_ids[place],
            token_counts=own.row_tokens,
            source_names=names,
            sources=self.sources[first:last],
            epochs=self.epochs[first:last],
            ordinals=self.ordinals[first:last],
            segment_counts=np.diff(own.starts).astype(np.int32),
            doc_id_bytes=own.doc_ids.tobytes(),
            doc_id_lengths=np.diff(own.doc_id_starts).astype(np.int32),
            document_starts=own.document_starts,
            segment_token_counts=own.token_counts,
            window_starts=own.window_starts,
        )


def _narrow(values: NDArray[np.integer]) -> NDArray[np.unsignedinteger]:
    """Copy numbers, none below 0, into the narrowest type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
