"""Digests to prove that a packed table holds each token of each document once, and its declared special tokens.

A document, special tokens included, is a set of pairs (position, token id). Each pair is mixed to 64 bits, and the
digest of a document is the xor of all its pairs, with their count. The digests of its pieces, in whatever windows, add
up to the digest of the document; a lost, doubled, moved or changed token gives another one (but for a chance of one in
2^64). So `tokens` and windows are compared by one narrow row per document, and no token is shuffled for it.

While a table is written even those rows need not be made. Where a document's last piece is cut its sum is taken: of all
of its pairs, mixed with the hash of its id, and of the hash of its id and length. Where windows are assembled the sums
of their segments are taken off again. What is left over all windows is the sum of the hashes of the ids and lengths in
`tokens`, if each document was cut once, as a whole, and each of its tokens is in one window at its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.mixing import GOLDEN, mix64
from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.packing.windows.masks import mask_column, masked_documents, masked_ids
from spark_jobs.packing.windows.window_facts import WindowForm

DIGESTS_SCHEMA = pa.schema(
    [pa.field("doc_id", pa.string()), pa.field("token_count", pa.int64()), pa.field("digest", pa.int64())]
)


def digest_windows(windows: Iterable[pa.RecordBatch], facts: WindowForm) -> Iterator[pa.RecordBatch]:
    """Digest the segments of windows.

    Args:
        windows: rows (input_ids, segments), perhaps with masks.
        facts: what the windows share.

    Yields:
        Batches of `DIGESTS_SCHEMA`, one row per segment.
    """
    from spark_jobs.packing.windows.token_loops import digest_slices

    for batch in windows:
        segments, values, slices = _slices(batch, facts)
        if len(segments):
            yield _rows(segments.field("doc_id"), slices[1], digest_slices(values, *slices))


def digest_documents(documents: Iterable[pa.RecordBatch], facts: WindowForm) -> Iterator[pa.RecordBatch]:
    """Digest documents with their special tokens, for comparison with the windows; empty documents are left out.

    Args:
        documents: rows (doc_id, input_ids), perhaps with masks.
        facts: what the windows share.

    Yields:
        Batches of `DIGESTS_SCHEMA`, one row per document.
    """
    from spark_jobs.packing.windows.token_loops import digest_slices

    leading = int(facts.beginning_of_document_id is not None)
    for batch in documents:
        lists = batch.column("input_ids")
        lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
        there = np.flatnonzero(lengths)
        if not there.size:
            continue
        doc_ids = batch.column("doc_id").take(pa.array(there))
        if facts.masked:  # end tokens are among the ids
            values, offsets = masked_documents(lists, batch.column(mask_column(facts)), facts)
            counts = lengths[there] + 1
            yield _rows(doc_ids, counts, digest_slices(values, offsets[there], counts, np.zeros_like(counts)))
            continue
        starts = (np.cumsum(lengths) - lengths)[there]
        lengths = lengths[there]
        digests = digest_slices(
            lists.flatten().to_numpy(), starts, lengths, np.full(len(lengths), leading, dtype=np.int64)
        )
        digests ^= _token(lengths + leading, facts.end_of_document_id)
        if facts.beginning_of_document_id is not None:
            digests ^= _token(np.zeros_like(lengths), facts.beginning_of_document_id)
        yield _rows(doc_ids, lengths + leading + 1, digests)


def document_sums(
    doc_ids: pa.Array, ids: Int32Array, starts: Int64Array, counts: Int64Array, facts: WindowForm
) -> Int64Array:
    """(N,) what each document adds to the balance of a packed table: its tokens and specials, and `length_sums`.

    Args:
        doc_ids: (N,) of the documents.
        ids: token ids.
        starts: (N,) where each document begins in `ids`.
        counts: (N,) tokens of each, the end token among them where windows have masks.
        facts: what the windows share.
    """
    from spark_jobs.packing.windows.token_loops import sum_slices

    seeds, leading = _seeds(doc_ids), int(facts.beginning_of_document_id is not None)
    sums: Int64Array = sum_slices(ids, starts, counts, np.full(len(counts), leading), seeds)
    if facts.masked:
        return sums + length_sums(doc_ids, counts - 1)
    sums += _mixed(seeds, counts + leading, facts.end_of_document_id)
    if facts.beginning_of_document_id is not None:
        sums += _mixed(seeds, np.zeros_like(counts), facts.beginning_of_document_id)
    return sums + length_sums(doc_ids, counts)


def segment_sums(windows: pa.RecordBatch, facts: WindowForm) -> Int64Array:
    """(N,) what each segment of windows takes off the balance of a packed table."""
    from spark_jobs.packing.windows.token_loops import sum_slices

    segments, values, slices = _slices(windows, facts)
    sums: Int64Array = sum_slices(values, *slices, _seeds(segments.field("doc_id")))
    return sums


def length_sums(doc_ids: pa.Array, counts: Int64Array | pa.Array) -> Int64Array:
    """(N,) hash of the id and the length of each document."""
    from spark_jobs.lake.ledger.row_hashes import row_hashes

    return row_hashes(pa.RecordBatch.from_arrays([doc_ids, pa.array(counts)], names=["doc_id", "token_count"]))


def _seeds(doc_ids: pa.Array) -> Int64Array:
    from spark_jobs.lake.ledger.row_hashes import row_hashes

    return row_hashes(pa.RecordBatch.from_arrays([doc_ids], names=["doc_id"]))


def _mixed(seeds: Int64Array, positions: Int64Array, token: int) -> Int64Array:
    """(N,) one token at each of N positions, as in `sum_slices`."""
    pairs = (positions.astype(np.uint64) << np.uint64(32)) | np.uint64(token)
    mixed: Int64Array = mix64(seeds.view(np.uint64) + pairs).view(np.int64)
    return mixed


def stream_starts(document_starts: Int64Array, first_ids: Int32Array, beginning_id: int | None) -> Int64Array:
    """(S,) position of each segment's first token in its document, special tokens counted.

    A segment starting at token 0 of its document begins with the beginning-of-document token, if documents have one.
    But with `concat_and_slice` that token may be a segment by itself, and then the next segment starts at token 0 too;
    the first id tells the two apart.

    Args:
        document_starts: (S,) first token of each segment in the document's own tokens.
        first_ids: (S,) id of each segment's first token.
        beginning_id: the beginning-of-document token; None where there is none.
    """
    if beginning_id is None:
        return document_starts
    begins = (document_starts == 0) & (first_ids == beginning_id)
    starts: Int64Array = document_starts + ~begins
    return starts


def _slices(windows: pa.RecordBatch, facts: WindowForm) -> tuple[pa.Array, Int32Array, tuple[Int64Array, ...]]:
    """The segments of windows, the ids of all, and where each segment begins, how long it is, and where it stands."""
    lists = windows.column("segments")
    is_apart = mask_column(facts) in windows.schema.names
    segments = lists.flatten()
    values = masked_ids(windows, facts) if is_apart else windows.column("input_ids").flatten().to_numpy()
    row = np.repeat(np.arange(windows.num_rows), pc.list_value_length(lists).to_numpy())
    counts = segments.field("token_count").to_numpy().astype(np.int64)
    sources = row * facts.window_tokens + segments.field("window_start").to_numpy()
    starts = stream_starts(segments.field("document_start").to_numpy(), values[sources], facts.beginning_of_document_id)
    return segments, values, (sources, counts, starts)


def _token(positions: Int64Array, token: int) -> Int64Array:
    """(N,) digest of one token at each of N positions, as in `digest_slices`."""
    pairs = (positions.astype(np.uint64) << np.uint64(32)) | np.uint64(token)
    digest: Int64Array = mix64(pairs + GOLDEN).view(np.int64)
    return digest


def _rows(doc_ids: pa.Array, counts: Int64Array, digests: Int64Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([doc_ids, pa.array(counts), pa.array(digests)], schema=DIGESTS_SCHEMA)
