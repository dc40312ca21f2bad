"""Assemble batches of resolved rows: thousands of rows are located at once, then copied out of their blocks by parts.

    offsets [0, 4096)  --resolve-->  (source, epoch, ordinal)  --locate-->  (slot, row_in_block)
    rows [0, 256)      --some MiB of blocks, let go before the next-->  a batch, cut into messages

A slot is the index of a block among the different blocks of the chunk. So a stream holds the rows of a few messages,
and blocks are held by the cache alone, whose bound therefore holds however many streams there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int64Array
from blender_service.order.resolve import ResolvedRows
from blender_service.tables.block import RowBlock, Segments, addresses_of, copy_rows, in_order, take_rows
from blender_service.tables.source_rows import BLOCK_BITS, RowPlaces
from blender_service.tables.token_columns import TokenColumn
from blender_service.wire.row_batch import RowBatch, index_type
from headrace.tables.window_facts import WindowFacts

GROUP_BYTES: Final = 16 << 20  # of blocks that a copy holds at once: as the largest one, or hundreds of small ones


class BatchMessage(NamedTuple):
    """The message of a batch, and the facts for a server's log and counts.

    Attributes:
        message: of the batch, as it goes over the wire.
        offset: of the first row.
        sources: (R,) index of each row's source.
        waiting_for: of a batch without rows, the row still missing.
        end_of_blend: whether no row follows.
    """

    message: bytes
    offset: int
    sources: NDArray[np.unsignedinteger]
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

    def __init__(self, resolved: ResolvedRows, places: RowPlaces, columns: tuple[TokenColumn, ...] = ()) -> None:
        """Find the blocks of rows, with these columns."""
        self.readers = places.readers
        self._columns = columns
        ordinals = places.ordinals(resolved.source, resolved.ordinal)
        block, row_in_block = places.locate(resolved.source, ordinals, resolved.epoch)
        self._blocks, slot = np.unique(block, return_inverse=True)
        self._starts = np.empty(self._blocks.size, dtype=np.int64)
        self._starts[slot] = ordinals - row_in_block
        # Chunks that wait are most of what a stream holds, so they are kept in the narrowest types.
        self._slots, self._rows_in_block, self._epochs = _narrow(slot), _narrow(row_in_block), _narrow(resolved.epoch)
        self._sources = _narrow(resolved.source)
        kept = (self._blocks, self._starts, self._slots, self._rows_in_block, self._epochs, self._sources)
        self.rows = self._sources.size
        self.byte_count = sum(values.nbytes for values in kept)
        tables, counts = np.unique(self._blocks >> BLOCK_BITS, return_counts=True)
        self.block_bytes = sum(
            self.readers[table].block_bytes * count
            for table, count in zip(tables.tolist(), counts.tolist(), strict=True)
        )

    def blocks_by_table(self, slots: NDArray[np.integer] | None = None) -> dict[int, list[int]]:
        """List the blocks of some slots, of all if None, by index into `readers`."""
        blocks = self._blocks if slots is None else self._blocks[slots]
        tables = blocks >> BLOCK_BITS
        return {
            table: (blocks[tables == table] & (1 << BLOCK_BITS) - 1).tolist() for table in np.unique(tables).tolist()
        }

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
        counts = np.diff(begins, append=len(slots))
        places: list[Int64Array] = []
        parts: list[Segments] = []
        for table, numbers in self.blocks_by_table(wanted).items():
            for group in _in_groups(self.readers[table].blocks(numbers)):
                of_group = np.array([number for number, _ in group]) + (table << BLOCK_BITS)
                slot = np.searchsorted(self._blocks[wanted], of_group)
                block = np.repeat(np.arange(len(group)), counts[slot])
                before = np.cumsum(counts[slot]) - counts[slot]
                mine = by_slot[np.arange(block.size) + (begins[slot] - before)[block]]
                rows = rows_in_block[mine].astype(np.int64)
                addresses = addresses_of([each for _, each in group])
                for number, values in enumerate((input_ids, *columns.values()), len(Segments._fields)):
                    width = values.dtype.itemsize * values.shape[1]
                    copy_rows(addresses[:, number].copy(), block, rows, values.ctypes.data, width, mine)
                parts.append(take_rows(addresses, block, rows))
                places.append(mine)
        segments = in_order(parts, places)
        return RowBatch(
            offset=0,
            input_ids=input_ids,
            token_counts=segments.row_tokens,
            source_names=names,
            sources=self._sources[first:last].astype(index_type(len(names))),
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


def _in_groups(blocks: Iterator[tuple[int, RowBlock]]) -> Iterator[list[tuple[int, RowBlock]]]:
    """Put blocks into groups that are held and copied from together: a large one alone, of small ones hundreds."""
    group: list[tuple[int, RowBlock]] = []
    byte_count = 0
    for number, block in blocks:
        group.append((number, block))
        byte_count += block.byte_count
        if byte_count >= GROUP_BYTES:
            yield group
            group, byte_count = [], 0
    if group:
        yield group


def _narrow(values: NDArray[np.integer]) -> NDArray[np.unsignedinteger]:
    """Copy numbers, none below 0, into the narrowest type for them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
