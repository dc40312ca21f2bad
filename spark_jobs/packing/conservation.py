"""Token conservation: what a packed table holds of each document is its tokens, each once, and its declared specials.

A document is a set of (place, token id) with its specials in their places. Each pair is mixed to 64 bits, and a
document's digest is the xor of all its pairs and their count. Pieces of it in any windows add up to the same digest; a
token lost, doubled, moved or changed gives another one (but for one chance in 2^64). So two streams of tokens are
compared by one narrow row per document, and no token is shuffled for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.packing.permutation import mix
from spark_jobs.packing.windows import WindowFacts, stream_starts

Int64Array = npt.NDArray[np.int64]

_CACHED_TOKENS = 1 << 14
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
    for batch in windows:
        lists = batch.column("segments")
        segments = lists.flatten()
        if not len(segments):
            continue
        row = np.repeat(np.arange(batch.num_rows), pc.list_value_length(lists).to_numpy())
        counts = segments.field("token_count").to_numpy().astype(np.int64)
        values = batch.column("input_ids").flatten().to_numpy()
        places = row * facts.window_tokens + segments.field("window_start").to_numpy()
        starts = stream_starts(
            segments.field("document_start").to_numpy(), values[places], facts.beginning_of_document_id
        )
        total = int(counts.sum())
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        digests = _xor(values[np.repeat(places, counts) + within], np.repeat(starts, counts) + within, counts)
        yield _rows(segments.field("doc_id"), counts, digests)


def digest_documents(documents: Iterable[pa.RecordBatch], facts: WindowFacts) -> Iterator[pa.RecordBatch]:
    """Digest documents as they should be found in windows: with their specials; empty ones are left out.

    Args:
        documents: rows (doc_id, input_ids).
        facts: what the windows share.

    Yields:
        Batches of `DIGESTS_SCHEMA`, one row per document.
    """
    leading = int(facts.beginning_of_document_id is not None)
    for batch in documents:
        own = pc.list_value_length(batch.column("input_ids")).to_numpy().astype(np.int64)
        there = np.flatnonzero(own)
        if not there.size:
            continue
        own = own[there]
        counts = own + leading + 1
        firsts = np.cumsum(counts) - counts
        stream = np.empty(int(counts.sum()), dtype=np.int32)
        values = batch.column("input_ids").flatten().to_numpy()
        own_firsts = np.cumsum(own) - own
        stream[np.repeat(firsts + leading - own_firsts, own) + np.arange(len(values))] = values
        stream[firsts + counts - 1] = facts.end_of_document_id
        if facts.beginning_of_document_id is not None:
            stream[firsts] = facts.beginning_of_document_id
        within = np.arange(len(stream)) - np.repeat(firsts, counts)
        yield _rows(batch.column("doc_id").take(pa.array(there)), counts, _xor(stream, within, counts))


def _xor(ids: npt.NDArray[np.int32], places: Int64Array, counts: Int64Array) -> Int64Array:
    """(S,) xor of the mixed (place, id) of each of S runs of `counts` tokens, all > 0."""
    mixed = places.astype(np.uint64)
    for first in range(0, len(mixed), _CACHED_TOKENS):  # its passes over a part stay in the cache, twice as fast
        part = slice(first, first + _CACHED_TOKENS)
        mixed[part] = mix((mixed[part] << np.uint64(32)) | ids[part].astype(np.uint32))
    found: Int64Array = np.bitwise_xor.reduceat(mixed, np.cumsum(counts) - counts).view(np.int64)
    return found


def _rows(doc_ids: pa.Array, counts: Int64Array, digests: Int64Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([doc_ids, pa.array(counts), pa.array(digests)], schema=DIGESTS_SCHEMA)
