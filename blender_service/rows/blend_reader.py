"""Read rows of a blend by offset: resolve them in chunks, fetch their blocks ahead, cut them into messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from blender_service.blend.config import BlendConfig
from blender_service.exceptions import InvalidReadError, OffsetOutOfRangeError, PackedTableError
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import OFFSET_LIMIT
from blender_service.rows.batch_assembly import BatchMessage, Chunk
from blender_service.tables.block_reader import BlockFetcher, BlockReader
from blender_service.tables.live_table import LiveRows, Wait
from blender_service.tables.packed_table import row_bytes_of
from blender_service.tables.token_columns import TokenColumn
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import MessageCutter, RowBatch, empty_batch

BATCH_BYTES: Final = 2 << 20  # of token ids; clients refuse 4 MiB by default
CHUNK_ROWS: Final = 4096
FIRST_CHUNK_ROWS: Final = 256  # each chunk has twice as many as the one before, so that a read begins at once
AHEAD_ROWS: Final = 8 * CHUNK_ROWS  # a group of the default order
COPIED_MESSAGES: Final = 8  # of rows that a stream copies out of blocks at once, where memory allows
Readers = Mapping[int, BlockReader | LiveRows]


class Bounds(NamedTuple):
    """What one read may hold at present.

    Attributes:
        message_bytes: of ids in a message; one row may have more.
        copied_bytes: of ids that are copied out of blocks at once; those of a message at least.
        rows_ahead: rows whose places are known before they are sent.
    """

    message_bytes: int = BATCH_BYTES
    copied_bytes: int = COPIED_MESSAGES * BATCH_BYTES
    rows_ahead: int = AHEAD_ROWS


class _Limits(NamedTuple):
    """The same in rows, asked again for each message."""

    bounds: Callable[[], Bounds]
    row_bytes: int
    max_batch_rows: int

    def message_rows(self) -> int:
        """Most rows of a message."""
        return max(1, min(self.bounds().message_bytes // self.row_bytes, self.max_batch_rows or CHUNK_ROWS))

    def copied_rows(self) -> int:
        """Most rows to copy at once, where a message has fewer."""
        return min(self.bounds().copied_bytes // self.row_bytes, COPIED_MESSAGES * self.message_rows())

    def chunk_rows(self) -> int:
        """Most rows to locate at once."""
        return max(FIRST_CHUNK_ROWS, min(CHUNK_ROWS, self.bounds().rows_ahead // 2))


class _Span(NamedTuple):
    """Consecutive rows, of one message or of several."""

    offset: int
    rows: int

    def split(self, rows: int) -> tuple[_Span, _Span]:
        """Give its first rows, at most so many, and the rest, which may be empty."""
        rows = min(rows, self.rows)
        return _Span(self.offset, rows), _Span(self.offset + rows, self.rows - rows)

    def cut(self, most_rows: Callable[[], int]) -> Iterator[_Span]:
        """Cut it into parts; `most_rows` is asked for the longest length of each part when the part is cut."""
        rest = self
        while rest.rows:
            part, rest = rest.split(most_rows())
            yield part


class _Planned(NamedTuple):
    """A chunk with the ranges of rows that it holds, located in the blocks of a version of the readers."""

    version: int
    chunk: Chunk
    spans: tuple[_Span, ...]
    rows: int


@dataclass(frozen=True)
class _Copied:
    """Rows [first, last) of a chunk, copied out of the blocks of a version of the readers."""

    batch: RowBatch
    version: int = 0
    first: int = 0
    last: int = 0

    @cached_property
    def cutter(self) -> MessageCutter:
        """Writes messages of its rows."""
        return MessageCutter(self.batch)


class _Piece(NamedTuple):
    """Rows [first, last) of a copied batch, which stand at an offset of the blend."""

    copied: _Copied
    first: int
    last: int
    offset: int

    @property
    def batch(self) -> RowBatch:
        """The rows."""
        return replace(self.copied.batch.part(self.first, self.last), offset=self.offset)

    @property
    def message(self) -> BatchMessage:
        """The rows as a server sends them."""
        batch = self.copied.batch
        message = self.copied.cutter.cut(self.first, self.last, self.offset)
        sources = batch.sources[self.first : self.last]
        return BatchMessage(message, self.offset, sources, batch.waiting_for, batch.end_of_blend)


def _message_of(piece: _Piece) -> BatchMessage:
    return piece.message


class BlendReader:
    """Rows of one blend; many threads may read at once."""

    def __init__(
        self,
        config: BlendConfig,
        order: BlendOrder,
        readers: Readers,
        fetcher: BlockFetcher | None = None,
        ahead_bytes: int = 1 << 62,
        new_readers: Callable[[bool], Readers | None] = lambda at_once: None,
        columns: tuple[TokenColumn, ...] = (),
    ) -> None:
        """Read the rows of `config`.

        Args:
            config: the blend.
            order: its order.
            readers: of the sources that the read needs, by index into the order's names.
            fetcher: builds blocks ahead, None to build them when they are needed.
            ahead_bytes: bound of the blocks that one read asks for ahead.
            new_readers: called before each message; gives new readers where other files are served now, as after an
                excision, else None. With True it asks the catalogue first.
            columns: that rows have beside their ids, as the tables of the readers have them.
        """
        self.config = config
        self.order = order
        self._fetcher = fetcher
        self._ahead_bytes = ahead_bytes
        self._new_readers = new_readers
        self._columns = columns
        self._version = 0
        self._take(readers)

    def _take(self, readers: Readers) -> None:
        """Read from `readers` from now on."""
        self._live = {index: reader for index, reader in readers.items() if isinstance(reader, LiveRows)}
        self._pinned = {index: reader for index, reader in readers.items() if isinstance(reader, BlockReader)}
        self._version += 1

    def _refresh(self, at_once: bool = False) -> bool:
        """Take over new readers where other files are served now; say whether there are any."""
        readers = self._new_readers(at_once)
        if readers is not None:
            self._take(readers)
        return readers is not None

    def read(
        self,
        offset: int,
        rows: int = 0,
        part: Slice | None = None,
        max_batch_rows: int = 0,
        wait_seconds: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[RowBatch]:
        """Give rows from an offset on, in batches; an empty batch with end_of_blend closes the blend.

        A row that a live table does not have yet is waited for; empty batches in between name it (`waiting_for`).

        Args:
            offset: first row.
            rows: rows of the blend to cover, 0 until it ends.
            part: give only one rank's part of every whole step.
            max_batch_rows: bound of the rows of a batch, 0 for about 2 MiB.
            wait_seconds: longest wait for one live row, 0 without end.
            stopped: asked while waiting; the read then ends at once.

        Raises:
            InvalidReadError: an argument is impossible.
            OffsetOutOfRangeError: the read starts beyond the end of the blend.
            RowNotThereYetError: a live row did not come in time.
        """
        return (piece.batch for piece in self._pieces(offset, rows, part, max_batch_rows, wait_seconds, stopped))

    def read_messages(
        self,
        offset: int,
        rows: int = 0,
        part: Slice | None = None,
        max_batch_rows: int = 0,
        wait_seconds: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
        bounds: Callable[[], Bounds] = Bounds,
    ) -> Iterator[BatchMessage]:
        """Give the same batches as `read`, as the messages that a server sends; `bounds` is asked before each.

        Of the rows that were copied for messages nothing is held while the last of these waits to be taken.
        """
        pieces = self._pieces(offset, rows, part, max_batch_rows, wait_seconds, stopped, bounds)
        return map(_message_of, pieces)

    def _pieces(
        self,
        offset: int,
        rows: int,
        part: Slice | None,
        max_batch_rows: int,
        wait_seconds: float,
        stopped: Callable[[], bool],
        bounds: Callable[[], Bounds] = Bounds,
    ) -> Iterator[_Piece]:
        """Check a read and begin it."""
        self.check(offset, rows, part)
        if not 0 <= wait_seconds < float("inf"):
            raise InvalidReadError(f"read: wait_seconds is {wait_seconds}; give 0 (no end) or more")
        limits = _Limits(bounds, row_bytes_of(self.config.window, self._columns), max_batch_rows)
        return self._read(offset, rows, part, limits, Wait(wait_seconds, stopped))

    def gather(self, offset: int, rows: int) -> RowBatch:
        """Give the rows [offset, offset + rows) in one batch: at least one, and all inside the blend."""
        copied = self._copy(self._plan([_Span(offset, rows)]), 0, rows)
        return replace(copied.batch, offset=offset)

    def prewarm(self, offset: int, rows: int, most_bytes: int = 1 << 62) -> Iterator[tuple[int, bool]]:
        """Build the blocks of the rows [offset, offset + rows), as far as the tables have them and memory holds them.

        Args:
            offset: first row.
            rows: how many.
            most_bytes: of blocks, after which more would push out the first.

        Yields:
            The row that it has come to, and whether it stops there though more were asked for.

        Raises:
            BlenderError: as `read` says; a data file cannot be read, or a store does not answer.
        """
        self.check(offset, rows, None)
        last = min(self._end, offset + rows)
        built: set[tuple[int, int]] = set()
        for first in range(offset, last, CHUNK_ROWS):
            wanted = min(CHUNK_ROWS, last - first)
            count, _ = self._servable(first, wanted)
            readers = self._readers()
            listed = self._plan([_Span(first, count)]).chunk.blocks_by_source() if count else {}
            for index, blocks in listed.items():
                readers[index].build(blocks)
                built.update((index, block) for block in blocks)
            held = sum(readers[index].block_bytes for index, _ in built)
            is_last = count < wanted or held >= most_bytes
            yield first + count, is_last and first + count < last
            if is_last:
                return

    def check(self, offset: int, rows: int, part: Slice | None) -> None:
        """Refuse an impossible read before anything is read."""
        if offset < 0 or rows < 0:
            raise InvalidReadError(f"read: offset {offset}, rows {rows}; neither can be below 0")
        if offset + rows >= OFFSET_LIMIT:
            raise OffsetOutOfRangeError(f"read: offset {offset} + rows {rows} is not below 2**62; start lower")
        end = self.order.end
        if end is not None and offset > end:
            raise OffsetOutOfRangeError(
                f"blend {self.config.blend_id}: offset {offset} is beyond its end {end}; valid offsets are below {end}"
            )
        if part is not None:
            part.check()
            if rows % part.step_rows:
                raise InvalidReadError(
                    f"read: rows {rows} is not a multiple of the step's {part.step_rows} rows; ask for whole steps"
                )

    def _read(self, offset: int, rows: int, part: Slice | None, limits: _Limits, wait: Wait) -> Iterator[_Piece]:
        spans = self._spans(offset, rows, part)
        if self._live:
            yield from self._read_live((message for span in spans for message in span.cut(limits.message_rows)), wait)
        else:
            yield from self._read_ahead(spans, limits)
        step_rows = part.step_rows if part else 1
        asked = offset + rows if rows else self._end
        offset += max(0, min(self._end, asked) - offset) // step_rows * step_rows
        if offset + step_rows > self._end:
            yield _Piece(_Copied(self._empty_batch(offset, end_of_blend=True)), 0, 0, offset)

    def _read_ahead(self, spans: Iterator[_Span], limits: _Limits) -> Iterator[_Piece]:
        """Give messages while the blocks of later ones are built."""
        chunks = self._chunks(spans, limits)
        waiting: deque[_Planned] = deque()
        current = next(chunks, None)
        rows = 0
        while current is not None:
            first, copies = 0, deque[_Copied](maxlen=1)
            for message in (message for span in current.spans for message in span.cut(limits.message_rows)):
                self._refresh()
                if not copies or copies[0].version != self._version or first + message.rows > copies[0].last:
                    # At first the rows of one message, so that a reader has it soon, then of more and more.
                    rows = max(message.rows, min(2 * rows, limits.copied_rows()))
                    copies.clear()
                    copies.append(self._copy(current, first, min(first + rows, current.rows)))
                start, end = first - copies[0].first, first - copies[0].first + message.rows
                is_used_up = copies[0].first + end == copies[0].last  # so it is let go before the reader is waited for
                yield _Piece(copies.pop() if is_used_up else copies[0], start, end, message.offset)
                if first == 0:  # after the first rows were sent; two new chunks for each chunk, until enough are ahead
                    self._look_ahead(chunks, waiting, limits)
                    self._look_ahead(chunks, waiting, limits)
                first += message.rows
            current = waiting.popleft() if waiting else None

    def _read_live(self, spans: Iterator[_Span], wait: Wait) -> Iterator[_Piece]:
        """Give messages as their rows come into the live tables; rows that are missing cannot be located ahead."""
        for whole in spans:
            span = whole
            while span.rows:
                self._refresh()
                count, missing = self._servable(span.offset, span.rows)
                if count:
                    there = _Span(span.offset, count)
                    yield _Piece(self._copy(self._plan([there]), 0, count), 0, count, span.offset)
                    wait.reset()
                elif wait.pause(missing):
                    yield _Piece(_Copied(self._empty_batch(span.offset, waiting_for=missing)), 0, 0, span.offset)
                span = _Span(span.offset + count, span.rows - count)

    def _servable(self, offset: int, rows: int) -> tuple[int, str]:
        """Count the rows from an offset on that the tables have, and name the first missing one."""
        if not self._live:
            return rows, ""
        resolved = self.order.resolve(np.arange(offset, offset + rows, dtype=np.int64))
        count, missing = rows, ""
        for index, reader in self._live.items():
            members = np.flatnonzero(resolved.source == index)
            absent = members[reader.lacks(resolved.ordinal[members])]
            if absent.size and absent[0] < count:
                count = int(absent[0])
                missing = f"row {offset + count}: {reader.name} ordinal {resolved.ordinal[count]}"
        return count, missing

    def _readers(self) -> dict[int, BlockReader]:
        """Give the readers of all sources, of live ones as they are now; those without rows are left out."""
        live = {index: rows.reader for index, rows in self._live.items() if rows.reader is not None}
        return {**self._pinned, **live}

    def _empty_batch(self, offset: int, *, end_of_blend: bool = False, waiting_for: str = "") -> RowBatch:
        """Give a batch without rows."""
        window = self.config.window
        empty = empty_batch(offset, window.window_tokens, window.token_bytes, self.order.names)
        return replace(empty, end_of_blend=end_of_blend, waiting_for=waiting_for)

    @property
    def _end(self) -> int:
        """Offset after the last row; the limit of all offsets for a blend without end."""
        return self.order.end if self.order.end is not None else OFFSET_LIMIT

    def _spans(self, offset: int, rows: int, part: Slice | None) -> Iterator[_Span]:
        """Cut a read into ranges of at most a chunk's rows; with a part, no range crosses a step."""
        last = min(self._end, offset + rows) if rows else self._end
        step = part or Slice(max(0, last - offset) or 1)
        while offset + step.step_rows <= last:
            first, end = offset + step.start, offset + step.start + step.rows
            yield from _Span(first, end - first).cut(lambda: CHUNK_ROWS)
            offset += step.step_rows

    def _look_ahead(self, chunks: Iterator[_Planned], waiting: deque[_Planned], limits: _Limits) -> None:
        """Resolve a later chunk and request its blocks, unless enough chunks are waiting."""
        rows = sum(planned.rows for planned in waiting)
        size = sum(planned.chunk.block_bytes for planned in waiting)
        if waiting and (rows >= limits.bounds().rows_ahead or size >= self._ahead_bytes or self._fetcher is None):
            return
        planned = next(chunks, None)
        if planned is not None:
            waiting.append(planned)
            self._request(planned.chunk)

    def _chunks(self, spans: Iterator[_Span], limits: _Limits) -> Iterator[_Planned]:
        """Resolve rows in chunks, of hundreds at first, then of thousands."""
        collected: list[_Span] = []
        most_rows = left = FIRST_CHUNK_ROWS
        for span in spans:
            rest = span
            while rest.rows:
                part, rest = rest.split(left)
                collected.append(part)
                left -= part.rows
                if not left:
                    yield self._plan(collected)
                    most_rows = left = min(2 * most_rows, limits.chunk_rows())
                    collected = []
        if collected:
            yield self._plan(collected)

    def _plan(self, spans: Sequence[_Span]) -> _Planned:
        """Resolve the rows of some ranges."""
        counts = np.array([span.rows for span in spans], dtype=np.int64)
        firsts = np.array([span.offset for span in spans], dtype=np.int64)
        rows = int(counts.sum())
        offsets = np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(rows, dtype=np.int64)
        version = self._version
        return _Planned(version, Chunk(self.order.resolve(offsets), self._readers(), self._columns), tuple(spans), rows)

    def _request(self, chunk: Chunk) -> None:
        """Request the blocks of a later chunk from the fetcher."""
        if self._fetcher is not None:
            version = self._version
            for index, blocks in chunk.blocks_by_source().items():
                self._fetcher.request(self._pinned[index], blocks, lambda: self._version == version)

    def _copy(self, planned: _Planned, first: int, last: int) -> _Copied:
        """Copy rows [first, last) of a chunk out of their blocks, located anew where other files are served now.

        Where that fails the tables are looked at, since the files that held excised documents are deleted in time.
        """
        version = self._version
        chunk = planned.chunk if planned.version == version else self._plan(planned.spans).chunk
        try:
            batch = chunk.copy(first, last, self.order.names, self.config.window)
        except PackedTableError:
            if not self._refresh(at_once=True):
                raise
            return self._copy(planned, first, last)
        return _Copied(batch, version, first, last)
