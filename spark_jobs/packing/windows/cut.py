"""Read the token ids of placed pieces from the data files of `tokens`; Arrow in, Arrow out.

The placements come sorted by data file and row of their document, so every row group is read once:

    data_row  document_start  own_tokens        doc_id and input_ids of row 3        ids
           3               0           4   ->   x  [5 6 7 8 9]                      x  05 00 06 00 07 00 08 00
           3               4           1                                            x  09 00

Ids leave as bytes, little-endian, 2 an id where the vocabulary allows it and else 4: Spark moves bytes whole, but lists
element by element. Memory: one row group of ids, and one output batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.arrays import Int64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.files.side_reads import SideReads
from spark_jobs.packing.windows.assemble import CELL_PARTS_SCHEMA, PARTS_SCHEMA
from spark_jobs.packing.windows.masks import masked_documents
from spark_jobs.packing.windows.token_digest import document_sums
from spark_jobs.packing.windows.window_facts import WindowForm

_BATCH_TOKENS = 1 << 20


def cut_pieces(placements: Iterable[pa.RecordBatch], reads: SideReads, facts: WindowForm) -> Iterator[pa.RecordBatch]:
    """Read the ids of pieces of documents.

    Args:
        placements: rows (data_file, data_row, ordinal, window_start, document_start, own_tokens, begins, ends).
        reads: reads `doc_id` and `input_ids` from the data files, the masks too where windows have them.
        facts: facts of the packed table.

    Yields:
        Batches of `CELL_PARTS_SCHEMA` (of `PARTS_SCHEMA` where pieces have no cell), one row per piece, of at most 1 Mi
        tokens or one piece.

    Raises:
        TableMismatchError: a document has fewer ids than placed, or has an id outside the vocabulary.
    """
    from spark_jobs.packing.windows.token_loops import copy_slices

    for rows, group, indices in reads.groups(placements):
        of_rows, lists = group.column(0), group.column(1)
        counts, ends_there = rows.column("own_tokens").to_numpy().astype(np.int64), rows.column("ends")
        if facts.masked:  # end tokens are among the ids
            values, offsets = masked_documents(lists, group.column(2), facts)
            counts += ends_there.to_numpy(zero_copy_only=False)
            without_end = {"ends": rows.column("begins")}
        else:
            values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy().astype(np.int64)
            without_end = {}
        starts = offsets[indices] + rows.column("document_start").to_numpy()
        doc_ids = of_rows.take(pa.array(indices))
        _check_lengths(doc_ids, starts + counts, offsets[indices + 1])
        foreign = bool(len(values)) and (int(values.min()) < 0 or int(values.max()) >= facts.vocabulary_size)
        if foreign:  # somewhere in the row group, perhaps in a document that is not cut here
            _check_vocabulary(doc_ids, values, starts, counts, facts)
        balance, last = np.zeros(len(counts), np.int64), np.flatnonzero(ends_there)
        whole = indices[last]  # each document once: it has one last piece
        of_whole = doc_ids.take(pa.array(last))
        balance[last] = document_sums(of_whole, values, offsets[whole], np.diff(offsets)[whole], facts)
        columns = {**dict(zip(rows.schema.names, rows.columns, strict=True)), "doc_id": doc_ids, "balance": balance}
        columns |= without_end
        ends = np.cumsum(counts)
        first = 0
        while first < len(counts):
            done = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(ends, done + _BATCH_TOKENS, side="right")))
            part = slice(first, end)
            part_counts = counts[part]
            ids = np.empty(int(part_counts.sum()), dtype=facts.id_type)
            copy_slices(values, starts[part], part_counts, ids, np.cumsum(part_counts) - part_counts)
            yield _parts({name: column[first:end] for name, column in columns.items()}, ids, part_counts)
            first = end


def _parts(columns: dict[str, Any], ids: npt.NDArray[np.unsignedinteger], counts: Int64Array) -> pa.RecordBatch:
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts * ids.itemsize, out=offsets[1:])
    content = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(ids)])
    columns = columns | {"ids": content}
    schema = CELL_PARTS_SCHEMA if "cell" in columns else PARTS_SCHEMA
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _check_lengths(doc_ids: pa.Array, wanted: Int64Array, lengths: Int64Array) -> None:
    """Raise a TableMismatchError if a piece goes beyond the end of its document."""
    wrong = np.flatnonzero(wanted > lengths)
    if wrong.size:
        raise TableMismatchError(
            f"packed: document {doc_ids[int(wrong[0])]} has fewer ids than its token_count in tokens "
            "says: materialize tokens again"
        )


def _check_vocabulary(
    doc_ids: pa.Array, values: npt.NDArray[np.int32], starts: Int64Array, counts: Int64Array, facts: WindowForm
) -> None:
    """Raise a TableMismatchError if a piece has an id that the tokenizer does not have."""
    from spark_jobs.packing.windows.token_loops import copy_slices

    ids = np.empty(int(counts.sum()), dtype=values.dtype)
    copy_slices(values, starts, counts, ids, np.cumsum(counts) - counts)
    foreign = np.flatnonzero((ids < 0) | (ids >= facts.vocabulary_size))
    if foreign.size:
        row = int(np.searchsorted(np.cumsum(counts), foreign[0], side="right"))
        raise TableMismatchError(
            f"packed: document {doc_ids[row]} has token id {ids[foreign[0]] // facts.codes}, the vocabulary ends at "
            f"{facts.vocabulary_size // facts.codes - 1}; materialize tokens with this table's tokenizer"
        )
