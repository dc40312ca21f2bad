"""Blocks of random rows, by seed; imports little, since processes that are to be killed use it too."""

from __future__ import annotations

import numpy as np

from blender_service.tables.block_file import Block, BlockKey


def random_block(key: BlockKey, seed: int) -> Block:
    """Make random rows for a key: none to three segments each, document ids of none to five letters."""
    random = np.random.default_rng(seed)
    rows = key.end - key.start
    segment_starts = np.concatenate([[0], np.cumsum(random.integers(0, 4, rows))])
    segments = int(segment_starts[-1])
    doc_id_starts = np.concatenate([[0], np.cumsum(random.integers(0, 6, segments))])
    top = min(key.vocabulary_size, 1 << 8 * key.token_bytes)
    return Block(
        start=key.start,
        input_ids=random.integers(0, top, (rows, key.window_tokens)).astype(f"u{key.token_bytes}"),
        token_counts=random.integers(0, 1 << 31, rows).astype(np.int32),
        segment_starts=segment_starts,
        doc_id_bytes=random.integers(97, 123, int(doc_id_starts[-1])).astype(np.uint8),
        doc_id_starts=doc_id_starts,
        document_starts=random.integers(0, 1 << 62, segments),
        segment_token_counts=random.integers(0, 1 << 31, segments).astype(np.int32),
        window_starts=random.integers(0, 1 << 31, segments).astype(np.int32),
    )


def key_of(number: int) -> BlockKey:
    """Name block `number` of a made-up data file, four rows each."""
    return BlockKey("file.parquet", 4 * number, 4 * number + 4, 16, 2, 300)
