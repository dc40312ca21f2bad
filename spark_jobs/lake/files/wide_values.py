"""Single values of a wide column, such as the text of a document, without reading the column.

The row is found by the narrow column `doc_id`, or its place in a data file is known. Then the wide column is decoded up
to that row, in its row group alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, In
from pyiceberg.table import Table as IcebergTable

from headrace.tables.catalogue import load_table
from spark_jobs.arrays import Int64Array
from spark_jobs.lake.files.lookups import BUFFER_BYTES, EVERYTHING
from spark_jobs.lake.files.scans import scan_of

_BATCH_ROWS = 64  # values of the wide column that are decoded at once on the way to the wanted one
_KEY = "doc_id"


def placed_batches(
    table: IcebergTable, snapshot_id: int | None, columns: Sequence[str], rows: int, skip: int = 0
) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """All rows in the order of their files, with the file and the row in it where each batch begins.

    Args:
        table: with the rows.
        snapshot_id: of it; None for the newest.
        columns: names.
        rows: most of a batch; wide values are decoded in batches.
        skip: rows left out at the beginning.

    Yields:
        The file, empty where rows are deleted in it by other files; the row; the batch.
    """
    scan = scan_of(table, columns=columns, snapshot_id=snapshot_id)
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    if any(task.delete_files for task in tasks):  # then rows of the files may not be rows of the table
        for batch in scan.to_arrow_batch_reader():
            if len(batch) > skip:
                yield "", 0, batch.slice(skip).select(list(columns))
            skip = max(0, skip - len(batch))
        return
    for task in tasks:
        if task.file.record_count <= skip:
            skip -= task.file.record_count
            continue
        with table.io.new_input(task.file.file_path).open() as stream:
            file = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
            first = 0
            for group in range(file.num_row_groups):
                group_rows = file.metadata.row_group(group).num_rows
                start, first = first, first + group_rows
                if group_rows <= skip:
                    skip -= group_rows
                    continue
                for batch in file.iter_batches(rows, row_groups=[group], columns=list(columns)):
                    if len(batch) > skip:
                        yield task.file.file_path, start + skip, batch.slice(skip)
                    start, skip = start + len(batch), max(0, skip - len(batch))


def read_placed_values(table: IcebergTable, path: str, column: str, places: Collection[int]) -> dict[int, Any]:
    """Values of a wide column of one data file by their rows in it, decoding only their row groups."""
    return dict(placed_values(table, path, column, places))


def placed_values(table: IcebergTable, path: str, column: str, places: Collection[int]) -> Iterator[tuple[int, Any]]:
    """As `read_placed_values`, one value after the other, in the order of the rows."""
    wanted, first = np.asarray(sorted(places), np.int64), 0
    with table.io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            group_rows = file.metadata.row_group(group).num_rows
            inside = wanted[(wanted >= first) & (wanted < first + group_rows)] - first
            for row, value, _ in _decoded(file, group, column, inside):
                yield first + row, value
            first += group_rows


def _decoded(file: pq.ParquetFile, group: int, column: str, rows: Int64Array) -> Iterator[tuple[int, Any, int]]:
    """Values of ascending rows of a row group, and about how many bytes were decoded up to each."""
    start = decoded = 0
    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[column]) if len(rows) else ():
        decoded += batch.nbytes
        for row in rows[(rows >= start) & (rows < start + len(batch))].tolist():
            yield row, batch.column(0)[row - start].as_py(), decoded
        start += len(batch)
        if start > rows[-1]:
            break


def read_wide_value(
    catalogue: Catalog, identifier: str, column: str, doc_id: str, narrow: BooleanExpression = EVERYTHING
) -> Any:
    """One value of a wide column, without reading the column; None where the document has no row.

    Args:
        catalogue: the lake's.
        identifier: a table with the column `doc_id`.
        column: the wide one, e.g. `content`.
        doc_id: identity of the document.
        narrow: a further condition on the row, best on its partition.
    """
    return read_wide_values(catalogue, identifier, column, {doc_id}, narrow).get(doc_id)


def read_wide_values(
    catalogue: Catalog,
    identifier: str,
    column: str,
    doc_ids: Collection[str],
    narrow: BooleanExpression = EVERYTHING,
    most_bytes: int | None = None,
) -> dict[str, Any]:
    """Values of a wide column by doc_id, decoding only their row groups; of documents without a row none.

    Args:
        catalogue: the lake's.
        identifier: a table with the column `doc_id`.
        column: the wide one, e.g. `content`.
        doc_ids: identities of the documents.
        narrow: a further condition on the rows, best on their partition.
        most_bytes: of the column to decode; what lies behind is left out. None for all.
    """
    table = load_table(catalogue, identifier)
    if table is None or table.current_snapshot() is None:
        return {}
    scan = scan_of(table, And(narrow, In(_KEY, doc_ids)), (_KEY, column))
    tasks = list(scan.plan_files())
    if any(task.delete_files for task in tasks):  # then rows of the files may not be rows of the table
        return {row[_KEY]: row[column] for row in scan.to_arrow().to_pylist()}
    by_id: dict[str, Any] = {}
    left = most_bytes
    for path in sorted(task.file.file_path for task in tasks):
        if len(by_id) == len(doc_ids) or (left is not None and left <= 0):
            break
        values, decoded = _values_in(table, path, column, doc_ids, left)
        by_id |= values
        left = left - decoded if left is not None else None
    return by_id


def _values_in(
    table: IcebergTable, path: str, column: str, doc_ids: Collection[str], most_bytes: int | None
) -> tuple[dict[str, Any], int]:
    """The values in one data file, and about how many bytes of the column were decoded for them."""
    by_id: dict[str, Any] = {}
    decoded = 0
    with table.io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            if most_bytes is not None and decoded >= most_bytes:
                break
            ids = file.read_row_group(group, columns=[_KEY]).column(_KEY)
            wanted = np.flatnonzero(pc.is_in(ids, pa.array(sorted(doc_ids), ids.type)).to_numpy())
            if not len(wanted):
                continue
            before = decoded
            for row, value, so_far in _decoded(file, group, column, wanted):
                by_id[ids[row].as_py()], decoded = value, before + so_far
    return by_id, decoded
