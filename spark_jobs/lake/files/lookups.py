"""Look up a few rows of a table by PyIceberg alone, so that commands answer without starting Spark.

Conditions are pushed down to partitions, files and row groups; only the columns asked for are read. Single values of a
wide column, such as texts, are read by `wide_values`.
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
from spark_jobs.lake.files.scans import rows_that_meet, scan_of

_SCAN_ROWS = 1 << 16
BUFFER_BYTES = 1 << 20
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
            file = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
            there = [name for name in file.schema_arrow.names if name in columns]
            yield from file.iter_batches(min(count, _SCAN_ROWS), columns=there, use_threads=count > _SCAN_ROWS)
