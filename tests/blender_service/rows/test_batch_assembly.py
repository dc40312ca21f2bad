"""Messages made from blocks hold the rows that were resolved, whatever the numbers in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blender_service.order.resolve import ResolvedRows
from blender_service.rows.batch_assembly import Chunk
from blender_service.tables.block import BlockKey, RowBlock
from blender_service.tables.block_reader import BlockReader
from blender_service.tables.source_rows import RowPlaces, SourceRows
from blender_service.wire.row_batch import MessageCutter, decode
from headrace.tables.window_facts import WindowFacts
from tests.blender_service.random_blocks import random_block
from tests.tiers import tries

BLOCK_ROWS = 300  # so that places in a block need more than a byte
WINDOW_TOKENS = 8


class FakeReader:
    """Blocks of random rows; knows which were asked for."""

    block_bytes, of_epoch = BLOCK_ROWS * WINDOW_TOKENS * 2, None

    def __init__(self, first_block: int, seed: int) -> None:
        """Have blocks from `first_block` on."""
        self.first_block, self.seed = first_block, seed
        self.given: list[int] = []

    def block(self, number: int) -> RowBlock:
        """Make a block."""
        start = number * BLOCK_ROWS
        return random_block(BlockKey("f", start, start + BLOCK_ROWS, WINDOW_TOKENS, 2, 1 << 16), self.seed + number)

    def locate(self, ordinals: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find blocks and places."""
        return ordinals // BLOCK_ROWS, ordinals % BLOCK_ROWS

    def blocks(self, numbers: Iterable[int]) -> Iterator[tuple[int, RowBlock]]:
        """Give blocks, in an order of its own."""
        for number in sorted(numbers, reverse=True):
            self.given.append(number)
            yield number, self.block(number)


def places_of(readers: Mapping[int, FakeReader]) -> RowPlaces:
    """Sources that are whole tables."""
    return RowPlaces({index: SourceRows("s", cast(BlockReader, reader)) for index, reader in readers.items()})


WINDOW = WindowFacts(
    window_tokens=WINDOW_TOKENS, tokenizer_sha256="0" * 64, vocabulary_size=9, end_of_document_id=0, padding_id=0
)


@given(
    seed=st.integers(0, 1 << 32),
    rows=st.integers(1, 60),
    epoch=st.sampled_from([0, 255, 256, 1 << 33, (1 << 62) - 9]),
    first_block=st.sampled_from([0, (1 << 33) // BLOCK_ROWS]),
    messages=st.integers(1, 4),
)
@settings(max_examples=tries(40))
def test_a_message_holds_the_rows_that_were_resolved(
    seed: int, rows: int, epoch: int, first_block: int, messages: int
) -> None:
    """Row by row against the blocks themselves, for numbers beyond 8, 16 and 32 bits; each block is asked for once."""
    random = np.random.default_rng(seed)
    readers = {index: FakeReader(first_block, 100 * index) for index in (0, 2)}
    source = random.choice([0, 2], rows)
    ordinal = first_block * BLOCK_ROWS + random.integers(0, 2 * BLOCK_ROWS, rows)
    resolved = ResolvedRows(source, epoch + random.integers(0, 9, rows), ordinal)
    chunk = Chunk(resolved, places_of(readers))
    cutter = MessageCutter(chunk.copy(0, rows, ("a", "b", "c"), WINDOW))
    bounds = np.linspace(0, rows, messages + 1).astype(int).tolist()
    for first, end in itertools.pairwise(bounds):
        if first == end:
            continue
        batch = decode(cutter.cut(first, end, 7 + first))
        assert (batch.offset, batch.rows) == (7 + first, end - first)
        np.testing.assert_array_equal(batch.sources, source[first:end])
        np.testing.assert_array_equal(batch.epochs, resolved.epoch[first:end])
        np.testing.assert_array_equal(batch.ordinals, ordinal[first:end])
        segment = 0
        for row in range(batch.rows):
            reader = readers[int(batch.sources[row])]
            block, place = reader.block(int(batch.ordinals[row]) // BLOCK_ROWS), int(batch.ordinals[row]) % BLOCK_ROWS
            np.testing.assert_array_equal(batch.input_ids[row], block.input_ids[place])
            assert batch.token_counts[row] == block.segments.row_tokens[place]
            segments = block.segments
            own = slice(*segments.starts[place : place + 2].tolist())
            there = slice(segment, segment + int(batch.segment_counts[row]))
            np.testing.assert_array_equal(batch.document_starts[there], segments.document_starts[own])
            np.testing.assert_array_equal(batch.window_starts[there], segments.window_starts[own])
            texts = segments.doc_ids.tobytes()
            starts = segments.doc_id_starts[own.start : own.stop + 1].tolist()
            assert batch.doc_ids[there] == [texts[a:b].decode() for a, b in itertools.pairwise(starts)]
            segment = there.stop
    for reader in readers.values():
        assert len(reader.given) == len(set(reader.given))


def test_rows_that_wait_are_held_in_few_bytes() -> None:
    """Resolved rows of a chunk wait in 6 bytes each, so that what a stream looks ahead costs little."""
    random = np.random.default_rng(1)
    rows = 4096
    resolved = ResolvedRows(
        random.integers(0, 3, rows), np.full(rows, 7, dtype=np.int64), random.integers(0, 300 * BLOCK_ROWS, rows)
    )
    chunk = Chunk(resolved, places_of({index: FakeReader(0, 0) for index in range(3)}))
    held = [value for value in vars(chunk).values() if isinstance(value, np.ndarray) and value.shape == (rows,)]
    assert sum(array.itemsize for array in held) <= 6
