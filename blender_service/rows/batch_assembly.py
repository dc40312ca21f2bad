"""Assemble messages of resolved rows: thousands of rows are located at once, then written batch by batch.

    offsets [0, 4096)  --resolve-->  (source, epoch, ordinal)  --locate-->  (slot, row_in_block)
    batch [0, 256)     --pin the blocks of its slots-->  small fields, and a copy of each row's ids

A slot is the index of a block among the different blocks of the chunk. They stay pinned until the next chunk has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int32Array
from blender_service.exceptions import DamagedBlockError
from blender_service.order.resolve import ResolvedRows
from blender_service.rows.row_batch_kernel import number_blocks, write_rows
from blender_service.tables.block_cache import PinnedBlock
from blender_service.tables.block_reader import BlockReader
from blender_service.tables.row_digests import ADDRESS_COUNT
from blender_service.wire.row_batch import RowBatch, encode
from blender_service.wire.scattered_memory import join

SOURCE_SHIFT: Final = 40  # a block's number within its source is below 2**40
MOST_REPLACED: Final = 3  # times that a damaged block is built again for one message


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
    """Rows whose blocks were located; writes messages of them, a batch at a time. For one thread.

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
        self._blocks, slot = number_blocks(block)
        self._starts = np.empty(self._blocks.size, dtype=np.int64)
        self._starts[slot] = resolved.ordinal - row_in_block
        # Chunks that wait are most of what a stream holds, so they are kept in the narrowest types.
        self._slots, self._rows_in_block, self._epochs = _narrow(slot), _narrow(row_in_block), _narrow(resolved.epoch)
        self._sources = resolved.source.astype(np.uint8)
        self._table = np.zeros((self._blocks.size, ADDRESS_COUNT), dtype=np.int64)
        self._unpinned = self._blocks.size
        self._pins: list[PinnedBlock | None] = [None] * self._blocks.size
        listed = self.blocks_by_source()
        self.block_bytes = sum(readers[index].block_bytes * len(blocks) for index, blocks in listed.items())

    def blocks_by_source(self, slots: NDArray[np.integer] | None = None) -> dict[int, list[int]]:
        """List the blocks of some slots, of all if None, by source."""
        listed: dict[int, list[int]] = {}
        for number in (self._blocks if slots is None else self._blocks[slots]).tolist():
            listed.setdefault(number >> SOURCE_SHIFT, []).append(number & (1 << SOURCE_SHIFT) - 1)
        return listed

    def message(
        self, first: int, offset: int, rows: int, names: NDArray[np.uint8], window: tuple[int, int]
    ) -> BatchMessage:
        """Make the message of a batch of rows; their ids are copied into it once, from where they lie.

        Args:
            first: row_in_block of its first row in the chunk.
            offset: of that row in the blend.
            rows: at least 1.
            names: of the sources, as `row_batch.names_field` writes them.
            window: tokens of a row, and bytes of a token.

        A block with a row that does not have its digest is built again and replaced.

        Raises:
            PackedTableError: the data file of such a block cannot be read.
            DamagedBlockError: the block was damaged again each time it was built.
        """
        part = slice(first, first + rows)
        slots, rows_in_block = self._slots[part].astype(np.int32), self._rows_in_block[part].astype(np.int32)
        if self._unpinned:
            self._pin(slots)
        sources = self._sources[part]
        epochs = self._epochs[part].astype(np.int64)
        replaced: list[int] = []
        while True:
            start, ids, damaged = write_rows(
                self._table, self._starts, slots, rows_in_block, sources, epochs, names, offset, window
            )
            if damaged < 0:
                break
            replaced.append(int(slots[damaged]))
            if replaced.count(replaced[-1]) > MOST_REPLACED:
                raise DamagedBlockError(
                    f"row {offset + damaged}: its block was built {MOST_REPLACED} times and is damaged again; check "
                    "memory and disk of this machine, and read from another replica"
                )
            self._replace(replaced[-1])
        return BatchMessage(join(start, ids, window[0] * window[1]), offset, sources)

    def adopt(self, before: Chunk) -> None:
        """Take over the pinned blocks of the chunk before: most chunks read the same blocks as the last one."""
        known = np.searchsorted(before._blocks, self._blocks).clip(max=before._blocks.size - 1)
        for slot in np.flatnonzero(before._blocks[known] == self._blocks).tolist():
            pin = before._pins[known[slot]]
            if pin is not None and self._pins[slot] is None:
                self._take(slot, pin)

    def _pin(self, slots: Int32Array) -> None:
        """PinnedBlock the blocks of some slots, those that are not yet, building what is not in the cache."""
        wanted = np.zeros(self._blocks.size, dtype=np.bool_)
        wanted[slots] = True
        unpinned = np.flatnonzero(wanted & (self._table[:, 0] == 0))
        for index, numbers in self.blocks_by_source(unpinned).items():
            for number, pin in self._readers[index].pin(numbers).items():
                self._take(int(np.searchsorted(self._blocks, number + (index << SOURCE_SHIFT))), pin)

    def _replace(self, slot: int) -> None:
        """Replace a damaged block by one that is built or mapped again."""
        number, pin = int(self._blocks[slot]), self._pins[slot]
        assert pin is not None
        reader = self._readers[number >> SOURCE_SHIFT]
        self._take(slot, reader.replace(number & (1 << SOURCE_SHIFT) - 1, pin))

    def _take(self, slot: int, pin: PinnedBlock) -> None:
        self._unpinned -= self._pins[slot] is None
        self._pins[slot] = pin
        self._table[slot] = pin.block.addresses


def _narrow(values: NDArray[np.integer]) -> NDArray[np.unsignedinteger]:
    """Copy numbers, none below 0, into the narrowest type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
