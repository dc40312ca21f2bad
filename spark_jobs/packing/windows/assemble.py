"""Assemble windows from the parts of documents that were placed in them; Arrow batches in, Arrow batches out.

The parts come sorted by (ordinal, window_start), so the rows of a window are neighbours:

    ordinal  window_start  ids      begins  ends        input_ids of ordinal 7, L = 8, end of document 0, padding 1
          7             0  5 6 7    false   true        5 6 7 0 9 9 0 1
          7             4  9 9      false   true

A window may go on in the next batch, so its rows wait for a row of another window, or for the end. Memory: one
input batch (Spark sends at most spark.sql.execution.arrow.maxBytesPerBatch, 64 MB, or one row) and one output batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray, Int32Array, Int64Array
from spark_jobs.exceptions import TableMismatchError

SEGMENT_FIELDS = [
    pa.field("doc_id", pa.string()),
    pa.field("document_start", pa.int64()),
    pa.field("token_count", pa.int32()),
    pa.field("window_start", pa.int32()),
]
PARTS_SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64()),
        pa.field("window_start", pa.int32()),
        pa.field("doc_id", pa.string()),
        pa.field("document_start", pa.int64()),
        pa.field("ids", pa.binary()),
        pa.field("begins", pa.bool_()),
        pa.field("ends", pa.bool_()),
    ]
)
WINDOWS_SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64()),
        pa.field("token_count", pa.int32()),
        pa.field("input_ids", pa.list_(pa.int32())),
        pa.field("segments", pa.list_(pa.struct(SEGMENT_FIELDS))),
    ]
)
_BATCH_TOKENS = 1 << 22


@dataclass(frozen=True)
class WindowFacts:
    """Facts that all windows of a packed table share.

    Attributes:
        window_tokens: length of a window, L.
        end_of_document_id: token after the last piece of a document.
        padding_id: token after the last segment of a window.
        vocabulary_size: ids are below it.
        beginning_of_document_id: token before the first piece of a document; None where there is none.
    """

    window_tokens: int
    end_of_document_id: int
    padding_id: int
    vocabulary_size: int
    beginning_of_document_id: int | None = None

    @property
    def id_type(self) -> np.dtype[np.unsignedinteger]:
        """Narrowest integer type that holds every id of the vocabulary; ids are shuffled in it."""
        return np.dtype("<u2") if self.vocabulary_size <= 1 << 16 else np.dtype("<u4")


def stream_starts(document_starts: Int64Array, first_ids: Int32Array, beginning_id: int | None) -> Int64Array:
    """(S,) position of each segment's first token in its document, special tokens counted.

    A segment that starts at token 0 of its document begins with the beginning-of-document token, if documents have one.
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


def assemble_windows(parts: Iterable[pa.RecordBatch], facts: WindowFacts) -> Iterator[pa.RecordBatch]:
    """Build the windows of contiguous ordinals.

    Args:
        parts: rows of `PARTS_SCHEMA` sorted by (ordinal, window_start): `ids` are bytes of `id_type`, `begins` and
            `ends` say whether the beginning and the end-of-document token are to be added to this part.
        facts: facts of the table.

    Yields:
        Batches of `WINDOWS_SCHEMA`, ascending by ordinal, of at most 4 Mi tokens or one window.

    Raises:
        TableMismatchError: parts leave a gap or overlap, or an ordinal is missing.
    """
    waiting: list[pa.RecordBatch] = []
    last = -1
    for batch in parts:
        if not batch.num_rows:
            continue
        ordinals = batch.column("ordinal").to_numpy()
        if waiting and waiting[-1].column("ordinal")[-1].as_py() == ordinals[-1]:
            waiting.append(batch)
            continue
        cut = int(np.searchsorted(ordinals, ordinals[-1]))
        for windows in _batches([*waiting, batch.slice(0, cut)], facts, last):
            yield windows
            last = windows.column("ordinal")[-1].as_py()
        waiting = [batch.slice(cut)]
    if waiting:
        yield from _batches(waiting, facts, last)


def _batches(parts: list[pa.RecordBatch], facts: WindowFacts, last: int) -> Iterator[pa.RecordBatch]:
    """Assemble complete windows into batches of bounded size; `last` is the ordinal before them, -1 for none."""
    rows = pa.Table.from_batches(parts).combine_chunks()
    if not rows.num_rows:
        return
    ordinals = rows.column("ordinal").to_numpy()
    starts = np.flatnonzero(np.diff(ordinals, prepend=ordinals[0] - 1))
    found = ordinals[starts]
    wanted = np.arange(len(starts)) + (last + 1 if last >= 0 else found[0])
    if not np.array_equal(found, wanted):
        missing = int(wanted[np.argmax(found != wanted)])
        raise TableMismatchError(
            f"packed: ordinal {missing} has no segment, wanted one of each; tokens and ordered disagree about a "
            "document or changed while the step ran: materialize tokens again"
        )
    bounds = np.append(starts, rows.num_rows)
    group = max(1, _BATCH_TOKENS // facts.window_tokens)
    for first in range(0, len(starts), group):
        end = min(first + group, len(starts))
        table = rows.slice(int(bounds[first]), int(bounds[end] - bounds[first])).combine_chunks()
        yield _windows(table.to_batches()[0], bounds[first : end + 1] - bounds[first], facts)


def _windows(rows: pa.RecordBatch, bounds: Int64Array, facts: WindowFacts) -> pa.RecordBatch:
    """Assemble one batch of windows: window w has the rows bounds[w] to bounds[w + 1]."""
    from spark_jobs.packing.windows.token_loops import copy_slices

    size = facts.window_tokens
    values, own_counts = _piece_ids(rows, facts)
    ends = rows.column("ends").to_numpy(zero_copy_only=False)
    begins = rows.column("begins").to_numpy(zero_copy_only=False)
    lengths = own_counts + begins + ends
    starts = rows.column("window_start").to_numpy().astype(np.int64)
    window = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    token_counts = np.add.reduceat(lengths, bounds[:-1])
    _check_abutting(rows, starts, lengths, bounds, token_counts, size)

    input_ids = np.full((len(bounds) - 1) * size, facts.padding_id, dtype=np.int32)
    if facts.beginning_of_document_id is not None:
        input_ids[(window * size + starts)[begins]] = facts.beginning_of_document_id
    targets = window * size + starts + begins
    copy_slices(values, np.cumsum(own_counts) - own_counts, own_counts, input_ids, targets)
    input_ids[(targets + own_counts)[ends]] = facts.end_of_document_id

    segments = pa.StructArray.from_arrays(
        [
            rows.column("doc_id"),
            rows.column("document_start"),
            pa.array(lengths.astype(np.int32)),
            rows.column("window_start"),
        ],
        fields=SEGMENT_FIELDS,
    )
    row_bounds = np.arange(len(bounds), dtype=np.int32) * np.int32(size)
    return pa.RecordBatch.from_arrays(
        [
            rows.column("ordinal").take(pa.array(bounds[:-1])),
            pa.array(token_counts.astype(np.int32)),
            pa.ListArray.from_arrays(pa.array(row_bounds), pa.array(input_ids)),
            pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), segments),
        ],
        schema=WINDOWS_SCHEMA,
    )


def _piece_ids(rows: pa.RecordBatch, facts: WindowFacts) -> tuple[npt.NDArray[np.unsignedinteger], Int64Array]:
    """Ids of all parts, concatenated, and (N,) the number of ids of each."""
    column = rows.column("ids")
    counts = pc.binary_length(column).to_numpy().astype(np.int64) // facts.id_type.itemsize
    if not counts.sum():
        return np.zeros(0, dtype=facts.id_type), counts
    first = np.frombuffer(column.buffers()[1], np.int32)[column.offset]
    return np.frombuffer(column.buffers()[2], facts.id_type, int(counts.sum()), int(first)), counts


def _check_abutting(
    rows: pa.RecordBatch,
    starts: Int64Array,
    lengths: Int64Array,
    bounds: Int64Array,
    token_counts: Int64Array,
    window_tokens: int,
) -> None:
    """Raise a TableMismatchError if a window's parts leave a gap, overlap, or exceed L together."""
    before = np.cumsum(lengths) - lengths
    expected = before - np.repeat(before[bounds[:-1]], np.diff(bounds))
    wrong = np.flatnonzero(starts != expected)
    if wrong.size or token_counts.max() > window_tokens:
        row = int(wrong[0]) if wrong.size else int(bounds[int(token_counts.argmax())])
        raise TableMismatchError(
            f"packed: document {rows.column('doc_id')[row]} lies at {starts[row]} of its window, wanted {expected[row]}"
            "; a token_count in tokens is not the length of its input_ids: materialize tokens again"
        )


def has_exact_length(rows: pa.RecordBatch, window_tokens: int) -> BoolArray:
    """(N,) whether each row passes the check `exact_length` of packed tables."""
    found: BoolArray = pc.list_value_length(rows.column("input_ids")).to_numpy() == window_tokens
    return found


def is_filled(rows: pa.RecordBatch, window_tokens: int) -> BoolArray:
    """(N,) whether each row passes the check `filled_window`."""
    counts = rows.column("token_count").to_numpy()
    segments = pc.list_value_length(rows.column("segments")).to_numpy()
    found: BoolArray = (counts >= 1) & (counts <= window_tokens) & (segments >= 1)
    return found


def segments_fill(rows: pa.RecordBatch) -> BoolArray:
    """(N,) whether each row passes the check `segments_fill_the_window`."""
    lists = rows.column("segments")
    segments, sizes = lists.flatten(), pc.list_value_length(lists).to_numpy().astype(np.int64)
    counts = segments.field("token_count").to_numpy().astype(np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    ends = np.cumsum(sizes)
    expected = before[:-1] - np.repeat(before[ends - sizes], sizes)
    misplaced = np.concatenate([[0], np.cumsum(segments.field("window_start").to_numpy() != expected)])
    abut = misplaced[ends] == misplaced[ends - sizes]
    found: BoolArray = abut & (before[ends] - before[ends - sizes] == rows.column("token_count").to_numpy())
    return found
