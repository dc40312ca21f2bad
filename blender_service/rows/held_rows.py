"""What a read holds between two messages: rows copied out of blocks, and chunks of rows located ahead.

All of it can be made again. So a server takes it back from reads whose clients read nothing. Threads hand each other
whole objects alone: a read takes the present object, or makes it again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from blender_service.rows.batch_assembly import BatchMessage, Chunk
from blender_service.wire.row_batch import MessageCutter, RowBatch


@dataclass(frozen=True)
class Copied:
    """Rows [first, last) of a chunk, copied out of the blocks of a version of the readers."""

    batch: RowBatch
    version: int = 0
    first: int = 0
    last: int = 0

    @cached_property
    def cutter(self) -> MessageCutter:
        """Writes messages of its rows."""
        return MessageCutter(self.batch)


class Piece(NamedTuple):
    """Rows [first, last) of a copied batch, standing at an offset of the blend."""

    copied: Copied
    first: int
    last: int
    offset: int

    @property
    def batch(self) -> RowBatch:
        """The rows."""
        return replace(self.copied.batch.part(self.first, self.last), offset=self.offset)

    @property
    def message(self) -> BatchMessage:
        """The rows as a server sends them; of the batch nothing is held."""
        batch = self.copied.batch
        message = self.copied.cutter.cut(self.first, self.last, self.offset)
        sources = batch.sources[self.first : self.last].copy()
        return BatchMessage(message, self.offset, sources, batch.waiting_for, batch.end_of_blend)


class Located(NamedTuple):
    """A chunk, and the version of the readers of its blocks."""

    version: int
    chunk: Chunk


@dataclass
class Planned:
    """Rows [first, last) of a read; where they lie is None once that was let go."""

    first: int
    last: int
    located: Located | None

    @property
    def byte_count(self) -> int:
        """What it holds."""
        located = self.located
        return located.chunk.byte_count if located is not None else 0


class HeldRows:
    """What one read holds; `let_go` may be called by any thread at any time.

    Attributes:
        planned: the chunk being read, and those after it.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self.planned: deque[Planned] = deque()
        self._copied: deque[Copied] = deque(maxlen=1)

    @property
    def byte_count(self) -> int:
        """What is held."""
        copied = sum(copied.batch.byte_count for copied in self._copied.copy())
        return copied + sum(planned.byte_count for planned in self.planned.copy())

    def put(self, copied: Copied) -> None:
        """Hold rows for the messages to come."""
        self._copied.append(copied)

    def take(self) -> Copied | None:
        """Give the held rows and hold them no longer; None if there are none."""
        try:
            return self._copied.pop()
        except IndexError:
            return None

    def let_go(self) -> None:
        """Hold nothing more; the read makes it again."""
        self._copied.clear()
        for planned in self.planned.copy():
            planned.located = None
