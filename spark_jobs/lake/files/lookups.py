"""Look up a few rows of a table by PyIceberg alone, so that commands answer without starting Spark.

Conditions are pushed down to partitions, files and row groups; only the columns asked for are read. One value of a wide
column, such as the text of a document, is read differently: its row is found by the narrow column `doc_id`, and then
the wide column is decoded up to that row, in its row group alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, In, LessThan
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import BooleanType, NestedField, PrimitiveType

from headrace.tables.catalogue import load_table
from spark_jobs.arrays import Int64Array
from spark_jobs.lake.files.scans import rows_that_meet, scan_of

_BATCH_ROWS = 64  # values of the wide column that are decoded at once on the way to the wanted one
_SCAN_ROWS = 1 << 16
_BUFFER_BYTES = 1 << 20
EVERYTHING = AlwaysTrue()
PART_ROWS = 1 << 20  # 100 to 200 MB of narrow columns
_KEY = "doc_id"


def read_columns(
    catalogue: Catalog, identifier: str, columns: Sequence[str], condition: BooleanExpression = EVERYTHING
) -> pa.Table | None:
    """Some columns of the rows under a condition; None where there is no such table, or nothing in it.

    Args:
        catalogue: the lake's.
        identifier: `namespace.table`.
        columns: names, with dots for parts of structs: `segments.element.doc_id`; missing ones are left out.
        condition: PyIceberg's expression over columns of the table.
    """
    table = load_table(catalogue, identifier)
    if table is None or table.current_snapshot() is None:
        return None
    there = {field.name for field in table.schema().fields}
    chosen = [column for column in columns if column.split(".")[0] in there]
    return scan_of(table, condition, chosen).to_arrow()


def read_batches(
    catalogue: Catalog, identifier: str, columns: Sequence[str], condition: BooleanExpression = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    """As `read_columns`, a batch at a time, so that a table of any size fits; nothing where there is no such table."""
    table = load_table(catalogue, identifier)
    if table is not None and table.current_snapshot() is not None:
        yield from scan_of(table, condition, columns).to_arrow_batch_reader()


def read_rows(
    catalogue: Catalog, identifier: str, columns: Sequence[str], condition: BooleanExpression
) -> list[dict[str, Any]]:
    """As `read_columns`, each row a dictionary; empty where there is no such table."""
    rows = read_columns(catalogue, identifier, columns, condition)
    return [] if rows is None else rows.to_pylist()


def parts(
    catalogue: Catalog,
    identifier: str,
    rows: int = PART_ROWS,
    condition: BooleanExpression = EVERYTHING,
    snapshot_id: int | None = None,
) -> Iterator[BooleanExpression]:
    """Conditions to cut a table of documents into parts, so that what is read of one fits into memory.

    A part is some increments, else some shards of one, else the documents of one shard with a doc_id in a range: ids
    are hashes, so ranges of one width hold about as many. The parts of a table cut others of the same documents too,
    if they lie in increments and shards alike. A small table is one part.

    Args:
        catalogue: the lake's.
        identifier: the table.
        rows: about how many rows a part has at most.
        condition: of the rows to cut.
        snapshot_id: of the table; None for the newest.
    """
    table = load_table(catalogue, identifier)
    counts: dict[int, Counter[int]] = {}
    places = [field.name for field in table.spec().fields] if table is not None else []
    for task in scan_of(table, condition, snapshot_id=snapshot_id).plan_files() if table is not None else ():
        place = {name: task.file.partition[at] for at, name in enumerate(places)}
        counts.setdefault(place.get("increment", 0), Counter())[place.get("shard", 0)] += task.file.record_count
    sizes = {increment: counts[increment].total() for increment in sorted(counts)}
    if sum(sizes.values()) <= rows:
        yield condition
        return
    for increments in _together(sizes, rows):
        chosen = And(condition, In("increment", increments)) if "increment" in places else condition
        if len(increments) > 1 or sizes[increments[0]] <= rows:
            yield chosen
            continue
        shards = dict(sorted(counts[increments[0]].items()))
        for some in _together(shards, rows):
            within = And(chosen, In("shard", some)) if "shard" in places else chosen
            pieces = -(-sum(shards[shard] for shard in some) // rows)
            cuts = ["", *(f"{0x10000 * number // pieces:04x}" for number in range(1, pieces)), "g"]
            for start, end in itertools.pairwise(cuts):
                yield And(within, GreaterThanOrEqual(_KEY, start), LessThan(_KEY, end)) if pieces > 1 else within


def _together(sizes: Mapping[int, int], most: int) -> Iterator[list[int]]:
    """Group consecutive keys to at most `most` rows; a larger one is alone: {0: 3, 1: 4, 2: 9} -> [0, 1], [2] for 8."""
    group: list[int] = []
    group_rows = 0
    for number, size in sizes.items():
        if group and group_rows + size > most:
            yield group
            group, group_rows = [], 0
        group, group_rows = [*group, number], group_rows + size
    yield group


@dataclass(frozen=True)
class ElementCondition:
    """A condition that a row meets where one element of a list does; PyIceberg has none.

    Attributes:
        column: the list.
        path: fields leading from an element to the value.
        kind: type of the value.
        predicate: about a column `value`.
    """

    column: str
    path: tuple[str, ...]
    kind: PrimitiveType
    predicate: BooleanExpression

    def holds(self, rows: pa.Table) -> pa.Array:
        """(N,) whether each of N rows meets it."""
        lists = rows[self.column].combine_chunks()
        values = pc.list_flatten(lists)
        for name in self.path:
            values = pc.struct_field(values, name)
        bound = bind(Schema(NestedField(1, "value", self.kind)), self.predicate, case_sensitive=True)
        elements = pa.table({"row": pc.list_parent_indices(lists), "value": values})
        met = np.zeros(len(lists), np.bool_)
        met[elements.filter(expression_to_pyarrow(bound))["row"].to_numpy()] = True
        return pa.array(met)


@dataclass(frozen=True)
class TextCondition:
    """A regular expression that a text, or one element of a list of texts, has somewhere; PyIceberg has none.

    Attributes:
        column: the text, the list, or a struct.
        path: fields leading from there to the text.
        pattern: expression of RE2.
        ignore_case: whether upper and lower case are one.
    """

    column: str
    path: tuple[str, ...]
    pattern: str
    ignore_case: bool

    def holds(self, rows: pa.Table) -> pa.Array:
        """(N,) whether each of N rows meets it."""
        whole = rows[self.column].combine_chunks()
        is_list = pa.types.is_list(whole.type) or pa.types.is_large_list(whole.type)
        values = pc.list_flatten(whole) if is_list else whole
        for name in self.path:
            values = pc.struct_field(values, name)
        matched = pc.match_substring_regex(values, self.pattern, ignore_case=self.ignore_case).fill_null(False)
        if not is_list:
            return matched
        met = np.zeros(len(whole), np.bool_)
        met[pc.list_parent_indices(whole).filter(matched).to_numpy()] = True
        return pa.array(met)


def with_elements(schema: Schema, elements: Iterable[str]) -> Schema:
    """A schema with a boolean column for each condition on elements."""
    last = schema.highest_field_id
    return Schema(
        *schema.fields, *(NestedField(last + at, name, BooleanType()) for at, name in enumerate(elements, start=1))
    )


def first_rows(
    table: IcebergTable,
    columns: Sequence[str],
    count: int,
    condition: BooleanExpression = EVERYTHING,
    elements: Mapping[str, ElementCondition | TextCondition] = MappingProxyType({}),
) -> pa.Table:
    """Some columns of at most so many rows under a condition, whichever come first; the rest is not read.

    PyIceberg's own `limit` decodes every file with a chance of such rows before it cuts them off.

    Args:
        table: with the rows.
        columns: names.
        count: most rows.
        condition: over columns of the table and `elements`.
        elements: conditions on elements of lists and on texts, by the name of each in `condition`.
    """
    parts = list(first_parts(table, columns, count, condition, elements))
    empty = schema_to_pyarrow(table.schema()).empty_table().select(list(columns))
    return pa.concat_tables(parts, promote_options="permissive") if parts else empty


def first_parts(
    table: IcebergTable,
    columns: Sequence[str],
    count: int,
    condition: BooleanExpression = EVERYTHING,
    elements: Mapping[str, ElementCondition | TextCondition] = MappingProxyType({}),
) -> Iterator[pa.Table]:
    """As `first_rows`, some thousand rows at a time, so that a table need not be held."""
    schema, whole = schema_to_pyarrow(table.schema()), with_elements(table.schema(), elements)
    bound = bind(whole, condition, case_sensitive=True)
    holds = expression_to_pyarrow(bound)
    numbers = extract_field_ids(bound)
    named = {str(whole.find_column_name(number)).split(".")[0] for number in numbers} - elements.keys()
    wanted = named.union(columns, (element.column for element in elements.values()))
    missing = count
    for batch in scan_batches(table, wanted, EVERYTHING if elements else condition, count):
        rows = pa.Table.from_batches([batch])
        for name in wanted.difference(rows.column_names):  # added to the table after the file
            rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
        for name, element in elements.items():
            rows = rows.append_column(name, element.holds(rows))
        part = rows_that_meet(rows, holds).slice(0, missing).select(list(columns))
        yield part
        missing -= part.num_rows
        if missing <= 0:
            break


def scan_batches(
    table: IcebergTable, columns: Collection[str], condition: BooleanExpression, count: int
) -> Iterator[pa.RecordBatch]:
    """Rows of the files with possible hits of a condition; only as many files are opened as are asked for."""
    scan = scan_of(table, condition, columns)
    tasks = list(scan.plan_files())
    if any(task.delete_files for task in tasks):  # then rows of the files may not be rows of the table
        yield from scan.to_arrow_batch_reader()
        return
    for task in tasks:
        with table.io.new_input(task.file.file_path).open() as stream:
            file = pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
            there = [name for name in file.schema_arrow.names if name in columns]
            yield from file.iter_batches(min(count, _SCAN_ROWS), columns=there, use_threads=count > _SCAN_ROWS)


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
            file = pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
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
        file = pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
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
        file = pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
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
