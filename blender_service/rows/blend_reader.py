"""Read rows of a blend by offset: resolve them in chunks, fetch their blocks ahead, cut them into messages."""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from blender_service.arrays import Int64Array
from blender_service.blend.config import BlendConfig
from blender_service.exceptions import InvalidReadError, OffsetOutOfRangeError, PackedTableError
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import OFFSET_LIMIT
from blender_service.rows.batch_assembly import BatchMessage, Chunk
from blender_service.rows.held_rows import Copied, HeldRows, Located, Piece, Planned
from blender_service.rows.row_limits import CHUNK_ROWS, FIRST_CHUNK_ROWS, Bounds, ReadRows, RowLimits
from blender_service.tables.block_reader import BlockFetcher
from blender_service.tables.live_table import Wait
from blender_service.tables.packed_table import row_bytes_of
from blender_service.tables.source_rows import RowPlaces, SourceRows
from blender_service.tables.token_columns import TokenColumn
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch, empty_batch

Readers = Mapping[int, SourceRows]
Item = TypeVar("Item")


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
        earlier: BlendReader | None = None,
    ) -> None:
        """Read the rows of `config`.

        Args:
            config: the blend.
            order: its order.
            readers: of the sources needed by the read, by index into the order's names.
            fetcher: builds blocks ahead, None to build them when they are needed.
            ahead_bytes: bound of the blocks requested ahead by one read.
            new_readers: called before each message; gives new readers where other files are served now, as after an
                excision, else None. With True it asks the catalogue first.
            columns: that rows have beside their ids, as the tables of the readers have them.
            earlier: gives the rows of other lengths, before those of the config's; None where none is needed.
        """
        self._earlier, self._since = earlier, config.window_from
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
        self._live = {index: source for index, source in readers.items() if source.live}
        self._places = RowPlaces(readers)
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

        A row still missing from a live table is waited for; empty batches in between name it (`waiting_for`).

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
        make, kept = operator.attrgetter("batch"), HeldRows()
        return self._begin(make, kept, Bounds, offset, rows, part, max_batch_rows, wait_seconds, stopped)

    def read_messages(
        self,
        offset: int,
        rows: int = 0,
        part: Slice | None = None,
        max_batch_rows: int = 0,
        wait_seconds: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
        bounds: Callable[[], Bounds] = Bounds,
        kept: HeldRows | None = None,
    ) -> Iterator[BatchMessage]:
        """Give the same batches as `read`, as a server's messages; `bounds` is asked before each.

        `kept` has what the read holds beside the message taken last; any thread may let that go.
        """
        make, kept = operator.attrgetter("message"), kept or HeldRows()
        return self._begin(make, kept, bounds, offset, rows, part, max_batch_rows, wait_seconds, stopped)

    def _begin(
        self,
        make: Callable[[Piece], Item],
        kept: HeldRows,
        bounds: Callable[[], Bounds],
        offset: int,
        rows: int,
        part: Slice | None,
        max_batch_rows: int,
        wait_seconds: float,
        stopped: Callable[[], bool],
    ) -> Iterator[Item]:
        """Check a read and begin it; `make` makes what it gives."""
        self.check(offset, rows, part)
        if not 0 <= wait_seconds < float("inf"):
            raise InvalidReadError(f"read: wait_seconds is {wait_seconds}; give 0 (no end) or more")
        last = min(self._end, offset + rows) if rows else self._end

        def items(reader: BlendReader, first: int, end: int) -> Iterator[Item]:
            if reader._earlier is not None and first < reader._since:
                yield from items(reader._earlier, first, min(end, reader._since))
                first = min(end, reader._since)
            step = part or Slice(max(1, end - first))
            wanted = ReadRows(first, step, max(0, end - first) // step.step_rows)
            limits = RowLimits(bounds, row_bytes_of(reader.config.window, reader._columns), max_batch_rows)
            if reader._live:
                yield from reader._read_live(make, wanted, limits, Wait(wait_seconds, stopped))
            else:
                yield from reader._read_ahead(make, wanted, limits, kept)

        return itertools.chain(items(self, offset, last), self._end_of_blend(make, offset, rows, part))

    def gather(self, offset: int, rows: int) -> RowBatch:
        """Give the rows [offset, offset + rows) in one batch: at least one, and all inside the blend."""
        if self._earlier is not None and offset < self._since:
            return self._earlier.gather(offset, rows)
        return replace(self._copy_there(offset, rows).batch, offset=offset)

    def prewarm(self, offset: int, rows: int, most_bytes: int = 1 << 62) -> Iterator[tuple[int, bool]]:
        """Build the blocks of the rows [offset, offset + rows), as far as the tables have them and memory holds them.

        Args:
            offset: first row.
            rows: how many.
            most_bytes: of blocks; more would push out the first.

        Yields:
            The row it has come to, and whether it stops there though more were asked for.

        Raises:
            BlenderError: as `read` says; a data file cannot be read, or a store does not answer.
        """
        self.check(offset, rows, None)
        last = min(self._end, offset + rows)
        if self._earlier is not None and offset < self._since:
            yield from self._earlier.prewarm(offset, min(last, self._since) - offset, most_bytes)
            offset = self._since
        built: set[tuple[int, int]] = set()
        for first in range(offset, last, CHUNK_ROWS):
            wanted = min(CHUNK_ROWS, last - first)
            count, _ = self._servable(first, wanted)
            readers = self._places.readers
            offsets = np.arange(first, first + count, dtype=np.int64)
            listed = self._locate(offsets).chunk.blocks_by_table() if count else {}
            for table, blocks in listed.items():
                readers[table].build(blocks)
                built.update((table, block) for block in blocks)
            byte_count = sum(readers[table].block_bytes for table, _ in built)
            is_last = count < wanted or byte_count >= most_bytes
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
            last = offset + rows if rows else OFFSET_LIMIT
            for span in self.config.spans:
                since = int(span.from_offset)
                if offset < since < last and (since - offset) % part.step_rows:
                    without = f" without {', '.join(span.leave_off)}" if span.leave_off else ""
                    raise InvalidReadError(
                        f"read: from row {since} on rows have {span.window_tokens} tokens{without}, and a step of "
                        f"{part.step_rows} rows from {offset} on has others too; take steps that end there, or read up "
                        "to it"
                    )

    def _end_of_blend(
        self, make: Callable[[Piece], Item], offset: int, rows: int, part: Slice | None
    ) -> Iterator[Item]:
        """Give what closes the blend where a read comes to its end."""
        step_rows = part.step_rows if part else 1
        end = offset + rows if rows else self._end
        offset += max(0, min(self._end, end) - offset) // step_rows * step_rows
        if offset + step_rows > self._end:
            yield make(Piece(Copied(self._empty_batch(offset, end_of_blend=True)), 0, 0, offset))

    def _read_ahead(
        self, make: Callable[[Piece], Item], wanted: ReadRows, limits: RowLimits, kept: HeldRows
    ) -> Iterator[Item]:
        """Give messages while the blocks of later ones are built."""
        chunks = self._chunks(wanted, limits)
        kept.take()
        kept.planned = deque(itertools.islice(chunks, 1))
        copied_rows = 0
        while kept.planned:
            planned = kept.planned[0]
            number = planned.first
            while number < planned.last:
                rows = min(limits.message_rows(), wanted.left_of_part(number), planned.last - number)
                self._refresh()
                copied, first = kept.take(), number - planned.first
                if copied is None or copied.version != self._version or first + rows > copied.last:
                    copied = None  # it is let go before others are copied
                    # At first the rows of one message, so that a reader has it soon, then of more and more.
                    copied_rows = max(rows, min(2 * copied_rows, limits.copied_rows()))
                    copied = self._copy(wanted, planned, first, min(first + copied_rows, planned.last - planned.first))
                    limits.note(copied.batch.byte_count, copied.batch.rows)
                first -= copied.first
                item = make(Piece(copied, first, first + rows, wanted.offset_of(number)))
                if first + rows < copied.batch.rows:
                    kept.put(copied)
                del copied  # else it stays in memory while the client reads
                yield item
                del item
                if (
                    number == planned.first
                ):  # after the first rows were sent; two chunks for each, until enough are ahead
                    self._look_ahead(chunks, kept, limits)
                    self._look_ahead(chunks, kept, limits)
                number += rows
            kept.planned.popleft()

    def _read_live(
        self, make: Callable[[Piece], Item], wanted: ReadRows, limits: RowLimits, wait: Wait
    ) -> Iterator[Item]:
        """Give messages as their rows come into the live tables; missing rows cannot be located ahead."""
        number = 0
        while number < wanted.total:
            self._refresh()
            offset = wanted.offset_of(number)
            rows, missing = self._servable(offset, min(limits.message_rows(), wanted.left_of_part(number)))
            if rows:
                yield make(Piece(self._copy_there(offset, rows), 0, rows, offset))
                wait.reset()
            elif wait.pause(missing):
                yield make(Piece(Copied(self._empty_batch(offset, waiting_for=missing)), 0, 0, offset))
            number += rows

    def _servable(self, offset: int, rows: int) -> tuple[int, str]:
        """Count the rows from an offset on that the tables have, and name the first missing one."""
        if not self._live:
            return rows, ""
        resolved = self.order.resolve(np.arange(offset, offset + rows, dtype=np.int64))
        count, missing = rows, ""
        for index, source in self._live.items():
            members = np.flatnonzero(resolved.source == index)
            absent = members[source.lacks(resolved.ordinal[members])]
            if absent.size and absent[0] < count:
                count = int(absent[0])
                missing = f"row {offset + count}: {source.name} ordinal {resolved.ordinal[count]}"
        return count, missing

    def _empty_batch(self, offset: int, *, end_of_blend: bool = False, waiting_for: str = "") -> RowBatch:
        """Give a batch without rows."""
        window = self.config.window
        empty = empty_batch(offset, window.window_tokens, window.token_bytes, self.order.names)
        return replace(empty, end_of_blend=end_of_blend, waiting_for=waiting_for)

    @property
    def _end(self) -> int:
        """Offset after the last row; the limit of all offsets for a blend without end."""
        return self.order.end if self.order.end is not None else OFFSET_LIMIT

    def _look_ahead(self, chunks: Iterator[Planned], kept: HeldRows, limits: RowLimits) -> None:
        """Locate a later chunk and request its blocks, unless enough chunks are waiting."""
        _, *waiting = kept.planned
        there = [located.chunk for planned in waiting if (located := planned.located) is not None]
        is_ahead = limits.is_ahead(sum(chunk.rows for chunk in there), sum(chunk.byte_count for chunk in there))
        blocks = sum(chunk.block_bytes for chunk in there)
        if waiting and (is_ahead or blocks >= self._ahead_bytes or self._fetcher is None):
            return
        for planned in itertools.islice(chunks, 1):
            located = planned.located
            kept.planned.append(planned)
            if located is not None:
                self._request(located)

    def _chunks(self, wanted: ReadRows, limits: RowLimits) -> Iterator[Planned]:
        """Locate rows in chunks, of hundreds at first, then of thousands."""
        first, rows = 0, FIRST_CHUNK_ROWS
        while first < wanted.total:
            last = min(first + rows, wanted.total)
            yield Planned(first, last, self._locate(wanted.offsets(first, last)))
            first, rows = last, min(2 * rows, limits.chunk_rows())

    def _locate(self, offsets: Int64Array) -> Located:
        """Find the blocks of rows."""
        version = self._version
        return Located(version, Chunk(self.order.resolve(offsets), self._places, self._columns))

    def _request(self, located: Located) -> None:
        """Request the blocks of a later chunk from the fetcher."""
        if self._fetcher is not None:
            for table, blocks in located.chunk.blocks_by_table().items():
                reader = located.chunk.readers[table]
                self._fetcher.request(reader, blocks, lambda: self._version == located.version)

    def _copy(self, wanted: ReadRows, planned: Planned, first: int, last: int) -> Copied:
        """Copy rows [first, last) of a chunk out of their blocks, located anew where other files are served now.

        Where that fails the tables are looked at, since the files of excised documents are deleted in time.
        """
        located = planned.located
        if located is None or located.version != self._version:
            located = planned.located = self._locate(wanted.offsets(planned.first, planned.last))
        try:
            batch = located.chunk.copy(first, last, self.order.names, self.config.window)
        except PackedTableError:
            if not self._refresh(at_once=True):
                raise
            return self._copy(wanted, planned, first, last)
        return Copied(batch, located.version, first, last)

    def _copy_there(self, offset: int, rows: int) -> Copied:
        """Copy the rows [offset, offset + rows), all present, out of their blocks."""
        return self._copy(ReadRows(offset, Slice(rows), 1), Planned(0, rows, None), 0, rows)
