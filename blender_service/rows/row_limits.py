"""The rows of a read, their order, and how many of them it may hold at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from blender_service.arrays import Int64Array
from blender_service.wire.rank_slice import Slice

BATCH_BYTES: Final = 2 << 20  # of token ids; clients refuse 4 MiB by default
CHUNK_ROWS: Final = 4096
FIRST_CHUNK_ROWS: Final = 256  # each chunk has twice as many as the one before, so that a read begins at once
AHEAD_ROWS: Final = 8 * CHUNK_ROWS  # a group of the default order
COPIED_MESSAGES: Final = 4  # of rows that a stream copies out of blocks at once, where memory allows
LOCATED_BYTES: Final = 6  # of a row that is located, where many lie in one block
COUNTED_SHARE: Final = 0.8  # of all bytes of a row: where ids are most of them, the bounds are those of ids alone
FACTS_BYTES: Final = 128  # of a row beside its ids, until some were copied


class Bounds(NamedTuple):
    """What one read may hold at present, in bytes of ids; with the facts of its rows it is a quarter more at most.

    Attributes:
        message_bytes: in a message; one row may have more.
        copied_bytes: that are copied out of blocks at once; those of a message at least.
        rows_ahead: rows with places known before they are sent.
    """

    message_bytes: int = BATCH_BYTES
    copied_bytes: int = COPIED_MESSAGES * BATCH_BYTES
    rows_ahead: int = AHEAD_ROWS

    @property
    def held_bytes(self) -> int:
        """What a read holds between two messages, at most."""
        return int(self.copied_bytes / COUNTED_SHARE) + 2 * LOCATED_BYTES * self.rows_ahead


class RowLimits:
    """The same in rows; the bounds are asked for again for each message."""

    def __init__(self, bounds: Callable[[], Bounds], id_bytes: int, max_batch_rows: int) -> None:
        """Bound a read of rows with `id_bytes` of ids and columns, in messages of `max_batch_rows` at most (0: any)."""
        self._bounds = bounds
        self._id_bytes = id_bytes
        self._max_batch_rows = max_batch_rows
        self.note(id_bytes + FACTS_BYTES, 1)

    def note(self, byte_count: int, rows: int) -> None:
        """Note what rows were found to hold in all: windows of few tokens have more facts than ids."""
        self._row_bytes = max(self._id_bytes, int(COUNTED_SHARE * byte_count / rows))

    def message_rows(self) -> int:
        """Most rows of a message."""
        return max(1, min(self._bounds().message_bytes // self._row_bytes, self._max_batch_rows or CHUNK_ROWS))

    def copied_rows(self) -> int:
        """Most rows to copy at once, where a message has fewer."""
        return min(self._bounds().copied_bytes // self._row_bytes, COPIED_MESSAGES * self.message_rows())

    def chunk_rows(self) -> int:
        """Most rows to locate at once."""
        return max(FIRST_CHUNK_ROWS, min(CHUNK_ROWS, self._bounds().rows_ahead // 2))

    def is_ahead(self, rows: int, byte_count: int) -> bool:
        """Whether as many rows are located as fit a message, or their places take as much memory as they may."""
        return max(rows, byte_count // LOCATED_BYTES) >= self._bounds().rows_ahead


class ReadRows(NamedTuple):
    """The rows of a read, numbered from 0: those of a part of each whole step, one step after the other.

    Attributes:
        offset: of the blend, the first step's beginning.
        part: of each step.
        steps: whole steps.
    """

    offset: int
    part: Slice
    steps: int

    @property
    def total(self) -> int:
        """Number of rows."""
        return self.steps * self.part.rows

    def offset_of(self, number: int) -> int:
        """Give the offset of a row."""
        step, row = divmod(number, self.part.rows)
        return self.offset + step * self.part.step_rows + self.part.start + row

    def offsets(self, first: int, last: int) -> Int64Array:
        """Give the (last - first,) offsets of the rows [first, last)."""
        numbers = np.arange(first, last, dtype=np.int64)
        if self.steps == 1:
            return self.offset_of(0) + numbers
        step, row = np.divmod(numbers, self.part.rows)
        return self.offset_of(0) + step * self.part.step_rows + row

    def left_of_part(self, number: int) -> int:
        """Count the rows from one on that stand one after the other in the blend, as those of a message must."""
        return self.part.rows - number % self.part.rows
