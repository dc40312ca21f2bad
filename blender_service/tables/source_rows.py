"""The rows of a blend's sources: which blocks they lie in, whether a source is all of its table or some cells of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int64Array
from blender_service.recently_used import RecentlyUsed
from blender_service.tables.block_reader import BlockReader
from blender_service.tables.cell_runs import RowRuns, ordinals_along

BLOCK_BITS: Final = 40  # a block's number within its table is below 2**40
_ALL: Final = 1 << BLOCK_BITS  # rows of a source that is all of its table, however many there are
EPOCHS_AT_HAND: Final = 256  # of tables that are others in each, whose readers are kept; a small one may have 10^5


class SourceRows(NamedTuple):
    """The rows of one source.

    Attributes:
        name: of the source.
        reader: gives blocks of its table, and may be that of other sources; None while the table has no row.
        runs: where its rows lie; None where they are all rows of the table.
        live: whether it is followed as it grows.
    """

    name: str
    reader: BlockReader | None
    runs: RowRuns | None = None
    live: bool = False

    @property
    def row_count(self) -> int:
        """How many there are now."""
        return self.runs.rows if self.runs is not None else self.reader.table.rows if self.reader is not None else 0

    @property
    def is_there(self) -> bool:
        """Whether the table has all of them."""
        ranges = self.runs.ranges if self.runs is not None else ()
        return self.reader is not None and all(end <= self.reader.table.rows for _, end in ranges[-1:])

    def lacks(self, rows: Int64Array) -> NDArray[np.bool_]:
        """Say which rows of a live source are missing.

        Args:
            rows: (R,) in any order.

        Returns:
            (R,) whether each is missing.
        """
        missing: NDArray[np.bool_] = rows >= self.row_count
        return missing


class Readers:
    """Readers of tables by number, and behind them those of epochs of tables that are others in each.

    An epoch keeps its number, and its reader is opened again where it was not used for long. For many threads.
    """

    def __init__(self, readers: Iterable[BlockReader | None]) -> None:
        """Number readers, each once."""
        self._of_tables = list({id(reader): reader for reader in readers if reader is not None}.values())
        self._epochs: list[tuple[int, int]] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._opened = RecentlyUsed[int, BlockReader](EPOCHS_AT_HAND)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[BlockReader]:
        return iter(self._of_tables)

    def __getitem__(self, number: int) -> BlockReader:
        if number < len(self._of_tables):
            return self._of_tables[number]
        table, epoch = self._epochs[number - len(self._of_tables)]
        of_epoch = self._of_tables[table].of_epoch
        assert of_epoch is not None
        return self._opened.find(number, lambda: of_epoch(epoch))

    def of_epoch(self, table: int, epoch: int) -> int:
        """Give the number of an epoch, from 1 on, of a table."""
        with self._lock:
            number = self._numbers.get((table, epoch))
            if number is None:
                self._epochs.append((table, epoch))
                number = self._numbers[table, epoch] = len(self._of_tables) + len(self._epochs) - 1
            return number


class RowPlaces:
    """Finds rows of many sources at once.

    Attributes:
        readers: of the tables.
    """

    def __init__(self, sources: Mapping[int, SourceRows]) -> None:
        """Find rows of sources, by index into the names of a blend's order; those without a table yet are left out."""
        there = {index: source for index, source in sources.items() if source.reader is not None}
        self.readers = Readers(source.reader for source in there.values())
        self._differ = np.array([reader.of_epoch is not None for reader in self.readers], dtype=np.bool_)
        number_of = {id(reader): number for number, reader in enumerate(self.readers)}
        self._table = np.zeros(max(there, default=-1) + 1, dtype=np.int64)
        self._first = np.zeros(self._table.size, dtype=np.int64)
        numbers, starts, first = list[Int64Array](), list[Int64Array](), 0
        for index, source in there.items():
            self._table[index], self._first[index] = number_of[id(source.reader)], first
            runs = source.runs or RowRuns(((0, _ALL),))
            numbers.append(runs.numbers + first)
            starts.append(runs.starts)
            first += runs.rows
        self._numbers = np.concatenate([*numbers, np.zeros(0, dtype=np.int64)])
        self._starts = np.concatenate([*starts, np.zeros(0, dtype=np.int64)])

    def ordinals(self, sources: Int64Array, rows: Int64Array) -> Int64Array:
        """(R,) ordinals, each in its table, of rows of sources."""
        return ordinals_along(self._numbers, self._starts, self._first[sources] + rows)

    def locate(self, sources: Int64Array, ordinals: Int64Array, epochs: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Find the blocks of rows.

        Args:
            sources: (R,) index of each row's source.
            ordinals: (R,) in the table of the source.
            epochs: (R,) passes over the source before.

        Returns:
            (R,) block: the table's number among `readers` times 2**BLOCK_BITS and the block's; (R,) row inside it.
        """
        tables = self._table[sources]
        if self._differ.any():
            tables = self._of_epoch(tables, epochs)
        elif self._differ.size == 1:
            return self.readers[0].locate(ordinals)
        block, row_in_block = np.empty((2, sources.size), dtype=np.int64)
        for number in np.flatnonzero(np.bincount(tables)).tolist():
            members = np.flatnonzero(tables == number)
            of_table, row_in_block[members] = self.readers[number].locate(ordinals[members])
            block[members] = of_table + (number << BLOCK_BITS)
        return block, row_in_block

    def _of_epoch(self, tables: Int64Array, epochs: Int64Array) -> Int64Array:
        """(R,) tables, with one more among `readers` for each epoch from 1 on of those that are others in each."""
        later = np.flatnonzero(self._differ[tables] & (epochs > 0))
        pairs, which = np.unique(np.column_stack([tables[later], epochs[later]]), axis=0, return_inverse=True)
        numbers = [self.readers.of_epoch(table, epoch) for table, epoch in pairs.tolist()]
        tables = tables.copy()
        tables[later] = np.array(numbers, dtype=np.int64)[which.reshape(-1)]
        return tables
