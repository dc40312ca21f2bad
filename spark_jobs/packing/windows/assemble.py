"""Assemble windows from the parts of documents placed in them; Arrow batches in, Arrow batches out.

The parts come in any order; by (ordinal, window_start) the rows of a window are neighbours:

    ordinal  window_start  ids      begins  ends        input_ids of ordinal 7, L = 8, end of document 0, padding 1
          7             0  5 6 7    false   true        5 6 7 0 9 9 0 1
          7             4  9 9      false   true

So only narrow columns are sorted: ids stay where they are, on Sail in mapped files (`spooled_rows`), and are copied
once, to their place in a window. Memory: the narrow columns of a data file, some 100 bytes a part, and one output
batch; on Spark the ids of a data file as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.tables.cells import CELL_COLUMN, sequence_tokens
from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.files.file_writer import BALANCE
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE, with_masks_apart
from spark_jobs.packing.windows.token_digest import segment_sums
from spark_jobs.packing.windows.window_facts import WindowForm

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
        pa.field("balance", pa.int64()),
    ]
)
CELL_PARTS_SCHEMA = PARTS_SCHEMA.append(pa.field("cell", pa.int32()))  # number of the document's cell, or 0
WINDOWS_SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64()),
        pa.field("token_count", pa.int32()),
        pa.field("input_ids", pa.list_(pa.int32())),
        pa.field("segments", pa.list_(pa.struct(SEGMENT_FIELDS))),
    ]
)
# Documents of a data file may have 2 GiB of ids, beyond which an array needs offsets of 64 bits.
_NARROW = pa.schema(
    [
        field.with_type(pa.large_string()) if field.name == "doc_id" else field
        for field in CELL_PARTS_SCHEMA
        if field.name != "ids"
    ]
)
_BATCH_TOKENS = 1 << 22


def assemble_windows(
    parts: Iterable[pa.RecordBatch], facts: WindowForm, cells: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Build the windows of contiguous ordinals.

    Args:
        parts: rows of `PARTS_SCHEMA`, with cells of `CELL_PARTS_SCHEMA`, in any order: `ids` are bytes of `id_type`,
            `begins` and `ends` say whether the beginning and the end-of-document token are to be added to this part.
        facts: facts of the table.
        cells: names of the cells by their number in `parts`; none where windows have no cell.

    Yields:
        Batches of `WINDOWS_SCHEMA`, perhaps with `cell` and masks, ascending by ordinal, of at most 4 Mi tokens
        or one window, with their balance in the metadata (`token_digest`).

    Raises:
        TableMismatchError: parts leave a gap or overlap, an ordinal is missing, or a window has parts of two cells.
    """
    batches = [batch for batch in parts if batch.num_rows]  # which hold the ids
    if not batches:
        return
    schema = pa.schema([field for field in _NARROW if cells or field.name != CELL_COLUMN])
    narrow = pa.Table.from_batches([batch.select(schema.names) for batch in batches]).cast(schema)
    (rows,) = narrow.combine_chunks().to_batches()
    addresses, counts = map(np.concatenate, zip(*(_ids_at(batch, facts) for batch in batches), strict=True))
    ordinals = rows.column("ordinal").to_numpy()
    order = np.lexsort((rows.column("window_start").to_numpy(), ordinals))
    ordinals = ordinals[order]
    starts = np.flatnonzero(np.diff(ordinals, prepend=ordinals[0] - 1))
    first_ordinals = ordinals[starts]
    wanted = np.arange(first_ordinals[0], first_ordinals[0] + len(first_ordinals))
    if not np.array_equal(first_ordinals, wanted):
        missing = int(wanted[np.argmax(first_ordinals != wanted)])
        raise TableMismatchError(
            f"packed: ordinal {missing} has no segment, wanted one of each; tokens and ordered disagree about a "
            "document or changed while the step ran: materialize tokens again"
        )
    bounds = np.append(starts, len(order))
    lengths = np.array([sequence_tokens(cell, facts.window_tokens) for cell in cells])
    group = max(1, _BATCH_TOKENS // facts.window_tokens)
    for first in range(0, len(starts), group):
        group_bounds = bounds[first : first + group + 1]
        chosen = order[group_bounds[0] : group_bounds[-1]]
        pieces = rows.take(pa.array(chosen))
        sequence = np.full(len(chosen), facts.window_tokens)
        if cells:
            sequence = lengths[pieces.column("cell").to_numpy()]
        group_bounds = group_bounds - group_bounds[0]
        windows = _windows(pieces, addresses[chosen], counts[chosen], group_bounds, sequence, facts)
        sums = pieces.column("balance").to_numpy(), -segment_sums(windows, facts)
        windows = _with_cell(windows, pieces, group_bounds, cells) if cells else windows
        windows = with_masks_apart(windows, facts) if facts.masked else windows
        yield windows.replace_schema_metadata({BALANCE: str(np.concatenate(sums).sum())})  # modulo 2^64


def _ids_at(rows: pa.RecordBatch, facts: WindowForm) -> tuple[Int64Array, Int64Array]:
    """(N,) address of the first id of each part, and (N,) how many it has."""
    column = rows.column("ids")
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    offsets, ids = offsets.astype(np.int64), column.buffers()[2]
    return offsets[:-1] + (ids.address if ids is not None else 0), np.diff(offsets) // facts.id_type.itemsize


def _windows(
    rows: pa.RecordBatch,
    addresses: Int64Array,
    own_counts: Int64Array,
    bounds: Int64Array,
    sequence: Int64Array,
    facts: WindowForm,
) -> pa.RecordBatch:
    """Assemble one batch of windows of sequences: window w has the rows bounds[w] to bounds[w + 1]."""
    from spark_jobs.packing.windows.token_loops import copy_ids

    size = facts.window_tokens
    ends = rows.column("ends").to_numpy(zero_copy_only=False)
    begins = rows.column("begins").to_numpy(zero_copy_only=False)
    lengths = own_counts + begins + ends
    starts = rows.column("window_start").to_numpy().astype(np.int64)
    window = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    token_counts = np.add.reduceat(lengths, bounds[:-1])
    _check_abutting(rows, starts, lengths, bounds, sequence)

    input_ids = np.full((len(bounds) - 1) * size, facts.padding_id, dtype=np.int32)
    if facts.beginning_of_document_id is not None:
        input_ids[(window * size + starts)[begins]] = facts.beginning_of_document_id
    targets = window * size + starts + begins
    copy_ids(addresses, own_counts, facts.id_type.itemsize, input_ids, targets)
    input_ids[(targets + own_counts)[ends]] = facts.end_of_document_id

    segments = pa.StructArray.from_arrays(
        [
            rows.column("doc_id").cast(pa.string()),
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


def _with_cell(
    windows: pa.RecordBatch, pieces: pa.RecordBatch, bounds: Int64Array, cells: Sequence[str]
) -> pa.RecordBatch:
    """Append the column `cell`; raise a TableMismatchError if a window has documents of two cells."""
    numbers = pieces.column("cell").to_numpy()
    of_windows = numbers[bounds[:-1]]
    wrong = np.flatnonzero(numbers != np.repeat(of_windows, np.diff(bounds)))
    if wrong.size:
        row = int(wrong[0])
        raise TableMismatchError(
            f"packed: document {pieces.column('doc_id')[row]} of cell {cells[numbers[row]]} shares a window with others"
        )
    return windows.append_column(CELL_COLUMN, pa.array(cells, pa.string()).take(pa.array(of_windows)))


def _check_abutting(
    rows: pa.RecordBatch,
    starts: Int64Array,
    lengths: Int64Array,
    bounds: Int64Array,
    sequence: Int64Array,
) -> None:
    """Raise a TableMismatchError if the parts of a sequence leave a gap, overlap, or exceed it together."""
    expected = _stops_before(starts + lengths, bounds[:-1])
    wrong = np.flatnonzero(~_fills(starts, starts + lengths, expected, sequence))
    if wrong.size:
        row = int(wrong[0])
        raise TableMismatchError(
            f"packed: document {rows.column('doc_id')[row]} lies at {starts[row]} of its window, wanted {expected[row]}"
            "; a token_count in tokens is not the length of its input_ids: materialize tokens again"
        )


def has_exact_length(rows: pa.RecordBatch, window_tokens: int) -> BoolArray:
    """(N,) whether each row passes the check `exact_length` of packed tables."""
    names = [name for name in ("input_ids", TRAINABLE, MASK_RULE) if name in rows.schema.names]
    are_exact = [pc.list_value_length(rows.column(name)).to_numpy() == window_tokens for name in names]
    is_exact: BoolArray = np.all(are_exact, axis=0)
    return is_exact


def is_filled(rows: pa.RecordBatch, window_tokens: int) -> BoolArray:
    """(N,) whether each row passes the check `filled_window`."""
    counts = rows.column("token_count").to_numpy()
    segments = pc.list_value_length(rows.column("segments")).to_numpy()
    is_full: BoolArray = (counts >= 1) & (counts <= window_tokens) & (segments >= 1)
    return is_full


def is_filled_or_empty(rows: pa.RecordBatch, window_tokens: int) -> BoolArray:
    """(N,) the same after an excision, which may leave a window without tokens and segments."""
    counts = rows.column("token_count").to_numpy()
    segments = pc.list_value_length(rows.column("segments")).to_numpy()
    is_empty: BoolArray = (counts == 0) & (segments == 0)
    return is_filled(rows, window_tokens) | is_empty


def segments_fill(rows: pa.RecordBatch, window_tokens: int) -> BoolArray:
    """(N,) whether each row passes the check `segments_fill_the_window`."""
    lists = rows.column("segments")
    segments, sizes = lists.flatten(), pc.list_value_length(lists).to_numpy().astype(np.int64)
    counts, starts = (segments.field(name).to_numpy().astype(np.int64) for name in ("token_count", "window_start"))
    ends = np.cumsum(sizes)
    before = _stops_before(starts + counts, (ends - sizes)[sizes > 0])
    right = _fills(starts, starts + counts, before, np.repeat(sequences_of(rows, window_tokens), sizes))
    sums, wrong = (np.concatenate([[0], np.cumsum(values)]) for values in (counts, ~right))
    are_filled = wrong[ends] == wrong[ends - sizes]
    is_whole: BoolArray = are_filled & (sums[ends] - sums[ends - sizes] == rows.column("token_count").to_numpy())
    return is_whole


def sequences_of(rows: pa.RecordBatch, window_tokens: int) -> Int64Array:
    """(N,) length of the sequences of each window: the length class of its cell, else L."""
    if CELL_COLUMN not in rows.schema.names:
        return np.full(rows.num_rows, window_tokens)
    cells = rows.column(CELL_COLUMN).dictionary_encode()
    lengths = [sequence_tokens(cell, window_tokens) for cell in cells.dictionary.to_pylist()]
    sequences: Int64Array = np.array(lengths, np.int64)[cells.indices.to_numpy()]
    return sequences


def _stops_before(stops: Int64Array, firsts: Int64Array) -> Int64Array:
    """(S,) where the segment before each one stops, 0 for the first of a window."""
    before = np.zeros_like(stops)
    before[1:] = stops[:-1]
    before[firsts] = 0
    return before


def _fills(starts: Int64Array, stops: Int64Array, before: Int64Array, sequence: Int64Array) -> BoolArray:
    """(S,) whether segments begin where the one before stops, or a later sequence does, and stop in that sequence."""
    begins = (starts == before) | ((starts > before) & (starts % sequence == 0))
    fills: BoolArray = begins & (starts // sequence == np.maximum(stops - 1, starts) // sequence)
    return fills
