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
from blender_service.tables.block import Segments, copy_rows, join_rows, take_rows
from blender_service.tables.block_reader import BlockReader
from blender_service.tables.token_columns import TokenColumn
from blender_service.wire.row_batch import RowBatch
from headrace.tables.window_facts import WindowFacts

SOURCE_SHIFT: Final = 40  # a block's number within its source is below 2**40


class BatchMessage(NamedTuple):
    """The message of a batch, and the facts for a server's log and counts.

    Attributes:
        message: of the batch, as it goes over the wire.
        offset: of the first row.
        sources: (R,) index of each row's source, uint8.
        waiting_for: of a batch without rows, the row still missing.
        end_of_blend: whether no row follows.
    """

    message: bytes
    offset: int
    sources: NDArray[np.uint8]
    waiting_for: str = ""
    end_of_blend: bool = False

    @property
    def end(self) -> int:
        """Offset after the last row."""
        return self.offset + self.sources.size


class Chunk:
    """Rows with located blocks; for one thread.

    Attributes:
        block_bytes: of all its blocks together, at most.
        rows: how many.
        byte_count: what it holds itself.
    """

    def __init__(
        self, resolved: ResolvedRows, readers: Mapping[int, BlockReader], columns: tuple[TokenColumn, ...] = ()
    ) -> None:
        """Find the blocks of rows, with these columns."""
        self._readers = readers
        self._columns = columns
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
        kept = (self._blocks, self._starts, self._slots, self._rows_in_block, self._epochs, self._sources)
        self.rows = self._sources.size
        self.byte_count = sum(values.nbytes for values in kept)
        listed = self.blocks_by_source()
        self.block_bytes = sum(readers[index].block_bytes * len(blocks) for index, blocks in listed.items())

    def blocks_by_source(self, slots: NDArray[np.integer] | None = None) -> dict[int, list[int]]:
        """List the blocks of some slots, of all if None, by source."""
        listed: dict[int, list[int]] = {}
        for number in (self._blocks if slots is None else self._blocks[slots]).tolist():
            listed.setdefault(number >> SOURCE_SHIFT, []).append(number & (1 << SOURCE_SHIFT) - 1)
        return listed

    def copy(self, first: int, last: int, names: tuple[str, ...], window: WindowFacts) -> RowBatch:
        """Copy the rows [first, last) of the chunk, at least one, out of their blocks; the offset is left at 0.

        Args:
            first: row of the chunk.
            last: row of the chunk.
            names: of the sources.
            window: facts of the rows.

        Raises:
            PackedTableError: a data file cannot be read.
            ServerUnavailableError: a store does not answer.
        """
        slots, rows_in_block = self._slots[first:last].astype(np.int64), self._rows_in_block[first:last]
        shape = (last - first, window.window_tokens)
        input_ids = np.empty(shape, dtype=f"<u{window.token_bytes}")
        columns = {column.name: np.empty(shape, dtype=column.dtype) for column in self._columns}
        by_slot = np.argsort(slots, kind="stable")
        wanted, begins = np.unique(slots[by_slot], return_index=True)
        members = dict(zip(self._blocks[wanted].tolist(), np.split(by_slot, begins[1:]), strict=True))
        places: list[Int64Array] = []
        parts: list[Segments] = []
        for index, numbers in self.blocks_by_source(wanted).items():
            for number, block in self._readers[index].blocks(numbers):
                mine = members[number + (index << SOURCE_SHIFT)]
                rows = rows_in_block[mine].astype(np.int64)
                copy_rows(block.input_ids, rows, input_ids, mine)
                for values, of_block in zip(columns.values(), block.columns, strict=True):
                    copy_rows(of_block, rows, values, mine)
                parts.append(take_rows(block.segments, rows))
                places.append(mine)
        segments = take_rows(join_rows(parts), np.argsort(np.concatenate(places)))
        return RowBatch(
            offset=0,
            input_ids=input_ids,
            token_counts=segments.row_tokens,
            source_names=names,
            sources=self._sources[first:last],
            epochs=self._epochs[first:last].astype(np.int64),
            ordinals=self._starts[slots] + rows_in_block,
            segment_counts=np.diff(segments.starts).astype(np.int32),
            doc_id_bytes=segments.doc_ids.tobytes(),
            doc_id_lengths=np.diff(segments.doc_id_starts).astype(np.int32),
            document_starts=segments.document_starts,
            segment_token_counts=segments.token_counts,
            window_starts=segments.window_starts,
            columns=columns,
        )


def _narrow(values: NDArray[np.integer]) -> NDArray[np.unsignedinteger]:
    """Copy numbers, none below 0, into the narrowest type for them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
