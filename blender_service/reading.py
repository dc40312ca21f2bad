"""Reads rows of a blend by offset: resolves them, gathers them out of blocks, cuts them into batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blender_service.blocks import Block, BlockReader
from blender_service.config import BlendConfig
from blender_service.exceptions import InvalidReadError, OffsetOutOfRangeError
from blender_service.live import LiveRows, Wait
from blender_service.order import BlendOrder, ResolvedRows
from blender_service.segments import OFFSET_LIMIT
from blender_service.slices import Slice
from blender_service.wire import RowBatch, empty_batch

TARGET_BATCH_BYTES: Final = 1 << 20

logger = logging.getLogger(__name__)


class BlendReader:
    """Rows of one blend; many threads may read at once."""

    def __init__(self, config: BlendConfig, order: BlendOrder, readers: Mapping[int, BlockReader | LiveRows]) -> None:
        """Read the rows of `config` through the readers of its sources, by index into the order's names."""
        self.config = config
        self.order = order
        self._readers = dict(readers)

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

        A row that a live table does not have yet is waited for; empty batches say so in between.

        Args:
            offset: first row.
            rows: rows of the blend to cover, 0 until it ends.
            part: give only one rank's part of every whole step.
            max_batch_rows: bound of the rows of a batch, 0 for about 1 MiB.
            wait_seconds: longest wait for one live row, 0 without end.
            stopped: asked while waiting; the read then ends at once.

        Raises:
            InvalidReadError: an argument is impossible.
            OffsetOutOfRangeError: the read starts beyond the end of the blend.
            RowNotThereYetError: a live row did not come in time.
        """
        self.check(offset, rows, part)
        if not 0 <= wait_seconds < float("inf"):
            raise InvalidReadError(f"read: wait_seconds is {wait_seconds}; give 0 (no end) or more")
        return self._read(offset, rows, part, max_batch_rows, Wait(wait_seconds, stopped))

    def check(self, offset: int, rows: int, part: Slice | None) -> None:
        """Refuse a read that cannot be, before anything is read."""
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

    def _read(self, offset: int, rows: int, part: Slice | None, max_batch_rows: int, wait: Wait) -> Iterator[RowBatch]:
        window = self.config.window
        row_bytes = window.window_tokens * window.token_bytes
        batch_rows = max(1, min(TARGET_BATCH_BYTES // row_bytes, max_batch_rows or TARGET_BATCH_BYTES))
        end = self.order.end if self.order.end is not None else OFFSET_LIMIT
        asked = offset + rows if rows else OFFSET_LIMIT
        step = part or Slice(max(0, min(end, asked) - offset) or 1)
        while offset + step.step_rows <= min(end, asked):
            first, last = offset + step.start, offset + step.start + step.rows
            while first < last:
                count, missing = self._servable(first, min(batch_rows, last - first))
                if count:
                    yield self.gather(first, count)
                    wait.over()
                elif wait.pause(missing):
                    yield self._empty_batch(first, waiting_for=missing)
                first += count
            offset += step.step_rows
        if offset + (part.step_rows if part else 1) > end:
            yield self._empty_batch(offset, end_of_blend=True)

    def _empty_batch(self, offset: int, *, end_of_blend: bool = False, waiting_for: str = "") -> RowBatch:
        """Give a batch without rows."""
        window = self.config.window
        empty = empty_batch(offset, window.window_tokens, window.token_bytes, self.order.names)
        return replace(empty, end_of_blend=end_of_blend, waiting_for=waiting_for)

    def _servable(self, offset: int, rows: int) -> tuple[int, str]:
        """Count the rows from an offset on that are there, and say what the first missing one is."""
        live = {index: reader for index, reader in self._readers.items() if isinstance(reader, LiveRows)}
        if not live:
            return rows, ""
        resolved = self.order.resolve(np.arange(offset, offset + rows, dtype=np.int64))
        count, missing = rows, ""
        for index, reader in live.items():
            places = np.flatnonzero(resolved.source == index)
            absent = places[reader.lacks(resolved.ordinal[places])]
            if absent.size and absent[0] < count:
                count = int(absent[0])
                missing = f"row {offset + count}: {reader.name} ordinal {resolved.ordinal[count]}"
        return count, missing

    def gather(self, offset: int, rows: int) -> RowBatch:
        """Give the rows [offset, offset + rows) in one batch.

        Args:
            offset: first row; the range must lie inside the blend.
            rows: at least 1.
        """
        resolved = self.order.resolve(np.arange(offset, offset + rows, dtype=np.int64))
        window = self.config.window
        input_ids = np.empty((rows, window.window_tokens), dtype=np.uint16 if window.token_bytes == 2 else np.uint32)
        token_counts = np.empty(rows, dtype=np.int32)
        segments = _SegmentGatherer(rows)
        for members, block, places in self._locate(resolved):
            input_ids[members] = block.input_ids[places]
            token_counts[members] = block.token_counts[places]
            segments.add(members, block, places)
        counts, order, doc_ids = segments.in_row_order()
        return RowBatch(
            offset=offset,
            input_ids=input_ids,
            token_counts=token_counts,
            source_names=self.order.names,
            sources=resolved.source.astype(np.uint8),
            epochs=resolved.epoch,
            ordinals=resolved.ordinal,
            segment_counts=counts,
            doc_id_bytes=_text_bytes(doc_ids),
            doc_id_lengths=np.diff(_text_offsets(doc_ids)),
            document_starts=np.concatenate(segments.document_starts)[order],
            segment_token_counts=np.concatenate(segments.token_counts)[order],
            window_starts=np.concatenate(segments.window_starts)[order],
        )

    def _locate(self, resolved: ResolvedRows) -> Iterator[tuple[NDArray[np.int64], Block, NDArray[np.int64]]]:
        """Give, block by block, which rows of the batch it holds and where."""
        for index in np.unique(resolved.source):
            members = np.flatnonzero(resolved.source == index)
            ordinals = resolved.ordinal[members]
            for block in self._readers[int(index)].load(ordinals):
                inside = (ordinals >= block.start) & (ordinals < block.start + len(block.token_counts))
                yield members[inside], block, ordinals[inside] - block.start


class _SegmentGatherer:
    """Collects the segments of rows block by block, then puts them into the order of the rows."""

    def __init__(self, rows: int) -> None:
        self.document_starts: list[NDArray[np.int64]] = []
        self.token_counts: list[NDArray[np.int32]] = []
        self.window_starts: list[NDArray[np.int32]] = []
        self._doc_ids: list[pa.StringArray] = []
        self._counts = np.zeros(rows, dtype=np.int32)
        self._starts = np.zeros(rows, dtype=np.int64)
        self._total = 0

    def add(self, members: NDArray[np.int64], block: Block, places: NDArray[np.int64]) -> None:
        """Take the segments of some rows of a block.

        Args:
            members: (R,) which rows of the batch they are.
            block: that holds them.
            places: (R,) their places in it.
        """
        starts = block.segment_starts[places]
        counts = block.segment_starts[places + 1] - starts
        chosen = flat_index(starts, counts)
        self._counts[members] = counts
        self._starts[members] = self._total + np.cumsum(counts) - counts
        self._total += chosen.size
        self.document_starts.append(block.document_starts[chosen])
        self.token_counts.append(block.segment_token_counts[chosen])
        self.window_starts.append(block.window_starts[chosen])
        self._doc_ids.append(block.doc_ids.take(pa.array(chosen)))

    def in_row_order(self) -> tuple[NDArray[np.int32], NDArray[np.int64], pa.StringArray]:
        """Give the count per row, the order of the collected segments, and the document ids in that order."""
        order = flat_index(self._starts, self._counts.astype(np.int64))
        doc_ids = pa.concat_arrays(self._doc_ids).take(pa.array(order))
        return self._counts, order, doc_ids


def flat_index(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """List start, start + 1, ... of every range, one range after the other.

    Args:
        starts: (R,) first of each.
        counts: (R,) how many of each.

    Returns:
        (sum of counts,) the indices.
    """
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)


def _text_offsets(texts: pa.StringArray) -> NDArray[np.int32]:
    """Give the (S + 1,) byte offsets of an Arrow string array."""
    if len(texts) == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _text_bytes(texts: pa.StringArray) -> bytes:
    """Give the bytes of an Arrow string array's texts, one after the other."""
    offsets = _text_offsets(texts)
    return bytes(memoryview(texts.buffers()[2])[offsets[0] : offsets[-1]]) if offsets[-1] else b""
