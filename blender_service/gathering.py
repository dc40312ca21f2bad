"""From resolved rows to messages: thousands of rows are located at once, then copied batch by batch.

    offsets [0, 4096)  --resolve-->  (source, epoch, ordinal)  --locate-->  (slot, place)     slot: one line per block
    batch [0, 256)     --pin the blocks of its slots, copy their rows into a message-->  bytes

The blocks of a chunk stay pinned until the next chunk has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blender_service.block_cache import Pin
from blender_service.blocks import BlockReader
from blender_service.gather_kernel import ADDRESS_COUNT, addresses_of, copy_rows, gather_segments
from blender_service.order import ResolvedRows
from blender_service.wire import Framed, RowBatch, begin

SOURCE_SHIFT: Final = 40  # a block's number within its source is below 2**40

Int32Array = NDArray[np.int32]


class Chunk:
    """Rows whose blocks are known; copies them into messages, a batch at a time. For one thread."""

    def __init__(self, resolved: ResolvedRows, readers: Mapping[int, BlockReader]) -> None:
        """Find the blocks of rows.

        Args:
            resolved: the rows, in the order that messages give them.
            readers: of the sources that come, by their index.
        """
        self._readers = readers
        block, place = np.empty((2, resolved.source.size), dtype=np.int64)
        for index in np.flatnonzero(np.bincount(resolved.source)).tolist():
            members = np.flatnonzero(resolved.source == index)
            number, place[members] = readers[index].locate(resolved.ordinal[members])
            block[members] = number + (index << SOURCE_SHIFT)
        self._blocks = np.unique(block)
        slot = np.searchsorted(self._blocks, block)  # few blocks: faster than by sorting all
        self._starts = np.empty(self._blocks.size, dtype=np.int64)
        self._starts[slot] = resolved.ordinal - place
        # Chunks that wait are most of what a stream holds, so they are kept in the narrowest types.
        self._slots, self._places, self._epochs = _narrow(slot), _narrow(place), _narrow(resolved.epoch)
        self._sources = resolved.source.astype(np.uint8)
        self._table = np.zeros((self._blocks.size, ADDRESS_COUNT), dtype=np.int64)
        self._unpinned = self._blocks.size
        self._pins: list[Pin] = []

    @property
    def block_bytes(self) -> int:
        """Bytes of all its blocks together, at most."""
        return sum(self._readers[index].block_bytes * len(blocks) for index, blocks in self.blocks_by_source().items())

    def blocks_by_source(self, slots: NDArray[np.integer] | None = None) -> dict[int, list[int]]:
        """List the blocks that some slots stand for, all if None, by source."""
        listed: dict[int, list[int]] = {}
        for number in (self._blocks if slots is None else self._blocks[slots]).tolist():
            listed.setdefault(number >> SOURCE_SHIFT, []).append(number & (1 << SOURCE_SHIFT) - 1)
        return listed

    def message(
        self, first: int, offset: int, rows: int, names: tuple[str, ...], ids_like: NDArray[np.unsignedinteger]
    ) -> Framed:
        """Copy a batch of rows into a message.

        Args:
            first: place of its first row in the chunk.
            offset: of that row in the blend.
            rows: at least 1.
            names: of the sources.
            ids_like: (any, L) of the type of the token ids, never read.
        """
        part = slice(first, first + rows)
        slots, places = self._slots[part].astype(np.int32), self._places[part].astype(np.int32)
        if self._unpinned:
            self._pin(slots)
        token_counts, counts, texts, lengths, starts, tokens, window_starts = gather_segments(
            self._table, slots, places
        )
        batch = RowBatch(
            offset=offset,
            input_ids=ids_like[:rows],  # they are copied into the message, once
            token_counts=token_counts,
            source_names=names,
            sources=self._sources[part],
            epochs=self._epochs[part].astype(np.int64),
            ordinals=self._starts[slots] + places,
            segment_counts=counts,
            doc_id_bytes=texts.tobytes(),
            doc_id_lengths=lengths,
            document_starts=starts,
            segment_token_counts=tokens,
            window_starts=window_starts,
        )
        message = begin(batch)
        copy_rows(self._table, slots, places, ids_like.itemsize * ids_like.shape[1], message.payload_address)
        return Framed(batch, message.content)

    def _pin(self, slots: Int32Array) -> None:
        """Pin the blocks of some slots, those that are not yet, building what is not in the cache."""
        wanted = np.zeros(self._blocks.size, dtype=np.bool_)
        wanted[slots] = True
        unpinned = np.flatnonzero(wanted & (self._table[:, 0] == 0))
        for index, numbers in self.blocks_by_source(unpinned).items():
            for number, pin in self._readers[index].pin(numbers).items():
                slot = int(np.searchsorted(self._blocks, number + (index << SOURCE_SHIFT)))
                self._pins.append(pin)
                self._table[slot] = addresses_of(pin.block)
        self._unpinned -= unpinned.size


def _narrow(values: NDArray[np.int64]) -> NDArray[np.unsignedinteger]:
    """Copy numbers, none below 0, into the narrowest type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
