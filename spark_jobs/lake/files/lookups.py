"""Look up a few rows of a table by PyIceberg alone, so that commands answer without starting Spark.

Conditions are pushed down to partitions, files and row groups; only the columns asked for are read. One value of a wide
column, such as the text of a document, is read differently: its row is found by the narrow column `doc_id`, and then
the wide column is decoded up to that row, in the one row group that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable

from spark_jobs.lake.session.catalogue import load_table

_BATCH_ROWS = 64  # values of the wide column that are decoded at once on the way to the wanted one
_SCAN_ROWS = 1 << 16
_BUFFER_BYTES = 1 << 20
EVERYTHING = AlwaysTrue()


def read_columns(
    catalogue: Catalog, identifier: str, columns: Sequence[str], condition: BooleanExpression = EVERYTHING
) -> pa.Table | None:
    """Some columns of the rows that meet a condition; None where there is no such table, or nothing in it.

    Args:
        catalogue: the lake's.
        identifier: `namespace.table`.
        columns: names, with dots for parts of structs: `segments.element.doc_id`; those that it lacks are left out.
        condition: PyIceberg's expression over columns of the table.
    """
    table = load_table(catalogue, identifier)
    if table is None or table.current_snapshot() is None:
        return None
    there = {field.name for field in table.schema().fields}
    chosen = tuple(column for column in columns if column.split(".")[0] in there)
    return table.scan(condition, selected_fields=chosen).to_arrow()


def read_rows(
    catalogue: Catalog, identifier: str, columns: Sequence[str], condition: BooleanExpression
) -> list[dict[str, Any]]:
    """As `read_columns`, each row a dictionary; empty where there is no such table."""
    found = read_columns(catalogue, identifier, columns, condition)
    return [] if found is None else found.to_pylist()


def first_rows(
    table: IcebergTable, columns: Sequence[str], count: int, condition: BooleanExpression = EVERYTHING
) -> pa.Table:
    """Some columns of at most so many rows that meet a condition, whichever come first; the rest is not read.

    PyIceberg's own `limit` decodes all files that may hold such rows before it cuts them off.
    """
    scan = table.scan(condition, selected_fields=tuple(columns), limit=count)
    schema = schema_to_pyarrow(table.schema())
    tasks = list(scan.plan_files())
    if any(task.delete_files for task in tasks):  # then rows of the files may not be rows of the table
        return scan.to_arrow().select(list(columns))
    bound = bind(table.schema(), condition, case_sensitive=True)
    holds = expression_to_pyarrow(bound)
    asked = {table.schema().find_column_name(number) for number in extract_field_ids(bound)}
    found: list[pa.Table] = []
    missing = count
    for task in tasks:
        with table.io.new_input(task.file.file_path).open() as stream:
            file = pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
            there = [name for name in file.schema_arrow.names if name in asked.union(columns)]
            for batch in file.iter_batches(min(missing, _SCAN_ROWS), columns=there):
                rows = pa.Table.from_batches([batch])
                for name in set(columns).union(asked).difference(there):  # added to the table after the file
                    rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
                found.append(rows.filter(holds).slice(0, missing).select(list(columns)))
                missing -= found[-1].num_rows
                if missing <= 0:
                    return pa.concat_tables(found, promote_options="permissive")
    empty = schema.empty_table().select(list(columns))
    return pa.concat_tables(found, promote_options="permissive") if found else empty


def read_wide_value(
    catalogue: Catalog, identifier: str, column: str, doc_id: str, narrow: BooleanExpression = EVERYTHING
) -> Any:
    """One value of a wide column, without reading the column; None where the document has no row.

    Args:
        catalogue: the lake's.
        identifier: a table with the column `doc_id`.
        column: the wide one, e.g. `content`.
        doc_id: identity of the document.
        narrow: a further condition that the row meets, best on its partition.
    """
    table = load_table(catalogue, identifier)
    if table is None or table.current_snapshot() is None:
        return None
    condition = And(narrow, EqualTo("doc_id", doc_id))
    scan = table.scan(condition, selected_fields=(column,))
    tasks = list(scan.plan_files())
    if any(task.delete_files for task in tasks):  # then rows of the files may not be rows of the table
        rows = scan.to_arrow().column(column)
        return rows[0].as_py() if len(rows) else None
    for task in tasks:
        found = _value_in(table, task.file.file_path, column, doc_id)
        if found is not None:
            return found
    return None


def _value_in(table: IcebergTable, path: str, column: str, doc_id: str) -> Any:
    """The value in one data file; None where the document is not in it."""
    with table.io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            ids = file.read_row_group(group, columns=["doc_id"]).column("doc_id")
            index = pc.index(ids, pa.scalar(doc_id, ids.type)).as_py()
            if index < 0:
                continue
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[column]):
                if index < len(batch):
                    return batch.column(0)[index].as_py()
                index -= len(batch)
    return None
