"""Digests that prove that a packed table holds each token of each document once, and its declared special tokens.

A document, special tokens included, is a set of pairs (position, token id). Each pair is mixed to 64 bits, and the
digest of a document is the xor of all its pairs, with their count. The digests of its pieces, in whatever windows, add
up to the digest of the document; a token that is lost, doubled, moved or changed gives another one (but for a chance of
one in 2^64). So `tokens` and windows are compared by one narrow row per document, and no token is shuffled for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.mixing import GOLDEN, mix64
from spark_jobs.arrays import Int64Array
from spark_jobs.packing.windows.assemble import WindowFacts, stream_starts

DIGESTS_SCHEMA = pa.schema(
    [pa.field("doc_id", pa.string()), pa.field("token_count", pa.int64()), pa.field("digest", pa.int64())]
)


def digest_windows(windows: Iterable[pa.RecordBatch], facts: WindowFacts) -> Iterator[pa.RecordBatch]:
    """Digest the segments of windows.

    Args:
        windows: rows (input_ids, segments).
        facts: what the windows share.

    Yields:
        Batches of `DIGESTS_SCHEMA`, one row per segment.
    """
    from spark_jobs.packing.windows.token_loops import digest_slices

    for batch in windows:
        lists = batch.column("segments")
        segments = lists.flatten()
        if not len(segments):
            continue
        row = np.repeat(np.arange(batch.num_rows), pc.list_value_length(lists).to_numpy())
        counts = segments.field("token_count").to_numpy().astype(np.int64)
        values = batch.column("input_ids").flatten().to_numpy()
        sources = row * facts.window_tokens + segments.field("window_start").to_numpy()
        starts = stream_starts(
            segments.field("document_start").to_numpy(), values[sources], facts.beginning_of_document_id
        )
        yield _rows(segments.field("doc_id"), counts, digest_slices(values, sources, counts, starts))


def digest_documents(documents: Iterable[pa.RecordBatch], facts: WindowFacts) -> Iterator[pa.RecordBatch]:
    """Digest documents with their special tokens, for comparison with the windows; empty documents are left out.

    Args:
        documents: rows (doc_id, input_ids).
        facts: what the windows share.

    Yields:
        Batches of `DIGESTS_SCHEMA`, one row per document.
    """
    from spark_jobs.packing.windows.token_loops import digest_slices

    leading = int(facts.beginning_of_document_id is not None)
    for batch in documents:
        lists = batch.column("input_ids")
        own = pc.list_value_length(lists).to_numpy().astype(np.int64)
        there = np.flatnonzero(own)
        if not there.size:
            continue
        starts = (np.cumsum(own) - own)[there]
        own = own[there]
        digests = digest_slices(lists.flatten().to_numpy(), starts, own, np.full(len(own), leading, dtype=np.int64))
        digests ^= _token(own + leading, facts.end_of_document_id)
        if facts.beginning_of_document_id is not None:
            digests ^= _token(np.zeros_like(own), facts.beginning_of_document_id)
        yield _rows(batch.column("doc_id").take(pa.array(there)), own + leading + 1, digests)


def _token(positions: Int64Array, token: int) -> Int64Array:
    """(N,) digest of one token at each of N positions, as in `digest_slices`."""
    pairs = (positions.astype(np.uint64) << np.uint64(32)) | np.uint64(token)
    found: Int64Array = mix64(pairs + GOLDEN).view(np.int64)
    return found


def _rows(doc_ids: pa.Array, counts: Int64Array, digests: Int64Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([doc_ids, pa.array(counts), pa.array(digests)], schema=DIGESTS_SCHEMA)
