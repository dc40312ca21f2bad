"""Reads blocks of rows out of Parquet files and keeps the latest of them, up to a bound in bytes.

A block is a range of consecutive ordinals (2,048 by default, fewer where rows are long). The order of a blend keeps to
a few blocks of each source at a time, so with those in memory a row group is decoded about once per pass. A block is
checked when it is decoded: its ordinals, window lengths and token ids must be what the table promises.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from blender_service.cache_events import CacheEvents
from blender_service.exceptions import PackedTableError
from blender_service.packed_table import OrdinalRun, PackedTable

DEFAULT_CACHE_BYTES: Final = 1 << 30
MAX_BLOCK_BYTES: Final = 16 << 20
COLUMNS: Final = ("ordinal", "token_count", "input_ids", "segments")


class Block(NamedTuple):
    """Consecutive rows of a packed table, decoded.

    Attributes:
        start: first ordinal.
        input_ids: (R, L) token ids, uint16 or uint32.
        token_counts: (R,) tokens before the padding.
        segment_starts: (R + 1,) first segment of each row in the arrays below.
        doc_ids: (S,) document ids.
        document_starts: (S,) first token, in the document.
        segment_token_counts: (S,) tokens.
        window_starts: (S,) first token, in the window.
    """

    start: int
    input_ids: NDArray[np.unsignedinteger]
    token_counts: NDArray[np.int32]
    segment_starts: NDArray[np.int64]
    doc_ids: pa.StringArray
    document_starts: NDArray[np.int64]
    segment_token_counts: NDArray[np.int32]
    window_starts: NDArray[np.int32]

    @property
    def byte_count(self) -> int:
        """Memory it holds."""
        rows = (self.input_ids, self.token_counts, self.segment_starts)
        segments = (self.document_starts, self.segment_token_counts, self.window_starts)
        return sum(array.nbytes for array in (*rows, *segments)) + int(self.doc_ids.nbytes)


BlockKey = tuple[str, int, int]


class BlockCache:
    """Least recently used blocks, up to a bound in bytes; safe for many threads."""

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Hold at most `max_bytes`, but always the block that was put last."""
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[BlockKey, Block] = OrderedDict()
        self._byte_count = 0
        self._lock = threading.Lock()
        self._readers: dict[str, threading.Lock] = {}
        self.events = CacheEvents()

    @property
    def byte_count(self) -> int:
        """Memory held now."""
        return self._byte_count

    def get(self, key: BlockKey) -> Block | None:
        """Find a block and mark it as used."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: BlockKey, block: Block) -> None:
        """Add a block, dropping the least recently used ones."""
        with self._lock:
            replaced = self._blocks.pop(key, None)
            self._byte_count += block.byte_count - (replaced.byte_count if replaced else 0)
            self._blocks[key] = block
            while self._byte_count > self._max_bytes and len(self._blocks) > 1:
                _, dropped = self._blocks.popitem(last=False)
                self._byte_count -= dropped.byte_count

    def reader_lock(self, path: str) -> threading.Lock:
        """Give the lock under which one file is decoded, so that ranks that need one block decode it once."""
        with self._lock:
            return self._readers.setdefault(path, threading.Lock())


class BlockReader:
    """Gives the blocks of one packed table at one snapshot."""

    def __init__(self, table: PackedTable, block_rows: int, cache: BlockCache) -> None:
        """Read `table` in blocks of at most `block_rows`, keeping them in `cache`."""
        row_bytes = table.window.window_tokens * table.window.token_bytes
        self.table = table
        self.block_rows = min(block_rows, max(1, MAX_BLOCK_BYTES // row_bytes))
        self._cache = cache
        self._starts = np.array([run.start for run in table.runs], dtype=np.int64)

    def load(self, ordinals: NDArray[np.int64]) -> Iterator[Block]:
        """Give every block that the ordinals touch, one after the other, each row group decoded at most once.

        Blocks lie on multiples of `block_rows`, as the blend's order does, and are cut where a file ends. Copy what is
        needed before taking the next one, and no more than the cache is held in memory.

        Args:
            ordinals: (R,) each below the number of rows.
        """
        run_index = np.searchsorted(self._starts, ordinals, side="right") - 1
        block_index = ordinals // self.block_rows
        needed = np.unique(np.column_stack([run_index, block_index]), axis=0)
        for index in np.unique(needed[:, 0]):
            yield from self._load_from(self.table.runs[index], needed[needed[:, 0] == index, 1].tolist())

    def _load_from(self, run: OrdinalRun, wanted: Sequence[int]) -> Iterator[Block]:
        """Give some blocks of one file, from memory where they are there."""
        missing: list[int] = []
        for index in wanted:
            block = self._cache.get((run.path, self.block_rows, index))
            if block is None:
                missing.append(index)
            else:
                yield block
        self._cache.events.hit(len(wanted) - len(missing))
        self._cache.events.miss(len(missing))
        if not missing:
            return
        with self._cache.reader_lock(run.path):
            absent: list[int] = []
            for index in missing:  # another thread may have decoded some of them while this one waited
                block = self._cache.get((run.path, self.block_rows, index))
                if block is None:
                    absent.append(index)
                else:
                    yield block
            for index, block in self._decode(run, absent):
                self._cache.put((run.path, self.block_rows, index), block)
                yield block

    def _decode(self, run: OrdinalRun, wanted: Sequence[int]) -> Iterator[tuple[int, Block]]:
        """Decode blocks of one file, streaming through the row groups they lie in."""
        if not wanted:
            return
        ranges = [
            (max(i * self.block_rows - run.start, 0), min((i + 1) * self.block_rows, run.end) - run.start)
            for i in wanted
        ]
        try:
            with self.table.io.new_input(run.path).open() as stream, pq.ParquetFile(stream) as file:
                if file.metadata.num_rows != run.end - run.start:
                    raise PackedTableError(
                        f"table {self.table.identifier}: file {run.path} has {file.metadata.num_rows} rows, its "
                        f"manifest says {run.end - run.start}; restore the file"
                    )
                for index, (first, _), rows in zip(wanted, ranges, _read_ranges(file, ranges), strict=True):
                    yield index, decode_block(rows, run.start + first, self.table, run.path)
        except (OSError, pa.ArrowException) as error:
            raise PackedTableError(
                f"table {self.table.identifier}: file {run.path} cannot be read: {error}; restore the file"
            ) from error


def _read_ranges(file: pq.ParquetFile, ranges: Sequence[tuple[int, int]]) -> Iterator[pa.Table]:
    """Read ranges of rows of a Parquet file in one pass over the row groups they touch.

    Args:
        file: open.
        ranges: [first, last) of each, ascending, disjoint, all inside the file.
    """
    metadata = file.metadata
    ends = np.cumsum([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])
    groups = [
        group
        for group, end in enumerate(ends)
        if any(first < end and last > end - metadata.row_group(group).num_rows for first, last in ranges)
    ]
    remaining = list(ranges)
    parts: list[pa.RecordBatch] = []
    for group in groups:
        position = int(ends[group]) - metadata.row_group(group).num_rows
        batch_rows = max(last - first for first, last in ranges)
        batches = file.iter_batches(batch_size=batch_rows, row_groups=[group], columns=list(COLUMNS), use_threads=False)
        for batch in batches:
            while remaining and remaining[0][0] < position + batch.num_rows:
                first, last = remaining[0]
                low, high = max(first - position, 0), min(last - position, batch.num_rows)
                parts.append(batch.slice(low, high - low))
                if last > position + batch.num_rows:
                    break
                yield pa.Table.from_batches(parts)
                parts.clear()
                remaining.pop(0)
            position += batch.num_rows
            if not remaining or remaining[0][0] >= ends[group]:
                break


def decode_block(rows: pa.Table, start: int, table: PackedTable, path: str) -> Block:
    """Turn Arrow rows into a block, checking everything that the table promises.

    Args:
        rows: columns ordinal, token_count, input_ids, segments.
        start: ordinal that the first row must have.
        table: whose rows they are.
        path: the file, for messages.

    Raises:
        PackedTableError: an ordinal, a window length or a token id is not as promised.
    """
    where = f"table {table.identifier}: file {path}"
    ordinals = rows["ordinal"].to_numpy()
    if not np.array_equal(ordinals, np.arange(start, start + rows.num_rows)):
        at = start + int(np.flatnonzero(ordinals != np.arange(start, start + rows.num_rows))[0])
        raise PackedTableError(
            f"{where}: ordinal {at} is not at row {at - start} after ordinal {start}; rewrite the file sorted by "
            "ordinal"
        )
    window_tokens, vocabulary_size = table.window.window_tokens, table.window.vocabulary_size
    input_ids = _combined(rows["input_ids"])
    ids = input_ids.flatten()
    lengths_wrong = ids.null_count or not pc.all(pc.equal(pc.list_value_length(input_ids), window_tokens)).as_py()
    if lengths_wrong or len(ids) != rows.num_rows * window_tokens:
        raise PackedTableError(
            f"{where}: a row near ordinal {start} does not have {window_tokens} tokens, the table's "
            "headrace.window-tokens; pack the table again"
        )
    values = ids.to_numpy(zero_copy_only=False)
    if values.size and (values.min() < 0 or values.max() >= vocabulary_size):
        bad = values.max() if values.max() >= vocabulary_size else values.min()
        raise PackedTableError(
            f"{where}: has token id {bad} near ordinal {start}, the vocabulary ends at {vocabulary_size}; pack the "
            "table again with its own tokenizer"
        )
    segments = _combined(rows["segments"])
    counts = np.asarray(pc.list_value_length(segments), dtype=np.int64)
    flat = segments.flatten()
    dtype = np.uint16 if table.window.token_bytes == 2 else np.uint32
    return Block(
        start=start,
        input_ids=values.astype(dtype).reshape(rows.num_rows, window_tokens),
        token_counts=rows["token_count"].to_numpy().astype(np.int32),
        segment_starts=np.concatenate([[0], np.cumsum(counts)]),
        doc_ids=pc.cast(flat.field("doc_id"), pa.string()),
        document_starts=flat.field("document_start").to_numpy(zero_copy_only=False).astype(np.int64),
        segment_token_counts=flat.field("token_count").to_numpy(zero_copy_only=False).astype(np.int32),
        window_starts=flat.field("window_start").to_numpy(zero_copy_only=False).astype(np.int32),
    )


def _combined(column: pa.ChunkedArray) -> pa.ListArray:
    """Give a list column as one array."""
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined
