"""Blocks of random rows, by seed."""

from __future__ import annotations

import numpy as np

from blender_service.tables.block import BlockKey, RowBlock, Segments


def random_block(key: BlockKey, seed: int) -> RowBlock:
    """Make random rows for a key: none to three segments each, document ids of none to five letters."""
    random = np.random.default_rng(seed)
    rows = key.end - key.start
    starts = np.concatenate([[0], np.cumsum(random.integers(0, 4, rows))])
    count = int(starts[-1])
    doc_id_starts = np.concatenate([[0], np.cumsum(random.integers(0, 6, count))])
    top = min(key.vocabulary_size, 1 << 8 * key.token_bytes)
    return RowBlock(
        start=key.start,
        input_ids=random.integers(0, top, (rows, key.window_tokens)).astype(f"u{key.token_bytes}"),
        segments=Segments(
            row_tokens=random.integers(0, 1 << 31, rows).astype(np.int32),
            starts=starts,
            doc_ids=random.integers(97, 123, int(doc_id_starts[-1])).astype(np.uint8),
            doc_id_starts=doc_id_starts,
            document_starts=random.integers(0, 1 << 62, count),
            token_counts=random.integers(0, 1 << 31, count).astype(np.int32),
            window_starts=random.integers(0, 1 << 31, count).astype(np.int32),
        ),
    )


def key_of(number: int) -> BlockKey:
    """Name block `number` of a made-up data file, four rows each."""
    return BlockKey("file.parquet", 4 * number, 4 * number + 4, 16, 2, 300)
